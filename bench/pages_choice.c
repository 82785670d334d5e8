/* SPDX-License-Identifier: MIT */
/*
 * Whether the library picks the cheaper way, ahead or by faults: a prefill in the way that it picks, over the better of
 * both, with one and with two writing threads, in pages of 4 and of 64 KiB. The worst of the four counts.
 */
#include "pages.h"

#include <stdio.h>

enum { N_TOKEN = 2000, ROUNDS = 9, AHEAD = 0, FAULT, CHOSEN, WAYS };

static struct tensors_rig rig[WAYS];
static struct bench_series whole[WAYS];

static int rounds(void)
{
    for (int k = 0; k < WAYS * (ROUNDS + 1); k++) {
        struct tensors_time time;
        if (tensors_put(&rig[k % WAYS], N_TOKEN, &time) != 0 || tensors_drop(&rig[k % WAYS], true) != 0) {
            return -1;
        }
        if (k >= WAYS) {
            bench_series_add(&whole[k % WAYS], (double)time.whole_ns);
        }
    }
    return 0;
}

/* Of one size and so many writers. *ratio: what was picked over the better. 0 or -1. */
static int one_case(const struct bench_config *config, uint64_t page_bytes, uint32_t n_writer, double *ratio)
{
    static const uint32_t flags[WAYS] = {KVLAZY_COMMIT_AHEAD, KVLAZY_NO_COMMIT_AHEAD, 0};
    struct tensors_writers *writers = n_writer == 2 ? tensors_writers_start() : NULL;
    kvlazy_stats_info stats = {.struct_size = sizeof(stats)};
    int status = n_writer == 2 && writers == NULL ? -1 : 0;
    for (int i = 0; i < WAYS; i++) {
        whole[i].n = 0;
        status = status == 0 ? tensors_open_pages(&rig[i], &tensors_layouts[TENSORS_F16], flags[i], page_bytes,
                                                  i == CHOSEN ? n_writer : 0)
                             : status;
        rig[i].writers = writers;
    }
    status = status == 0 ? rounds() : status;
    if (status == 0 && kvlazy_stats(rig[CHOSEN].cache, &stats) == KVLAZY_OK) {
        double ahead = bench_series_at(&whole[AHEAD], 0.5), fault = bench_series_at(&whole[FAULT], 0.5);
        char what[64];
        *ratio = bench_series_at(&whole[CHOSEN], 0.5) / (ahead < fault ? ahead : fault);
        snprintf(what, sizeof(what), "prefill, %u KiB, %u writer%s: picked %s", (unsigned)(page_bytes >> 10), n_writer,
                 n_writer == 1 ? "" : "s", stats.commits_ahead ? "ahead" : "faults");
        struct figure figure = {.value = *ratio, .digits = 2, .what = what};
        snprintf(figure.ours, sizeof(figure.ours), "ahead %.1f ms", ahead / 1e6);
        snprintf(figure.other, sizeof(figure.other), "by faults %.1f ms", fault / 1e6);
        report_figure(config, &figure);
    }
    for (int i = 0; i < WAYS; i++) {
        tensors_close(&rig[i]);
    }
    tensors_writers_stop(writers);
    return status;
}

int pages_choice(const struct bench_config *config)
{
    double worst = 0;
    int status = pages_granted(PAGES_BYTES);
    for (int i = 0; status == 0 && i < 4; i++) {
        double ratio = 0;
        status = one_case(config, i < 2 ? bench_page_bytes() : PAGES_BYTES, 1 + (uint32_t)i % 2, &ratio);
        worst = status == 0 && ratio > worst ? ratio : worst;
    }
    if (status == 0) {
        struct figure figure = {.key = "commit_choice_vs_best",
                                .value = worst,
                                .digits = 3,
                                .what = "ahead or by faults: what is picked",
                                .ours = "the worst of four cases",
                                .other = "over the better way",
                                .wanted = "<= 1.2"};
        report_figure(config, &figure);
    }
    return status;
}
