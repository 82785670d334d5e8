/* SPDX-License-Identifier: MIT */
/* layers: see layers.h. */
#include "layers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PROJECTIONS = 8 /* … are one part in so many of a layer */ };

static void keep_busy(uint64_t ns)
{
    uint64_t end_ns = bench_now_ns() + ns;
    while (bench_now_ns() < end_ns) {
    }
}

uint64_t layers_compute(const struct bench_config *config, const struct bench_rows *rows, const struct layers_ubatch *u)
{
    uint64_t layer_ns = UINT64_C(1000000000) * u->n_token / config->prefill_per_s / config->n_layer;
    uint64_t memory_ns = 0;
    for (uint32_t t = 0; t < bench_tensors(config); t += 2) {
        keep_busy(layer_ns / PROJECTIONS);
        uint64_t start_ns = bench_now_ns();
        bench_rows_write_tokens(rows, t, t + 2, u->slot, u->cell, u->token, u->n_token);
        memory_ns += bench_now_ns() - start_ns;
        keep_busy(layer_ns - layer_ns / PROJECTIONS);
    }
    return memory_ns;
}

struct layers_thread {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wakes;
    bool stops;
};

static void *sleep_and_wake(void *arg)
{
    struct layers_thread *thread = arg;
    pthread_mutex_lock(&thread->lock);
    while (!thread->stops) { /* it does nothing else */
        pthread_cond_wait(&thread->wakes, &thread->lock);
    }
    pthread_mutex_unlock(&thread->lock);
    return NULL;
}

int layers_thread_start(struct layers_thread **out)
{
    struct layers_thread *thread = calloc(1, sizeof(*thread));
    if (thread == NULL) {
        return bench_error("out of memory");
    }
    pthread_mutex_init(&thread->lock, NULL);
    pthread_cond_init(&thread->wakes, NULL);
    int why = pthread_create(&thread->thread, NULL, sleep_and_wake, thread);
    if (why != 0) {
        free(thread);
        return bench_error("pthread_create: %s", strerror(why));
    }
    *out = thread;
    return 0;
}

static void tell(struct layers_thread *thread, bool stops)
{
    pthread_mutex_lock(&thread->lock);
    thread->stops = stops;
    pthread_cond_signal(&thread->wakes);
    pthread_mutex_unlock(&thread->lock);
}

void layers_thread_wake(struct layers_thread *thread)
{
    tell(thread, false);
}

void layers_thread_stop(struct layers_thread *thread)
{
    if (thread == NULL) {
        return;
    }
    tell(thread, true);
    pthread_join(thread->thread, NULL);
    pthread_cond_destroy(&thread->wakes);
    pthread_mutex_destroy(&thread->lock);
    free(thread);
}
