/* SPDX-License-Identifier: MIT */
/*
 * What an engine waits for a server that hangs: a thread stops it (SIGSTOP) at a random moment of a request, that is
 * one that loads, computes and saves, or one that has all to save. Requests go on while it hangs and until it is asked
 * again in vain; then it goes on. The figure is the longest of all calls, less the median of the same call
 * while the server answers.
 */
#include "fleet.h"

#include "batches.h"
#include "idle.h"
#include "store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 10, CALM_REQUESTS = 5, ROWS_BYTES = 64 << 20, LOAD_MS = 2000, SAVE_MS = 2000, BACK_TRIES = 400 };
#define SERVER_BYTES (UINT64_C(512) << 20)

enum { CALL_LOAD, CALL_HOOK, CALL_SAVE, CALLS };

struct hung {
    struct fleet_server server;
    struct store_rig rig;
    uint64_t seed, request_ns; /* what one takes while the server answers */
    bool all_to_save; /* so are the requests of this round */
    struct bench_series calm_ns[2][CALLS];
    double most_ns[2][CALLS]; /* while it hangs */
    atomic_bool failed;
    uint32_t stop_in_us; /* for the thread */
    uint32_t n_request;  /* while it hung */
};

static void note(struct hung *hung, bool hangs, int call, uint64_t start_ns)
{
    double ns = (double)(bench_now_ns() - start_ns);
    if (!hangs) {
        bench_series_add(&hung->calm_ns[hung->all_to_save][call], ns);
    } else if (ns > hung->most_ns[hung->all_to_save][call]) {
        hung->most_ns[hung->all_to_save][call] = ns;
    }
}

/* Loads what there is, computes the rest, and asks a hook. *n_live: tokens that were loaded. */
static int begin_request(struct hung *hung, bool hangs, uint32_t *n_live)
{
    uint64_t n_row = 0, n_wrong = 0;
    double waited_ns;
    kvlazy_clear(hung->rig.cache, false);
    int status = kvlazy_init_batch(hung->rig.cache);
    uint64_t start_ns = bench_now_ns();
    *n_live = 0;
    status = status == KVLAZY_OK
                 ? kvlazy_store_load(hung->rig.store, hung->rig.cache, 0, &hung->rig.prompt, 0, LOAD_MS, n_live)
                 : status;
    note(hung, hangs, CALL_LOAD, start_ns);
    kvlazy_end_batch(hung->rig.cache);
    if (status != KVLAZY_OK) {
        return store_error("a load", status);
    }
    if (store_count_rows(&hung->rig, &n_row, &n_wrong) != 0) {
        return -1;
    }
    fleet_note_rows(n_row, n_wrong);
    start_ns = bench_now_ns();
    status = bench_hook(hung->rig.cache, 1, 0, &waited_ns);
    note(hung, hangs, CALL_HOOK, start_ns);
    return status == KVLAZY_OK ? store_compute(&hung->rig, *n_live) : store_error("a hook", status);
}

static int end_request(struct hung *hung, bool hangs)
{
    uint32_t n_saved;
    uint64_t start_ns = bench_now_ns();
    int status = kvlazy_store_save(hung->rig.store, hung->rig.cache, 0, &hung->rig.prompt, SAVE_MS, &n_saved);
    note(hung, hangs, CALL_SAVE, start_ns);
    return status == KVLAZY_OK ? 0 : store_error("a save", status);
}

static int request(struct hung *hung, bool hangs, uint32_t *n_live)
{
    int status = begin_request(hung, hangs, n_live);
    return status == 0 ? end_request(hung, hangs) : status;
}

static int forget(struct hung *hung)
{
    int status = kvlazy_store_forget(hung->rig.store, hung->rig.cache, &hung->rig.prompt);
    return status == KVLAZY_OK ? 0 : store_error("kvlazy_store_forget", status);
}

/* What calls take while the server answers: half of the requests have all to save. */
static int be_calm(struct hung *hung)
{
    uint32_t n_live;
    int status = request(hung, false, &n_live);
    memset(hung->calm_ns, 0, sizeof(hung->calm_ns)); /* the first one is not counted */
    uint64_t start_ns = bench_now_ns();
    for (int i = 0; status == 0 && i < 2 * CALM_REQUESTS; i++) {
        hung->all_to_save = i % 2 == 1;
        status = hung->all_to_save ? forget(hung) : 0;
        status = status == 0 ? request(hung, false, &n_live) : status;
    }
    hung->request_ns = (bench_now_ns() - start_ns) / (2 * CALM_REQUESTS);
    return status;
}

static void *stop_later(void *ctx)
{
    struct hung *hung = ctx;
    idle_nap_us(hung->stop_in_us);
    if (fleet_server_hang(&hung->server) != 0) {
        atomic_store(&hung->failed, true);
    }
    return NULL;
}

/* Until a request loads again: what the server rests for is over. */
static int wait_until_back(struct hung *hung)
{
    for (int i = 0; i < BACK_TRIES; i++) {
        uint32_t n_live;
        if (request(hung, true, &n_live) != 0) {
            return -1;
        }
        if (n_live == hung->rig.n_cell) {
            return 0;
        }
        idle_nap_us(20000);
    }
    return bench_error("the server is back, and nothing is loaded from it");
}

/* hang_ms: how long requests go on meanwhile. */
static int round_of(struct hung *hung, bool all_to_save, uint32_t hang_ms)
{
    pthread_t thread;
    uint32_t n_live;
    int status = all_to_save ? forget(hung) : 0;
    hung->all_to_save = all_to_save;
    hung->stop_in_us = idle_random(&hung->seed, (uint32_t)(hung->request_ns / 1000) + 1);
    if (status != 0 || pthread_create(&thread, NULL, stop_later, hung) != 0) {
        return status != 0 ? status : bench_error("pthread_create");
    }
    uint64_t end_ns = bench_now_ns() + hung->stop_in_us * UINT64_C(1000) + hang_ms * UINT64_C(1000000);
    do {
        status = request(hung, true, &n_live);
        hung->n_request++;
        idle_nap_us(10000);
    } while (status == 0 && bench_now_ns() < end_ns);
    pthread_join(thread, NULL);
    int went_on = fleet_server_go_on(&hung->server);
    if (status == 0 && atomic_load(&hung->failed)) {
        status = bench_error("the server could not be stopped");
    }
    return status != 0 || went_on != 0 ? -1 : wait_until_back(hung);
}

static int hang_again_and_again(struct hung *hung)
{
    int status = 0;
    for (int i = 0; status == 0 && i < ROUNDS; i++) {
        status = round_of(hung, i % 2 == 1, i == ROUNDS - 1 ? 3500 : 300); /* the last one is asked again in vain */
    }
    return status;
}

static void report(const struct bench_config *config, struct hung *hung)
{
    double most_ms = 0, extra_ms[CALLS];
    for (int i = 0; i < CALLS; i++) {
        extra_ms[i] = 0;
        for (int all = 0; all < 2; all++) {
            double here_ms = (hung->most_ns[all][i] - bench_series_at(&hung->calm_ns[all][i], 0.5)) / 1e6;
            extra_ms[i] = here_ms > extra_ms[i] ? here_ms : extra_ms[i];
        }
        most_ms = extra_ms[i] > most_ms ? extra_ms[i] : most_ms;
    }
    struct figure figure = {
        "fleet_hung_server_extra_ms", most_ms, 1, "a server that hangs: longest call more, ms", "", "", "<= 450"};
    snprintf(figure.ours, sizeof(figure.ours), "load %.0f, save %.0f, hook %.1f", extra_ms[CALL_LOAD],
             extra_ms[CALL_SAVE], extra_ms[CALL_HOOK]);
    snprintf(figure.other, sizeof(figure.other), "%d times, %u requests", ROUNDS, hung->n_request);
    report_figure(config, &figure);
}

int fleet_hung(const struct bench_config *config)
{
    static struct hung hung;
    kvlazy_store_ops ops;
    memset(&hung, 0, sizeof(hung));
    hung.seed = 1;
    int status = fleet_server_start(&hung.server, SERVER_BYTES);
    status = status == 0 ? fleet_place(&hung.server, &ops) : status;
    status = status == 0 ? store_open_upon(&hung.rig, &ops, ROWS_BYTES, false) : status;
    status = status == 0 ? be_calm(&hung) : status;
    status = status == 0 ? hang_again_and_again(&hung) : status;
    store_close(&hung.rig);
    fleet_server_end(&hung.server);
    if (status == 0) {
        report(config, &hung);
    }
    return status;
}
