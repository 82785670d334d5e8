/* SPDX-License-Identifier: MIT */
/*
 * engine_restore: the rows of a sequence leave a cache and come back, as when an engine saves a slot to a file of its
 * own and reads it. The reference engine calls it. It copies rows as they are kept, knows no token, and looks at no
 * logits.
 */
#ifndef KVLAZY_TESTS_ENGINE_RESTORE_H
#define KVLAZY_TESTS_ENGINE_RESTORE_H

#include "engine_batch.h"

/**
 * All that the cache holds of a sequence is saved, removed and restored. late: the rows are written when the last batch
 * of the restore has ended, as by an engine whose reader is destroyed then. Fails: as kvlazy_prepare_restore; ENOMEM.
 * The sequence may be empty then.
 */
int engine_restore_sequence(engine_batch *b, kvlazy_seq_id seq, bool late);

#endif
