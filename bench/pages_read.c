/* SPDX-License-Identifier: MIT */
/*
 * Pages that attention read before they were written, and what one byte brings. Reading leaves the host's page of zeros
 * behind, where no larger page can come any more; what then is written is timed beside what was never read. The bytes
 * that one write brings are asked of the kernel, which does not count the page of zeros.
 */
#include "pages.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 21, BEFORE = 32, AFTER = 192 };

/* Anonymous bytes of this process. 0 or -1. */
static int anonymous_bytes(uint64_t *bytes)
{
    static char text[4096];
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0) {
        close(fd);
    }
    text[n > 0 ? n : 0] = 0;
    const char *at = strstr(text, "Anonymous:");
    if (at == NULL) {
        bench_error("no /proc/self/smaps_rollup here");
        return 1;
    }
    *bytes = strtoull(at + strlen("Anonymous:"), NULL, 10) << 10;
    return 0;
}

/* A batch of one token, of whose rows one byte is written, in the first tensor. */
static int one_byte(struct tensors_rig *rig, uint64_t *bytes)
{
    uint64_t before, after;
    if (tensors_begin_one(rig) != 0) {
        return -1;
    }
    int status = anonymous_bytes(&before);
    *((volatile char *)rig->tensor[0].data + rig->cell[rig->n_held - 1] * rig->tensor[0].cell_stride) = 1;
    status = status == 0 ? anonymous_bytes(&after) : status;
    *bytes = status == 0 ? after - before : 0;
    return tensors_end(rig) == 0 ? status : -1;
}

static int report_byte(const struct bench_config *config, struct tensors_rig *rig)
{
    uint64_t fresh, read;
    int status = anonymous_bytes(&fresh); /* and so its buffer is there */
    status = status == 0 ? one_byte(rig, &fresh) : status;
    status = status == 0 && (tensors_drop(rig, true) != 0 || tensors_put_and_read(rig, BEFORE) != 0) ? -1 : status;
    status = status == 0 ? one_byte(rig, &read) : status;
    if (status != 0 || tensors_drop(rig, true) != 0) {
        return status != 0 ? status : -1;
    }
    struct figure figure = {.key = "pages_one_byte",
                            .value = (double)(read == PAGES_BYTES ? fresh : read),
                            .digits = 0,
                            .what = "bytes that one row in one tensor brings",
                            .wanted = "65536"};
    snprintf(figure.ours, sizeof(figure.ours), "%u never read", (unsigned)fresh);
    snprintf(figure.other, sizeof(figure.other), "%u after its padding was read", (unsigned)read);
    report_figure(config, &figure);
    return 0;
}

static int timed(struct tensors_rig *rig, bool reads, struct bench_series *series, bool counts)
{
    struct tensors_time time;
    int status = reads ? tensors_put_and_read(rig, BEFORE) : tensors_put(rig, BEFORE, NULL);
    if (status != 0 || tensors_put(rig, AFTER, &time) != 0 || tensors_drop(rig, true) != 0) {
        return -1;
    }
    if (counts) {
        bench_series_add(series, (double)time.whole_ns);
    }
    return 0;
}

static int report_cost(const struct bench_config *config, struct tensors_rig *rig)
{
    static struct bench_series fresh, read;
    fresh.n = read.n = 0;
    for (int round = 0; round <= ROUNDS; round++) {
        if (timed(rig, false, &fresh, round > 0) != 0 || timed(rig, true, &read, round > 0) != 0) {
            return -1;
        }
    }
    struct figure figure = {.key = "pages_after_read_cost",
                            .value = bench_series_at(&read, 0.5) / bench_series_at(&fresh, 0.5),
                            .digits = 3,
                            .what = "rows whose padding was read, first write",
                            .wanted = "<= 1.5"};
    report_time(figure.ours, sizeof(figure.ours), &read);
    report_time(figure.other, sizeof(figure.other), &fresh);
    report_figure(config, &figure);
    return 0;
}

int pages_read(const struct bench_config *config)
{
    static struct tensors_rig rig;
    int status = pages_granted(PAGES_BYTES);
    if (status != 0) {
        return status;
    }
    if (tensors_open_pages(&rig, &tensors_layouts[TENSORS_F16], KVLAZY_NO_COMMIT_AHEAD, PAGES_BYTES, 0) != 0) {
        return -1;
    }
    status = report_byte(config, &rig);
    if (status >= 0 && report_cost(config, &rig) != 0) {
        status = -1;
    }
    tensors_close(&rig);
    return status;
}
