/* SPDX-License-Identifier: MIT */
/* Temporary directories, and child processes, for tests of what outlives a process. */
#ifndef TREE_SUPPORT_H
#define TREE_SUPPORT_H

#include "unit.h"

#include <stdbool.h>

int n_files_below(const char *path); /* that are no directories */

/* A new directory, below the working directory or, where there is such a place, in memory; remove_tree removes all
 * below it and frees the path. */
char *make_tree(bool on_disk);
void remove_tree(char *path);

/* A child process that runs `f` and ends with its answer. */
int child(int (*f)(void *), void *arg);
int end_of_child(int pid); /* its answer; 1000 and the signal if it was killed */

#endif
