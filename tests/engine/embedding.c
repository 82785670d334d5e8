/* SPDX-License-Identifier: MIT */
/*
 * The pieces of docs/embedding.md that are not in the reference engine itself, as a program that runs them: a batch
 * with every way out, an idle thread, two linked caches, what an operator is shown. Its model only writes rows.
 */
#include <kvlazy/kvlazy.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_CONVERSATION = 3, N_UBATCH = 16, N_CUT = 4, IDLE_MS = 50, COMPUTE_FAILED = -100 };

typedef struct conversation {
    kvlazy_seq_id seq;
    uint32_t n;        /* tokens it consists of: position i is token i */
    uint32_t n_cached; /* of these, computed, as far as the engine knows */
} conversation;

typedef struct batch {
    kvlazy_pos pos[N_CUT * N_UBATCH];
    kvlazy_seq_id seq[N_CUT * N_UBATCH];
    kvlazy_ubatch ubatch[N_CUT];
    kvlazy_slot slot[N_CUT];
    uint32_t n_token, n_ubatch;
} batch;

static int n_failures; /* of the model, to come */

#define CHECK(what)                                            \
    do {                                                       \
        if (!(what)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
            exit(1);                                           \
        }                                                      \
    } while (0)

static void build(batch *b, const conversation *c)
{
    b->n_token = 0;
    b->n_ubatch = 0;
    for (uint32_t at = c->n_cached; at < c->n && b->n_token < N_CUT * N_UBATCH; at++) {
        b->pos[b->n_token] = (kvlazy_pos)at;
        b->seq[b->n_token++] = c->seq;
    }
    for (uint32_t at = 0; at < b->n_token; at += N_UBATCH) {
        const uint32_t left = b->n_token - at;
        kvlazy_ubatch *u = &b->ubatch[b->n_ubatch++];

        memset(u, 0, sizeof *u);
        u->n_token = left < N_UBATCH ? left : (uint32_t)N_UBATCH;
        u->pos = b->pos + at;
        u->seq = b->seq + at;
    }
}

static bool compute(kvlazy_cache *cache, const kvlazy_slot *slot)
{
    kvlazy_tensor k;

    CHECK(kvlazy_k(cache, 0, &k) == KVLAZY_OK);
    for (uint32_t i = 0; i < slot->n_token; i++) {
        memset((char *)k.data + slot->stream[i] * k.stream_stride + slot->cell[i] * k.cell_stride, 1, k.row_bytes);
    }
    return n_failures == 0 || n_failures-- == 0;
}

/* ---- a batch, with every way out ---- */

static int run_batch(kvlazy_cache *cache, batch *b)
{
    int status = kvlazy_prepare(cache, b->ubatch, b->n_ubatch, b->slot); /* all of it, or nothing has changed */

    for (uint32_t i = 0; status == KVLAZY_OK && i < b->n_ubatch; i++) {
        status = kvlazy_apply_ubatch(cache, &b->slot[i], &b->ubatch[i]);
        if (status == KVLAZY_OK && !compute(cache, &b->slot[i])) {
            kvlazy_undo_ubatch(cache, &b->slot[i]); /* ubatches before this one stay */
            status = COMPUTE_FAILED;
        }
    }
    kvlazy_end_batch(cache); /* whatever happened: until then nothing is given back */
    return status;
}

/* The engine's choice: here whoever holds most. */
static bool drop_another(kvlazy_cache *cache, conversation *all, const conversation *but)
{
    conversation *most = NULL;

    for (uint32_t i = 0; i < N_CONVERSATION; i++) {
        if (&all[i] != but && all[i].n_cached > (most != NULL ? most->n_cached : 0)) {
            most = &all[i];
        }
    }
    if (most == NULL) {
        return false;
    }
    most->n_cached = 0;
    return kvlazy_seq_rm(cache, most->seq, -1, -1) == KVLAZY_OK;
}

/* Computes what the cache lacks of a conversation. */
static int go_on(kvlazy_cache *cache, conversation *all, conversation *c)
{
    uint32_t n_failed = 0;
    batch b;

    while (c->n_cached < c->n) {
        int status = kvlazy_init_batch(cache);

        if (status != KVLAZY_OK) {
            return status;
        }
        if (n_failed > 0) { /* positions read in here stay true until the batch ends */
            c->n_cached = (uint32_t)(kvlazy_seq_pos_max(cache, c->seq) + 1);
        }
        build(&b, c);
        status = run_batch(cache, &b);
        if (status == KVLAZY_OK) {
            c->n_cached += b.n_token;
            n_failed = 0;
            continue;
        }
        if (++n_failed > N_CONVERSATION) {
            return status;
        }
        switch (status) {
        case KVLAZY_EPOS: /* an eviction took tokens since: ask where to go on, compute them again */
        case COMPUTE_FAILED:
            break;
        case KVLAZY_ENOSLOT: /* no free cell below kv_size */
        case KVLAZY_EBUDGET: /* no byte below budget_bytes: free pages went back already */
            if (!drop_another(cache, all, c)) {
                return status;
            }
            break;
        default: /* ENOMEM: the machine is short, nothing has changed; the client may ask again */
            return status;
        }
    }
    return KVLAZY_OK;
}

/* ---- an idle thread ---- */

typedef struct idle {
    kvlazy_cache *cache;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
} idle;

static void start_idle(idle *t)
{
    memset(t, 0, sizeof *t);
    CHECK(pthread_mutex_init(&t->lock, NULL) == 0);
    CHECK(pthread_cond_init(&t->wake, NULL) == 0);
}

static void *idle_thread(void *arg)
{
    idle *t = (idle *)arg;

    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        struct timespec until;
        uint64_t next_ms;

        kvlazy_poll(t->cache, &next_ms); /* EBUSY is an answer like any other: next_ms is always written */
        if (next_ms > IDLE_MS) {
            next_ms = IDLE_MS; /* the engine's thread may end a batch at any time, and need not say so */
        }
        timespec_get(&until, TIME_UTC);
        until.tv_nsec += (long)(next_ms % 1000) * 1000000;
        until.tv_sec += (time_t)(next_ms / 1000) + until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&t->wake, &t->lock, &until);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- two linked caches ---- */

static int create_both(const kvlazy_layer *layers, kvlazy_cache **full, kvlazy_cache **window)
{
    kvlazy_params params;
    int status;

    kvlazy_params_init(&params);
    params.kv_size = 1024;
    params.kv_size_initial = 256;
    params.n_seq_max = N_CONVERSATION;
    params.layers = &layers[0];
    params.n_layer = 1;
    params.name = "full";
    status = kvlazy_create(&params, full);
    if (status != KVLAZY_OK) {
        return status;
    }
    params.kv_size = 128; /* the window of every sequence and a batch */
    params.kv_size_initial = 0;
    params.n_swa = 24;
    params.swa_type = KVLAZY_SWA_STANDARD;
    params.layers = &layers[1];
    params.with = *full;
    params.name = "window";
    status = kvlazy_create(&params, window);
    if (status != KVLAZY_OK) {
        kvlazy_destroy(*full);
    }
    return status;
}

/* slot of b: the full cache's. Cells differ, so each cache has slots of its own. */
static int run_both(kvlazy_cache *full, kvlazy_cache *window, batch *b)
{
    kvlazy_slot other[N_CUT];
    int status = kvlazy_prepare(full, b->ubatch, b->n_ubatch, b->slot);

    if (status == KVLAZY_OK) {
        status = kvlazy_prepare(window, b->ubatch, b->n_ubatch, other); /* a refusal closes the batch of both */
    }
    for (uint32_t i = 0; status == KVLAZY_OK && i < b->n_ubatch; i++) {
        status = kvlazy_apply_ubatch(full, &b->slot[i], &b->ubatch[i]);
        if (status == KVLAZY_OK) {
            status = kvlazy_apply_ubatch(window, &other[i], &b->ubatch[i]);
        }
        if (status == KVLAZY_OK && !(compute(full, &b->slot[i]) && compute(window, &other[i]))) {
            status = COMPUTE_FAILED;
        }
        if (status != KVLAZY_OK) { /* one that was not applied is left alone */
            kvlazy_undo_ubatch(full, &b->slot[i]);
            kvlazy_undo_ubatch(window, &other[i]);
        }
    }
    kvlazy_end_batch(full); /* of both */
    return status;
}

/* ---- what operators see ---- */

static void print_line(void *ctx, int level, const char *text)
{
    static const char *const name[] = {"error", "warn", "info", "debug"};

    if (level <= KVLAZY_LOG_INFO) {
        fprintf((FILE *)ctx, "kvlazy %s: %s\n", name[level], text);
    }
}

static void print_stats(const kvlazy_cache *cache)
{
    kvlazy_stats_info info;

    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    if (kvlazy_stats(cache, &info) == KVLAZY_OK) {
        printf("kv: %llu MiB touched of %llu reserved, %llu cells live under a cap of %llu; "
               "%llu evictions (%llu cells), %llu refusals\n",
               (unsigned long long)info.touched_bytes >> 20, (unsigned long long)info.reserved_bytes >> 20,
               (unsigned long long)info.live_cells, (unsigned long long)info.cap_cells,
               (unsigned long long)info.n_evict, (unsigned long long)info.evicted_cells,
               (unsigned long long)info.n_refusal);
    }
}

/* ---- all of it ---- */

static void with_one_cache(void)
{
    conversation all[N_CONVERSATION] = {{0, 300, 0}, {1, 100, 0}, {2, 200, 0}};
    kvlazy_params params;
    kvlazy_layer layer;
    pthread_t thread;
    idle t;

    start_idle(&t);
    memset(&layer, 0, sizeof layer);
    layer.k_row_bytes = layer.v_row_bytes = 2048;
    kvlazy_params_init(&params);
    params.kv_size = 512;
    params.n_seq_max = N_CONVERSATION;
    params.slot_shrink_idle_ms = IDLE_MS;
    params.layers = &layer;
    params.n_layer = 1;
    params.log = print_line;
    params.log_ctx = stdout;
    CHECK(kvlazy_create(&params, &t.cache) == KVLAZY_OK);
    CHECK(pthread_create(&thread, NULL, idle_thread, &t) == 0);
    CHECK(go_on(t.cache, all, &all[0]) == KVLAZY_OK);
    CHECK(go_on(t.cache, all, &all[1]) == KVLAZY_OK);
    n_failures = 1;
    CHECK(go_on(t.cache, all, &all[2]) == KVLAZY_OK); /* a ubatch is undone, then conversation 0 has to go */
    CHECK(kvlazy_seq_pos_max(t.cache, 0) == -1 && kvlazy_seq_pos_max(t.cache, 2) == 199);
    print_stats(t.cache);

    while (kvlazy_trim(t.cache, 50) == KVLAZY_EBUSY) { /* cuts both that are left behind the engine's back */
    }
    all[1].n = 110;
    all[2].n = 205;
    CHECK(go_on(t.cache, all, &all[1]) == KVLAZY_OK && kvlazy_seq_pos_max(t.cache, 1) == 109);
    CHECK(go_on(t.cache, all, &all[2]) == KVLAZY_OK && kvlazy_seq_pos_max(t.cache, 2) == 204);

    pthread_mutex_lock(&t.lock);
    t.stop = true;
    pthread_cond_signal(&t.wake);
    pthread_mutex_unlock(&t.lock);
    pthread_join(thread, NULL);
    kvlazy_destroy(t.cache);
}

static void with_two_caches(void)
{
    conversation c = {1, 400, 0};
    kvlazy_cache *full, *window;
    kvlazy_layer layers[2];
    batch b;

    memset(layers, 0, sizeof layers);
    layers[0].k_row_bytes = layers[0].v_row_bytes = layers[1].k_row_bytes = 512;
    CHECK(create_both(layers, &full, &window) == KVLAZY_OK);
    while (c.n_cached < c.n) {
        CHECK(kvlazy_init_batch(full) == KVLAZY_OK); /* of both */
        build(&b, &c);
        CHECK(run_both(full, window, &b) == KVLAZY_OK);
        c.n_cached += b.n_token;
    }
    CHECK(kvlazy_seq_pos_min(full, 1) == 0 && kvlazy_seq_pos_min(window, 1) > 0);
    CHECK(kvlazy_seq_pos_max(full, 1) == 399 && kvlazy_seq_pos_max(window, 1) == 399);
    c.n = 410;
    CHECK(kvlazy_init_batch(full) == KVLAZY_OK);
    build(&b, &c);
    n_failures = 1;
    CHECK(run_both(full, window, &b) == COMPUTE_FAILED);
    CHECK(kvlazy_seq_pos_max(full, 1) == 399 && kvlazy_seq_pos_max(window, 1) == 399);
    CHECK(kvlazy_trim(full, 256) == KVLAZY_OK); /* whole, since one of them has a window */
    CHECK(kvlazy_seq_pos_max(full, 1) == -1 && kvlazy_seq_pos_max(window, 1) == -1);
    kvlazy_destroy(window);
    kvlazy_destroy(full);
}

int main(void)
{
    with_one_cache();
    with_two_caches();
    return 0;
}
