/* SPDX-License-Identifier: MIT */
/*
 * The reference engine of tests/engine goes on after a state was saved and loaded, in every way that its table of cases
 * names: the greatest difference of a logit. Built only where that engine is.
 */
#include "state.h"

#include "engine_state.h"

#include <stdio.h>

int state_engine(const struct bench_config *config)
{
    double worst = 0;
    uint32_t n;
    int status = engine_state_max_dlogit(config->data_dir, &worst);
    if (status != KVLAZY_OK) {
        return state_error("the engine's conversations", status);
    }
    engine_state_cases(&n);
    struct figure figure = {
        "state_max_dlogit", worst, -1, "engine after save and load: greatest difference", "", "", "0"};
    snprintf(figure.ours, sizeof(figure.ours), "%u cases", n);
    report_figure(config, &figure);
    return 0;
}
