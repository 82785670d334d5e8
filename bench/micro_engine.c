/* SPDX-License-Identifier: MIT */
/*
 * The reference engine of tests/engine on kvlazy and on a plain calloc'ed cache: the greatest difference
 * between their logits over a session with growth, idle shrink, eviction and re-prefill, over f32 and f16 and
 * one and four streams. Built only where that engine is.
 */
#include "micro.h"

#include "engine_session.h"

int micro_engine(const struct bench_config *config)
{
    static const uint32_t n_stream[] = {1, 4};
    double worst = 0;
    for (int f16 = 0; f16 < 2; f16++) {
        for (int k = 0; k < 2; k++) {
            double here = 0;
            if (engine_session_max_dlogit(f16 != 0, n_stream[k], &here) != 0) {
                return bench_error("the engine's session failed (%s, %u streams)", f16 ? "f16" : "f32", n_stream[k]);
            }
            worst = here > worst || here != here ? here : worst;
        }
    }
    struct figure figure = {
        "engine_max_dlogit",       worst, -1, "engine: greatest difference of a logit", "f32, f16; 1, 4 streams",
        "a plain calloc'ed cache", "0"};
    report_figure(config, &figure);
    return 0;
}
