/* SPDX-License-Identifier: MIT */
/*
 * engine_layouts: in which layouts of K and V, and in which ways of using kvlazy, the script is run: its cells or the
 * engine's, its tensors or the engine's. A table, the back end for each line of it, and the whole script over all. The
 * tests walk the table, the bench asks for the largest difference. It knows nothing of steps.
 */
#include "engine_session.h"

#define ROWS(type)                        \
    {                                     \
        MODEL_##type, MODEL_##type, false \
    }
#define COLUMNS(k_type, v_type)              \
    {                                        \
        MODEL_##k_type, MODEL_##v_type, true \
    }
#define UNIFIED 1
#define SEPARATE ENGINE_SESSION_SLOTS

static const engine_session_config session_configs[] = {
    {"f32 rows", ROWS(F32), ENGINE_KV_LAZY, UNIFIED, NULL, 0},
    {"f32 rows, 4 streams", ROWS(F32), ENGINE_KV_LAZY, SEPARATE, NULL, 0},
    {"f16 rows", ROWS(F16), ENGINE_KV_LAZY, UNIFIED, NULL, 0},
    {"f16 rows, 4 streams", ROWS(F16), ENGINE_KV_LAZY, SEPARATE, NULL, 0},
    {"f16 transposed", COLUMNS(F16, F16), ENGINE_KV_LAZY, UNIFIED, NULL, 0},
    {"f16 transposed, 4 streams", COLUMNS(F16, F16), ENGINE_KV_LAZY, SEPARATE, NULL, 0},
    {"q8_0 rows", ROWS(Q8_0), ENGINE_KV_LAZY, UNIFIED, NULL, 0},
    {"q8_0 rows, 4 streams", ROWS(Q8_0), ENGINE_KV_LAZY, SEPARATE, NULL, 0},
    {"q8_0 K, f16 transposed", COLUMNS(Q8_0, F16), ENGINE_KV_LAZY, UNIFIED, NULL, 0},
    {"arena, q8_0 rows", ROWS(Q8_0), ENGINE_KV_ARENA, UNIFIED, NULL, 0},
    {"arena, f16 rows, 4 streams", ROWS(F16), ENGINE_KV_ARENA, SEPARATE, NULL, 0},
    {"arena, f16 transposed", COLUMNS(F16, F16), ENGINE_KV_ARENA, UNIFIED, NULL, 0},
    {"memory, f16 rows", ROWS(F16), ENGINE_KV_MEMORY, UNIFIED, NULL, 0},
    {"memory, q8_0 rows, 4 streams", ROWS(Q8_0), ENGINE_KV_MEMORY, SEPARATE, NULL, 0},
    {"memory, f16 transposed", COLUMNS(F16, F16), ENGINE_KV_MEMORY, UNIFIED, NULL, 0},
    {"memory, arena, q8_0 rows", ROWS(Q8_0), ENGINE_KV_MEMORY_ARENA, UNIFIED, NULL, 0},
    {"memory, arena, f16 transposed, 4 streams", COLUMNS(F16, F16), ENGINE_KV_MEMORY_ARENA, SEPARATE, NULL, 0},
};

const engine_session_config *engine_session_configs(uint32_t *n)
{
    *n = sizeof session_configs / sizeof *session_configs;
    return session_configs;
}

int engine_session_create_kv(int what, const engine_kv_config *config, engine_kv **kv)
{
    engine_kv_config own = *config;

    own.own_tensors = what == ENGINE_KV_ARENA || what == ENGINE_KV_MEMORY_ARENA;
    return what == ENGINE_KV_LAZY || what == ENGINE_KV_ARENA ? engine_kv_lazy_create(&own, kv)
                                                             : engine_kv_memory_create(&own, kv);
}

static int run_session(const engine_session_config *config, double *max)
{
    engine_session *session;
    engine_session_report report;
    int status = engine_session_open(config, &session);

    if (status != KVLAZY_OK) {
        return status;
    }
    status = engine_session_run(session);
    engine_session_get_report(session, &report);
    engine_session_close(session);
    *max = report.max_dlogit;
    return status;
}

int engine_session_max_dlogit(bool f16, uint32_t n_stream, double *max)
{
    const engine_session_config config = {
        .layout = {f16 ? MODEL_F16 : MODEL_F32, f16 ? MODEL_F16 : MODEL_F32, false},
        .n_stream = n_stream,
    };

    return run_session(&config, max);
}

int engine_layouts_max_dlogit(double *max)
{
    uint32_t n;
    const engine_session_config *configs = engine_session_configs(&n);
    int status = KVLAZY_OK;

    *max = 0.0;
    for (uint32_t i = 0; status == KVLAZY_OK && i < n; i++) {
        double here = 0.0;

        status = run_session(&configs[i], &here);
        *max = here > *max ? here : *max;
    }
    return status;
}
