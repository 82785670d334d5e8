/* SPDX-License-Identifier: MIT */
/*
 * Which tokens the requests of a trace have, as ids: equal where prefixes are. A trace with prefix blocks says it; in
 * another one the first --shared tokens of all prompts are the same, and no other token comes twice. And which of them
 * some slot computed before. The replay has one book; nothing else calls it.
 */
#ifndef BENCH_REPLAY_TOKENS_H
#define BENCH_REPLAY_TOKENS_H

#include "bench.h"
#include "trace.h"

struct token_book {
    const struct bench_config *config;
    const struct trace *trace;
    uint32_t n_known; /* ids below can come again */
    bool *computed;   /* [n_known] */
};

/** 0 or -1. */
int tokens_open(struct token_book *book, const struct bench_config *config, const struct trace *trace);
void tokens_close(struct token_book *book);

/** The tokens of a request: of its prompt, and of its answer up to `end`. */
void tokens_of(const struct token_book *book, size_t request, uint32_t n_prompt, uint32_t end, int32_t *token);
/** Notes n tokens as computed. Returns how many of them were noted before. */
uint32_t tokens_note(struct token_book *book, const int32_t *token, uint32_t n);
/** How many tokens are the same from the first on. */
uint32_t tokens_common(const int32_t *a, uint32_t n_a, const int32_t *b, uint32_t n_b);

#endif
