/* SPDX-License-Identifier: MIT */
/* The figures of fleet.h in a build without hiredis: each says that it is missing. */
#include "fleet.h"

static int missing(void)
{
    bench_error("hiredis is not part of this build (libhiredis-dev)");
    return 1;
}

int fleet_serve(const struct bench_config *config)
{
    (void)config;
    return missing();
}

int fleet_speed(const struct bench_config *config)
{
    (void)config;
    return missing();
}

int fleet_hung(const struct bench_config *config)
{
    (void)config;
    return missing();
}

int fleet_rows(const struct bench_config *config)
{
    (void)config;
    return missing();
}
