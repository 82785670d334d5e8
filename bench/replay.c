/* SPDX-License-Identifier: MIT */
/*
 * Serves one trace with one policy on a virtual clock of discrete events. Called by comparison.c, in a child for
 * each policy, and in the parent for the model. It decides what requests do and when; what that means for
 * memory is the policy's.
 *
 * A request waits for a slot; the slot that has rested longest takes it (one that was never used has rested
 * for ever; then the lowest). Where the trace says which prefixes are equal, a slot is preferred that had at least half
 * of the prompt. Its context is cut to kv_size - 1100 tokens. Of what the slot still holds, the tokens that are those
 * of the prompt are reused, the rest dropped. Prefill goes in ubatches, then one token a step; a step happens, memory
 * and rows, when its compute begins. Afterwards the slot keeps what it has.
 *
 * Memory work before the first token: the wall time of `begin` and of every prefill step of a request (calls
 * of the policy, page faults, clearing, the row writes), and of a poll while the request is in prefill.
 * Creating comes before all requests and is told apart; waiting for a slot is not memory work.
 */
#include "replay.h"

#include "replay_tokens.h"

#include <stdlib.h>
#include <string.h>

#include <bsd/stdlib.h>

enum {
    POLLS_AT_ONCE_MAX = 100000, /* a policy that never stops asking is broken */
};

enum slot_phase { SLOT_FREE, SLOT_PREFILL, SLOT_DECODE };

struct replay_slot {
    enum slot_phase phase;
    bool used;
    uint64_t at_us;       /* free: since when. Else: when the next step begins */
    uint32_t pos;         /* tokens of this request in the slot */
    uint32_t prompt, end; /* where prefill and decode stop */
    int32_t *token;       /* [kv_size]: of this request, or of the last one, */
    uint32_t n_token;     /* … its answer with them */
};

struct replay {
    const struct bench_config *config;
    const struct trace *trace;
    const struct policy *policy;
    struct policy_state *state;
    const struct replay_grid *grid;
    struct replay_result *result;
    struct replay_slot *slot;
    struct token_book book;
    int32_t *token; /* [kv_size]: of the request that begins next */
    uint64_t now_us, poll_at_us;
    size_t next_request, first_waiting; /* requests [first_waiting, next_request) wait */
    bool changed;                       /* since the last sample */
    uint64_t resident_bytes;
};

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static int replay_sample(struct replay *replay)
{
    if ((replay->changed || replay->policy->ages) &&
        replay->policy->resident(replay->state, &replay->resident_bytes) != 0) {
        return -1;
    }
    replay->changed = false;
    if (replay->resident_bytes > replay->result->peak_bytes) {
        replay->result->peak_bytes = replay->resident_bytes;
    }
    return 0;
}

static int replay_poll(struct replay *replay)
{
    uint64_t next_ms = UINT64_MAX, n_poll = 0;
    replay->poll_at_us = UINT64_MAX;
    if (replay->policy->poll == NULL) {
        return 0;
    }
    uint64_t start_ns = bench_now_ns();
    do {
        if (replay->policy->poll(replay->state, &next_ms) != 0) {
            return -1;
        }
    } while (next_ms == 0 && ++n_poll < POLLS_AT_ONCE_MAX);
    uint64_t spent_ns = bench_now_ns() - start_ns;
    for (uint32_t s = 0; s < replay->config->n_slot; s++) {
        if (replay->slot[s].phase == SLOT_PREFILL) {
            replay->result->first_token_ns += spent_ns;
        }
    }
    if (next_ms == 0) {
        return bench_error("poll asked to be called again at once %d times", POLLS_AT_ONCE_MAX);
    }
    replay->changed = true;
    if (next_ms != UINT64_MAX) {
        replay->poll_at_us = (replay->now_us / 1000 + next_ms) * 1000;
    }
    return 0;
}

/* Moves the clock to end_us, through every poll and every sample that is due until then. */
static int replay_advance(struct replay *replay, uint64_t end_us)
{
    for (;;) {
        uint64_t sample_us = UINT64_MAX;
        if (replay->result->n_sample < replay->grid->n_sample) {
            sample_us = replay->result->n_sample * replay->grid->step_us;
        }
        uint64_t due_us = replay->poll_at_us < sample_us ? replay->poll_at_us : sample_us;
        if (due_us > end_us || due_us == UINT64_MAX) {
            break;
        }
        replay->now_us = due_us;
        replay->result->clock_us = due_us;
        if (due_us == replay->poll_at_us) {
            if (replay_poll(replay) != 0) {
                return -1;
            }
        } else {
            if (replay_sample(replay) != 0) {
                return -1;
            }
            replay->result->sample[replay->result->n_sample++] = replay->resident_bytes;
        }
    }
    if (end_us != UINT64_MAX) {
        replay->now_us = end_us;
        replay->result->clock_us = end_us;
    }
    return 0;
}

/* The tokens of the request that begins next. Returns how many are its prompt. */
static uint32_t replay_prompt(struct replay *replay, size_t i, uint32_t *end)
{
    const struct request *request = &replay->trace->request[i];
    uint32_t kv_size = replay->config->kv_size;
    uint32_t n_prompt = least(request->context_tokens, kv_size - BENCH_ANSWER_CELLS);
    *end = n_prompt + least(request->generated_tokens, kv_size - n_prompt);
    tokens_of(&replay->book, i, n_prompt, *end, replay->token);
    return n_prompt;
}

/* The free slot that had most of the next prompt, and at least half of it; NULL: none. */
static struct replay_slot *replay_fittest(struct replay *replay)
{
    struct replay_slot *best = NULL;
    uint32_t end, n_prompt = replay_prompt(replay, replay->first_waiting, &end), most = 0;
    for (uint32_t s = 0; s < replay->config->n_slot; s++) {
        struct replay_slot *slot = &replay->slot[s];
        uint32_t n = tokens_common(slot->token, slot->n_token, replay->token, n_prompt);
        if (slot->phase == SLOT_FREE && n > most && n >= n_prompt - n) {
            best = slot;
            most = n;
        }
    }
    return best;
}

/* The slot that takes the next request: free, and resting longest; NULL: all are busy. */
static struct replay_slot *replay_freest(struct replay *replay)
{
    struct replay_slot *best = replay->trace->block != NULL ? replay_fittest(replay) : NULL;
    if (best != NULL) {
        return best;
    }
    for (uint32_t s = 0; s < replay->config->n_slot; s++) {
        struct replay_slot *slot = &replay->slot[s];
        if (slot->phase != SLOT_FREE) {
            continue;
        }
        if (best == NULL || (best->used && (!slot->used || slot->at_us < best->at_us))) {
            best = slot;
        }
    }
    return best;
}

static int replay_begin(struct replay *replay, struct replay_slot *slot, size_t request)
{
    uint32_t s = (uint32_t)(slot - replay->slot), kept = 0;
    slot->prompt = replay_prompt(replay, request, &slot->end);
    uint32_t limit = tokens_common(slot->token, slot->n_token, replay->token, slot->prompt);
    limit = least(limit, slot->prompt - 1); /* the last token is always computed */
    memcpy(slot->token, replay->token, slot->end * sizeof(*slot->token));
    slot->n_token = slot->end;
    uint64_t start_ns = bench_now_ns();
    if (replay->policy->begin(replay->state, s, slot->token, slot->prompt, limit, &kept) != 0) {
        return -1;
    }
    replay->result->first_token_ns += bench_now_ns() - start_ns;
    if (replay->policy->verify != NULL && replay->policy->verify(replay->state, s, slot->token, kept) != 0) {
        return -1;
    }
    replay->result->prompt_tokens += slot->prompt;
    slot->phase = SLOT_PREFILL;
    slot->used = true;
    slot->pos = kept;
    slot->at_us = replay->now_us;
    replay->changed = true;
    return 0;
}

/* The step that begins now; at_us moves to where the next one begins. */
static int replay_step(struct replay *replay, struct replay_slot *slot)
{
    const struct bench_config *config = replay->config;
    bool prefill = slot->phase == SLOT_PREFILL;
    uint32_t n = prefill ? least(slot->prompt - slot->pos, config->ubatch_tokens) : 1;
    uint64_t start_ns = bench_now_ns();
    if (replay->policy->step(replay->state, (uint32_t)(slot - replay->slot), slot->token, slot->pos, n) != 0) {
        return -1;
    }
    if (prefill) {
        replay->result->first_token_ns += bench_now_ns() - start_ns;
        uint64_t memory_ns = 0;
        if (replay->policy->compute != NULL && replay->policy->compute(replay->state, &memory_ns) != 0) {
            return -1;
        }
        replay->result->first_token_ns += memory_ns;
        replay->result->prefilled_tokens += n;
        replay->result->recomputed_tokens += tokens_note(&replay->book, slot->token + slot->pos, n);
    }
    replay->result->written_tokens += n;
    replay->changed = true;
    slot->pos += n;
    slot->at_us += UINT64_C(1000000) * n / (prefill ? config->prefill_per_s : config->decode_per_s);
    if (slot->pos >= slot->prompt) {
        slot->phase = SLOT_DECODE;
    }
    return 0;
}

/* A request's last token is out: its slot is at its fullest, so this is where a peak would be. */
static int replay_finish(struct replay *replay, struct replay_slot *slot)
{
    slot->phase = SLOT_FREE;
    slot->at_us = replay->now_us;
    replay->result->n_request++;
    replay->result->last_token_us = replay->now_us;
    if (replay->grid->n_sample != 0 && replay_sample(replay) != 0) {
        return -1;
    }
    uint32_t s = (uint32_t)(slot - replay->slot);
    return replay->policy->finish == NULL ? 0 : replay->policy->finish(replay->state, s, slot->token, slot->pos);
}

static uint64_t replay_next_event(const struct replay *replay)
{
    uint64_t next_us = UINT64_MAX;
    if (replay->next_request < replay->trace->n_request) {
        next_us = replay->trace->request[replay->next_request].arrival_us;
    }
    for (uint32_t s = 0; s < replay->config->n_slot; s++) {
        if (replay->slot[s].phase != SLOT_FREE && replay->slot[s].at_us < next_us) {
            next_us = replay->slot[s].at_us;
        }
    }
    return next_us;
}

/* Everything that happens at this instant: ends of requests, arrivals, starts, steps. */
static int replay_instant(struct replay *replay)
{
    struct replay_slot *slot;
    for (uint32_t s = 0; s < replay->config->n_slot; s++) {
        slot = &replay->slot[s];
        if (slot->phase == SLOT_DECODE && slot->at_us == replay->now_us && slot->pos == slot->end &&
            replay_finish(replay, slot) != 0) {
            return -1;
        }
    }
    while (replay->next_request < replay->trace->n_request &&
           replay->trace->request[replay->next_request].arrival_us <= replay->now_us) {
        replay->next_request++;
    }
    while (replay->first_waiting < replay->next_request && (slot = replay_freest(replay)) != NULL) {
        if (replay_begin(replay, slot, replay->first_waiting++) != 0) {
            return -1;
        }
        if (replay_step(replay, slot) != 0) {
            return -1;
        }
    }
    for (uint32_t s = 0; s < replay->config->n_slot; s++) {
        slot = &replay->slot[s];
        if (slot->phase != SLOT_FREE && slot->at_us == replay->now_us && replay_step(replay, slot) != 0) {
            return -1;
        }
    }
    return replay_poll(replay);
}

static int replay_serve(struct replay *replay)
{
    for (;;) {
        uint64_t next_us = replay_next_event(replay);
        if (replay_advance(replay, next_us) != 0) {
            return -1;
        }
        if (next_us == UINT64_MAX) {
            return 0;
        }
        if (replay_instant(replay) != 0) {
            return -1;
        }
    }
}

static void replay_close(struct replay *replay)
{
    for (uint32_t s = 0; replay->slot != NULL && s < replay->config->n_slot; s++) {
        free(replay->slot[s].token);
    }
    free(replay->slot);
    free(replay->token);
    tokens_close(&replay->book);
}

/* replay_close in any case. */
static int replay_open(struct replay *replay)
{
    uint32_t n_slot = replay->config->n_slot, kv_size = replay->config->kv_size;
    if (tokens_open(&replay->book, replay->config, replay->trace) != 0) {
        return -1;
    }
    replay->slot = calloc(n_slot, sizeof(*replay->slot));
    replay->token = reallocarray(NULL, kv_size, sizeof(*replay->token));
    bool good = replay->slot != NULL && replay->token != NULL;
    for (uint32_t s = 0; good && s < n_slot; s++) {
        replay->slot[s].token = reallocarray(NULL, kv_size, sizeof(*replay->token));
        good = replay->slot[s].token != NULL;
    }
    return good ? 0 : bench_error("out of memory");
}

int replay_run(const struct bench_config *config, const struct trace *trace, const struct policy *policy,
               const struct replay_grid *grid, struct replay_result *result)
{
    struct replay replay = {
        .config = config,
        .trace = trace,
        .policy = policy,
        .grid = grid,
        .result = result,
        .poll_at_us = UINT64_MAX,
        .changed = true,
    };
    int status = replay_open(&replay);
    uint64_t start_ns = bench_now_ns();
    status = status == 0 ? policy->create(&replay.state, config, &replay.now_us) : status;
    if (status == 0) {
        result->create_ns = bench_now_ns() - start_ns;
        status = replay_serve(&replay);
        if (policy->stored != NULL) {
            policy->stored(replay.state, &result->stored);
        }
        policy->destroy(replay.state);
    }
    replay_close(&replay);
    return status;
}

int replay_grid_make(const struct bench_config *config, const struct trace *trace, struct replay_grid *grid)
{
    enum {
        STEP_US = 2000000,
        SAMPLES_MAX = 4000,
    };
    struct replay_result result = {0};
    *grid = (struct replay_grid){0};
    if (replay_run(config, trace, &policy_model, grid, &result) != 0) {
        return -1;
    }
    uint64_t silence_us = config->idle_ms > 30000 ? UINT64_C(2000) * config->idle_ms : UINT64_C(60000000);
    uint64_t end_us = result.last_token_us + silence_us;
    grid->step_us = end_us / SAMPLES_MAX > STEP_US ? end_us / SAMPLES_MAX : STEP_US;
    grid->n_sample = (uint32_t)(end_us / grid->step_us) + 1;
    return 0;
}

double replay_average_mib(const struct replay_result *result)
{
    double sum = 0;
    for (uint32_t i = 0; i < result->n_sample; i++) {
        sum += (double)result->sample[i];
    }
    return result->n_sample == 0 ? 0 : sum / result->n_sample / (1 << 20);
}
