# SPDX-License-Identifier: MIT
# Draws resident memory over virtual time, one line a policy. bench/run calls it with the directory in which
# the bench left memory.dat and memory.vars: gnuplot -c memory.gp DIRECTORY

load ARG1.'/memory.vars'
data = ARG1.'/memory.dat'
set terminal pngcairo size 1200,600 font 'sans,12'
set output plot_path

set title "Resident K/V memory: ".plot_title noenhanced
set xlabel 'virtual time (minutes)'
set ylabel 'resident memory (MiB)'
set xrange [0:*] noextend
set yrange [0:*]
set offsets 0, 0, graph 0.05, 0
set grid ytics lc rgb '#dddddd'
set border 3
set tics nomirror out
set key tmargin center horizontal samplen 3 width 1

label(name, mib) = sprintf('%s (average %.0f MiB)', name, mib)
plot data using 1:2 with lines lw 2 lc rgb '#999999' title label('eager', eager_mib), \
     '' using 1:4 with lines lw 1.5 lc rgb '#d95f02' title label('seed', seed_mib), \
     '' using 1:3 with lines lw 2 lc rgb '#7570b3' title label('demand', demand_mib), \
     '' using 1:5 with lines lw 2.5 lc rgb '#1b9e77' title label('kvlazy', kvlazy_mib), \
     '' using 1:6 with lines lw 1.5 dt '-' lc rgb '#08306b' title label('kvlazy+store', store_mib)

set print '-'
print plot_path
