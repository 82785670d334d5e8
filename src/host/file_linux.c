/* SPDX-License-Identifier: MIT */
/* file_linux: see file.h. rename(2) replaces a name at once; what is behind it is complete before. */
#include "host/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <bsd/string.h>

static const char suffix[] = ".XXXXXX";
enum { SIGNAL_TRIES = 8 }; /* EINTR is tried again, but not for ever */

/* "write: No space left on device". */
static int fail(kvl_file *f, const char *call, int error)
{
    char text[KVL_FILE_WHY_BYTES];

    snprintf(f->why, sizeof f->why, "%s: %s", call, strerror_r(error, text, sizeof text));
    return KVLAZY_EIO;
}

static void forget(kvl_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    free(f->beside);
    free(f->kept);
    f->fd = -1;
    f->path = f->beside = f->kept = NULL;
}

/* ------------------------------------------------------------------------------------------- writing */

int kvl_file_begin(kvl_file *f, const char *path)
{
    size_t bytes = strlen(path) + 1;

    *f = (kvl_file){
        .fd = -1, .path = malloc(bytes), .beside = malloc(bytes + sizeof suffix), .kept = malloc(KVL_FILE_STEP_BYTES)};
    if (!f->path || !f->beside || !f->kept) {
        forget(f);
        return KVLAZY_ENOMEM;
    }
    memcpy(f->path, path, bytes);
    snprintf(f->beside, bytes + sizeof suffix, "%s%s", path, suffix);
    f->fd = mkostemp(f->beside, O_CLOEXEC); /* mode 0600 */
    if (f->fd >= 0)
        return KVLAZY_OK;
    int status = fail(f, "open", errno);
    forget(f);
    return status;
}

int kvl_reserve_room(int fd, uint64_t bytes)
{
    for (int i = 0; i < SIGNAL_TRIES; i++) {
        if (fallocate(fd, 0, 0, (off_t)bytes) == 0)
            return 0;
        if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO)
            return errno;
        if (errno != EINTR)
            break;
    }
    return 0;
}

int kvl_file_expect(kvl_file *f, uint64_t bytes)
{
    int error = kvl_reserve_room(f->fd, bytes);

    return error ? fail(f, "fallocate", error) : KVLAZY_OK;
}

/* All of a part, and then of another. */
static int write_both(kvl_file *f, struct iovec part[2])
{
    while (part[0].iov_len + part[1].iov_len) {
        ssize_t n = writev(f->fd, part, 2);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail(f, "write", n ? errno : ENOSPC);
        for (struct iovec *v = part; v < part + 2; v++) {
            size_t done = kvl_min((uint64_t)n, v->iov_len);

            v->iov_base = (char *)v->iov_base + done;
            v->iov_len -= done;
            n -= (ssize_t)done;
        }
    }
    return KVLAZY_OK;
}

int kvl_file_write(kvl_file *f, const void *data, size_t bytes)
{
    size_t stays = (f->n_kept + bytes) % KVL_FILE_STEP_BYTES;
    int status = KVLAZY_OK;

    if (f->n_kept + bytes >= KVL_FILE_STEP_BYTES) {
        struct iovec part[2] = {{f->kept, f->n_kept}, {(void *)(uintptr_t)data, bytes - stays}};

        status = write_both(f, part);
        data = (const char *)data + (bytes - stays);
        bytes = stays;
        f->n_kept = 0;
    }
    memcpy(f->kept + f->n_kept, data, bytes);
    f->n_kept = stays;
    return status;
}

static int write_rest(kvl_file *f)
{
    struct iovec part[2] = {{f->kept, f->n_kept}, {NULL, 0}};

    f->n_kept = 0;
    return write_both(f, part);
}

void kvl_file_drop(kvl_file *f)
{
    if (f->beside)
        unlink(f->beside);
    forget(f);
}

/* The folder that a path is in; the name in it is then as safe as the file. */
static int sync_folder(kvl_file *f)
{
    char *slash = strrchr(f->path, '/');

    if (slash)
        slash[slash == f->path] = 0; /* "/" is its own folder */
    int fd = open(slash ? f->path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail(f, "open of the folder", errno);
    int status = fsync(fd) == 0 || errno == EINVAL ? KVLAZY_OK : fail(f, "fsync of the folder", errno);
    close(fd);
    return status;
}

int kvl_file_commit(kvl_file *f, bool sync)
{
    int status = write_rest(f), fd = f->fd;

    if (!status && sync && fsync(fd) != 0)
        status = fail(f, "fsync", errno);
    f->fd = -1;
    if (close(fd) != 0 && !status && errno != EINTR) /* a file system over a network tells its errors here */
        status = fail(f, "close", errno);
    if (!status && rename(f->beside, f->path) != 0)
        status = fail(f, "rename", errno);
    if (status) {
        kvl_file_drop(f);
        return status;
    }
    status = sync ? sync_folder(f) : KVLAZY_OK;
    forget(f);
    return status;
}

/* ------------------------------------------------------------------------------------------- reading */

int kvl_file_open(kvl_file *f, const char *path)
{
    *f = (kvl_file){.fd = open(path, O_RDONLY | O_CLOEXEC)};
    return f->fd >= 0 ? KVLAZY_OK : fail(f, "open", errno);
}

int kvl_file_read(kvl_file *f, void *data, size_t bytes)
{
    for (char *at = data; bytes;) {
        ssize_t n = read(f->fd, at, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            f->ended = n == 0;
            return n ? fail(f, "read", errno) : KVLAZY_EIO;
        }
        at += n;
        bytes -= (size_t)n;
    }
    return KVLAZY_OK;
}

void kvl_file_close(kvl_file *f)
{
    forget(f);
}
