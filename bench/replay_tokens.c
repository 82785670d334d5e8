/* SPDX-License-Identifier: MIT */
/* See replay_tokens.h. */
#include "replay_tokens.h"

#include <stdlib.h>

int tokens_open(struct token_book *book, const struct bench_config *config, const struct trace *trace)
{
    uint32_t n_known = trace->block != NULL ? trace->n_block_id * TRACE_BLOCK : config->shared_tokens;
    *book = (struct token_book){.config = config, .trace = trace, .n_known = n_known};
    book->computed = calloc(n_known + (size_t)1, sizeof(*book->computed));
    return book->computed != NULL ? 0 : bench_error("out of memory");
}

void tokens_close(struct token_book *book)
{
    free(book->computed);
}

void tokens_of(const struct token_book *book, size_t request, uint32_t n_prompt, uint32_t end, int32_t *token)
{
    const uint32_t *block = book->trace->block;
    uint32_t n_own = (uint32_t)INT32_MAX - book->n_known;
    for (uint32_t pos = 0; pos < end; pos++) {
        if (pos < n_prompt && block != NULL) {
            uint32_t id = block[book->trace->request[request].first_block + pos / TRACE_BLOCK];
            token[pos] = (int32_t)(id * TRACE_BLOCK + pos % TRACE_BLOCK);
        } else if (pos < n_prompt && pos < book->n_known) {
            token[pos] = (int32_t)pos;
        } else {
            uint64_t own = (uint64_t)request * book->config->kv_size + pos;
            token[pos] = (int32_t)(book->n_known + (uint32_t)(own % n_own));
        }
    }
}

uint32_t tokens_note(struct token_book *book, const int32_t *token, uint32_t n)
{
    uint32_t n_again = 0;
    for (uint32_t i = 0; i < n; i++) {
        if ((uint32_t)token[i] < book->n_known) {
            n_again += book->computed[token[i]];
            book->computed[token[i]] = true;
        }
    }
    return n_again;
}

uint32_t tokens_common(const int32_t *a, uint32_t n_a, const int32_t *b, uint32_t n_b)
{
    uint32_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) {
        n++;
    }
    return n;
}
