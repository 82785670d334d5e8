/* SPDX-License-Identifier: MIT */
/*
 * What a hook waits that comes while a state is written, from inside on_evict on a thread that polls: one token is
 * prepared at random moments. Row-major and transposed. And what a state leaves of the sequences beside it: nothing
 * changes, whether it is read or refused.
 */
#include "state.h"

#include "batches.h"
#include "idle.h"

#include <kvlazy/state.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { WRITES = 4, HOOK_BYTES = 1 << 28 };

/* ------------------------------------------------------------------------------------------------------
 * Waiting
 */
struct waiting {
    struct state_rig rig;
    struct state_tape tape;
    kvlazy_pos pos; /* where the other conversation goes on */
    uint64_t seed;
    int n_written;
    atomic_bool writing, done, failed;
    struct bench_series wait_ns;
};

/* Runs inside a poll. The conversation stays. */
static int write_state(void *ctx, kvlazy_seq_id seq, kvlazy_pos new_pos_max)
{
    struct waiting *w = ctx;
    (void)new_pos_max;
    w->tape.n = 0;
    atomic_store(&w->writing, true);
    int status = kvlazy_state_write(w->rig.cache, seq, state_tape_write, &w->tape);
    atomic_store(&w->writing, false);
    atomic_store(&w->failed, status != KVLAZY_OK);
    w->n_written++;
    return 1;
}

/* Each time the conversation has idled anew. */
static void *poll_and_write(void *ctx)
{
    struct waiting *w = ctx;
    uint64_t next_ms;
    while (w->n_written < WRITES && !atomic_load(&w->failed)) {
        int n_written = w->n_written;
        w->rig.now_ms += 10 * 60000;
        while (n_written == w->n_written && !atomic_load(&w->failed)) {
            int status = kvlazy_poll(w->rig.cache, &next_ms);
            if (status == KVLAZY_EBUSY) {
                idle_nap_us(20);
            } else if (n_written == w->n_written) {
                break; /* the clock has to go on */
            }
        }
    }
    atomic_store(&w->done, true);
    return NULL;
}

/* One hook, and whether it came into a write. */
static int call_hook(struct waiting *w)
{
    bool counts = atomic_load(&w->writing);
    double waited_ns;
    int status = bench_hook(w->rig.cache, 1, w->pos, &waited_ns);
    if (status == KVLAZY_OK && counts) {
        bench_series_add(&w->wait_ns, waited_ns);
    }
    return status == KVLAZY_OK ? 0 : state_error("a hook", status);
}

static int write_and_call(struct waiting *w)
{
    pthread_t thread;
    int status = 0, error = pthread_create(&thread, NULL, poll_and_write, w);
    if (error != 0) {
        return bench_error("pthread_create: %s", strerror(error));
    }
    while (status == 0 && !atomic_load(&w->done)) {
        idle_nap_us(idle_random(&w->seed, 2000));
        status = call_hook(w);
    }
    pthread_join(thread, NULL);
    return status == 0 && atomic_load(&w->failed) ? bench_error("a state could not be written") : status;
}

static int wait_in(const struct bench_config *config, struct waiting *w, bool transposed)
{
    uint64_t n_byte = state_bytes(config) < HOOK_BYTES ? state_bytes(config) : HOOK_BYTES;
    memset(&w->rig, 0, sizeof(w->rig));
    w->rig.on_evict = write_state;
    w->rig.evict_ctx = w;
    w->n_written = 0;
    atomic_store(&w->done, false);
    if (state_open(&w->rig, n_byte, transposed) != 0) {
        return -1;
    }
    uint64_t room = 0;
    int status = state_fill(&w->rig, 0, w->rig.n_cell);
    status = status == 0 ? state_fill(&w->rig, 1, 10) : status;
    w->pos = 10;
    if (status == 0 && kvlazy_state_bytes(w->rig.cache, 0, &room) != KVLAZY_OK) {
        status = bench_error("kvlazy_state_bytes");
    }
    w->tape = (struct state_tape){.byte = state_fresh(room), .room = room};
    status = status == 0 && w->tape.byte == NULL ? -1 : status;
    status = status == 0 ? write_and_call(w) : status;
    if (w->tape.byte != NULL) {
        state_unmap(w->tape.byte, w->tape.room);
    }
    state_close(&w->rig);
    return status;
}

int state_hook(const struct bench_config *config)
{
    static struct waiting w;
    w.wait_ns.n = 0;
    w.seed = 1;
    atomic_store(&w.failed, false);
    double p99_ms = 0;
    struct figure figure = {"state_hook_wait_ms", 0, 3, "hook while a state is written: wait, p99 ms", "", "", "<= 5"};
    for (int transposed = 0; transposed < 2; transposed++) {
        w.wait_ns.n = 0;
        if (wait_in(config, &w, transposed != 0) != 0) {
            return -1;
        }
        double here_ms = bench_series_at(&w.wait_ns, 0.99) / 1e6;
        char *text = transposed ? figure.other : figure.ours;
        snprintf(text, 40, "%s p50 %.3f, max %.2f; %u", transposed ? "transposed" : "rows",
                 bench_series_at(&w.wait_ns, 0.5) / 1e6, bench_series_at(&w.wait_ns, 1) / 1e6, w.wait_ns.n);
        p99_ms = here_ms > p99_ms ? here_ms : p99_ms;
    }
    figure.value = p99_ms;
    report_figure(config, &figure);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * The others
 */
enum { OTHER_BYTES = 1 << 20 };

/* Sequence 1 is among the owners, of which a cell has two at most. */
static bool is_of_other(const kvlazy_cache *cache, uint32_t cell)
{
    kvlazy_seq_id owner[2];
    uint32_t n;
    return kvlazy_cell_owners(cache, 0, cell, owner, 2, &n) == KVLAZY_OK && n > 0 &&
           (owner[0] == 1 || (n > 1 && owner[1] == 1));
}

/* A number for all that is known of sequence 1: its cells, positions and rows. */
static uint64_t sum_of_other(const struct state_rig *rig)
{
    kvlazy_cells_view view = {.struct_size = sizeof(view)};
    uint64_t sum = UINT64_C(14695981039346656037);
    if (kvlazy_cells(rig->cache, 0, &view) != KVLAZY_OK) {
        return 0;
    }
    for (uint32_t cell = 0; cell < view.n_cell; cell++) {
        if (view.pos[cell] < 0 || !is_of_other(rig->cache, cell)) {
            continue;
        }
        sum = (sum ^ cell ^ (uint64_t)view.pos[cell] << 32) * UINT64_C(1099511628211);
        for (uint32_t t = 0; t < rig->n_tensor; t++) {
            const unsigned char *row = (const unsigned char *)rig->tensor[t].data + cell * rig->tensor[t].cell_stride;
            for (size_t i = 0; i < rig->tensor[t].row_bytes; i++) {
                sum = (sum ^ row[i]) * UINT64_C(1099511628211);
            }
        }
    }
    return sum;
}

/* Reads the state as it is, cut at every so many bytes, and with a bit turned in every so many. */
static int read_all_ways(struct state_rig *rig, struct state_tape *tape, uint32_t *n_changed, uint32_t *n_read)
{
    uint64_t sum = sum_of_other(rig);
    size_t whole = tape->n, step = whole / 50 + 1;
    for (size_t at = 0; at <= whole; at += step) {
        for (int way = 0; way < 3; way++) {
            size_t byte = at < whole ? at : whole - 1;
            tape->n = 0;
            tape->room = way == 1 ? byte : whole;
            tape->byte[byte] ^= way == 2 ? 4 : 0;
            int status = kvlazy_state_read(rig->cache, 2, state_tape_read, tape);
            tape->byte[byte] ^= way == 2 ? 4 : 0;
            kvlazy_end_batch(rig->cache);
            if ((status == KVLAZY_OK) != (way == 0)) {
                return state_error("kvlazy_state_read", status);
            }
            *n_changed += sum_of_other(rig) != sum;
            ++*n_read;
        }
    }
    return 0;
}

int state_others(const struct bench_config *config)
{
    static struct state_rig rig;
    uint64_t n_byte = 0;
    uint32_t n_changed = 0, n_read = 0;
    memset(&rig, 0, sizeof(rig));
    if (state_open(&rig, OTHER_BYTES, false) != 0) {
        return -1;
    }
    int status = state_fill(&rig, 1, rig.n_cell / 2);
    status = status == 0 ? state_fill(&rig, 0, rig.n_cell / 2) : status;
    kvlazy_state_bytes(rig.cache, 0, &n_byte);
    struct state_tape tape = {.byte = state_fresh(n_byte + 1), .room = n_byte};
    if (status == 0 && (tape.byte == NULL || kvlazy_state_write(rig.cache, 0, state_tape_write, &tape) != KVLAZY_OK)) {
        status = bench_error("a state could not be written");
    }
    status = status == 0 ? read_all_ways(&rig, &tape, &n_changed, &n_read) : status;
    if (tape.byte != NULL) {
        state_unmap(tape.byte, n_byte + 1);
    }
    state_close(&rig);
    struct figure figure = {
        "state_other_seq_changed", n_changed, 0, "reads after which another sequence differs", "", "", "0"};
    snprintf(figure.ours, sizeof(figure.ours), "of %u: whole, cut, damaged", n_read);
    if (status == 0) {
        report_figure(config, &figure);
    }
    return status;
}
