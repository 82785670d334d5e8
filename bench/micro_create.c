/* SPDX-License-Identifier: MIT */
/*
 * What a cache costs before the first token: resident bytes after create, and the time of create next to
 * mmap and memset of the same bytes, the way engines clear theirs. Both in turn; the eager side decides how
 * many rounds the time allows.
 */
#include "micro.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
    CREATES_A_ROUND = 15,
    ROUNDS_MAX = 5,
};

static int create_once(const struct bench_config *config, struct bench_series *ns)
{
    kvlazy_cache *cache;
    uint64_t start_ns = bench_now_ns();
    if (bench_kvlazy_create(&cache, config, NULL) != 0) {
        return -1;
    }
    bench_series_add(ns, (double)(bench_now_ns() - start_ns));
    kvlazy_destroy(cache);
    return 0;
}

static int eager_once(size_t n_bytes, struct bench_series *ns)
{
    uint64_t start_ns = bench_now_ns();
    void *map = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        return bench_error("mmap of %zu bytes: %s", n_bytes, strerror(errno));
    }
    memset(map, 0, n_bytes);
    __asm__ volatile("" : : "r"(map) : "memory"); /* the memset must stay, though its bytes are not read */
    bench_series_add(ns, (double)(bench_now_ns() - start_ns));
    munmap(map, n_bytes);
    return 0;
}

static int create_resident(const struct bench_config *config)
{
    static struct rig rig;
    uint64_t bytes = 0, asked = 0;
    if (rig_open(&rig, config, false) != 0) {
        return -1;
    }
    int status = rig_resident(&rig, &bytes), library = kvlazy_resident(rig.cache, &asked);
    rig_close(&rig);
    if (status != 0 || library != KVLAZY_OK) {
        return status != 0 ? status : rig_error("kvlazy_resident", library);
    }
    struct figure figure = {"create_resident_bytes", (double)bytes, 0, "create: resident bytes", "", "", "0"};
    report_bytes(figure.ours, sizeof(figure.ours), bytes > asked ? bytes : asked);
    report_bytes(figure.other, sizeof(figure.other), bench_tensor_bytes(config) * bench_tensors(config));
    strcat(figure.other, " eager");
    report_figure(config, &figure);
    return 0;
}

int micro_create(const struct bench_config *config)
{
    struct bench_config geometry;
    struct bench_series lazy = {.n = 0}, eager = {.n = 0};
    uint64_t start_ns = bench_now_ns(), budget_ns = UINT64_C(8000000000), spent_ns;
    bench_config_default(&geometry);
    geometry.keys = config->keys;
    if (create_resident(&geometry) != 0) {
        return -1;
    }
    size_t n_bytes = bench_tensor_bytes(&geometry) * bench_tensors(&geometry);
    if (n_bytes > bench_available_bytes()) {
        bench_error("create_vs_eager needs %zu MiB", n_bytes >> 20);
        return 1;
    }
    do {
        for (int i = 0; i < CREATES_A_ROUND; i++) {
            if (create_once(&geometry, &lazy) != 0) {
                return -1;
            }
        }
        if (eager_once(n_bytes, &eager) != 0) {
            return -1;
        }
        spent_ns = bench_now_ns() - start_ns;
    } while (eager.n < ROUNDS_MAX && spent_ns + spent_ns / eager.n < budget_ns);
    struct figure figure = {.key = "create_vs_eager",
                            .value = bench_series_at(&eager, 0.5) / bench_series_at(&lazy, 0.5),
                            .what = "create: times faster than eager",
                            .wanted = ">= 1000"};
    char text[48];
    report_time(figure.ours, sizeof(figure.ours), &lazy);
    report_time(text, sizeof(text), &eager);
    snprintf(figure.other, sizeof(figure.other), "mmap + memset %s", text);
    report_figure(&geometry, &figure);
    return 0;
}
