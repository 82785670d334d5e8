/* SPDX-License-Identifier: MIT */
/*
 * From the last token to memory back, with no further call but those of a thread that polls: two streams of 2048 cells
 * of which 256 may stay, 392 MiB, on the host's real clock. The memory table notes when the last madvise returned, so
 * that no other thread has to look at the cache meanwhile. The figure, the lateness, is that time less the idle time
 * and less one madvise of as many bytes, written just before and measured in turn.
 */
#include "idle.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { FULL_CELLS = 2048, IDLE_MS = 250, ROUNDS = 7, GIVE_UP_MS = 10000 };

struct lateness {
    struct idle_rig rig;
    uint64_t n_byte;
    struct bench_series late_ms, wait_ns, one_ns;
};

/* Both streams are full, and their last tokens came in one batch. */
static int fill(struct idle_rig *rig)
{
    for (kvlazy_seq_id s = 0; s < (kvlazy_seq_id)rig->geometry.n_slot; s++) {
        uint32_t held = (uint32_t)(kvlazy_seq_pos_max(rig->cache, s) + 1);
        int status = idle_put(rig, s, FULL_CELLS - 1 - held, IDLE_UBATCH, true);
        if (status != KVLAZY_OK) {
            return idle_error("a batch", status);
        }
    }
    for (uint32_t s = 0; s < rig->geometry.n_slot; s++) {
        rig->pos[s] = FULL_CELLS - 1;
        rig->seq[s] = (kvlazy_seq_id)s;
    }
    int status = idle_batch(rig, rig->geometry.n_slot, true);
    return status == KVLAZY_OK ? 0 : idle_error("a batch", status);
}

static int wait_for_return(struct lateness *late, const struct idle_side *side, uint64_t *wait_ns)
{
    struct idle_watch *watch = &late->rig.watch;
    uint64_t before = atomic_load(&watch->n_byte);
    if (fill(&late->rig) != 0) {
        return -1;
    }
    uint64_t from_ns = bench_now_ns();
    if (atomic_load(&watch->n_byte) != before) {
        return bench_error("memory went back while a stream was filled");
    }
    void *running = side->start(late->rig.cache);
    if (running == NULL) {
        return -1;
    }
    for (uint32_t ms = 0; atomic_load(&watch->n_byte) - before < late->n_byte && ms < GIVE_UP_MS; ms++) {
        idle_nap_us(1000);
    }
    *wait_ns = atomic_load(&watch->last_ns) - from_ns;
    side->stop(running, late->rig.cache);
    uint64_t n_byte = atomic_load(&watch->n_byte) - before;
    return n_byte == late->n_byte ? 0
                                  : bench_error("%zu bytes came back, not %zu", (size_t)n_byte, (size_t)late->n_byte);
}

/* One range of as many bytes, written page by page, as the cache's were. */
static int one_madvise(uint64_t n_byte, uint64_t *ns)
{
    void *map = mmap(NULL, n_byte, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        return bench_error("mmap: %s", strerror(errno));
    }
    madvise(map, n_byte, MADV_NOHUGEPAGE); /* refused where there are no other pages */
    memset(map, 1, n_byte);
    uint64_t from_ns = bench_now_ns();
    int failed = madvise(map, n_byte, MADV_DONTNEED);
    *ns = bench_now_ns() - from_ns;
    munmap(map, n_byte);
    return failed ? bench_error("madvise: %s", strerror(errno)) : 0;
}

static int return_round(struct lateness *late, const struct idle_side *side, bool counts)
{
    uint64_t wait_ns = 0, one_ns = 0;
    if (wait_for_return(late, side, &wait_ns) != 0 || one_madvise(late->n_byte, &one_ns) != 0) {
        return -1;
    }
    if (counts) {
        bench_series_add(&late->wait_ns, (double)wait_ns);
        bench_series_add(&late->one_ns, (double)one_ns);
        bench_series_add(&late->late_ms, ((double)wait_ns - (double)one_ns) / 1e6 - IDLE_MS);
    }
    return 0;
}

static void return_report(const struct bench_config *config, struct lateness *late, const struct idle_side *side,
                          bool keyed)
{
    char what[80], text[48], size[20];
    report_bytes(size, sizeof(size), late->n_byte);
    snprintf(what, sizeof(what), "%s: %s back, ms late", side->name, size);
    struct figure figure = {.key = keyed ? "idle_return_ms" : NULL,
                            .value = bench_series_at(&late->late_ms, 0.5),
                            .digits = 1,
                            .what = what,
                            .wanted = "<= 20"};
    snprintf(figure.ours, sizeof(figure.ours), "%.1f .. %.1f after %d idle", bench_series_at(&late->late_ms, 0),
             bench_series_at(&late->late_ms, 1), IDLE_MS);
    report_time(text, sizeof(text), &late->one_ns);
    snprintf(figure.other, sizeof(figure.other), "one madvise %s", text);
    report_figure(config, &figure);
}

static int return_by(const struct bench_config *config, const struct idle_side *side, bool keyed)
{
    static struct lateness late;
    struct bench_config geometry;
    bench_config_default(&geometry);
    geometry.idle_ms = IDLE_MS;
    late = (struct lateness){.n_byte = (uint64_t)geometry.n_slot * bench_tensors(&geometry) *
                                       (FULL_CELLS - geometry.kv_initial) * geometry.row_bytes};
    idle_init(&late.rig, &geometry, geometry.n_slot, false);
    if (idle_create(&late.rig) != 0) {
        return -1;
    }
    int status = 0;
    for (int round = 0; status == 0 && round <= ROUNDS; round++) { /* the first is not counted */
        status = return_round(&late, side, round > 0);
    }
    if (status == 0) {
        return_report(config, &late, side, keyed);
    }
    idle_close(&late.rig);
    return status;
}

int idle_return(const struct bench_config *config)
{
    int status = return_by(config, &idle_reaper, true);
    return status != 0 ? status : return_by(config, &idle_poller, false);
}
