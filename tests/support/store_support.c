/* SPDX-License-Identifier: MIT */
/* See store_support.h. */
#include "store_support.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TIME_MS = 60000 }; /* tests of time limits have their own */

const uint8_t *blob_name(uint32_t i)
{
    static uint8_t name[8][32];
    static int next;
    uint64_t seed = i;
    uint8_t *n = name[next++ % 8];

    for (int k = 0; k < 4; k++)
        memcpy(n + 8 * k, &(uint64_t){next_random(&seed)}, 8);
    n[0] &= 0x11;
    return n;
}

uint8_t blob_byte(uint32_t i, uint64_t at)
{
    return (uint8_t)(at ^ at >> 8 ^ at >> 16 ^ i * 37);
}

static void fill(uint8_t *data, uint32_t i, uint64_t at, size_t bytes)
{
    for (size_t k = 0; k < bytes; k++)
        data[k] = blob_byte(i, at + k);
}

static int write_range(kvlazy_store_ops *ops, void *blob, uint32_t i, size_t bytes, size_t step)
{
    uint8_t *data = malloc(step);
    int error = 0;

    assert_non_null(data);
    for (size_t at = 0; at < bytes && !error; at += step) {
        size_t n = bytes - at < step ? bytes - at : step;

        fill(data, i, at, n);
        error = ops->write(blob, data, n, TIME_MS);
    }
    free(data);
    return error;
}

int put_steps(kvlazy_store_ops *ops, uint32_t i, size_t bytes, size_t step)
{
    void *blob;
    int error = ops->open(ops->ctx, blob_name(i), bytes, &blob);

    if (error)
        return error;
    error = write_range(ops, blob, i, bytes, step);
    int closed = ops->close(blob, !error);
    return error ? error : closed;
}

int put_blob(kvlazy_store_ops *ops, uint32_t i, size_t bytes)
{
    return put_steps(ops, i, bytes, 1 << 20);
}

void *begin_put(kvlazy_store_ops *ops, uint32_t i, size_t bytes, size_t n)
{
    void *blob;

    assert_int_equal(ops->open(ops->ctx, blob_name(i), bytes, &blob), 0);
    assert_int_equal(write_range(ops, blob, i, n, 1 << 20), 0);
    return blob;
}

int get_steps(kvlazy_store_ops *ops, uint32_t i, size_t bytes, size_t step)
{
    uint8_t *data = malloc(step), *want = malloc(step);
    void *blob;
    int error = ops->open(ops->ctx, blob_name(i), 0, &blob);

    assert_true(data && want);
    for (size_t at = 0; at < bytes && !error; at += step) {
        size_t n = bytes - at < step ? bytes - at : step;

        error = ops->read(blob, at, data, n, TIME_MS);
        fill(want, i, at, n);
        if (!error)
            assert_memory_equal(data, want, n);
        if (error || at + n == bytes)
            assert_int_equal(ops->close(blob, false), 0);
    }
    free(data);
    free(want);
    return error;
}

int get_blob(kvlazy_store_ops *ops, uint32_t i, size_t bytes)
{
    return get_steps(ops, i, bytes, 1 << 20);
}

bool has_blob(kvlazy_store_ops *ops, uint32_t i)
{
    bool yes = true;

    assert_int_equal(ops->has(ops->ctx, (const uint8_t(*)[32])blob_name(i), 1, &yes), 0);
    return yes;
}

void touch(kvlazy_store_ops *ops, uint32_t n, const uint32_t *i)
{
    uint8_t(*name)[32] = calloc(n, sizeof *name);

    assert_non_null(name);
    for (uint32_t k = 0; k < n; k++)
        memcpy(name[k], blob_name(i[k]), sizeof *name);
    assert_int_equal(ops->touch(ops->ctx, (const uint8_t(*)[32])name, n), 0);
    free(name);
}

void drop(kvlazy_store_ops *ops, uint32_t i)
{
    assert_int_equal(ops->drop(ops->ctx, blob_name(i)), 0);
}

/* ---- the host ---- */

long cached_pages(const char *path)
{
    struct stat st;
    long page = sysconf(_SC_PAGESIZE), n_cached = 0;
    int fd = open(path, O_RDONLY);

    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    size_t n = ((size_t)st.st_size + (size_t)page - 1) / (size_t)page;
    unsigned char *in_core = calloc(n, 1);
    void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);

    close(fd);
    assert_true(in_core && at != MAP_FAILED);
    if (mincore(at, (size_t)st.st_size, in_core) != 0)
        n_cached = -1;
    munmap(at, (size_t)st.st_size);
    for (size_t i = 0; i < n && n_cached >= 0; i++)
        n_cached += in_core[i] & 1;
    free(in_core);
    return n_cached;
}

int n_open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}
