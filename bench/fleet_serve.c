/* SPDX-License-Identifier: MIT */
/*
 * Four engines serve one trace, whose requests a load balancer without affinity deals out at random, and always in the
 * same way. Each is a process with a cache of its own, replays its part of the trace and compares all rows that it
 * keeps or loads. Four times: without a store, with a store for each alone, and twice with one server in common: once
 * in the order of the virtual clock that all share, so that an engine finds what another had saved before, and nothing
 * that is saved later; and once as fast as each can, all at the same time.
 */
#include "fleet.h"

#include "idle.h"
#include "replay.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <bsd/stdlib.h>

enum { ENGINES = 4, SEED = 1 };
#define SERVER_BYTES (UINT64_C(3) << 30)

/* What the processes share. */
struct common {
    _Atomic uint64_t at_us[ENGINES]; /* an engine has nothing more to do with the store before this */
    uint64_t n_row[ENGINES], n_wrong[ENGINES];
};

struct ship {
    struct bench_config config;
    const struct trace *trace;
    struct trace part[ENGINES];
    struct fleet_server server;
    struct common *common;
    struct replay_result *result[ENGINES];
    int number; /* of this process */
};

/* What one way of serving came to. */
struct outcome {
    uint64_t prompt_tokens, prefilled_tokens, written_bytes, read_bytes, n_lost;
};

static void *shared_new(size_t n_byte)
{
    void *map = mmap(NULL, n_byte, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return map == MAP_FAILED ? NULL : map;
}

/* ------------------------------------------------------------------------------------------------------
 * The trace, dealt out
 */
static int deal(struct ship *ship)
{
    uint64_t seed = SEED;
    for (size_t i = 0; i < ship->trace->n_request; i++) {
        const struct request *request = &ship->trace->request[i];
        struct trace *part = &ship->part[idle_random(&seed, ENGINES)];
        if (trace_append(part, request->arrival_us, request->context_tokens, request->generated_tokens) != 0) {
            return -1;
        }
        part->request[part->n_request - 1].first_block = request->first_block;
    }
    for (int k = 0; k < ENGINES; k++) { /* the blocks are those of the whole */
        ship->part[k].block = ship->trace->block;
        ship->part[k].n_block_id = ship->trace->n_block_id;
        if (ship->part[k].n_request == 0) {
            return bench_error("%zu requests are too few for %d engines", ship->trace->n_request, ENGINES);
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * One engine
 */

/* The calls on the store come in the order of the shared clock; at one instant the engine of the lower number is first.
 */
static void take_turn(void *ctx, uint64_t now_us)
{
    struct ship *ship = ctx;
    atomic_store(&ship->common->at_us[ship->number], now_us);
    for (int k = 0; k < ENGINES; k++) {
        for (;;) {
            uint64_t at_us = atomic_load(&ship->common->at_us[k]);
            if (k == ship->number || at_us > now_us || (at_us == now_us && k > ship->number)) {
                break;
            }
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        }
    }
}

static int place(void *ctx, kvlazy_store_ops *ops)
{
    return fleet_place(&((struct ship *)ctx)->server, ops);
}

static void run_engine(struct ship *ship, const struct policy *policy, bool together, bool in_turn)
{
    int k = ship->number;
    const struct replay_grid no_grid = {.n_sample = 0};
    struct bench_fleet fleet = {.place = together ? place : NULL,
                                .turn = in_turn ? take_turn : NULL,
                                .ctx = ship,
                                .n_row = &ship->common->n_row[k],
                                .n_wrong = &ship->common->n_wrong[k]};
    ship->config.fleet = &fleet;
    int status = replay_run(&ship->config, &ship->part[k], policy, &no_grid, ship->result[k]);
    atomic_store(&ship->common->at_us[k], UINT64_MAX); /* the others wait for it no more */
    if (status != 0) {
        snprintf(ship->result[k]->error, sizeof(ship->result[k]->error), "%s", bench_why());
    }
    _exit(status == 0 ? 0 : 1);
}

/* ------------------------------------------------------------------------------------------------------
 * All of them
 */
static void start_engine(struct ship *ship, int k, pid_t *child, const struct policy *policy, bool together,
                         bool in_turn)
{
    pid_t parent = getpid();
    memset(ship->result[k], 0, sizeof(*ship->result[k]));
    child[k] = fork();
    if (child[k] == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        ship->number = k;
        run_engine(ship, policy, together, in_turn);
    }
}

/* One that fails lets the others go on: it may have nothing more to do with the store. */
static int wait_for_engines(struct ship *ship, pid_t *child)
{
    int status = 0;
    for (int left = ENGINES; left > 0;) {
        int how = 0, k = 0;
        pid_t pid = wait(&how);
        while (k < ENGINES && child[k] != pid) {
            k++;
        }
        if (pid < 0) {
            return bench_error("wait: %s", strerror(errno));
        }
        if (k == ENGINES) { /* the engines go on without it */
            ship->server.pid = 0;
            status = bench_error("the server ended");
            continue;
        }
        left--;
        atomic_store(&ship->common->at_us[k], UINT64_MAX);
        if (!WIFEXITED(how) || WEXITSTATUS(how) != 0) {
            status = bench_error("engine %d: %s", k, WIFEXITED(how) ? ship->result[k]->error : "died of a signal");
        }
    }
    return status;
}

static int serve(struct ship *ship, const struct policy *policy, bool together, bool in_turn, struct outcome *outcome)
{
    pid_t child[ENGINES];
    *outcome = (struct outcome){.prompt_tokens = 0};
    memset(ship->common, 0, sizeof(*ship->common));
    fflush(NULL);
    for (int k = 0; k < ENGINES; k++) {
        start_engine(ship, k, child, policy, together, in_turn);
        if (child[k] < 0) { /* those that run wait for it */
            int error = errno;
            for (int i = 0; i < k; i++) {
                kill(child[i], SIGKILL);
                waitpid(child[i], NULL, 0);
            }
            return bench_error("fork: %s", strerror(error));
        }
    }
    int status = wait_for_engines(ship, child);
    for (int k = 0; k < ENGINES; k++) {
        const struct replay_result *result = ship->result[k];
        outcome->prompt_tokens += result->prompt_tokens;
        outcome->prefilled_tokens += result->prefilled_tokens;
        outcome->written_bytes += result->stored.written_bytes;
        outcome->read_bytes += result->stored.read_bytes;
        outcome->n_lost += result->stored.n_lost;
        fleet_note_rows(ship->common->n_row[k], ship->common->n_wrong[k]);
    }
    return status;
}

static double share(const struct outcome *outcome)
{
    return (double)outcome->prefilled_tokens / (double)outcome->prompt_tokens;
}

static void report(const struct bench_config *config, const struct outcome *none, const struct outcome *alone,
                   const struct outcome *together, const struct outcome *at_once)
{
    struct figure figure = {
        "fleet_prefilled_share", share(together), 3, "prompt tokens computed, one server in common", "", "", "<= 0.65"};
    snprintf(figure.ours, sizeof(figure.ours), "%.0f MiB written, %.0f read",
             (double)together->written_bytes / (1 << 20), (double)together->read_bytes / (1 << 20));
    snprintf(figure.other, sizeof(figure.other), "at once %.3f; calls lost: %llu, %llu", share(at_once),
             (unsigned long long)together->n_lost, (unsigned long long)at_once->n_lost);
    report_figure(config, &figure);
    figure = (struct figure){
        "fleet_alone_prefilled_share", share(alone), 3, "the same, a store for each alone", "", "", NULL};
    snprintf(figure.ours, sizeof(figure.ours), "%.0f MiB written, %.0f read", (double)alone->written_bytes / (1 << 20),
             (double)alone->read_bytes / (1 << 20));
    report_figure(config, &figure);
    figure = (struct figure){"fleet_none_prefilled_share", share(none), 3, "the same, no store", "", "", NULL};
    report_figure(config, &figure);
    figure = (struct figure){
        "fleet_written_mib", (double)together->written_bytes / (1 << 20), 1, "MiB written to it", "", "", NULL};
    report_figure(config, &figure);
    figure = (struct figure){
        "fleet_read_mib", (double)together->read_bytes / (1 << 20), 1, "MiB read from it", "", "", NULL};
    report_figure(config, &figure);
}

/* ------------------------------------------------------------------------------------------------------
 * The figure
 */
static int serve_in_all_ways(struct ship *ship, const struct bench_config *config)
{
    struct outcome none, alone, together, at_once;
    if (serve(ship, &policy_kvlazy, false, false, &none) != 0 ||
        serve(ship, &policy_store, false, false, &alone) != 0 ||
        serve(ship, &policy_store, true, true, &together) != 0 || fleet_server_empty(&ship->server) != 0 ||
        serve(ship, &policy_store, true, false, &at_once) != 0) {
        return -1;
    }
    report(config, &none, &alone, &together, &at_once);
    return 0;
}

static int open_ship(struct ship *ship, const struct bench_config *config)
{
    bench_config_default(&ship->config);
    ship->config.data_dir = config->data_dir;
    ship->config.kv_size = 16384;
    ship->config.n_layer = 4;
    ship->config.row_bytes = 256;
    ship->common = shared_new(sizeof(*ship->common));
    bool good = ship->common != NULL;
    for (int k = 0; good && k < ENGINES; k++) {
        ship->result[k] = shared_new(sizeof(*ship->result[k]));
        good = ship->result[k] != NULL;
    }
    return good ? deal(ship) : bench_error("out of memory");
}

static void close_ship(struct ship *ship)
{
    fleet_server_end(&ship->server);
    for (int k = 0; k < ENGINES; k++) {
        free(ship->part[k].request);
        if (ship->result[k] != NULL) {
            munmap(ship->result[k], sizeof(*ship->result[k]));
        }
    }
    if (ship->common != NULL) {
        munmap(ship->common, sizeof(*ship->common));
    }
}

int fleet_serve(const struct bench_config *config)
{
    struct ship ship = {.number = -1};
    struct trace trace = {0};
    if (config->trace_path == NULL) {
        bench_error("fleet_prefilled_share wants a trace with hash_ids: --trace FILE");
        return 1;
    }
    if (trace_read(&trace, config->trace_path, config->take) != 0) {
        return -1;
    }
    ship.trace = &trace;
    int status = trace.block == NULL ? bench_error("%s has no column hash_ids", config->trace_path) : 0;
    status = status == 0 ? open_ship(&ship, config) : status;
    status = status == 0 ? fleet_server_start(&ship.server, SERVER_BYTES) : status;
    status = status == 0 ? serve_in_all_ways(&ship, config) : status;
    close_ship(&ship);
    trace_free(&trace);
    return status;
}
