/* SPDX-License-Identifier: MIT */
/*
 * What a release gives the machine: how much less the control group uses, of what the library says that it gave back.
 * Part of a larger page that went would not show there. Other processes of the group disturb it, so it is a median.
 */
#include "pages.h"

#include "micro.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 11, HOLE = 40, STEP = 64 };

/* The number in a file; false: there is none. */
static bool read_number(const char *path, uint64_t *number)
{
    FILE *file = fopen(path, "re");
    unsigned long long value = 0;
    bool good = file != NULL && fscanf(file, "%llu", &value) == 1;
    if (file != NULL) {
        fclose(file);
    }
    *number = value;
    return good;
}

/* The path of this process in the hierarchy that counts memory, "" for its root; of version 1 where there is one. */
static void find_group(char *path, size_t room)
{
    char line[1000];
    FILE *file = fopen("/proc/self/cgroup", "re");
    path[0] = 0;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        char *at = strstr(line, ":memory:");
        line[strcspn(line, "\n")] = 0;
        if (at != NULL || (strncmp(line, "0::", 3) == 0 && path[0] == 0)) {
            snprintf(path, room, "%s%s", at != NULL ? "/memory" : "", at != NULL ? at + 8 : line + 3);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* Bytes that the control group uses. 0 or 1. */
static int used_bytes(uint64_t *bytes)
{
    static char group[1024], path[2048];
    find_group(group, sizeof(group));
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.current", group);
    if (read_number(path, bytes)) {
        return 0;
    }
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.usage_in_bytes", group);
    if (read_number(path, bytes) || read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", bytes)) {
        return 0; /* the second one where the group is the root of what is seen */
    }
    bench_error("no control group says what it uses");
    return 1;
}

static uint64_t released_bytes(const struct tensors_rig *rig)
{
    kvlazy_stats_info stats = {.struct_size = sizeof(stats)};
    return kvlazy_stats(rig->cache, &stats) == KVLAZY_OK ? stats.released_bytes : 0;
}

/* Many holes, smaller than two pages and larger than one, and a free tail. */
static int give_back(struct tensors_rig *rig)
{
    for (kvlazy_pos at = 8; at + HOLE < TENSORS_BATCH / 2; at += STEP) {
        int status = kvlazy_seq_rm(rig->cache, 0, at, at + HOLE);
        if (status != KVLAZY_OK) {
            return rig_error("kvlazy_seq_rm", status);
        }
    }
    int status = kvlazy_seq_rm(rig->cache, 0, TENSORS_BATCH / 2, -1);
    status = status == KVLAZY_OK ? kvlazy_trim(rig->cache, 0) : status;
    return status == KVLAZY_OK ? 0 : rig_error("kvlazy_trim", status);
}

static int one_round(struct tensors_rig *rig, struct bench_series *share)
{
    uint64_t before, after;
    if (tensors_put(rig, TENSORS_BATCH, NULL) != 0) {
        return -1;
    }
    uint64_t released = released_bytes(rig);
    int status = used_bytes(&before);
    if (status != 0 || give_back(rig) != 0) {
        return status != 0 ? status : -1;
    }
    released = released_bytes(rig) - released;
    status = used_bytes(&after);
    bench_series_add(share, ((double)before - (double)after) / (double)released);
    return status == 0 && tensors_drop(rig, true) != 0 ? -1 : status;
}

int pages_returned(const struct bench_config *config)
{
    static struct tensors_rig rig;
    static struct bench_series share;
    int status = pages_granted(PAGES_BYTES);
    if (status != 0) {
        return status;
    }
    status = tensors_open_pages(&rig, &tensors_layouts[TENSORS_F16], 0, PAGES_BYTES, 0);
    for (int round = 0; status == 0 && round < ROUNDS; round++) {
        status = one_round(&rig, &share);
    }
    tensors_close(&rig);
    if (status == 0) {
        struct figure figure = {.key = "pages_returned_share",
                                .value = bench_series_at(&share, 0.5),
                                .digits = 3,
                                .what = "given back: what left the control group",
                                .wanted = ">= 0.95"};
        snprintf(figure.ours, sizeof(figure.ours), "a round: %.3f .. %.3f", bench_series_at(&share, 0),
                 bench_series_at(&share, 1));
        snprintf(figure.other, sizeof(figure.other), "of released_bytes, %d rounds", ROUNDS);
        report_figure(config, &figure);
    }
    return status;
}
