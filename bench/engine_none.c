/* SPDX-License-Identifier: MIT */
/* The figures of the reference engine in a build without it: each says that it is missing. */
#include "idle.h"
#include "micro.h"
#include "state.h"
#include "store.h"
#include "tensors.h"

static int missing(const char *key)
{
    bench_error("%s: the reference engine is not part of this build", key);
    return 1;
}

int micro_engine(const struct bench_config *config)
{
    (void)config;
    return missing("engine_max_dlogit");
}

int tensors_engine(const struct bench_config *config)
{
    (void)config;
    return missing("engine_layouts_max_dlogit");
}

int idle_engine(const struct bench_config *config)
{
    (void)config;
    return missing("compact_max_dlogit");
}

int state_engine(const struct bench_config *config)
{
    (void)config;
    return missing("state_max_dlogit");
}

int store_engine(const struct bench_config *config)
{
    (void)config;
    return missing("store_max_dlogit");
}
