/* SPDX-License-Identifier: MIT */
/*
 * The reference engine of tests/engine when a sequence goes and the one behind it moves down at the next idle: the
 * greatest difference of a logit from an engine that never saw the other. Built only where that engine is.
 */
#include "idle.h"

#include "engine_session.h"

int idle_engine(const struct bench_config *config)
{
    double worst = 0;
    if (engine_compact_max_dlogit(&worst) != 0) {
        return bench_error("the engine's session with compaction failed");
    }
    struct figure figure = {
        "compact_max_dlogit",   worst, -1, "engine, cells moved: greatest difference of a logit", "",
        "one that never moved", "0"};
    report_figure(config, &figure);
    return 0;
}
