/* SPDX-License-Identifier: MIT */
/* params: see params.h. */
#include "base/params.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

#include <bsd/libutil.h>
#include <bsd/string.h>

#include <kvlazy/engine_cells.h>

static const uint16_t params_end[] = {
    KVL_END(kvlazy_params, kv_size),
    KVL_END(kvlazy_params, kv_size_initial),
    KVL_END(kvlazy_params, slot_shrink_idle_ms),
    KVL_END(kvlazy_params, n_stream),
    KVL_END(kvlazy_params, n_seq_max),
    KVL_END(kvlazy_params, n_pad),
    KVL_END(kvlazy_params, n_swa),
    KVL_END(kvlazy_params, swa_type),
    KVL_END(kvlazy_params, n_pos_per_token),
    KVL_END(kvlazy_params, keep_tokens),
    KVL_END(kvlazy_params, shrink),
    KVL_END(kvlazy_params, flags),
    KVL_END(kvlazy_params, budget_bytes),
    KVL_END(kvlazy_params, layers),
    KVL_END(kvlazy_params, n_layer),
    KVL_END(kvlazy_params, with),
    KVL_END(kvlazy_params, mem),
    KVL_END(kvlazy_params, name),
    KVL_END(kvlazy_params, log),
    KVL_END(kvlazy_params, log_ctx),
    KVL_END(kvlazy_params, on_evict),
    KVL_END(kvlazy_params, evict_ctx),
    KVL_END(kvlazy_params, cell_ops),
    KVL_END(kvlazy_params, pool),
    KVL_END(kvlazy_params, pool_min_bytes),
    KVL_END(kvlazy_params, pool_weight),
    KVL_END(kvlazy_params, host_root),
    KVL_END(kvlazy_params, model_tag),
    KVL_END(kvlazy_params, model_tag_bytes),
    KVL_END(kvlazy_params, page_bytes),
    KVL_END(kvlazy_params, n_writer),
    KVL_END(kvlazy_params, warm_bytes),
    0,
};

static const uint16_t cell_ops_end[] = {
    KVL_END(kvlazy_cell_ops, ctx),
    KVL_END(kvlazy_cell_ops, used_end),
    KVL_END(kvlazy_cell_ops, is_used),
    KVL_END(kvlazy_cell_ops, move),
    KVL_END(kvlazy_cell_ops, vacate),
    KVL_END(kvlazy_cell_ops, due),
    0,
};

_Static_assert(KVL_IS_LAST(kvlazy_params, warm_bytes), "a member is not among the ends");
_Static_assert(KVL_IS_LAST(kvlazy_cell_ops, due), "a member is not among the ends");

void kvlazy_params_init(kvlazy_params *params)
{
    if (!params)
        return;
    memset(params, 0, sizeof *params);
    params->struct_size = sizeof *params;
    params->slot_shrink_idle_ms = KVL_IDLE_MS_DEFAULT;
    params->n_stream = 1;
    params->n_pad = KVL_PAD_DEFAULT;
    params->n_pos_per_token = 1;
    params->shrink = KVLAZY_SHRINK_TAILS;
}

/* ------------------------------------------------------------------------------------------- checking */

int kvl_params_refuse(kvl_log *log, int status, const char *field, uint64_t value, const char *why)
{
    kvl_log_note(log, KVLAZY_LOG_ERROR, "%s = %" PRIu64 ": %s", field, value, why);
    return status;
}

/* The tensors of a layer are checked by geometry. */
static int check_layer(const kvlazy_params *params, uint32_t i, kvl_log *log)
{
    const kvlazy_layer *layer = &params->layers[i];

    bool in_arena = (layer->k && layer->k->data) || (layer->v && layer->v->data);

    if ((params->flags & (KVLAZY_HUGE_PAGES | KVLAZY_DONTFORK)) && in_arena)
        return kvl_params_refuse(log, KVLAZY_ENOTSUP, "layer in an arena, id", layer->id,
                                 "KVLAZY_HUGE_PAGES and KVLAZY_DONTFORK are for what the library lays out");
    return KVLAZY_OK;
}

static int by_id(const void *a, const void *b)
{
    uint32_t p = *(const uint32_t *)a, q = *(const uint32_t *)b;

    return (p > q) - (p < q);
}

/* Sorted, what is named twice stands side by side. */
static int check_ids(const kvlazy_params *params, kvl_log *log)
{
    int status = KVLAZY_OK;
    uint32_t *id = params->n_layer > 1 ? calloc(params->n_layer, sizeof *id) : NULL;

    if (params->n_layer < 2)
        return KVLAZY_OK;
    if (!id)
        return KVLAZY_ENOMEM;
    for (uint32_t i = 0; i < params->n_layer; i++)
        id[i] = params->layers[i].id;
    qsort(id, params->n_layer, sizeof *id, by_id);
    for (uint32_t i = 1; !status && i < params->n_layer; i++)
        if (id[i] == id[i - 1])
            status = kvl_params_refuse(log, KVLAZY_EINVAL, "layer id", id[i], "named twice");
    free(id);
    return status;
}

static int check_values(const kvlazy_params *p, kvl_log *log)
{
    uint32_t one_way = KVLAZY_COMMIT_AHEAD | KVLAZY_NO_COMMIT_AHEAD;
    uint32_t known = KVLAZY_SHRINK_AT_INIT | KVLAZY_DONTFORK | KVLAZY_HUGE_PAGES | KVLAZY_CELLS_ANY_THREAD | one_way |
                     KVLAZY_UBATCH_AHEAD;

    if (p->kv_size < 1 || p->kv_size > INT32_MAX)
        return kvl_params_refuse(log, KVLAZY_EINVAL, "kv_size", p->kv_size, "must be 1 to 2147483647 cells");
    if (p->n_seq_max > KVL_SEQ_MAX)
        return kvl_params_refuse(log, KVLAZY_EINVAL, "n_seq_max", p->n_seq_max, "at most 65536");
    if (p->n_stream != 1 && p->n_stream != p->n_seq_max)
        return kvl_params_refuse(log, KVLAZY_EINVAL, "n_stream", p->n_stream, "must be 1 or n_seq_max");
    if (!kvl_is_pow2(p->n_pad) || p->n_pad > UINT32_C(1) << 30)
        return kvl_params_refuse(log, KVLAZY_EINVAL, "n_pad", p->n_pad, "must be a power of two");
    if (p->n_pos_per_token != 1 && p->n_pos_per_token != 3 && p->n_pos_per_token != 4)
        return kvl_params_refuse(log, KVLAZY_EINVAL, "n_pos_per_token", p->n_pos_per_token, "must be 1, 3 or 4");
    if (p->swa_type < KVLAZY_SWA_NONE || p->swa_type > KVLAZY_SWA_SYMMETRIC)
        return kvl_params_refuse(log, KVLAZY_EINVAL, "swa_type", (uint64_t)p->swa_type, "no such window");
    if ((p->swa_type != KVLAZY_SWA_NONE) != (p->n_swa > 0) || p->n_swa > INT32_MAX)
        return kvl_params_refuse(log, KVLAZY_EINVAL, "n_swa", p->n_swa,
                                 "must be the size of the window, and 0 without one");
    if (p->shrink < KVLAZY_SHRINK_TAILS || p->shrink > KVLAZY_SHRINK_KEEP)
        return kvl_params_refuse(log, KVLAZY_EINVAL, "shrink", (uint64_t)p->shrink, "no such mode");
    if (p->flags & ~known)
        return kvl_params_refuse(log, KVLAZY_EINVAL, "flags", p->flags, "unknown flag");
    if ((p->flags & one_way) == one_way)
        return kvl_params_refuse(log, KVLAZY_EINVAL, "flags", p->flags, "COMMIT_AHEAD and NO_COMMIT_AHEAD");
    if (p->n_layer && !p->layers)
        return kvl_params_refuse(log, KVLAZY_EINVAL, "layers", 0, "NULL, but n_layer is not 0");
    if (p->page_bytes && !kvl_is_pow2(p->page_bytes))
        return kvl_params_refuse(log, KVLAZY_EINVAL, "page_bytes", p->page_bytes, "must be a power of two");
    if (p->model_tag_bytes > KVL_TAG_BYTES || (p->model_tag_bytes && !p->model_tag))
        return kvl_params_refuse(log, KVLAZY_EINVAL, "model_tag_bytes", p->model_tag_bytes,
                                 "at most 64, with a model_tag");
    return KVLAZY_OK;
}

static int check_cell_ops(const kvlazy_params *p, kvl_log *log)
{
    const kvlazy_cell_ops *ops = p->cell_ops;

    if (!ops)
        return KVLAZY_OK;
    if (!kvl_input_fits(ops, sizeof *ops, cell_ops_end) || kvl_struct_size(ops) < KVL_END(kvlazy_cell_ops, used_end) ||
        (!ops->used_end && kvl_struct_size(ops) >= KVL_END(kvlazy_cell_ops, is_used) && ops->is_used))
        return kvl_params_refuse(log, KVLAZY_EINVAL, "cell_ops struct_size", kvl_struct_size(ops),
                                 "not a table of this version, or is_used without used_end");
    if (p->swa_type != KVLAZY_SWA_NONE || p->n_pos_per_token > 1 || p->keep_tokens)
        return kvl_params_refuse(log, KVLAZY_ENOTSUP, "cell_ops with n_swa, n_pos_per_token or keep_tokens", p->n_swa,
                                 "positions are the engine's there");
    return KVLAZY_OK;
}

int kvl_params_resolve(const kvlazy_params *asked, kvlazy_params *params, kvl_log *log)
{
    kvlazy_params_init(params);
    memset(log, 0, sizeof *log);
    if (!asked || !kvl_input_fits(asked, sizeof *params, params_end))
        return KVLAZY_EINVAL;
    kvl_struct_copy(params, sizeof *params, asked, kvl_struct_size(asked));
    kvl_log_init(log, params);

    if (!params->n_stream)
        params->n_stream = 1;
    if (!params->n_seq_max)
        params->n_seq_max = params->n_stream;
    if (!params->n_pad)
        params->n_pad = KVL_PAD_DEFAULT;
    if (!params->n_pos_per_token)
        params->n_pos_per_token = 1;

    int status = check_values(params, log);
    if (!status)
        status = check_cell_ops(params, log);
    for (uint32_t i = 0; !status && i < params->n_layer; i++)
        status = check_layer(params, i, log);
    if (!status)
        status = check_ids(params, log);
    if (!params->pool_weight)
        params->pool_weight = 1;
    if (!status)
        params->kv_size_initial = kvl_initial_cells(params->kv_size_initial, params->kv_size);
    return status;
}

/* --------------------------------------------------------------------------------------- from text */

/* Digits and at most one unit; `unit` is what follows the digits. */
static bool parse_digits(const char *text, char digits[24], const char **unit)
{
    while (text[0] == '0' && isdigit((unsigned char)text[1]))
        text++; /* a user means ten by "010", and expand_number would read it as octal */
    size_t n = strspn(text, "0123456789");
    if (!n || n >= 24 - 1)
        return false;
    strlcpy(digits, text, n + 1);
    *unit = text + n;
    return true;
}

static bool parse_size(const char *text, uint64_t max, uint64_t *value)
{
    char digits[24];
    const char *unit;

    if (!parse_digits(text, digits, &unit) || strlen(unit) > 1 || (*unit && !strchr("kKmMgGtT", *unit)))
        return false;
    strlcat(digits, unit, sizeof digits);
    errno = 0;
    return expand_number(digits, value) == 0 && errno == 0 && *value <= max;
}

static bool parse_ms(const char *text, uint64_t max, uint64_t *value)
{
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = {{"", 1}, {"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}};
    char digits[24];
    const char *unit;

    if (!parse_digits(text, digits, &unit))
        return false;
    errno = 0;
    if (expand_number(digits, value) != 0 || errno != 0)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcasecmp(unit, units[i].unit))
            return !kvl_mul_overflows(*value, units[i].ms, value) && *value <= max;
    return false;
}

/* The largest value of a type is left out: to kvlazy_set_limits it means "as it is". */
typedef struct option {
    const char *name, *alias;
    bool (*parse)(const char *text, uint64_t max, uint64_t *value);
    uint64_t max;
    size_t offset;
    bool wide; /* uint64_t, else uint32_t */
} option;

static const option options[] = {
    {"kv-size", NULL, parse_size, INT32_MAX, offsetof(kvlazy_params, kv_size), false},
    {"slot-initial-ctx", "kv-size-initial", parse_size, INT32_MAX, offsetof(kvlazy_params, kv_size_initial), false},
    {"slot-shrink-idle-ms", "shrink-idle-ms", parse_ms, UINT32_MAX - 1, offsetof(kvlazy_params, slot_shrink_idle_ms),
     false},
    {"budget-bytes", NULL, parse_size, UINT64_MAX - 1, offsetof(kvlazy_params, budget_bytes), true},
    {"page-bytes", NULL, parse_size, UINT64_MAX - 1, offsetof(kvlazy_params, page_bytes), true},
    {"warm-bytes", NULL, parse_size, UINT64_MAX - 1, offsetof(kvlazy_params, warm_bytes), true},
};
enum { N_OPTION = sizeof options / sizeof *options };

/* The line is told at once, since no lock is held here. */
static int complain(const kvlazy_params *params, const char *name, const char *value, const char *why)
{
    kvl_log log;

    kvl_log_init(&log, params);
    kvl_log_note(&log, KVLAZY_LOG_ERROR, "%s: \"%s\" %s", name, value, why);
    kvl_log_tell(&log);
    return KVLAZY_EINVAL;
}

static int set_option(kvlazy_params *params, const option *o, const char *name, const char *text)
{
    uint64_t value;

    if (!o->parse(text, o->max, &value))
        return complain(params, name, text,
                        o->parse == parse_ms ? "is no time (30000, 30s, 5min; 0: never) in range"
                                             : "is no size (4096, 4k, 2g; 0 keeps its meaning) in range");
    if (o->wide)
        memcpy((char *)params + o->offset, &value, sizeof value);
    else
        memcpy((char *)params + o->offset, &(uint32_t){(uint32_t)value}, sizeof(uint32_t));
    return KVLAZY_OK;
}

/* Text options write to any member, so the struct must be of this version and not shorter. */
static bool is_whole(const kvlazy_params *params)
{
    return params && kvl_struct_size(params) >= sizeof *params && kvl_input_fits(params, sizeof *params, params_end);
}

int kvlazy_params_set(kvlazy_params *params, const char *name, const char *value)
{
    if (!is_whole(params) || !name || !value)
        return KVLAZY_EINVAL;
    for (int i = 0; i < N_OPTION; i++)
        if (!strcmp(name, options[i].name) || (options[i].alias && !strcmp(name, options[i].alias)))
            return set_option(params, &options[i], name, value);
    return complain(params, name, value, "no such option");
}

/* Reads the variable KVLAZY_SLOT_INITIAL_CTX for "slot-initial-ctx". */
static const char *read_env(const char *prefix, const char *name, char variable[64])
{
    snprintf(variable, 64, "%s%s", prefix, name);
    for (char *c = variable; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    return getenv(variable);
}

int kvlazy_params_from_env(kvlazy_params *params)
{
    static const char *const prefixes[] = {"KVLAZY_", "LLAMA_ARG_"};
    kvlazy_params changed;
    char variable[64];

    if (!is_whole(params))
        return KVLAZY_EINVAL;
    changed = *params;
    for (int i = 0; i < N_OPTION; i++) {
        const char *names[] = {options[i].name, options[i].alias}, *value = NULL;

        for (int k = 0; k < 4 && !value; k++)
            if (names[k % 2])
                value = read_env(prefixes[k / 2], names[k % 2], variable);
        if (value && set_option(&changed, &options[i], variable, value))
            return KVLAZY_EINVAL;
    }
    *params = changed;
    return KVLAZY_OK;
}
