/* SPDX-License-Identifier: MIT */
/*
 * A state through memory: written to pages that no one touched yet and read from a tape into a cache that gave all its
 * pages back, next to memcpy of the same bytes into pages as fresh, in turn. Row-major, and with V transposed, where
 * every element is turned on the way.
 */
#include "state.h"

#include <kvlazy/state.h>

#include <stdio.h>
#include <string.h>

enum { ROUNDS = 5 };

struct copy {
    struct state_rig rig;
    struct state_tape tape; /* holds the state that is read */
    struct bench_series write_ns, read_ns, copy_out_ns, copy_in_ns;
};

/* The bytes of a state, each time into fresh pages. */
static int write_once(struct copy *copy, struct bench_series *ns)
{
    struct state_tape tape = {.byte = state_fresh(copy->tape.room), .room = copy->tape.room};
    if (tape.byte == NULL) {
        return -1;
    }
    uint64_t start_ns = bench_now_ns();
    int status = kvlazy_state_write(copy->rig.cache, 0, state_tape_write, &tape);
    bench_series_add(ns, (double)(bench_now_ns() - start_ns));
    bool same = tape.n == copy->tape.room && memcmp(tape.byte, copy->tape.byte, tape.n) == 0;
    state_unmap(tape.byte, tape.room);
    if (status == KVLAZY_OK && !same) {
        return bench_error("a state that was read differs from the one that was written");
    }
    return status == KVLAZY_OK ? 0 : state_error("kvlazy_state_write", status);
}

/* As many bytes, from pages that are there. */
static int copy_once(struct copy *copy, struct bench_series *ns)
{
    unsigned char *map = state_fresh(copy->tape.room);
    if (map == NULL) {
        return -1;
    }
    uint64_t start_ns = bench_now_ns();
    memcpy(map, copy->tape.byte, copy->tape.room);
    bench_series_add(ns, (double)(bench_now_ns() - start_ns));
    state_unmap(map, copy->tape.room);
    return 0;
}

static int read_once(struct copy *copy, struct bench_series *ns)
{
    int status = kvlazy_clear(copy->rig.cache, true);
    copy->tape.n = 0;
    uint64_t start_ns = bench_now_ns();
    status = status == KVLAZY_OK ? kvlazy_state_read(copy->rig.cache, 0, state_tape_read, &copy->tape) : status;
    bench_series_add(ns, (double)(bench_now_ns() - start_ns));
    kvlazy_end_batch(copy->rig.cache);
    return status == KVLAZY_OK ? 0 : state_error("kvlazy_state_read", status);
}

static int rounds(struct copy *copy)
{
    for (int round = 0; round <= ROUNDS; round++) { /* the first is not counted */
        struct bench_series ignored = {.n = 0};
        bool counts = round > 0;
        if (read_once(copy, counts ? &copy->read_ns : &ignored) != 0 ||
            copy_once(copy, counts ? &copy->copy_in_ns : &ignored) != 0 ||
            write_once(copy, counts ? &copy->write_ns : &ignored) != 0 ||
            copy_once(copy, counts ? &copy->copy_out_ns : &ignored) != 0) {
            return -1;
        }
    }
    return 0;
}

static int make_tape(struct copy *copy)
{
    uint64_t n_byte;
    int status = kvlazy_state_bytes(copy->rig.cache, 0, &n_byte);
    if (status != KVLAZY_OK) {
        return state_error("kvlazy_state_bytes", status);
    }
    copy->tape = (struct state_tape){.byte = state_fresh(n_byte), .room = n_byte};
    if (copy->tape.byte == NULL) {
        return -1;
    }
    status = kvlazy_state_write(copy->rig.cache, 0, state_tape_write, &copy->tape);
    return status == KVLAZY_OK ? 0 : state_error("kvlazy_state_write", status);
}

static void report(const struct bench_config *config, const char *key, const char *what, const char *wanted,
                   struct bench_series *ns, struct bench_series *copy_ns)
{
    struct figure figure = {key, bench_series_at(copy_ns, 0.5) / bench_series_at(ns, 0.5), 3, what, "", "", wanted};
    report_time(figure.ours, sizeof(figure.ours), ns);
    report_time(figure.other, sizeof(figure.other), copy_ns);
    report_figure(config, &figure);
}

static int copy_layout(const struct bench_config *config, struct copy *copy, bool transposed)
{
    *copy = (struct copy){.tape = {.n = 0}};
    if (state_open(&copy->rig, state_bytes(config), transposed) != 0) {
        return -1;
    }
    int status = state_fill(&copy->rig, 0, copy->rig.n_cell);
    status = status == 0 ? make_tape(copy) : status;
    status = status == 0 ? rounds(copy) : status;
    if (copy->tape.byte != NULL) {
        state_unmap(copy->tape.byte, copy->tape.room);
    }
    state_close(&copy->rig);
    return status;
}

int state_copy(const struct bench_config *config)
{
    static struct copy copy;
    char what[80];
    if (copy_layout(config, &copy, false) != 0) {
        return -1;
    }
    snprintf(what, sizeof(what), "memcpy / write of a state of %.2f GiB", (double)copy.rig.n_byte / (1 << 30));
    report(config, "state_write_vs_copy", what, ">= 0.6", &copy.write_ns, &copy.copy_out_ns);
    report(config, "state_read_vs_copy", "memcpy / read of it", ">= 0.6", &copy.read_ns, &copy.copy_in_ns);
    if (copy_layout(config, &copy, true) != 0) {
        return -1;
    }
    report(config, "state_transposed_write_vs_copy", "  memcpy / write, all of it transposed", ">= 0.25",
           &copy.write_ns, &copy.copy_out_ns);
    report(config, "state_transposed_read_vs_copy", "  memcpy / read, all of it transposed", ">= 0.25", &copy.read_ns,
           &copy.copy_in_ns);
    double write = bench_series_at(&copy.copy_out_ns, 0.5) / bench_series_at(&copy.write_ns, 0.5);
    double read = bench_series_at(&copy.copy_in_ns, 0.5) / bench_series_at(&copy.read_ns, 0.5);
    struct figure figure = {"state_transposed_vs_copy",
                            write < read ? write : read,
                            3,
                            "memcpy / the slower of both, transposed",
                            "",
                            "",
                            ">= 0.25"};
    report_figure(config, &figure);
    return 0;
}
