/* SPDX-License-Identifier: MIT */
/*
 * A state in a file: kvlazy_state_save next to plain write(2) of the same bytes to the same file system, both to names
 * that are new, with the same flushing, in pairs and in turn.
 */
#include "state.h"

#include <kvlazy/state.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PAIRS = 7, PLAIN_BYTES = 1 << 20 };

struct file {
    struct state_rig rig;
    struct state_tape tape;
    char path[4096];
    struct bench_series ns[2], sync_ns[2]; /* save, plain */
};

static int save_once(struct file *file, bool sync, double *ns)
{
    uint64_t start_ns = bench_now_ns();
    int status = kvlazy_state_save(file->rig.cache, 0, file->path, NULL, 0, sync ? KVLAZY_STATE_SYNC : 0);
    *ns = (double)(bench_now_ns() - start_ns);
    return status == KVLAZY_OK ? 0 : state_error("kvlazy_state_save", status);
}

static int plain_once(struct file *file, bool sync, double *ns)
{
    uint64_t start_ns = bench_now_ns();
    int fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = fd >= 0;
    for (size_t at = 0; good && at < file->tape.n;) {
        size_t left = file->tape.n - at;
        ssize_t n = write(fd, file->tape.byte + at, left < PLAIN_BYTES ? left : PLAIN_BYTES);
        good = n > 0;
        at += good ? (size_t)n : 0;
    }
    good = good && (!sync || fsync(fd) == 0);
    good = fd >= 0 && close(fd) == 0 && good;
    *ns = (double)(bench_now_ns() - start_ns);
    return good ? 0 : bench_error("%s: %s", file->path, strerror(errno));
}

/* What one left to be written is no burden of the next. */
static int settle(struct file *file)
{
    int fd = open(file->path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return good && unlink(file->path) == 0 ? 0 : bench_error("%s: %s", file->path, strerror(errno));
}

static int pairs(struct file *file, bool sync, struct bench_series ns[2])
{
    for (int pair = 0; pair <= PAIRS; pair++) { /* the first is not counted */
        for (int k = 0; k < 2; k++) {
            int which = (pair + k) % 2;
            double here;
            if ((which == 0 ? save_once : plain_once)(file, sync, &here) != 0 || settle(file) != 0) {
                return -1;
            }
            if (pair > 0) {
                bench_series_add(&ns[which], here);
            }
        }
    }
    return 0;
}

static int prepare_tape(struct file *file)
{
    uint64_t n_byte = 0;
    int status = kvlazy_state_bytes(file->rig.cache, 0, &n_byte);
    file->tape = (struct state_tape){.byte = state_fresh(n_byte), .room = n_byte};
    if (status != KVLAZY_OK || file->tape.byte == NULL) {
        return status == KVLAZY_OK ? -1 : state_error("kvlazy_state_bytes", status);
    }
    status = kvlazy_state_write(file->rig.cache, 0, state_tape_write, &file->tape);
    return status == KVLAZY_OK ? 0 : state_error("kvlazy_state_write", status);
}

static void report(const struct bench_config *config, const char *key, const char *what, struct bench_series ns[2])
{
    struct figure figure = {key,     bench_series_at(&ns[1], 0.5) / bench_series_at(&ns[0], 0.5), 3, what, "", "",
                            ">= 0.7"};
    report_time(figure.ours, sizeof(figure.ours), &ns[0]);
    report_time(figure.other, sizeof(figure.other), &ns[1]);
    report_figure(config, &figure);
}

int state_file(const struct bench_config *config)
{
    static struct file file;
    file = (struct file){.tape = {.n = 0}};
    snprintf(file.path, sizeof(file.path), "%s/bench-%ld.state", config->data_dir, (long)getpid());
    if (state_open(&file.rig, state_bytes(config) / 2, false) != 0) {
        return -1;
    }
    int status = state_fill(&file.rig, 0, file.rig.n_cell);
    status = status == 0 ? prepare_tape(&file) : status;
    status = status == 0 ? pairs(&file, false, file.ns) : status;
    status = status == 0 ? pairs(&file, true, file.sync_ns) : status;
    if (file.tape.byte != NULL) {
        state_unmap(file.tape.byte, file.tape.room);
    }
    unlink(file.path);
    state_close(&file.rig);
    if (status == 0) {
        report(config, "state_file_vs_write", "plain write / save, not flushed", file.ns);
        report(config, "state_file_sync_vs_write", "  plain write / save, both flushed", file.sync_ns);
    }
    return status;
}
