/* SPDX-License-Identifier: MIT */
/*
 * Reading states as a libFuzzer target. The first byte chooses a cache and what it is asked to read; the rest is a
 * state, whose checksums are mended half of the time, so that inputs get behind them. Whatever comes, an error changes
 * nothing and a success leaves a sound cache. Without a corpus it begins at the fixtures' kind of state, by itself: a
 * custom mutator writes one whenever it is given too little.
 */
#include "state_support.h"

#include <stdlib.h>
#include <string.h>

#include "state/format.h"

enum { N_SHAPE = 6 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_byte);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n_byte, size_t n_most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n_byte, size_t n_most);

static struct box *make_box(uint32_t shape)
{
    struct box *box = shape == 3 ? box_window(12, 4) : shape == 4 ? box_streams() : box_new();

    box->params.kv_size = shape == 3 ? 12 : 16;
    box->params.model_tag = "fuzz";
    box->params.model_tag_bytes = 4;
    box->params.n_pos_per_token = shape == 2 ? 3 : 1;
    if (shape == 1 || shape == 2)
        box_transpose(box, 2);
    box_open(box);
    box_turn(box, 0, 0, 3);
    box_turn(box, 1, 0, 2);
    ok(kvlazy_seq_rm(box->cache, 0, 1, 2));
    return box;
}

static kvlazy_seq_id seq_of(uint8_t choice)
{
    return choice / N_SHAPE % 2 ? -1 : choice / N_SHAPE % 8 / 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_byte)
{
    static struct box *boxes[N_SHAPE];

    if (n_byte < 2)
        return 0;
    uint8_t choice = bytes[0];
    kvlazy_seq_id seq = seq_of(choice);
    struct box **box = &boxes[choice % N_SHAPE];
    if (!*box)
        *box = make_box(choice % N_SHAPE);
    if (seq < 0)
        ok(kvlazy_clear((*box)->cache, false));
    struct tape t = {0};
    tape_write(&t, bytes + 1, n_byte - 1);
    if (choice < 128)
        tape_mend(t.byte, t.n);
    struct picture *before = box_look(*box);
    int status = tape_into(&t, *box, seq);
    if (status) {
        same(*box, before);
    } else {
        box_forget(before);
        box_sound(*box);
        box_free(*box);
        *box = NULL;
    }
    tape_free(&t);
    if (seq < 0 && *box) {
        box_free(*box);
        *box = NULL;
    }
    return 0;
}

/* A whole state of the box that the first byte chooses. */
static size_t write_state(uint8_t *bytes, size_t n_most)
{
    struct box *box = make_box(bytes[0] % N_SHAPE);
    kvlazy_seq_id seq = seq_of(bytes[0]);
    struct tape t = tape_of(box, seq < 0 ? -1 : 0);
    size_t n = t.n + 1 <= n_most ? t.n + 1 : n_most;

    memcpy(bytes + 1, t.byte, n - 1);
    tape_free(&t);
    box_free(box);
    return n;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n_byte, size_t n_most, unsigned seed)
{
    if (n_most > 512 && (n_byte < 200 || seed % 64 == 0)) {
        bytes[0] = (uint8_t)(seed >> 8);
        return write_state(bytes, n_most);
    }
    return LLVMFuzzerMutate(bytes, n_byte, n_most);
}
