/* SPDX-License-Identifier: MIT */
/* See tree_support.h. */
#include "tree_support.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int n_found;

static int count_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)path, (void)st, (void)at;
    n_found += kind != FTW_D;
    return 0;
}

int n_files_below(const char *path)
{
    n_found = 0;
    assert_int_equal(nftw(path, count_one, 16, FTW_PHYS), 0);
    return n_found;
}

static char *make_below(const char *dir)
{
    char path[64];

    snprintf(path, sizeof path, "%s/kvlazy-store-XXXXXX", dir);
    return mkdtemp(path) ? strdup(path) : NULL;
}

char *make_tree(bool on_disk)
{
    char *path = on_disk ? NULL : make_below("/dev/shm");

    if (!path)
        path = make_below(".");
    assert_non_null(path);
    return path;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

void remove_tree(char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(path);
}

int child(int (*f)(void *), void *arg)
{
    fflush(NULL);
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* not to outlive a test that fails */
        _exit(f(arg));
    }
    return pid;
}

int end_of_child(int pid)
{
    int status = -1;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}
