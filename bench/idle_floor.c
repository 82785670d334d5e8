/* SPDX-License-Identifier: MIT */
/*
 * What many short requests leave behind: 96 sequences decode side by side, a token each a step, 2500 requests of 16 to
 * 256 tokens, each beginning when the one before it in its sequence is done. Then three quarters of the sequences are
 * dropped, seeded at random, the others keep the first half of their last request, and nothing comes any more. Touched
 * bytes when no poll is due any longer, over the pages of as many cells laid densely from cell 0. A virtual clock.
 */
#include "idle.h"

#include <stdio.h>
#include <string.h>

enum {
    REQUESTS = 2500,
    SEQUENCES = 96,
    SHORTEST = 16,
    LONGEST = 256,
    STEP_MS = 33,
    KEEP_ONE_OF = 4,
};

struct load {
    struct idle_rig rig;
    uint64_t seed;
    uint32_t n_begun, n_done, n_step;
    uint32_t left[SEQUENCES]; /* tokens that the request of a sequence still gets */
    double worst_busy;        /* touched over packed floor, after a step */
    uint64_t loaded_bytes, idle_bytes, resident_bytes;
};

static uint64_t packed_floor(const struct load *load)
{
    uint32_t n_cell[SEQUENCES] = {0};
    for (kvlazy_seq_id s = 0; s < SEQUENCES; s++) {
        uint32_t held = (uint32_t)(kvlazy_seq_pos_max(load->rig.cache, s) + 1);
        n_cell[load->rig.geometry.n_slot == 1 ? 0 : s] += held;
    }
    return model_cover_bytes(&load->rig.geometry, n_cell);
}

/* A token for every sequence that has a request; a new request for every one that has none. Later sequences begin
 * later, so that ends are staggered from the beginning. */
static int load_step(struct load *load)
{
    uint32_t n = 0;
    for (kvlazy_seq_id s = 0; s < SEQUENCES && (uint32_t)s <= load->n_step; s++) {
        if (load->left[s] == 0 && load->n_begun < REQUESTS) {
            load->left[s] = SHORTEST + idle_random(&load->seed, LONGEST - SHORTEST + 1);
            load->n_begun++;
            int status = kvlazy_seq_rm(load->rig.cache, s, -1, -1);
            if (status != KVLAZY_OK) {
                return idle_error("kvlazy_seq_rm", status);
            }
        }
        if (load->left[s] > 0) {
            load->rig.pos[n] = kvlazy_seq_pos_max(load->rig.cache, s) + 1;
            load->rig.seq[n++] = s;
            load->n_done += --load->left[s] == 0;
        }
    }
    load->n_step++;
    load->rig.now_ms += STEP_MS;
    int status = idle_batch(&load->rig, n, true);
    return status == KVLAZY_OK ? 0 : idle_error("a step of the load", status);
}

static int load_run(struct load *load)
{
    while (load->n_done < REQUESTS) {
        if (load_step(load) != 0) {
            return -1;
        }
        double busy = (double)idle_touched(&load->rig) / (double)packed_floor(load);
        load->worst_busy = load->n_step > SEQUENCES && busy > load->worst_busy ? busy : load->worst_busy;
    }
    return 0;
}

static int drop_most(struct load *load)
{
    kvlazy_seq_id order[SEQUENCES];
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        uint32_t k = idle_random(&load->seed, i + 1);
        order[i] = order[k];
        order[k] = (kvlazy_seq_id)i;
    }
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        kvlazy_pos end = i < SEQUENCES / KEEP_ONE_OF ? (kvlazy_seq_pos_max(load->rig.cache, order[i]) + 1) / 2 : 0;
        int status = kvlazy_seq_rm(load->rig.cache, order[i], end, -1);
        if (status != KVLAZY_OK) {
            return idle_error("kvlazy_seq_rm", status);
        }
    }
    return 0;
}

static int load_serve(struct load *load)
{
    if (load_run(load) != 0) {
        return -1;
    }
    load->loaded_bytes = idle_touched(&load->rig);
    if (drop_most(load) != 0 || idle_poll_out(&load->rig) != 0) {
        return -1;
    }
    load->idle_bytes = idle_touched(&load->rig);
    int status = kvlazy_resident(load->rig.cache, &load->resident_bytes);
    return status == KVLAZY_OK ? 0 : idle_error("kvlazy_resident", status);
}

static void load_report(const struct bench_config *config, const struct load *load)
{
    bool unified = load->rig.geometry.n_slot == 1;
    uint64_t floor_bytes = packed_floor(load);
    char what[80], from[20], to[20], packed[20];
    report_bytes(from, sizeof(from), load->loaded_bytes);
    report_bytes(to, sizeof(to), load->idle_bytes);
    report_bytes(packed, sizeof(packed), floor_bytes);
    snprintf(what, sizeof(what), "%s: touched / packed floor, idle", unified ? "one stream" : "a stream each");
    struct figure figure = {.key = unified ? "idle_touched_over_floor" : NULL,
                            .value = (double)load->idle_bytes / (double)floor_bytes,
                            .digits = 4,
                            .what = what,
                            .wanted = "<= 1.15"};
    snprintf(figure.ours, sizeof(figure.ours), "%s -> %s", from, to);
    snprintf(figure.other, sizeof(figure.other), "floor %s, %.4f of it resident", packed,
             (double)load->resident_bytes / (double)floor_bytes);
    report_figure(config, &figure);
    struct figure busy = {NULL, load->worst_busy, 4, "  the same under load, after the worst step", "", "", NULL};
    snprintf(busy.ours, sizeof(busy.ours), "of %u", load->n_step);
    report_figure(config, &busy);
}

static int floor_of(const struct bench_config *config, bool unified)
{
    static struct load load;
    struct bench_config geometry;
    bench_config_default(&geometry);
    geometry.n_layer = 4;
    geometry.n_slot = unified ? 1 : SEQUENCES;
    geometry.kv_size = unified ? SEQUENCES * LONGEST : LONGEST;
    geometry.kv_initial = 0; /* no token is to go */
    load = (struct load){.seed = 1};
    idle_init(&load.rig, &geometry, SEQUENCES, true);
    if (idle_create(&load.rig) != 0) {
        return -1;
    }
    int status = load_serve(&load);
    if (status == 0) {
        load_report(config, &load);
    }
    idle_close(&load.rig);
    return status;
}

int idle_floor(const struct bench_config *config)
{
    int status = floor_of(config, true);
    return status != 0 ? status : floor_of(config, false);
}
