/* SPDX-License-Identifier: MIT */
/*
 * cover: the pages that a set of cells lies on, each counted once, whatever rows, lanes and tensors share them. The set
 * is cells.keep and keep_end of every stream. Counts; gives nothing back.
 */
#ifndef KVL_COVER_H
#define KVL_COVER_H

#include "core/stream.h"
#include "memory/rows.h"

/* keep := live cells, in every stream. */
void kvl_keep_live(kvl_stream *stream, uint32_t n_stream);

/* The first cell ≥ from that is kept, or is not; kv_size: none. */
uint32_t kvl_next_kept(const kvl_stream *stream, uint32_t from, bool kept);

/* Pages under the cells that the streams of these rows keep; all of them or those that are touched. */
uint64_t kvl_kept_pages(const kvl_rows *rows, const kvl_stream *stream, bool touched_only);

#endif
