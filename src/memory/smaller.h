/* SPDX-License-Identifier: MIT */
/*
 * smaller: an arena of the engine's is reserved before it is known which rows will lie in it, and its pages may turn
 * out too large for them. Until a cache uses it, it can go back to the host's own pages. Called when a cache is created
 * or planned.
 */
#ifndef KVL_SMALLER_H
#define KVL_SMALLER_H

#include "memory/arena.h"

/* Makes the pages of an arena those of the host. Returns false, with nothing changed, where a cache uses it or the host
 * cannot. */
bool kvl_arena_make_smaller(kvlazy_arena *arena);

#endif
