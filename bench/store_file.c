/* SPDX-License-Identifier: MIT */
/*
 * Saving to a directory and loading from it, next to a plain write and a plain read of the same bytes in one file of
 * the same file system, in pairs and in turn. All of it is cold: the plain write ends when its bytes are on the disk
 * (write, fdatasync), as the store's are, which go around the page cache; and before each read and each load the page
 * cache gave up the file, or the blobs (POSIX_FADV_DONTNEED). Both read into fresh pages. What of the blobs is in the
 * page cache is counted by mincore before that.
 */
#include "state.h"
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAIRS = 7, PLAIN_BYTES = 1 << 20 };

struct file {
    struct store_rig rig;
    unsigned char *byte; /* [rig.n_byte]: what is written plainly */
    char path[4096];
    struct bench_series save_ns, write_ns, load_ns, read_ns;
    uint64_t cached_bytes; /* of the blobs, at most */
};

/* ------------------------------------------------------------------------------------------------------
 * The page cache
 */
static int forget_one(const char *path, void *ctx)
{
    (void)ctx;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return bench_error("%s: %s", path, strerror(errno));
    }
    int error = fdatasync(fd) != 0 ? errno : posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return error == 0 ? 0 : bench_error("%s: %s", path, strerror(error));
}

static int count_one(const char *path, void *ctx)
{
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC), status = -1;
    if (fd >= 0 && fstat(fd, &stat) == 0) {
        size_t bytes = (size_t)stat.st_size;
        void *map = bytes == 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
        status = bytes == 0 ? 0 : map == MAP_FAILED ? -1 : bench_resident(map, bytes, ctx);
        if (map != MAP_FAILED) {
            munmap(map, bytes);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return status == 0 ? 0 : bench_error("%s: %s", path, strerror(errno));
}

static int note_cached(struct file *file)
{
    uint64_t bytes = 0;
    int status = store_files(file->rig.dir, count_one, &bytes);
    file->cached_bytes = bytes > file->cached_bytes ? bytes : file->cached_bytes;
    return status;
}

/* ------------------------------------------------------------------------------------------------------
 * The four ways
 */
static int save_once(struct file *file, struct bench_series *ns)
{
    uint64_t start_ns = bench_now_ns();
    int status = store_save(&file->rig);
    bench_series_add(ns, (double)(bench_now_ns() - start_ns));
    return status == 0 ? note_cached(file) : status;
}

static int load_once(struct file *file, struct bench_series *ns)
{
    int status = kvlazy_clear(file->rig.cache, true);
    if (status != KVLAZY_OK) {
        return store_error("kvlazy_clear", status);
    }
    if (store_files(file->rig.dir, forget_one, NULL) != 0) {
        return -1;
    }
    uint64_t start_ns = bench_now_ns();
    status = store_load(&file->rig);
    bench_series_add(ns, (double)(bench_now_ns() - start_ns));
    return status == 0 ? note_cached(file) : status;
}

static int write_once(struct file *file, struct bench_series *ns)
{
    uint64_t start_ns = bench_now_ns();
    int fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = fd >= 0;
    for (size_t at = 0; good && at < file->rig.n_byte;) {
        size_t left = file->rig.n_byte - at;
        ssize_t n = write(fd, file->byte + at, left < PLAIN_BYTES ? left : PLAIN_BYTES);
        good = n > 0;
        at += good ? (size_t)n : 0;
    }
    good = good && fdatasync(fd) == 0;
    bench_series_add(ns, (double)(bench_now_ns() - start_ns));
    good = fd >= 0 && close(fd) == 0 && good;
    return good ? 0 : bench_error("%s: %s", file->path, strerror(errno));
}

static int read_once(struct file *file, struct bench_series *ns)
{
    unsigned char *byte = state_fresh(file->rig.n_byte);
    if (byte == NULL || forget_one(file->path, NULL) != 0) {
        return -1;
    }
    uint64_t start_ns = bench_now_ns();
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0;
    for (size_t at = 0; good && at < file->rig.n_byte;) {
        size_t left = file->rig.n_byte - at;
        ssize_t n = read(fd, byte + at, left < PLAIN_BYTES ? left : PLAIN_BYTES);
        good = n > 0;
        at += good ? (size_t)n : 0;
    }
    bench_series_add(ns, (double)(bench_now_ns() - start_ns));
    good = fd >= 0 && close(fd) == 0 && good;
    state_unmap(byte, file->rig.n_byte);
    return good ? 0 : bench_error("%s: %s", file->path, strerror(errno));
}

/* ------------------------------------------------------------------------------------------------------
 * In turn
 */
static int pair(struct file *file, int k, bool counts)
{
    struct bench_series ignored = {.n = 0};
    int (*out[2])(struct file *, struct bench_series *) = {save_once, write_once};
    int (*in[2])(struct file *, struct bench_series *) = {load_once, read_once};
    struct bench_series *out_ns[2] = {&file->save_ns, &file->write_ns}, *in_ns[2] = {&file->load_ns, &file->read_ns};
    int status = 0;
    for (int i = 0; status == 0 && i < 2; i++) {
        int which = (k + i) % 2;
        status = out[which](file, counts ? out_ns[which] : &ignored);
    }
    for (int i = 0; status == 0 && i < 2; i++) {
        int which = (k + i) % 2;
        status = in[which](file, counts ? in_ns[which] : &ignored);
    }
    if (status == 0 && unlink(file->path) != 0) {
        status = bench_error("%s: %s", file->path, strerror(errno));
    }
    int forgot = kvlazy_store_forget(file->rig.store, file->rig.cache, &file->rig.prompt);
    return status == 0 && forgot != KVLAZY_OK ? store_error("kvlazy_store_forget", forgot) : status;
}

static void report(const struct bench_config *config, struct file *file)
{
    double save = bench_series_at(&file->save_ns, 0.5), load = bench_series_at(&file->load_ns, 0.5);
    char what[80];
    snprintf(what, sizeof(what), "plain write / save of %.2f GiB, cold", (double)file->rig.n_byte / (1 << 30));
    struct figure figure = {
        "store_save_vs_write", bench_series_at(&file->write_ns, 0.5) / save, 3, what, "", "", ">= 0.5"};
    report_time(figure.ours, sizeof(figure.ours), &file->save_ns);
    report_time(figure.other, sizeof(figure.other), &file->write_ns);
    report_figure(config, &figure);
    figure = (struct figure){"store_load_vs_read",
                             bench_series_at(&file->read_ns, 0.5) / load,
                             3,
                             "plain read / load of it, cold",
                             "",
                             "",
                             ">= 0.5"};
    report_time(figure.ours, sizeof(figure.ours), &file->load_ns);
    report_time(figure.other, sizeof(figure.other), &file->read_ns);
    report_figure(config, &figure);
    figure = (struct figure){"store_load_us_per_token",
                             load / 1e3 / file->rig.n_cell,
                             1,
                             "load, cold: us a token of 28 layers x 2 x 2 KiB",
                             "",
                             "",
                             "<= 250"};
    snprintf(figure.ours, sizeof(figure.ours), "%u tokens", file->rig.n_cell);
    report_figure(config, &figure);
    figure = (struct figure){"store_page_cache_mib",
                             (double)file->cached_bytes / (1 << 20),
                             2,
                             "page cache of the blobs after save and load: MiB",
                             "",
                             "",
                             "<= 16"};
    report_figure(config, &figure);
}

int store_file(const struct bench_config *config)
{
    static struct file file;
    memset(&file, 0, sizeof(file));
    store_dir_name(file.path, sizeof(file.path), config, "plain");
    int status = store_open(&file.rig, config, store_bytes(config), false);
    file.byte = status == 0 ? state_fresh(file.rig.n_byte) : NULL;
    status = file.byte == NULL ? -1 : status;
    for (size_t at = 0; status == 0 && at < file.rig.n_byte; at += STORE_ROW_BYTES) {
        memset(file.byte + at, (int)(at / STORE_ROW_BYTES) | 1, STORE_ROW_BYTES);
    }
    for (int k = 0; status == 0 && k <= PAIRS; k++) { /* the first is not counted */
        status = pair(&file, k, k > 0);
    }
    if (file.byte != NULL) {
        state_unmap(file.byte, file.rig.n_byte);
    }
    unlink(file.path);
    store_close(&file.rig);
    if (status == 0) {
        report(config, &file);
    }
    return status;
}
