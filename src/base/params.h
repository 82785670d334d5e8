/* SPDX-License-Identifier: MIT */
/*
 * params: what a caller asked for, checked and with its defaults resolved, so that no other file has to ask what a 0
 * means. Reads the environment only in kvlazy_params_from_env.
 */
#ifndef KVL_PARAMS_H
#define KVL_PARAMS_H

#include "base/base.h"
#include "base/log.h"

enum {
    KVL_SEQ_MAX = 65536,
    KVL_TAG_BYTES = 64,
    KVL_PAD_DEFAULT = 256,
    KVL_IDLE_MS_DEFAULT = 30000,
};

/* Reads the caller's struct, of any version, into one of this version with defaults resolved. Returns KVLAZY_EINVAL or
 * KVLAZY_ENOTSUP after noting a line that names the field and its value; KVLAZY_ENOMEM. Layers and the memory table are
 * not copied: *params points at the caller's. */
int kvl_params_resolve(const kvlazy_params *asked, kvlazy_params *params, kvl_log *log);

/* Notes what is wrong with a field. Returns `status`. */
int kvl_params_refuse(kvl_log *log, int status, const char *field, uint64_t value, const char *why);

/* Returns what kv_size_initial means: 0, and more than kv_size, mean kv_size. */
static inline uint32_t kvl_initial_cells(uint32_t kv_size_initial, uint32_t kv_size)
{
    return kv_size_initial && kv_size_initial < kv_size ? kv_size_initial : kv_size;
}

#endif
