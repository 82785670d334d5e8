/* SPDX-License-Identifier: MIT */
/*
 * What a hook waits that comes while a thread saves a conversation: one token of another one is prepared at random
 * moments. With rows of K and V as they are, and with V transposed.
 */
#include "store.h"

#include "batches.h"
#include "idle.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { WAITS_WANTED = 400, SAVES_MAX = 4, NAP_US = 5000 };

struct waiting {
    struct store_rig rig;
    uint64_t seed;
    atomic_bool saving, done, failed;
    atomic_uint n_wait;
    char why[200];
    struct bench_series wait_ns;
};

static void *save_again_and_again(void *ctx)
{
    struct waiting *w = ctx;
    for (int i = 0; i < SAVES_MAX && atomic_load(&w->n_wait) < WAITS_WANTED && !atomic_load(&w->failed); i++) {
        int status = i == 0 ? KVLAZY_OK : kvlazy_store_forget(w->rig.store, w->rig.cache, &w->rig.prompt);
        atomic_store(&w->saving, true);
        bool saved = status == KVLAZY_OK && store_save(&w->rig) == 0;
        atomic_store(&w->saving, false);
        if (!saved) {
            snprintf(w->why, sizeof(w->why), "%s", bench_why());
            atomic_store(&w->failed, true);
        }
    }
    atomic_store(&w->done, true);
    return NULL;
}

/* One hook, and whether it came into a save. */
static int call_hook(struct waiting *w)
{
    bool counts = atomic_load(&w->saving);
    double waited_ns;
    int status = bench_hook(w->rig.cache, 1, 10, &waited_ns);
    if (status == KVLAZY_OK && counts) {
        bench_series_add(&w->wait_ns, waited_ns);
        atomic_fetch_add(&w->n_wait, 1);
    }
    return status == KVLAZY_OK ? 0 : store_error("a hook", status);
}

static int save_and_call(struct waiting *w)
{
    pthread_t thread;
    int status = 0, error = pthread_create(&thread, NULL, save_again_and_again, w);
    if (error != 0) {
        return bench_error("pthread_create: %s", strerror(error));
    }
    while (status == 0 && !atomic_load(&w->done)) {
        idle_nap_us(idle_random(&w->seed, NAP_US));
        status = call_hook(w);
    }
    atomic_store(&w->failed, atomic_load(&w->failed) || status != 0);
    pthread_join(thread, NULL);
    return status == 0 && atomic_load(&w->failed) ? bench_error("%s", w->why) : status;
}

static int wait_in(const struct bench_config *config, struct waiting *w, bool transposed)
{
    w->wait_ns.n = 0;
    atomic_store(&w->n_wait, 0);
    atomic_store(&w->done, false);
    int status = store_open(&w->rig, config, store_bytes(config), transposed);
    status = status == 0 ? save_and_call(w) : status;
    store_close(&w->rig);
    return status;
}

int store_hook(const struct bench_config *config)
{
    static struct waiting w;
    w.seed = 1;
    atomic_store(&w.failed, false);
    double p99_ms = 0;
    struct figure figure = {"store_hook_wait_ms", 0, 3, "hook while a prefix is saved: wait, p99 ms", "", "", "<= 5"};
    for (int transposed = 0; transposed < 2; transposed++) {
        if (wait_in(config, &w, transposed != 0) != 0) {
            return -1;
        }
        double here_ms = bench_series_at(&w.wait_ns, 0.99) / 1e6;
        snprintf(transposed ? figure.other : figure.ours, sizeof(figure.ours), "%s p99 %.3f, max %.2f; %u",
                 transposed ? "V transposed" : "rows", here_ms, bench_series_at(&w.wait_ns, 1) / 1e6, w.wait_ns.n);
        p99_ms = here_ms > p99_ms ? here_ms : p99_ms;
    }
    figure.value = p99_ms;
    report_figure(config, &figure);
    return 0;
}
