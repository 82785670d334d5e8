/* SPDX-License-Identifier: MIT */
/*
 * wait_linux: see wait.h. An eventfd wakes, or a pipe where a sandbox knows no eventfd; poll(2) sleeps, and pressure
 * stall information (PSI, Linux 5.2) tells of pressure: that of this process's control group where it has one, else
 * that of the whole system.
 */
#include "host/wait.h"
#include "host/limits_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    DEAF_MS = 1000,
    STACK_BYTES = 1 << 19, /* the embedder's callbacks run on this stack too */
};

/* A stall of 150 ms in one second. Without privileges the window must be a multiple of two seconds (Linux 6.5). */
static const char *const triggers[] = {"some 150000 1000000", "some 300000 2000000"};

/* ------------------------------------------------------------------------------------------- open, close */

static int open_pressure(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (fd < 0)
        return -1;
    for (size_t i = 0; i < sizeof triggers / sizeof *triggers; i++)
        if (write(fd, triggers[i], strlen(triggers[i]) + 1) > 0)
            return fd;
    close(fd); /* the process may not, or the kernel was started without PSI */
    return -1;
}

/* Opens the file of this process's control group, else that of the system. */
static int find_pressure(const char *root)
{
    char dir[KVL_PATH_BYTES], path[KVL_PATH_BYTES + 32];
    int fd = -1;

    if (!*root)
        return -1;
    if (kvl_cgroup_dir(root, dir)) {
        snprintf(path, sizeof path, "%s/memory.pressure", dir);
        fd = open_pressure(path);
    }
    if (fd < 0) {
        snprintf(path, sizeof path, "%s/proc/pressure/memory", root);
        fd = open_pressure(path);
    }
    return fd;
}

int kvl_wait_open(kvl_wait *w, const char *root)
{
    int fd[2];

    fd[0] = fd[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd[0] < 0 && pipe2(fd, O_CLOEXEC | O_NONBLOCK) != 0)
        return KVLAZY_ENOMEM;
    *w = (kvl_wait){.wake_fd = fd[0], .ring_fd = fd[1], .pressure_fd = -1};
    w->pressure_fd = find_pressure(root);
    return KVLAZY_OK;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void kvl_wait_close(kvl_wait *w)
{
    if (w->ring_fd != w->wake_fd)
        close_fd(&w->ring_fd);
    close_fd(&w->wake_fd);
    close_fd(&w->pressure_fd);
}

/* ------------------------------------------------------------------------------------------- sleep, wake */

uint64_t kvl_wait_now_ms(void)
{
    struct timespec t = {0};

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

unsigned kvl_wait_sleep(kvl_wait *w, uint64_t until_ms)
{
    uint64_t now_ms = kvl_wait_now_ms(), count;
    bool is_deaf = w->pressure_fd < 0 || now_ms < w->deaf_ms;
    struct pollfd fd[2] = {{w->wake_fd, POLLIN, 0}, {is_deaf ? -1 : w->pressure_fd, POLLPRI, 0}};
    unsigned happened = 0;

    if (w->pressure_fd >= 0 && is_deaf)
        until_ms = kvl_min(until_ms, w->deaf_ms);
    uint64_t sleep_ms = until_ms - kvl_min(until_ms, now_ms);
    if (poll(fd, 2, until_ms == UINT64_MAX ? -1 : (int)kvl_min(sleep_ms, INT_MAX)) <= 0)
        return 0;
    if (fd[0].revents && read(w->wake_fd, &count, sizeof count) > 0)
        happened |= KVL_WOKEN;
    if (fd[1].revents & (POLLERR | POLLHUP | POLLNVAL)) {
        close_fd(&w->pressure_fd); /* the control group is gone, and poll would return at once for ever */
    } else if (fd[1].revents & POLLPRI) {
        happened |= KVL_PRESSURE;
        w->deaf_ms = kvl_wait_now_ms() + DEAF_MS;
    }
    return happened;
}

void kvl_wait_wake(kvl_wait *w)
{
    uint64_t one = 1;

    if (write(w->ring_fd, &one, sizeof one) < 0)
        return; /* it is full, so the sleeper is woken already */
}

/* ------------------------------------------------------------------------------------------- the thread */

int kvl_wait_start(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    pthread_attr_t attr;

    if (pthread_attr_init(&attr) != 0)
        return KVLAZY_ENOMEM;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES); /* on failure the stack has its usual size */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, &attr, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (!error)
        (void)pthread_setname_np(*thread, "kvlazy-reaper");
    return error ? KVLAZY_ENOMEM : KVLAZY_OK;
}
