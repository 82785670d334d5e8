/* SPDX-License-Identifier: MIT */
/*
 * Following what the library moves. The rig knows which bytes it wrote by cell; a shrink moves tokens to other cells.
 * So every executable has its calls that may shrink (poll, trim, set_limits, init_batch) handed to wrappers by the
 * linker: before such a call they look at all live cells of the cache and of those linked to it, and afterwards every
 * cell that holds a token it did not hold must have it from a cell above that held the same one, with the bytes of
 * all tensors. A token from nowhere fails the test, and so do bytes that are another token's.
 */
#ifndef FOLLOW_H
#define FOLLOW_H

#include <stdbool.h>
#include <stdint.h>

#include <kvlazy/kvlazy.h>

struct rig;

/* Live cells as they were at the last look: [n_stream · kv_size]. */
struct rig_seen {
    bool fresh; /* nothing was followed since */
    uint32_t owner_words;
    kvlazy_pos *pos, *shift, *y, *x;
    uint64_t *owner;
    uint32_t *stamp;
    bool *stayed; /* [kv_size] scratch */
};

/* A rig whose n_stream, kv_size and cache are known, and its stamps: from here it is followed. And no more. */
void rig_follows(struct rig *rig);
void rig_forgets(struct rig *rig);

/* By hand, around what changes cells in the middle of such a call: all that are linked are served. */
void rig_look(struct rig *rig);
void rig_follow(struct rig *rig);

/* With rig.beside other threads shrink while this one runs the hooks: what they moved between two batches is followed
 * when the second one opens. They are gone now: what they moved last is followed, and all is as it was. */
void rig_alone(struct rig *rig);

#endif
