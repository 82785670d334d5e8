/* SPDX-License-Identifier: MIT */
/*
 * The built-in trace: three quarters of an hour at a small server, made up for this bench so that nothing need
 * be downloaded. Called when no trace file is named. It has what memory has to cope with: a morning of mixed
 * questions, one long prompt followed by steady short requests, a burst that fills every slot, and rests.
 */
#include "trace.h"

#include "bench.h"

/* n requests, the first at second `at`, then one every `every` seconds. */
struct passage {
    uint32_t at, n, every, context_tokens, generated_tokens;
};

static const struct passage passages[] = {
    {0, 1, 0, 640, 180},    /* a chat */
    {35, 1, 0, 980, 220},   /* … that goes on */
    {80, 1, 0, 2900, 60},   /* a file to look at */
    {150, 1, 0, 700, 350},  /* */
    {240, 1, 0, 4100, 40},  /* a larger file */
    {390, 1, 0, 560, 120},  /* after a rest */
    {420, 1, 0, 1300, 250}, /* */
    {540, 1, 0, 6000, 30},  /* one long prompt … */
    {560, 30, 10, 300, 20}, /* … then a short request every ten seconds for five minutes */
    {1080, 1, 0, 3600, 90}, /* after a rest */
    {1200, 6, 3, 1800, 70}, /* a burst: more than the slots hold */
    {1320, 1, 0, 800, 600}, /* a long answer */
    {1500, 4, 45, 5200, 25}, /* long prompts, each after the idle time */
    {1830, 8, 12, 420, 60}, /* a chat again */
    {2100, 1, 0, 6900, 150}, /* nearly the whole of a slot */
    {2400, 3, 60, 900, 200}, /* and a quiet end */
};


int trace_builtin(struct trace *trace, uint32_t take)
{
    *trace = (struct trace){0};
    for (size_t i = 0; i < sizeof(passages) / sizeof(passages[0]); i++) {
        const struct passage *passage = &passages[i];
        for (uint32_t k = 0; k < passage->n; k++) {
            if (trace->n_in_file++ % take != 0) {
                continue;
            }
            uint64_t second = (uint64_t)passage->at + (uint64_t)k * passage->every;
            if (trace_append(trace, second * 1000000, passage->context_tokens, passage->generated_tokens) != 0) {
                trace_free(trace);
                return -1;
            }
        }
    }
    return 0;
}
