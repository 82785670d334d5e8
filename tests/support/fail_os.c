/* SPDX-License-Identifier: MIT */
/* See fail_os.h. */
#include "fail_os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

struct fail_os fail_os;

static void happen(const char *call)
{
    void (*hook)(void *) = fail_os.hook;

    if (!hook || strcmp(call, fail_os.hook_at) != 0)
        return;
    fail_os.hook = NULL;
    hook(fail_os.hook_ctx);
}

static bool lose(const char *call)
{
    happen(call);
    if (!fail_os.armed || fail_os.fail_in <= 0 || --fail_os.fail_in > 0)
        return false;
    fail_os.failed = true;
    fail_os.call = call;
    errno = fail_os.error;
    return true;
}

static int refuse(int error)
{
    errno = error;
    return -1;
}

/* A call that only may fail. */
#define WRAP(type, name, params, args, bad)              \
    type __real_##name params;                           \
    type __wrap_##name params;                           \
    type __wrap_##name params                            \
    {                                                    \
        return lose(#name) ? (bad) : __real_##name args; \
    }

WRAP(int, mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode), -1)
WRAP(int, fstatat, (int dir, const char *path, struct stat *st, int flags), (dir, path, st, flags), -1)
WRAP(int, fstat, (int fd, struct stat *st), (fd, st), -1)
WRAP(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags), -1)
WRAP(int, utimensat, (int dir, const char *path, const struct timespec t[2], int flags), (dir, path, t, flags), -1)
WRAP(int, futimens, (int fd, const struct timespec t[2]), (fd, t), -1)
WRAP(int, ftruncate, (int fd, off_t bytes), (fd, bytes), -1)
WRAP(DIR *, fdopendir, (int fd), (fd), NULL)
WRAP(struct dirent *, readdir, (DIR * dir), (dir), NULL)
WRAP(void *, aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes), NULL)
WRAP(void *, calloc, (size_t n, size_t bytes), (n, bytes), NULL)
WRAP(void *, reallocarray, (void *p, size_t n, size_t bytes), (p, n, bytes), NULL)

int __real_openat(int, const char *, int, ...);
int __real_fcntl(int, int, ...);
int __real_linkat(int, const char *, int, const char *, int);
int __real_renameat2(int, const char *, int, const char *, unsigned);
int __real_fallocate(int, int, off_t, off_t);
int __real_sync_file_range(int, off_t, off_t, unsigned);
int __real_fstatfs(int, struct statfs *);
int __real_fstatvfs(int, struct statvfs *);
int __real_clock_gettime(clockid_t, struct timespec *);
long __real_syscall(long, ...);
long __wrap_syscall(long, ...);
ssize_t __real_pread(int, void *, size_t, off_t);
ssize_t __real_pwrite(int, const void *, size_t, off_t);
int __wrap_openat(int, const char *, int, ...);
int __wrap_fcntl(int, int, ...);
int __wrap_linkat(int, const char *, int, const char *, int);
int __wrap_renameat2(int, const char *, int, const char *, unsigned);
int __wrap_fallocate(int, int, off_t, off_t);
int __wrap_sync_file_range(int, off_t, off_t, unsigned);
int __wrap_fstatfs(int, struct statfs *);
int __wrap_fstatvfs(int, struct statvfs *);
int __wrap_clock_gettime(clockid_t, struct timespec *);
ssize_t __wrap_pread(int, void *, size_t, off_t);
ssize_t __wrap_pwrite(int, const void *, size_t, off_t);

int __wrap_openat(int dir, const char *path, int flags, ...)
{
    va_list args;

    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    if ((flags & O_TMPFILE) == O_TMPFILE && fail_os.no_tmpfile)
        return refuse(EOPNOTSUPP);
    return lose("openat") ? -1 : __real_openat(dir, path, flags, mode);
}

int __wrap_fcntl(int fd, int command, ...)
{
    va_list args;

    va_start(args, command);
    int flags = command == F_SETFL ? va_arg(args, int) : 0;
    va_end(args);
    if ((flags & O_DIRECT) && fail_os.no_direct)
        return refuse(EINVAL);
    return lose("fcntl") ? -1 : __real_fcntl(fd, command, flags);
}

int __wrap_linkat(int from, const char *path, int to, const char *name, int flags)
{
    if ((flags & AT_EMPTY_PATH ? fail_os.no_empty_path : flags & AT_SYMLINK_FOLLOW && fail_os.no_proc))
        return refuse(ENOENT);
    int answer = lose("linkat") ? -1 : __real_linkat(from, path, to, name, flags);
    if (answer == 0)
        happen("linked");
    return answer;
}

int __wrap_renameat2(int from, const char *path, int to, const char *name, unsigned flags)
{
    if (fail_os.no_rename)
        return refuse(EINVAL);
    return lose("renameat2") ? -1 : __real_renameat2(from, path, to, name, flags);
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes)
{
    if (fail_os.no_fallocate)
        return refuse(EOPNOTSUPP);
    return lose("fallocate") ? -1 : __real_fallocate(fd, mode, at, bytes);
}

int __wrap_sync_file_range(int fd, off_t at, off_t bytes, unsigned flags)
{
    fail_os.n_sync++;
    return lose("sync_file_range") ? -1 : __real_sync_file_range(fd, at, bytes, flags);
}

int __wrap_fstatfs(int fd, struct statfs *fs)
{
    if (lose("fstatfs"))
        return -1;
    int answer = __real_fstatfs(fd, fs);
    if (fail_os.fs_type)
        fs->f_type = fail_os.fs_type;
    return answer;
}

int __wrap_fstatvfs(int fd, struct statvfs *fs)
{
    if (lose("fstatvfs"))
        return -1;
    int answer = __real_fstatvfs(fd, fs);
    if (fail_os.total_bytes) {
        fs->f_blocks = fail_os.total_bytes / fs->f_frsize;
        fs->f_bavail = fail_os.free_bytes / fs->f_frsize;
    }
    return answer;
}

/* Stands still at the first time that was asked for; but no two stamps are the same. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    static struct timespec first[2];
    struct timespec *base = &first[clock == CLOCK_REALTIME];
    int answer = 0;

    if (!base->tv_sec) {
        answer = __real_clock_gettime(clock, base);
        base->tv_nsec = 0;
    }
    if (clock == CLOCK_REALTIME)
        base->tv_nsec += 1000;
    t->tv_sec = base->tv_sec + fail_os.passed_ms / 1000;
    t->tv_nsec = base->tv_nsec + fail_os.passed_ms % 1000 * 1000000;
    t->tv_sec += t->tv_nsec / 1000000000;
    t->tv_nsec %= 1000000000;
    return answer;
}

/* Is this what a disk with larger blocks refuses? */
static bool is_odd(int fd)
{
    return fail_os.odd_blocks && (__real_fcntl(fd, F_GETFL) & O_DIRECT);
}

ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t at)
{
    fail_os.passed_ms += fail_os.ms_a_piece;
    if (is_odd(fd))
        return refuse(EINVAL);
    return lose("pread") ? -1 : __real_pread(fd, data, bytes, at);
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    fail_os.passed_ms += fail_os.ms_a_piece;
    if (is_odd(fd))
        return refuse(EINVAL);
    return lose("pwrite") ? -1 : __real_pwrite(fd, data, bytes, at);
}

/* Requests that the kernel has: nothing comes back while it hangs, and the time that was to be waited passes. */
static long get_events(long aio, long least, long most, struct io_event *event, struct timespec *wait)
{
    if (fail_os.hangs) {
        fail_os.passed_ms += wait->tv_sec * 1000 + wait->tv_nsec / 1000000;
        return 0;
    }
    if (lose("io_getevents"))
        return -1;
    long n = __real_syscall(SYS_io_getevents, aio, least, most, event, wait);
    for (long i = 0; i < n; i++)
        fail_os.passed_ms += fail_os.ms_a_piece;
    if (n > 0 && fail_os.bad_answer) {
        event->res = fail_os.bad_answer;
        fail_os.bad_answer = 0;
    }
    return n;
}

long __wrap_syscall(long number, ...)
{
    long arg[5];
    va_list args;

    va_start(args, number);
    for (int i = 0; i < 5; i++)
        arg[i] = va_arg(args, long);
    va_end(args);
    switch (number) {
    case SYS_io_setup:
        if (fail_os.no_aio)
            return refuse(ENOSYS);
        break;
    case SYS_io_submit:
        if (fail_os.odd_blocks)
            return refuse(EINVAL);
        fail_os.n_submit++;
        break;
    case SYS_io_getevents:
        return get_events(arg[0], arg[1], arg[2], (struct io_event *)arg[3], (struct timespec *)arg[4]);
    default:
        break;
    }
    if (lose("syscall"))
        return -1;
    long answer = __real_syscall(number, arg[0], arg[1], arg[2], arg[3], arg[4]);
    if (answer == 0)
        fail_os.n_lane += (number == SYS_io_setup) - (number == SYS_io_destroy);
    return answer;
}
