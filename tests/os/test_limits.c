/* SPDX-License-Identifier: MIT */
/*
 * What the machine has left as numbers alone, read from made-up trees of /proc and /sys in a directory of our own.
 */
#include "support.h"
#include "host/limits_linux.h"

#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define NO_LIMIT UINT64_MAX

/* ------------------------------------------------------------------------------------------- a tree */

static char root[64];

static void make_parents(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
}

__attribute__((format(printf, 2, 3))) static void file(const char *name, const char *format, ...)
{
    char path[512];
    va_list args;

    snprintf(path, sizeof path, "%s/%s", root, name);
    make_parents(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    assert_int_equal(fclose(f), 0);
}

static int remove_one(const char *path, const struct stat *stat, int kind, struct FTW *at)
{
    (void)stat, (void)kind, (void)at;
    return remove(path);
}

static int tree_setup(void **state)
{
    (void)state;
    strcpy(root, "/tmp/kvlazy-limits-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int tree_teardown(void **state)
{
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void available(uint64_t mib)
{
    file("proc/meminfo", "MemTotal: 99999999 kB\nMemFree:  1 kB\nMemAvailable:  %llu kB\nBuffers: 0 kB\n",
         (unsigned long long)mib * 1024);
}

static void group_v2(const char *dir, const char *max, const char *high, uint64_t current_mib, uint64_t cached_mib)
{
    char name[256];

    snprintf(name, sizeof name, "%s/memory.max", dir);
    file(name, "%s\n", max);
    snprintf(name, sizeof name, "%s/memory.high", dir);
    file(name, "%s\n", high);
    snprintf(name, sizeof name, "%s/memory.current", dir);
    file(name, "%llu\n", (unsigned long long)(current_mib * MIB));
    snprintf(name, sizeof name, "%s/memory.stat", dir);
    file(name,
         "anon 5\nfile 77777777777\nshmem 66666666666\ninactive_anon 3\ninactive_file %llu\nactive_file 0\n"
         "unevictable 55555555555\n",
         (unsigned long long)(cached_mib * MIB));
}

static void group_v1(const char *dir, const char *limit, uint64_t usage_mib, uint64_t cached_mib)
{
    char name[256];

    snprintf(name, sizeof name, "%s/memory.limit_in_bytes", dir);
    file(name, "%s\n", limit);
    snprintf(name, sizeof name, "%s/memory.usage_in_bytes", dir);
    file(name, "%llu\n", (unsigned long long)(usage_mib * MIB));
    snprintf(name, sizeof name, "%s/memory.stat", dir);
    file(name, "cache 1\ninactive_file 1\nactive_file 44444444444\ntotal_cache 2\ntotal_inactive_file %llu\n",
         (unsigned long long)(cached_mib * MIB));
}

/* Some of what is left is for page tables. */
#define left_is(mib) assert_int_equal(kvl_headroom_bytes(root), (mib)*MIB - (mib)*MIB / 256)
#define nothing_known() assert_int_equal(kvl_headroom_bytes(root), NO_LIMIT)

/* ------------------------------------------------------------------------------------------- numbers */

static void an_empty_tree_is_no_limit(void **state)
{
    (void)state;
    nothing_known();
    assert_int_equal(kvl_headroom_bytes("/nowhere/at/all"), NO_LIMIT);
    file("proc/self/cgroup", "0::/a\n");
    nothing_known();
}

static void the_machine_alone(void **state)
{
    (void)state;
    available(300);
    left_is(300);
    file("proc/meminfo", "MemTotal: 5 kB\nMemFree: 5 kB\n"); /* before Linux 3.14 */
    nothing_known();
}

/* Pages of files count as left, the code that runs among them: a cache does not take the last of it. */
static void something_is_kept(void **state)
{
    (void)state;
    assert_int_equal(kvlazy_mem_host()->headroom(NULL, root), NO_LIMIT);
    available(64);
    uint64_t left = kvl_headroom_bytes(root);
    assert_int_equal(kvlazy_mem_host()->headroom(NULL, root), left - 2 * MIB);
    available(1);
    left = kvl_headroom_bytes(root);
    assert_int_equal(kvlazy_mem_host()->headroom(NULL, root), left - left / 16 - MIB / 8);
    available(0);
    assert_int_equal(kvlazy_mem_host()->headroom(NULL, root), 0);
}

static void version_2(void **state)
{
    (void)state;
    available(900);
    file("proc/self/cgroup", "0::/a/b\n");
    group_v2("sys/fs/cgroup/a/b", "268435456", "max", 200, 0); /* 256 MiB */
    left_is(56);
    group_v2("sys/fs/cgroup/a/b", "268435456", "max", 200, 30);
    left_is(86);
    group_v2("sys/fs/cgroup/a/b", "268435456", "230686720", 200, 0); /* slowed down from 220 MiB */
    left_is(20);
    group_v2("sys/fs/cgroup/a/b", "max", "230686720", 100, 0);
    left_is(120);
    group_v2("sys/fs/cgroup/a/b", "max", "max", 100, 0);
    left_is(900);
    group_v2("sys/fs/cgroup/a/b", "0", "max", 0, 0);
    left_is(0);
}

static void the_tightest_is_in_the_middle(void **state)
{
    (void)state;
    available(4000);
    file("proc/self/cgroup", "0::/a/b/c\n");
    group_v2("sys/fs/cgroup/a/b/c", "1073741824", "max", 100, 0);
    group_v2("sys/fs/cgroup/a/b", "536870912", "max", 500, 2);
    group_v2("sys/fs/cgroup/a", "2147483648", "max", 600, 0);
    left_is(14);
    group_v2("sys/fs/cgroup", "1048576", "max", 0, 0); /* of the mount too: a container's own group */
    left_is(1);
}

static void version_1(void **state)
{
    (void)state;
    available(900);
    file("proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory,cpuacct:/a/b\n1:memoryless:/c\n");
    group_v1("sys/fs/cgroup/memory/a/b", "268435456", 250, 10);
    left_is(16);
    group_v1("sys/fs/cgroup/memory/a", "104857600", 99, 0);
    left_is(1);
    group_v1("sys/fs/cgroup/memory/a", "9223372036854771712", 250, 0);
    left_is(16);
    group_v1("sys/fs/cgroup/memory/a", "104857600", 99, 0); /* does not count for those below */
    file("sys/fs/cgroup/memory/a/memory.use_hierarchy", "0\n");
    left_is(16);
}

static void both_versions(void **state)
{
    (void)state;
    available(900);
    file("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
                                "35 31 0:32 / /sys/fs/cgroup/memory rw shared:4 master:7 - cgroup cgroup rw,memory\n"
                                "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                                "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
    file("proc/self/cgroup", "4:memory:/a\n0::/u\n");
    group_v1("sys/fs/cgroup/memory/a", "268435456", 100, 0);
    left_is(156);
    group_v2("sys/fs/cgroup/unified/u", "115343360", "max", 100, 0);
    left_is(10);
    group_v2("sys/fs/cgroup/u", "104857600", "max", 100, 0); /* nobody mounted that */
    left_is(10);
}

static void the_mount_shows_part_of_the_tree(void **state)
{
    (void)state;
    file("proc/self/mountinfo", "35 31 0:32 /docker/ab /mnt/groups ro - cgroup2 cgroup2 rw\n");
    file("proc/self/cgroup", "0::/docker/ab/in\n");
    group_v2("mnt/groups/in", "268435456", "max", 200, 0);
    left_is(56);
    group_v2("mnt/groups", "104857600", "max", 80, 0);
    left_is(20);
    file("proc/self/cgroup", "0::/docker/abc/in\n"); /* elsewhere */
    group_v2("mnt/groups/in", "10485760", "max", 10, 0);
    group_v2("mnt/groups/c/in", "10485760", "max", 10, 0);
    left_is(20);
    file("proc/self/cgroup", "0::/../ab\n"); /* outside the name space */
    left_is(20);
    file("proc/self/cgroup", "0::/docker/ab\n");
    left_is(20);
}

static void a_path_that_is_not_there(void **state)
{
    (void)state;
    file("proc/self/cgroup", "0::/host/path/nobody/sees\n");
    group_v2("sys/fs/cgroup", "104857600", "max", 80, 0);
    left_is(20);
    file("proc/self/cgroup", "0::/\n");
    left_is(20);
    file("proc/self/cgroup", "0::/gone (deleted)\n");
    left_is(20);
}

/* Naive: counts what was read twice as used, mapped weights above all; or all of the cache as free, tmpfs and what is
 * locked or dirty too. */
static void file_pages_go_before_anything_is_refused(void **state)
{
    (void)state;
    file("proc/self/cgroup", "0::/a\n");
    group_v2("sys/fs/cgroup/a", "536870912", "max", 500, 0);
    file("sys/fs/cgroup/a/memory.stat",
         "file 471859200\nshmem 52428800\nfile_mapped 471859200\nfile_dirty 10485760\nfile_writeback 5242880\n"
         "inactive_anon 52428800\nactive_anon 1\ninactive_file 104857600\nactive_file 209715200\n"
         "unevictable 104857600\nslab_reclaimable 99999999\n");
    left_is(12 + 300 - 15);
    file("sys/fs/cgroup/a/memory.stat", "inactive_file 5242880\nfile_dirty 10485760\nactive_file 0\n");
    left_is(12);
    file("proc/self/cgroup", "4:memory:/a\n");
    group_v1("sys/fs/cgroup/memory/a", "536870912", 500, 0);
    file("sys/fs/cgroup/memory/a/memory.stat",
         "inactive_file 1\nactive_file 2\ndirty 3\nwriteback 4\nunevictable 5\ntotal_shmem 52428800\n"
         "total_mapped_file 471859200\ntotal_dirty 5242880\ntotal_writeback 10485760\ntotal_inactive_anon 52428800\n"
         "total_inactive_file 209715200\ntotal_active_file 104857600\ntotal_unevictable 104857600\n");
    left_is(12 + 300 - 15);
    file("sys/fs/cgroup/memory/a/memory.stat",
         "total_inactive_file 18446744073709551615\ntotal_active_file 18446744073709551615\n");
    left_is(12); /* more than there can be is believed to be none */
}

static void more_is_used_than_allowed(void **state)
{
    (void)state;
    file("proc/self/cgroup", "0::/a\n");
    group_v2("sys/fs/cgroup/a", "104857600", "max", 180, 5);
    left_is(0);
    group_v2("sys/fs/cgroup/a", "104857600", "max", 50, 500); /* more is cached than used? */
    left_is(100);
}

static void enormous_numbers(void **state)
{
    (void)state;
    file("proc/self/cgroup", "0::/a\n4:memory:/a\n");
    group_v2("sys/fs/cgroup/a", "18446744073709551615", "18446744073709551616", 50, 0);
    nothing_known();
    group_v2("sys/fs/cgroup/a", "99999999999999999999999999999999999999999999999999999999999999999999999", "max", 50,
             0);
    nothing_known();
    group_v1("sys/fs/cgroup/memory/a", "18446744073709551615", 50, 0);
    nothing_known();
    file("proc/meminfo", "MemAvailable: 18446744073709551615 kB\n");
    nothing_known();
    file("proc/meminfo", "MemAvailable: 99999999999999999999 kB\n");
    nothing_known();
}

static void garbage(void **state)
{
    static const char *const texts[] = {"",         "\n",     "-1",     "-5\n",   "1x\n",
                                        "0x10\n",   "1 2\n",  "nan\n",  "12e3\n", "max1",
                                        "\xff\xfe", "1\n2\n", "maxi\n", "+7\n",   "10485760K\n"};

    (void)state;
    available(900);
    file("proc/self/cgroup", "0::/a\n");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        group_v2("sys/fs/cgroup/a", texts[i], texts[i], 5, 0);
        left_is(900);
        group_v2("sys/fs/cgroup/a", "104857600", "max", 0, 0);
        file("sys/fs/cgroup/a/memory.current", "%s", texts[i]);
        left_is(900);
        group_v2("sys/fs/cgroup/a", "104857600", "max", 80, 3);
        file("sys/fs/cgroup/a/memory.stat", "inactive_file %s", texts[i]);
        assert_in_range(kvl_headroom_bytes(root), 20 * MIB - 20 * MIB / 256, 21 * MIB);
        group_v2("sys/fs/cgroup/a", "max", "max", 0, 0);
        file("proc/self/mountinfo", "%s", texts[i]);
        file("proc/self/cgroup", "%s", texts[i]);
        left_is(900);
        file("proc/self/cgroup", "0::/a\n");
        remove("proc/self/mountinfo");
        file("proc/meminfo", "MemAvailable: %s", texts[i]);
        nothing_known();
        available(900);
    }
}

static void awkward_lines(void **state)
{
    char line[9000];

    (void)state;
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = 0;
    file("proc/meminfo", "%s\n\n:\nMemAvailable: 102400 kB", line); /* no end of line either */
    left_is(100);
    file("proc/self/mountinfo", "%s\n - \n1 2 3\n1 2 3 - cgroup2\n35 31 0:32 / /m rw - cgroup2 x rw\n", line);
    file("proc/self/cgroup", "%s\n:\n::\n0:\n0::\n0::relative\n0::/a\n", line);
    group_v2("m/a", "104857600", "max", 80, 0);
    left_is(20);
    memset(line, '/', sizeof line - 1);
    file("proc/self/cgroup", "0::%s\n", line);
    left_is(100);
    mkdir("memory.max", 0777);
    for (int i = 0; i < 2000; i++)
        memcpy(&line[2 * i], "/d", 2);
    line[4000] = 0;
    file("proc/self/cgroup", "0::%s\n", line); /* deeper than anybody looks, and nothing is there */
    group_v2("m", "104857600", "max", 90, 0);
    assert_in_range(kvl_headroom_bytes(root), 9 * MIB, 100 * MIB);
}

static void this_machine(void **state)
{
    (void)state;
    uint64_t left = kvl_headroom_bytes("/");

    print_message("this machine has %llu MiB left\n", (unsigned long long)(left / MIB));
    assert_true(left > 0);
    assert_int_equal(kvlazy_mem_host()->headroom(NULL, "/nowhere"), NO_LIMIT);
    assert_true(kvlazy_mem_host()->now_ns(NULL) > 0);
}

#define TREE_TEST(f) cmocka_unit_test_setup_teardown(f, tree_setup, tree_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TREE_TEST(an_empty_tree_is_no_limit),
        TREE_TEST(the_machine_alone),
        TREE_TEST(something_is_kept),
        TREE_TEST(version_2),
        TREE_TEST(the_tightest_is_in_the_middle),
        TREE_TEST(version_1),
        TREE_TEST(both_versions),
        TREE_TEST(the_mount_shows_part_of_the_tree),
        TREE_TEST(a_path_that_is_not_there),
        TREE_TEST(file_pages_go_before_anything_is_refused),
        TREE_TEST(more_is_used_than_allowed),
        TREE_TEST(enormous_numbers),
        TREE_TEST(garbage),
        TREE_TEST(awkward_lines),
        cmocka_unit_test(this_machine),
    };

    alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
