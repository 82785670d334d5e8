/* SPDX-License-Identifier: MIT */
/*
 * Saving to a Redis server on a Unix socket and loading from it, beside hiredis alone that moves as many bytes in blobs
 * and fields of the same sizes, in turn. hiredis gets all the help there is: the fields of a blob go out
 * together and come back together, no name is changed and nothing expires. What it reads goes into fresh pages, as rows
 * do that are loaded.
 */
#include "fleet.h"
#include "idle.h"
#include "state.h"
#include "store.h"

#include <hiredis/hiredis.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 9, FIELD_BYTES = 508 << 10, HEADER_BYTES = 4096, REST_US = 1100000 };
enum { SAVE, RAW_SAVE, LOAD, RAW_LOAD, WAYS };
#define SERVER_BYTES (UINT64_C(512) << 20)

struct speed {
    struct fleet_server server;
    struct store_rig rig;
    redisContext *raw;
    unsigned char *byte; /* [n_blob * blob_bytes]: what hiredis writes */
    uint64_t n_blob, blob_bytes;
    unsigned char *to; /* where it reads to */
    struct bench_series ns[WAYS];
    int n_left_out; /* rounds */
};

/* ------------------------------------------------------------------------------------------------------
 * hiredis alone
 */
static int raw_error(const struct speed *speed, const char *what)
{
    return bench_error("hiredis: %s: %s", what, speed->raw == NULL ? "out of memory" : speed->raw->errstr);
}

static uint64_t n_field(const struct speed *speed)
{
    return (speed->blob_bytes + FIELD_BYTES - 1) / FIELD_BYTES;
}

static size_t field_bytes(const struct speed *speed, uint64_t field)
{
    uint64_t left = speed->blob_bytes - field * FIELD_BYTES;
    return left < FIELD_BYTES ? (size_t)left : FIELD_BYTES;
}

static int raw_save_blob(struct speed *speed, uint64_t blob)
{
    for (uint64_t f = 0; f < n_field(speed); f++) {
        const void *data = speed->byte + blob * speed->blob_bytes + f * FIELD_BYTES;
        if (redisAppendCommand(speed->raw, "HSET raw:%llu %llu %b", (unsigned long long)blob, (unsigned long long)f,
                               data, field_bytes(speed, f)) != REDIS_OK) {
            return raw_error(speed, "HSET");
        }
    }
    for (uint64_t f = 0; f < n_field(speed); f++) {
        void *reply = NULL;
        if (redisGetReply(speed->raw, &reply) != REDIS_OK) {
            return raw_error(speed, "HSET");
        }
        bool good = ((redisReply *)reply)->type == REDIS_REPLY_INTEGER;
        freeReplyObject(reply);
        if (!good) {
            return bench_error("the server refused a field");
        }
    }
    return 0;
}

static int raw_load_blob(struct speed *speed, uint64_t blob, unsigned char *to)
{
    for (uint64_t f = 0; f < n_field(speed); f++) {
        if (redisAppendCommand(speed->raw, "HGET raw:%llu %llu", (unsigned long long)blob, (unsigned long long)f) !=
            REDIS_OK) {
            return raw_error(speed, "HGET");
        }
    }
    for (uint64_t f = 0; f < n_field(speed); f++) {
        void *got = NULL;
        if (redisGetReply(speed->raw, &got) != REDIS_OK) {
            return raw_error(speed, "HGET");
        }
        redisReply *reply = got;
        bool good = reply->type == REDIS_REPLY_STRING && (size_t)reply->len == field_bytes(speed, f);
        if (good) {
            memcpy(to + f * FIELD_BYTES, reply->str, (size_t)reply->len);
        }
        freeReplyObject(reply);
        if (!good) {
            return bench_error("the server has not what it was given");
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * The four ways: 0, -1, or 1 where the server was left alone, as it is when it did not answer in time
 */
static int save_once(struct speed *speed)
{
    return store_save(&speed->rig) == 0 ? 0 : 1;
}

static int raw_save_once(struct speed *speed)
{
    int status = 0;
    for (uint64_t i = 0; status == 0 && i < speed->n_blob; i++) {
        status = raw_save_blob(speed, i);
    }
    return status;
}

static int load_once(struct speed *speed)
{
    return store_load(&speed->rig) == 0 ? 0 : 1;
}

static int raw_load_once(struct speed *speed)
{
    int status = 0;
    for (uint64_t i = 0; status == 0 && i < speed->n_blob; i++) {
        status = raw_load_blob(speed, i, speed->to + i * speed->blob_bytes);
    }
    return status;
}

static int clear_cache(struct speed *speed)
{
    int status = kvlazy_clear(speed->rig.cache, true);
    return status == KVLAZY_OK ? 0 : store_error("kvlazy_clear", status);
}

static int count_rows(struct speed *speed)
{
    uint64_t n_row = 0, n_wrong = 0;
    int status = store_count_rows(&speed->rig, &n_row, &n_wrong);
    fleet_note_rows(n_row, n_wrong);
    return status;
}

static size_t raw_bytes(const struct speed *speed)
{
    return (size_t)(speed->n_blob * speed->blob_bytes);
}

static int take_fresh_pages(struct speed *speed)
{
    speed->to = state_fresh(raw_bytes(speed));
    return speed->to != NULL ? 0 : -1;
}

static int compare_bytes(struct speed *speed)
{
    bool same = memcmp(speed->to, speed->byte, raw_bytes(speed)) == 0;
    state_unmap(speed->to, raw_bytes(speed));
    speed->to = NULL;
    return same ? 0 : bench_error("the server has other bytes than it was given");
}

/* What comes before and after is not timed. */
static const struct way {
    int (*before)(struct speed *speed);
    int (*run)(struct speed *speed);
    int (*after)(struct speed *speed);
} ways[WAYS] = {
    [SAVE] = {NULL, save_once, NULL},
    [RAW_SAVE] = {NULL, raw_save_once, NULL},
    [LOAD] = {clear_cache, load_once, count_rows},
    [RAW_LOAD] = {take_fresh_pages, raw_load_once, compare_bytes},
};

static int time_way(struct speed *speed, int way, double *ns)
{
    int status = ways[way].before == NULL ? 0 : ways[way].before(speed);
    uint64_t start_ns = bench_now_ns();
    status = status == 0 ? ways[way].run(speed) : status;
    *ns = (double)(bench_now_ns() - start_ns);
    return status == 0 && ways[way].after != NULL ? ways[way].after(speed) : status;
}

/* ------------------------------------------------------------------------------------------------------
 * In turn
 */
static int round_of(struct speed *speed, int k, bool counts)
{
    static const int order[2][WAYS] = {{SAVE, RAW_SAVE, LOAD, RAW_LOAD}, {RAW_SAVE, SAVE, RAW_LOAD, LOAD}};
    double ns[WAYS];
    int status = fleet_server_empty(&speed->server);
    for (int i = 0; status == 0 && i < WAYS; i++) {
        status = time_way(speed, order[k % 2][i], &ns[order[k % 2][i]]);
    }
    for (int i = 0; status == 0 && counts && i < WAYS; i++) {
        bench_series_add(&speed->ns[i], ns[i]);
    }
    return status;
}

/* A round in which the server was left alone does not count: it is tried again when that is over. The cache may have
 * lost what could not be loaded. */
static int again(struct speed *speed)
{
    idle_nap_us(REST_US);
    return clear_cache(speed) == 0 ? store_compute(&speed->rig, 0) : -1;
}

static int measure(struct speed *speed)
{
    int status = round_of(speed, 0, false);
    for (int k = 0; status >= 0 && speed->ns[SAVE].n < ROUNDS && speed->n_left_out < ROUNDS; k++) {
        speed->n_left_out += status;
        status = status == 0 ? 0 : again(speed);
        status = status == 0 ? round_of(speed, k, true) : status;
    }
    return status <= 0 ? status : bench_error("the server did not answer in time, again and again");
}

static void report(const struct bench_config *config, struct speed *speed)
{
    double save = bench_series_at(&speed->ns[SAVE], 0.5), load = bench_series_at(&speed->ns[LOAD], 0.5);
    char what[80];
    struct figure figure = {"store_redis_load_us_per_token",
                            load / 1e3 / speed->rig.n_cell,
                            1,
                            "load by Redis: us a token of 28 layers x 2 x 2 KiB",
                            "",
                            "",
                            "<= 300"};
    snprintf(figure.ours, sizeof(figure.ours), "%u tokens", speed->rig.n_cell);
    snprintf(figure.other, sizeof(figure.other), "%d rounds, %d left out", ROUNDS, speed->n_left_out);
    report_figure(config, &figure);
    snprintf(what, sizeof(what), "hiredis alone / save of %.2f GiB", (double)speed->rig.n_byte / (1 << 30));
    figure = (struct figure){
        "store_redis_save_vs_raw", bench_series_at(&speed->ns[RAW_SAVE], 0.5) / save, 3, what, "", "", ">= 0.7"};
    report_time(figure.ours, sizeof(figure.ours), &speed->ns[SAVE]);
    report_time(figure.other, sizeof(figure.other), &speed->ns[RAW_SAVE]);
    report_figure(config, &figure);
    figure = (struct figure){"store_redis_load_vs_raw",
                             bench_series_at(&speed->ns[RAW_LOAD], 0.5) / load,
                             3,
                             "hiredis alone / load of it",
                             "",
                             "",
                             ">= 0.7"};
    report_time(figure.ours, sizeof(figure.ours), &speed->ns[LOAD]);
    report_time(figure.other, sizeof(figure.other), &speed->ns[RAW_LOAD]);
    report_figure(config, &figure);
}

/* ------------------------------------------------------------------------------------------------------
 * The figure
 */
static int open_speed(struct speed *speed, const struct bench_config *config)
{
    kvlazy_store_ops ops;
    uint64_t n_byte = config->store_bytes != 0 ? config->store_bytes : UINT64_C(256) << 20, here = store_bytes(config);
    int status = fleet_server_start(&speed->server, SERVER_BYTES + 3 * n_byte);
    status = status == 0 ? fleet_place(&speed->server, &ops) : status;
    if (status != 0) {
        return status;
    }
    status = store_open_upon(&speed->rig, &ops, n_byte < here ? n_byte : here, false);
    speed->n_blob = speed->rig.n_cell / STORE_BLOCK;
    speed->blob_bytes = HEADER_BYTES + UINT64_C(2) * STORE_LAYERS * STORE_ROW_BYTES * STORE_BLOCK;
    speed->byte = status == 0 ? state_fresh(raw_bytes(speed)) : NULL;
    for (uint64_t at = 0; speed->byte != NULL && at < speed->n_blob * speed->blob_bytes; at += HEADER_BYTES) {
        memset(speed->byte + at, (int)(at / HEADER_BYTES) | 1, HEADER_BYTES);
    }
    speed->raw = redisConnectUnix(speed->server.socket);
    if (speed->raw == NULL || speed->raw->err != 0) {
        return raw_error(speed, "connect");
    }
    return speed->byte == NULL ? -1 : status;
}

int fleet_speed(const struct bench_config *config)
{
    static struct speed speed;
    memset(&speed, 0, sizeof(speed));
    int status = open_speed(&speed, config);
    status = status == 0 ? measure(&speed) : status;
    if (speed.to != NULL) {
        state_unmap(speed.to, raw_bytes(&speed));
    }
    if (speed.byte != NULL) {
        state_unmap(speed.byte, raw_bytes(&speed));
    }
    if (speed.raw != NULL) {
        redisFree(speed.raw);
    }
    store_close(&speed.rig);
    fleet_server_end(&speed.server);
    if (status == 0) {
        report(config, &speed);
    }
    return status;
}
