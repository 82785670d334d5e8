/* SPDX-License-Identifier: MIT */
/*
 * Formats figures. Called by main.c and the micro figures; it computes nothing but ratios of what it is given,
 * and with --keys writes one key=value a line and nothing else.
 */
#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bsd/stdlib.h>
#include <bsd/string.h>

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

void report_time(char *text, size_t room, struct bench_series *ns)
{
    double median = bench_series_at(ns, 0.5);
    const char *unit = "ns";
    double scale = 1;
    if (median >= 1e9) {
        unit = "s", scale = 1e9;
    } else if (median >= 1e6) {
        unit = "ms", scale = 1e6;
    } else if (median >= 1e3) {
        unit = "us", scale = 1e3;
    }
    double low = ns->n < 20 ? 0 : 0.25; /* one interrupt in hundreds of rounds is not the spread */
    snprintf(text, room, "%.3g %s (%.3g .. %.3g)", median / scale, unit, bench_series_at(ns, low) / scale,
             bench_series_at(ns, 1 - low) / scale);
}

void report_bytes(char *text, size_t room, uint64_t bytes)
{
    if (bytes < 10 << 20) {
        char small[16]; /* with more room humanize_number has no scale to choose, and overflows */
        humanize_number(small, sizeof(small), (int64_t)bytes, "B", HN_AUTOSCALE, HN_IEC_PREFIXES | HN_DECIMAL);
        strlcpy(text, small, room);
    } else {
        snprintf(text, room, "%.1f MiB", mib(bytes));
    }
}

static void value_text(char *text, size_t room, double value, int digits)
{
    if (digits < 0) {
        snprintf(text, room, "%.9g", value);
    } else {
        snprintf(text, room, "%.*f", digits, value);
    }
}

static void report_key(const char *key, double value, int digits)
{
    char text[64];
    value_text(text, sizeof(text), value, digits);
    printf("%s=%s\n", key, text);
    fflush(stdout);
}

void report_begin(const struct bench_config *config)
{
    if (!config->keys && (config->micro || config->part != NULL)) {
        printf("%-46s %-32s %-42s %10s  %s\n",
               config->micro ? "figure, default geometry: median (spread)" : "figure: median (spread)", "kvlazy",
               "compared with", "value", "wanted");
        fflush(stdout);
    }
}

void report_figure(const struct bench_config *config, const struct figure *figure)
{
    if (!config->keys) {
        char text[64];
        value_text(text, sizeof(text), figure->value, figure->digits);
        printf("%-46s %-32s %-42s %10s  %s\n", figure->what, figure->ours, figure->other, text,
               figure->wanted == NULL ? "" : figure->wanted);
        fflush(stdout);
    } else if (figure->key != NULL) {
        report_key(figure->key, figure->value, figure->digits);
    }
}

static double first_token_ms(const struct replay_result *result)
{
    return result->n_request == 0 ? 0 : (double)result->first_token_ns / 1e6 / result->n_request;
}

static double end_mib(const struct replay_result *result)
{
    return result->n_sample == 0 ? 0 : mib(result->sample[result->n_sample - 1]);
}

static double prefilled_share(const struct replay_result *result)
{
    return result->prompt_tokens == 0 ? 0 : (double)result->prefilled_tokens / (double)result->prompt_tokens;
}

static double written_per_distinct(const struct policy_stored *stored)
{
    return stored->distinct_bytes == 0 ? 0 : (double)stored->written_bytes / (double)stored->distinct_bytes;
}

static void comparison_keys(const struct comparison *comparison)
{
    for (int i = 0; i < COMPARISON_POLICIES; i++) {
        const struct replay_result *result = comparison->result[i];
        const struct {
            const char *suffix;
            double value;
            int digits;
        } key[] = {
            {"avg_mib", replay_average_mib(result), 1},
            {"peak_mib", mib(result->peak_bytes), 1},
            {"end_mib", end_mib(result), 1},
            {"first_token_ms", first_token_ms(result), 3},
            {"recomputed_tokens", (double)result->recomputed_tokens, 0},
            {"create_ms", (double)result->create_ns / 1e6, 3},
            {"prefilled_share", prefilled_share(result), 4},
        };
        for (size_t k = 0; k < sizeof(key) / sizeof(key[0]); k++) {
            char name[64];
            snprintf(name, sizeof(name), "trace_%s_%s", comparison->policy[i]->key, key[k].suffix);
            report_key(name, key[k].value, key[k].digits);
        }
    }
}

static void comparison_table(const struct bench_config *config, const struct trace *trace,
                             const struct comparison *comparison)
{
    printf("\n%s, %zu of %zu requests; %u slots x %u cells, %u layers, rows of %u B; idle %u s, initial %u cells\n",
           config->trace_path == NULL ? "the built-in trace" : config->trace_path, trace->n_request, trace->n_in_file,
           config->n_slot, config->kv_size, config->n_layer, config->row_bytes, config->idle_ms / 1000,
           bench_initial(config));
    printf("%-12s %12s %12s %12s %12s %16s %12s %10s %10s\n", "policy", "average MiB", "peak MiB", "end MiB",
           "create ms", "first token ms", "recomputed", "prefilled", "ran s");
    for (int i = 0; i < COMPARISON_POLICIES; i++) {
        const struct replay_result *result = comparison->result[i];
        printf("%-12s %12.1f %12.1f %12.1f %12.3f %16.2f %12llu %9.1f%% %10.1f\n", comparison->policy[i]->name,
               replay_average_mib(result), mib(result->peak_bytes), end_mib(result), (double)result->create_ns / 1e6,
               first_token_ms(result), (unsigned long long)result->recomputed_tokens, 100 * prefilled_share(result),
               (double)result->wall_ns / 1e9);
    }
    for (int i = 0; i < 2; i++) {
        const struct replay_result *model = i == 0 ? comparison->model : comparison->tight_model;
        printf("%-12s %12.1f %12.1f %12.1f %12s %16s %12llu %9.1f%%\n", i == 0 ? "(model)" : "(tight)",
               replay_average_mib(model), mib(model->peak_bytes), end_mib(model), "", "",
               (unsigned long long)model->recomputed_tokens, 100 * prefilled_share(model));
    }
}

void report_comparison(const struct bench_config *config, const struct trace *trace, struct comparison *comparison)
{
    const struct policy_stored *moved = &comparison->result[COMPARISON_STORE]->stored;
    double lazy = replay_average_mib(comparison->result[COMPARISON_KVLAZY]);
    double cover = replay_average_mib(comparison->model), tight = replay_average_mib(comparison->tight_model);
    double seed = replay_average_mib(comparison->result[COMPARISON_SEED]);
    if (config->keys) {
        comparison_keys(comparison);
        report_key("trace_store_written_mib", mib(moved->written_bytes), 1);
        report_key("trace_store_read_mib", mib(moved->read_bytes), 1);
        report_key("trace_store_held_mib", mib(moved->held_bytes), 1);
        report_key("trace_store_written_per_distinct_byte", written_per_distinct(moved), 4);
        report_key("trace_model_avg_mib", cover, 1);
        report_key("trace_kvlazy_over_cover", lazy / cover, 4);
        report_key("trace_kvlazy_over_tight_cover", lazy / tight, 4);
        report_key("trace_kvlazy_vs_seed", lazy / seed, 4);
    } else {
        comparison_table(config, trace, comparison);
        printf(
            "kvlazy / page cover of the cells its rules leave live, or left live in the last %g s: %.4f  (<= 1.05)\n",
            1.5 * config->idle_ms / 1000, lazy / cover);
        printf("the same, but evicted cells count no longer than they live: %.4f\n", lazy / tight);
        printf("kvlazy / seed: %.4f\n", lazy / seed);
        printf(
            "the store wrote %.0f MiB, read %.0f MiB and holds %.0f MiB; written per distinct byte: %.4f  (<= 1.05)\n",
            mib(moved->written_bytes), mib(moved->read_bytes), mib(moved->held_bytes), written_per_distinct(moved));
        fflush(stdout);
    }
    if (comparison->model->recomputed_tokens != comparison->result[COMPARISON_KVLAZY]->recomputed_tokens ||
        comparison->model->last_token_us != comparison->result[COMPARISON_KVLAZY]->last_token_us) {
        fprintf(stderr, "bench: note: kvlazy evicted other tokens than the model's rules do\n");
    }
}

static FILE *open_data(const struct bench_config *config, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", config->data_dir, name);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        bench_error("%s: %s", path, strerror(errno));
    }
    return file;
}

static int close_data(FILE *file, const char *name)
{
    bool bad = ferror(file) != 0;
    bad = fclose(file) != 0 || bad;
    return bad ? bench_error("%s: %s", name, strerror(errno)) : 0;
}

/* A name as gnuplot reads it between single quotes. */
static void write_quoted(FILE *file, const char *variable, const char *text)
{
    fprintf(file, "%s = '", variable);
    for (; *text != '\0'; text++) {
        fputs(*text == '\'' ? "''" : (char[]){*text, '\0'}, file);
    }
    fputs("'\n", file);
}

int report_plot(const struct bench_config *config, const struct trace *trace, const struct comparison *comparison)
{
    FILE *data = open_data(config, "memory.dat");
    if (data == NULL) {
        return -1;
    }
    fprintf(data, "# virtual minutes, then resident MiB: eager demand seed kvlazy kvlazy+store\n");
    for (uint32_t i = 0; i < comparison->grid.n_sample; i++) {
        fprintf(data, "%.4f", (double)i * (double)comparison->grid.step_us / 60e6);
        for (int k = 0; k < COMPARISON_POLICIES; k++) {
            fprintf(data, " %.2f", mib(comparison->result[k]->sample[i]));
        }
        fputc('\n', data);
    }
    if (close_data(data, "memory.dat") != 0) {
        return -1;
    }
    FILE *vars = open_data(config, "memory.vars");
    if (vars == NULL) {
        return -1;
    }
    char title[512];
    const char *name = config->trace_path == NULL ? "the built-in trace" : strrchr(config->trace_path, '/');
    name = name == NULL ? config->trace_path : name + (*name == '/');
    snprintf(title, sizeof(title), "%.200s: %zu requests, %u slots x %u cells", name, trace->n_request, config->n_slot,
             config->kv_size);
    write_quoted(vars, "plot_title", title);
    write_quoted(vars, "plot_path", config->plot_path);
    for (int k = 0; k < COMPARISON_POLICIES; k++) {
        fprintf(vars, "%s_mib = %.0f\n", comparison->policy[k]->key, replay_average_mib(comparison->result[k]));
    }
    return close_data(vars, "memory.vars");
}
