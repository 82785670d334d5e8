/* SPDX-License-Identifier: MIT */
/*
 * What fresh pages cost a prefill: the same batch by faults (KVLAZY_NO_COMMIT_AHEAD), with commit ahead, and on pages
 * that are there already, in turn, neither always the first. Every fresh pass begins with no page of the tensors
 * resident. The first round is not counted: memory that the host never gave out before costs more.
 */
#include "tensors.h"

#include <stdio.h>

enum { RESIDENT, FAULT, AHEAD, WAYS };
enum { PREFILL_TOKENS = 2000, ROUNDS = 21 };

struct duel {
    struct tensors_rig rig[WAYS]; /* of FAULT and AHEAD; the pages of both serve RESIDENT in turn */
    uint32_t n_token;
    uint64_t n_page; /* that a fresh pass touches */
    struct bench_series whole[WAYS], apply[WAYS], write[WAYS];
    struct bench_series penalty, speed_up; /* a round */
};

static int pass(struct duel *duel, struct tensors_rig *rig, int way, bool counts, double *whole_ns)
{
    struct tensors_time time;
    if (tensors_put(rig, duel->n_token, &time) != 0) {
        return -1;
    }
    *whole_ns = (double)time.whole_ns;
    if (counts) {
        bench_series_add(&duel->whole[way], *whole_ns);
        bench_series_add(&duel->apply[way], (double)time.apply_ns);
        bench_series_add(&duel->write[way], (double)time.write_ns);
    }
    return 0;
}

/* A fresh pass, then one on its pages if `again`. */
static int passes(struct duel *duel, int way, bool again, bool counts, double *ns)
{
    struct tensors_rig *rig = &duel->rig[way];
    if (pass(duel, rig, way, counts, &ns[way]) != 0) {
        return -1;
    }
    if (again && (tensors_drop(rig, false) != 0 || pass(duel, rig, RESIDENT, counts, &ns[RESIDENT]) != 0)) {
        return -1;
    }
    return tensors_drop(rig, true);
}

static int duel_rounds(struct duel *duel)
{
    uint64_t cover_bytes;
    if (tensors_put(&duel->rig[AHEAD], duel->n_token, NULL) != 0 ||
        tensors_cover(&duel->rig[AHEAD], &cover_bytes) != 0 || tensors_drop(&duel->rig[AHEAD], true) != 0) {
        return -1;
    }
    duel->n_page = cover_bytes / bench_page_bytes();
    for (int round = 0; round <= ROUNDS; round++) {
        double ns[WAYS];
        int first = round % 2 == 0 ? AHEAD : FAULT, second = round % 2 == 0 ? FAULT : AHEAD;
        if (passes(duel, first, true, round > 0, ns) != 0 || passes(duel, second, false, round > 0, ns) != 0) {
            return -1;
        }
        if (round > 0) {
            bench_series_add(&duel->penalty, (ns[AHEAD] - ns[RESIDENT]) / (ns[FAULT] - ns[RESIDENT]));
            bench_series_add(&duel->speed_up, ns[FAULT] / ns[AHEAD]);
        }
    }
    return 0;
}

/* n_writer 1 or 2. */
static int duel_run(struct duel *duel, uint32_t n_token, int n_writer)
{
    const struct tensors_layout *layout = &tensors_layouts[TENSORS_F16];
    struct tensors_writers *writers = n_writer == 2 ? tensors_writers_start() : NULL;
    *duel = (struct duel){.n_token = n_token};
    if (n_writer == 2 && writers == NULL) {
        return -1;
    }
    int status = tensors_open(&duel->rig[FAULT], layout, KVLAZY_NO_COMMIT_AHEAD);
    status = status == 0 ? tensors_open(&duel->rig[AHEAD], layout, 0) : status;
    duel->rig[FAULT].writers = duel->rig[AHEAD].writers = writers;
    status = status == 0 ? duel_rounds(duel) : status;
    tensors_close(&duel->rig[FAULT]);
    tensors_close(&duel->rig[AHEAD]);
    tensors_writers_stop(writers);
    return status;
}

static double median(struct bench_series *series)
{
    return bench_series_at(series, 0.5);
}

static void ratio_range(char *text, size_t room, struct bench_series *series)
{
    snprintf(text, room, "a round: %.2f .. %.2f", bench_series_at(series, 0), bench_series_at(series, 1));
}

/* Milliseconds of one way; not for scripts. */
static void report_way(const struct bench_config *config, struct duel *duel, const char *what, int way)
{
    struct figure figure = {NULL, median(&duel->whole[way]) / 1e6, 1, what, "", "", NULL};
    char text[48];
    report_time(figure.ours, sizeof(figure.ours), &duel->whole[way]);
    report_time(text, sizeof(text), &duel->apply[way]);
    snprintf(figure.other, sizeof(figure.other), "of it apply %s", text);
    report_figure(config, &figure);
}

/* What a page costs on this host, with one thread writing. Where the first write after a commit costs nothing more, a
 * fault is nothing but the kernel's work for the page, which a commit has to do as well. */
static void report_host(const struct bench_config *config, struct duel *duel)
{
    double write_ns = median(&duel->write[RESIDENT]), n = (double)duel->n_page;
    struct figure figures[] = {
        {"host_fault_ns", (median(&duel->write[FAULT]) - write_ns) / n, 0, "host: a page by a fault, ns", "", "", NULL},
        {"host_commit_ns", median(&duel->apply[AHEAD]) / n, 0, "host: a page in a commit, ns", "", "", NULL},
        {"host_first_write_ns", (median(&duel->write[AHEAD]) - write_ns) / n, 0,
         "host: first write after a commit, ns a page", "more than on resident pages", "", NULL},
    };
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        report_figure(config, &figures[i]);
    }
}

int tensors_prefill(const struct bench_config *config)
{
    static struct duel duel;
    if (duel_run(&duel, PREFILL_TOKENS, 2) != 0) {
        return -1;
    }
    report_way(config, &duel, "prefill 2000, two writers, resident: ms", RESIDENT);
    report_way(config, &duel, "prefill 2000, two writers, by faults: ms", FAULT);
    report_way(config, &duel, "prefill 2000, two writers, ahead: ms", AHEAD);
    double resident_ns = median(&duel.whole[RESIDENT]);
    struct figure figure = {.key = "prefill_penalty_ahead_over_fault",
                            .value =
                                (median(&duel.whole[AHEAD]) - resident_ns) / (median(&duel.whole[FAULT]) - resident_ns),
                            .digits = 3,
                            .what = "prefill: what fresh pages add, ahead / faults",
                            .wanted = "<= 0.6"};
    ratio_range(figure.ours, sizeof(figure.ours), &duel.penalty);
    snprintf(figure.other, sizeof(figure.other), "over resident pages, %d rounds in turn", ROUNDS);
    report_figure(config, &figure);
    return 0;
}

int tensors_commit_ahead(const struct bench_config *config)
{
    static struct duel duel;
    if (duel_run(&duel, TENSORS_UBATCH, 1) != 0) {
        return -1;
    }
    report_host(config, &duel);
    report_way(config, &duel, "a ubatch of 512, one writer, resident: ms", RESIDENT);
    report_way(config, &duel, "a ubatch of 512, one writer, by faults: ms", FAULT);
    report_way(config, &duel, "a ubatch of 512, one writer, ahead: ms", AHEAD);
    double fault_ns = median(&duel.whole[FAULT]);
    struct figure both = {.key = "commit_ahead_vs_fault",
                          .value = fault_ns / median(&duel.whole[AHEAD]),
                          .digits = 2,
                          .what = "apply + first write of 512: times faster",
                          .wanted = ">= 1.7"};
    ratio_range(both.ours, sizeof(both.ours), &duel.speed_up);
    snprintf(both.other, sizeof(both.other), "by faults, %d rounds in turn", ROUNDS);
    report_figure(config, &both);
    struct figure call = {.key = "commit_ahead_call_vs_fault",
                          .value = fault_ns / median(&duel.apply[AHEAD]),
                          .digits = 2,
                          .what = "apply alone: times faster",
                          .wanted = ">= 5"};
    snprintf(call.other, sizeof(call.other), "than apply and first write by faults");
    report_figure(config, &call);
    return 0;
}
