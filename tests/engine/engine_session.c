/* SPDX-License-Identifier: MIT */
/*
 * engine_session: runs steps on two engines and holds one against the other; engine_session.h says what for. The
 * clock moves by a little with every batch and by what the steps say, and only here. A step that goes wrong is
 * described in the report and ends the session; nothing is asserted, since the bench runs it too.
 */
#include "engine_session.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvlazy/arena.h>

enum {
    KV_SIZE = 2048,
    KV_SIZE_INITIAL = 256,
    IDLE_MS = 30000,
    BATCH_MS = 15,       /* what computing one batch is said to take */
    MOST_WAKE_UPS = 200, /* of one idle time: poll must not ask to be called for nothing */
};

struct engine_session {
    engine_config config;
    bool is_unified, has_own_tensors, has_one_clock;
    engine_kv *kv_plain, *kv_lazy;
    engine *plain, *lazy;
    kvlazy_mem mem;
    uint64_t clock_ms;
    uint8_t prompt[KV_SIZE];
    char model_tag[64];
    bool is_shared; /* a cell may have several owners */
    engine_session_report report;
};

/* What a step is held against afterwards. */
typedef struct session_mark {
    kvlazy_stats_info stats;
    engine_counts counts;
    uint64_t n_pos;
} session_mark;

static int fail(engine_session *s, const char *format, ...)
{
    va_list args;

    if (s->report.failure[0] == '\0') {
        va_start(args, format);
        vsnprintf(s->report.failure, sizeof s->report.failure, format, args);
        va_end(args);
    }
    return KVLAZY_ESTATE;
}

static uint64_t session_clock(void *ctx)
{
    return ((const engine_session *)ctx)->clock_ms;
}

kvlazy_cache *engine_session_cache(const engine_session *s)
{
    return s->kv_lazy->cache;
}

static void take_stats(engine_session *s, kvlazy_stats_info *stats)
{
    *stats = (kvlazy_stats_info){.struct_size = sizeof *stats};
    kvlazy_stats(engine_session_cache(s), stats);
    if (stats->touched_bytes > s->report.peak_touched_bytes) {
        s->report.peak_touched_bytes = stats->touched_bytes;
    }
}

static void take_mark(engine_session *s, session_mark *mark)
{
    take_stats(s, &mark->stats);
    engine_get_counts(s->lazy, &mark->counts);
    mark->n_pos = 0;
    for (kvlazy_seq_id i = 0; i < ENGINE_SESSION_SLOTS; i++) {
        mark->n_pos += (uint64_t)(s->kv_lazy->ops->seq_pos_max(s->kv_lazy, i) + 1);
    }
}

static int check(engine_session *s)
{
    const char *reason = NULL;

    if (kvlazy_check(engine_session_cache(s), &reason) != KVLAZY_OK) {
        return fail(s, "kvlazy_check: %s", reason != NULL ? reason : "no reason given");
    }
    s->report.n_check++;
    return KVLAZY_OK;
}

static int after_lazy_batch(void *ctx)
{
    engine_session *s = ctx;
    kvlazy_stats_info stats;

    s->clock_ms += BATCH_MS;
    take_stats(s, &stats);
    return check(s);
}

/* ---- comparison ---- */

static void compare_logits(engine_session *s, const float *a, const float *b)
{
    const uint32_t n = s->config.dims.n_vocab;

    s->report.n_compared++;
    s->report.n_differing += memcmp(a, b, n * sizeof *a) != 0;
    for (uint32_t i = 0; i < n; i++) {
        const double difference = fabs((double)a[i] - (double)b[i]);

        if (!isfinite(difference)) {
            s->report.max_dlogit = INFINITY;
        } else if (difference > s->report.max_dlogit) {
            s->report.max_dlogit = difference;
        }
    }
}

static int compare(engine_session *s)
{
    for (uint32_t slot = 0; slot < ENGINE_SESSION_SLOTS; slot++) {
        uint32_t n_plain, n_lazy;
        const uint8_t *plain = engine_record(s->plain, slot, &n_plain);
        const uint8_t *lazy = engine_record(s->lazy, slot, &n_lazy);

        if (n_plain != n_lazy) {
            return fail(s, "slot %u holds %u tokens on calloc and %u on kvlazy", slot, n_plain, n_lazy);
        }
        for (uint32_t pos = 0; pos < n_plain; pos++) {
            if (plain[pos] != lazy[pos]) {
                return fail(s, "slot %u position %u: another token", slot, pos);
            }
            if (!engine_is_loaded(s->lazy, slot, pos)) {
                compare_logits(s, engine_logits(s->plain, slot, pos), engine_logits(s->lazy, slot, pos));
            }
        }
    }
    if (s->report.n_differing != 0) {
        return fail(s, "%llu of %llu logit vectors differ, by up to %g", (unsigned long long)s->report.n_differing,
                    (unsigned long long)s->report.n_compared, s->report.max_dlogit);
    }
    return s->report.max_dlogit == 0.0 ? KVLAZY_OK : fail(s, "a logit is no number");
}

/* ---- steps ---- */

/* Lets ms pass as a server would: polls, sleeps as long as it was told to, polls again. */
static int pass(engine_session *s, uint64_t ms)
{
    const uint64_t end = s->clock_ms + ms;

    for (uint32_t wake_ups = 0; wake_ups < MOST_WAKE_UPS; wake_ups++) {
        uint64_t next_ms;
        const int status = engine_idle(s->lazy, &next_ms);

        if (status != KVLAZY_OK) {
            return fail(s, "poll: %s", kvlazy_status_name(status));
        }
        if (check(s) != KVLAZY_OK) {
            return KVLAZY_ESTATE;
        }
        if (next_ms > end - s->clock_ms) {
            s->clock_ms = end;
            return KVLAZY_OK;
        }
        s->clock_ms += next_ms;
    }
    return fail(s, "poll asked to be called more than %d times in %llu ms", MOST_WAKE_UPS, (unsigned long long)ms);
}

static int prompt(engine_session *s, const engine_step *step)
{
    const uint32_t n = step->n_a + step->n_b;
    const int expected = step->expect & ENGINE_FAILED ? ENGINE_ECOMPUTE : KVLAZY_OK;

    if (step->a + step->n_a > engine_text_length || step->b + step->n_b > engine_text_length || n > KV_SIZE) {
        return fail(s, "the text is too short");
    }
    memcpy(s->prompt, engine_text + step->a, step->n_a);
    memcpy(s->prompt + step->n_a, engine_text + step->b, step->n_b);
    for (uint32_t slot = 0; slot < ENGINE_SESSION_SLOTS; slot++) {
        int plain, lazy;

        const uint32_t from = step->from != 0 ? step->from - 1 : slot;

        if (!(step->slots >> slot & 1)) {
            continue;
        }
        s->is_shared |= from != slot;
        plain = engine_prompt_from(s->plain, slot, from, s->prompt, n);
        lazy = engine_prompt_from(s->lazy, slot, from, s->prompt, n);
        if (plain == expected && lazy == expected && expected != KVLAZY_OK) {
            plain = engine_prompt(s->plain, slot, s->prompt, n);
            lazy = engine_prompt(s->lazy, slot, s->prompt, n);
        }
        if (plain != KVLAZY_OK || lazy != KVLAZY_OK) {
            return fail(s, "prompt of slot %u: %d on calloc, %d on kvlazy", slot, plain, lazy);
        }
    }
    return KVLAZY_OK;
}

static int decode(engine_session *s, const engine_step *step)
{
    uint32_t slots[ENGINE_SESSION_SLOTS], n_slot = 0;
    int status = KVLAZY_OK;

    for (uint32_t slot = 0; slot < ENGINE_SESSION_SLOTS; slot++) {
        if (step->slots >> slot & 1) {
            slots[n_slot++] = slot;
        }
    }
    for (uint32_t round = 0; status == KVLAZY_OK && round < step->n; round++) {
        const int plain = engine_decode(s->plain, slots, n_slot);
        const int lazy = engine_decode(s->lazy, slots, n_slot);

        if (plain != KVLAZY_OK || lazy != KVLAZY_OK) {
            return fail(s, "decode: %d on calloc, %d on kvlazy", plain, lazy);
        }
        status = pass(s, step->ms);
    }
    return status;
}

static int drop(engine_session *s, const engine_step *step)
{
    for (uint32_t slot = 0; slot < ENGINE_SESSION_SLOTS; slot++) {
        if (step->slots >> slot & 1 &&
            (engine_drop(s->plain, slot) != KVLAZY_OK || engine_drop(s->lazy, slot) != KVLAZY_OK)) {
            return fail(s, "drop of slot %u", slot);
        }
    }
    return KVLAZY_OK;
}

static int shift(engine_session *s, const engine_step *step)
{
    for (uint32_t slot = 0; slot < ENGINE_SESSION_SLOTS; slot++) {
        if (step->slots >> slot & 1 && (engine_shift(s->plain, slot, step->a, step->n) != KVLAZY_OK ||
                                        engine_shift(s->lazy, slot, step->a, step->n) != KVLAZY_OK)) {
            return fail(s, "shift of slot %u", slot);
        }
    }
    return KVLAZY_OK;
}

static int restore(engine_session *s, const engine_step *step)
{
    for (uint32_t slot = 0; slot < ENGINE_SESSION_SLOTS; slot++) {
        if (step->slots >> slot & 1 && (engine_restore(s->plain, slot, step->n != 0) != KVLAZY_OK ||
                                        engine_restore(s->lazy, slot, step->n != 0) != KVLAZY_OK)) {
            return fail(s, "restore of slot %u", slot);
        }
    }
    return KVLAZY_OK;
}

static int act(engine_session *s, const engine_step *step)
{
    switch (step->what) {
    case ENGINE_PROMPT:
        return prompt(s, step);
    case ENGINE_DECODE:
        return decode(s, step);
    case ENGINE_DROP:
        return drop(s, step);
    case ENGINE_IDLE:
        return pass(s, step->ms);
    case ENGINE_SHIFT:
        return shift(s, step);
    case ENGINE_RESTORE:
        return restore(s, step);
    case ENGINE_TRIM:
        return kvlazy_trim(engine_session_cache(s), step->n) == KVLAZY_OK ? KVLAZY_OK : fail(s, "trim to %u", step->n);
    case ENGINE_BREAK:
        engine_break(s->plain, step->a, step->n);
        engine_break(s->lazy, step->a, step->n);
        return KVLAZY_OK;
    default:
        return fail(s, "no such step");
    }
}

/* ---- expectations ---- */

/* What a step is held to in this kind of cache. */
static uint32_t asked_of(const engine_session *s, uint32_t expect)
{
    const bool is_off = (expect & ENGINE_IF_BUSY && s->has_one_clock) || (expect & ENGINE_IF_UNIFIED && !s->is_unified);
    const uint32_t off = ENGINE_EVICTED | ENGINE_RECOMPUTED | ENGINE_REFUSED | ENGINE_MOVED;

    return expect & ~(is_off ? off : 0) & ~(ENGINE_IF_BUSY | ENGINE_IF_UNIFIED);
}

/* A page that tensors share with bytes of the engine stays: here where they begin and where they end. */
static uint64_t shared_bytes(const engine_session *s)
{
    return s->has_own_tensors ? 2 * (uint64_t)kvlazy_page_bytes(&s->mem) : 0;
}

static int expect(engine_session *s, const engine_step *step, const session_mark *was)
{
    session_mark is;
    const uint32_t asked = asked_of(s, step->expect);
    uint32_t seen = 0;

    take_mark(s, &is);
    seen |= is.stats.touched_bytes > was->stats.touched_bytes ? ENGINE_GREW : 0u;
    seen |= is.counts.recomputed > was->counts.recomputed ? ENGINE_RECOMPUTED : 0u;
    seen |= is.counts.loaded > was->counts.loaded ? ENGINE_RECOMPUTED : 0u;
    seen |= is.counts.reused > was->counts.reused ? ENGINE_REUSED : 0u;
    seen |= is.counts.refused > was->counts.refused ? ENGINE_REFUSED : 0u;
    seen |= is.counts.undone > was->counts.undone ? ENGINE_UNDONE : 0u;
    seen |= asked & ENGINE_FAILED; /* prompt() has seen to it */
    seen |= is.stats.released_bytes > was->stats.released_bytes ? ENGINE_RELEASED : 0u;
    if (is.stats.evicted_cells > was->stats.evicted_cells && is.stats.n_evict > was->stats.n_evict &&
        is.n_pos < was->n_pos && is.stats.live_cells < was->stats.live_cells) {
        seen |= ENGINE_EVICTED;
    }
    seen |= is.stats.moved_cells > was->stats.moved_cells ? ENGINE_MOVED : 0u;
    if (is.stats.touched_bytes <= shared_bytes(s) && is.stats.live_cells == 0 && is.n_pos == 0) {
        seen |= ENGINE_EMPTY;
    }
    /* Where no sequence shares a cell, every position has one. */
    if (is.n_pos != is.stats.live_cells && !(s->is_shared && is.n_pos > is.stats.live_cells)) {
        return fail(s, "%llu positions in %llu live cells", (unsigned long long)is.n_pos,
                    (unsigned long long)is.stats.live_cells);
    }
    if (is.stats.n_os_refusal != 0) {
        return fail(s, "the host refused to take memory back");
    }
    return (asked & ~seen) == 0 ? KVLAZY_OK : fail(s, "expected 0x%x, saw 0x%x", asked, seen);
}

int engine_session_step(engine_session *s, const engine_step *step)
{
    session_mark was;
    int status;

    take_mark(s, &was);
    status = act(s, step);
    if (status == KVLAZY_OK) {
        status = check(s);
    }
    if (status == KVLAZY_OK) {
        status = compare(s);
    }
    return status == KVLAZY_OK ? expect(s, step, &was) : status;
}

int engine_session_run(engine_session *s)
{
    for (uint32_t i = 0; i < engine_script_length; i++) {
        const int status = engine_session_step(s, &engine_script[i]);

        if (status != KVLAZY_OK) {
            char what[sizeof s->report.failure];

            memcpy(what, s->report.failure, sizeof what);
            snprintf(s->report.failure, sizeof s->report.failure, "step %u: %.140s", i, what);
            return status;
        }
    }
    return KVLAZY_OK;
}

/* ---- life ---- */

static int open_engines(engine_session *s, const engine_session_config *config)
{
    engine_kv_config kv_config = engine_kv_config_for(&s->config, config->n_stream);
    engine_config lazy_config = s->config;
    int status;

    s->mem = *kvlazy_mem_host();
    s->mem.ctx = s;
    s->mem.now_ms = session_clock;
    kv_config.kv_size_initial = KV_SIZE_INITIAL;
    kv_config.slot_shrink_idle_ms = IDLE_MS;
    kv_config.mem = &s->mem;
    kv_config.appends = config->habits & ENGINE_APPENDS;
    lazy_config.on_batch = after_lazy_batch;
    lazy_config.batch_ctx = s;
    if (config->prefix != NULL) {
        lazy_config.prefix = *config->prefix;
        snprintf(s->model_tag, sizeof s->model_tag, "reference engine, seed %llu, K %d, V %d",
                 (unsigned long long)s->config.seed, (int)config->layout.k_type, (int)config->layout.v_type);
    }
    kv_config.model_tag = config->prefix != NULL ? s->model_tag : NULL;
    status = engine_kv_plain_create(&kv_config, &s->kv_plain);
    if (status == KVLAZY_OK) {
        status = engine_session_create_kv(config->kv, &kv_config, &s->kv_lazy);
    }
    if (status == KVLAZY_OK) {
        status = engine_create(&s->config, s->kv_plain, &s->plain);
    }
    return status == KVLAZY_OK ? engine_create(&lazy_config, s->kv_lazy, &s->lazy) : status;
}

int engine_session_open(const engine_session_config *config, engine_session **session)
{
    engine_session *s = calloc(1, sizeof *s);
    int status;

    if (s == NULL) {
        return KVLAZY_ENOMEM;
    }
    s->clock_ms = 1000;
    s->config = (engine_config){
        .dims = {.n_layer = 2, .n_embd = 64, .n_head = 4, .n_kv_head = 2, .n_ff = 128, .n_vocab = 256},
        .seed = 20,
        .layout = config->layout,
        .n_slot = ENGINE_SESSION_SLOTS,
        .n_ctx = KV_SIZE,
        .n_batch = 128,
        .n_ubatch = 32,
    };
    s->config.turns_all = config->habits & ENGINE_TURNS_ALL;
    s->is_unified = config->n_stream == 1;
    s->has_own_tensors = config->kv == ENGINE_KV_ARENA || config->kv == ENGINE_KV_MEMORY_ARENA;
    s->has_one_clock = s->is_unified && (config->kv == ENGINE_KV_MEMORY || config->kv == ENGINE_KV_MEMORY_ARENA);
    status = open_engines(s, config);
    if (status != KVLAZY_OK) {
        engine_session_close(s);
        return status;
    }
    *session = s;
    return KVLAZY_OK;
}

void engine_session_close(engine_session *s)
{
    if (s == NULL) {
        return;
    }
    engine_destroy(s->plain);
    engine_destroy(s->lazy);
    if (s->kv_plain != NULL) {
        s->kv_plain->ops->destroy(s->kv_plain);
    }
    if (s->kv_lazy != NULL) {
        s->kv_lazy->ops->destroy(s->kv_lazy);
    }
    free(s);
}

void engine_session_get_report(const engine_session *s, engine_session_report *report)
{
    *report = s->report;
    engine_get_counts(s->plain, &report->plain);
    engine_get_counts(s->lazy, &report->lazy);
    report->stats.struct_size = sizeof report->stats;
    kvlazy_stats(engine_session_cache(s), &report->stats);
}
