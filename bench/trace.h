/* SPDX-License-Identifier: MIT */
/*
 * A trace: when requests arrive and how many tokens each brings and gets. Either read from a CSV file or
 * built in. It never holds more than that; cutting and scheduling are the replay's.
 */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <stddef.h>
#include <stdint.h>

struct request {
    uint64_t arrival_us; /* from the first arrival */
    uint32_t context_tokens, generated_tokens;
    size_t first_block; /* of trace.block, where the trace has them: one for each TRACE_BLOCK tokens of the context */
};

enum { TRACE_BLOCK = 512 };

struct trace {
    struct request *request;
    size_t n_request;
    size_t n_in_file; /* before thinning */
    uint32_t *block; /* ids of the prefix blocks of all requests; NULL: the trace has none. Equal ids: equal prefixes */
    size_t n_block, block_room;
    uint32_t n_block_id; /* ids are below */
};

/**
 * Reads every take-th request, the first one among them. 0, or -1 with file, line and value in bench_why().
 * The file: a header line TIMESTAMP,ContextTokens,GeneratedTokens, then a line a request in order of time.
 * TIMESTAMP is "2023-11-16 18:17:03.9799600" or seconds, the same throughout a file.
 * Or the header timestamp_ms,input_length,output_length,hash_ids: the last column has the ids of the context's blocks
 * of TRACE_BLOCK tokens, the last one perhaps not full, with a space between two.
 */
int trace_read(struct trace *trace, const char *path, uint32_t take);
/** The trace of trace_builtin.c. */
int trace_builtin(struct trace *trace, uint32_t take);
void trace_free(struct trace *trace);

/** Appends one request. For the two above. */
int trace_append(struct trace *trace, uint64_t arrival_us, uint32_t context_tokens, uint32_t generated_tokens);

#endif
