/* SPDX-License-Identifier: MIT */
/*
 * Blobs of the prefix store as a libFuzzer target. The first byte chooses a cache, the second a block of its prompt and
 * how its blob is made from the rest: byte by byte, or as the true one with changes in it; half of the time its
 * checksums are mended, so that inputs get behind them. A blob that says all that the true one says, with checksums
 * that are those of its rows, is loaded with these rows; every other one is a miss, is dropped, and ends the load
 * there.
 */
#include "fake_place.h"
#include "prefix_support.h"

#include <stdlib.h>
#include <string.h>

#include "state/checksum.h"
#include "state/format.h"

enum { N_SHAPE = 4, BLOCK = 16, N_BLOCK = 3, N_TOKEN = BLOCK * N_BLOCK + 1, BLOB_MOST = 1 << 15 };
enum { FIXED_BYTES = 104, NAME_BYTES = 32, PART_BYTES = 32, HEADER_BYTES = 4096 };

/* A cache that saved its prompt once, and its twin, which loads it. */
struct side {
    struct fake_place fake;
    kvlazy_store *store;
    struct box *to;
    uint32_t n_part;
    size_t bytes; /* of a blob */
    uint8_t name[N_BLOCK][NAME_BYTES];
    unsigned char *blob[N_BLOCK]; /* the true ones */
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_byte);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n_byte, size_t n_most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n_byte, size_t n_most);

static int32_t token[N_TOKEN];
static const kvlazy_prompt prompt = {.struct_size = sizeof prompt, .token = token, .n_token = N_TOKEN};

/* ---- what is true ---- */

static struct box *make_box(uint32_t shape)
{
    struct box *box = prefix_box(64);

    box->params.n_pos_per_token = shape == 2 ? 3 : 1;
    if (shape == 3) {
        box->params.n_stream = 4;
        box->params.kv_size = 64;
    }
    return box_open(shape == 1 || shape == 3 ? box_transpose(box, 2) : box);
}

/* Where block i begins is said by its header: a place has no order. */
static uint32_t block_of(const unsigned char *blob)
{
    uint32_t begin;

    memcpy(&begin, blob + 88, sizeof begin);
    return begin / BLOCK;
}

static void keep_blobs(struct side *s)
{
    for (struct fake_blob *b = s->fake.blob; b; b = b->next) {
        uint32_t i = block_of(b->data);

        assert_true(i < N_BLOCK && b->bytes <= BLOB_MOST);
        s->bytes = b->bytes;
        memcpy(s->name[i], b->name, NAME_BYTES);
        s->blob[i] = malloc(b->bytes);
        assert_non_null(s->blob[i]);
        memcpy(s->blob[i], b->data, b->bytes);
        memcpy(&s->n_part, b->data + 20, sizeof s->n_part);
    }
}

static struct side *side_of(uint32_t shape)
{
    static struct side sides[N_SHAPE];
    struct side *s = &sides[shape];
    uint32_t n = 0;

    if (s->store)
        return s;
    for (uint32_t i = 0; i < N_TOKEN; i++)
        token[i] = (int32_t)(7 * i + 1);
    kvlazy_store_ops ops = fake_ops(&s->fake);
    struct box *from = make_box(shape);
    s->store = prefix_store(&ops, BLOCK);
    prefix_turn(from, 0, &prompt, 0, N_TOKEN);
    ok(kvlazy_store_save(s->store, from->cache, 0, &prompt, 60000, &n));
    assert_int_equal(n, BLOCK * N_BLOCK);
    box_free(from);
    keep_blobs(s);
    s->to = make_box(shape);
    return s;
}

/* ---- checksums ---- */

static size_t part_at(uint32_t i)
{
    return FIXED_BYTES + 4 * BLOCK + NAME_BYTES + (size_t)i * PART_BYTES;
}

/* Of tensor i, as the true header has it. */
static void part_of(const struct side *s, uint32_t i, uint64_t *row_bytes, uint64_t *offset)
{
    memcpy(row_bytes, s->blob[0] + part_at(i) + 8, sizeof *row_bytes);
    memcpy(offset, s->blob[0] + part_at(i) + 16, sizeof *offset);
}

static uint64_t sum_of_rows(const struct side *s, const unsigned char *blob, uint32_t i)
{
    uint64_t row_bytes, offset;

    part_of(s, i, &row_bytes, &offset);
    return kvl_checksum_of(blob + offset, (size_t)(BLOCK * row_bytes));
}

static void put_sum(unsigned char *at, uint64_t sum)
{
    memcpy(at, &sum, sizeof sum); /* the fuzz target is for hosts of the lowest byte first */
}

static void mend(const struct side *s, unsigned char *blob, size_t n)
{
    for (uint32_t i = 0; n >= s->bytes && i < s->n_part; i++)
        put_sum(blob + part_at(i) + 24, sum_of_rows(s, blob, i));
    if (n >= HEADER_BYTES)
        put_sum(blob + part_at(s->n_part), kvl_checksum_of(blob, part_at(s->n_part)));
}

/* The same by another way than the library's: what the true header says, field by field, and sums that are right. */
static bool is_right(const struct side *s, const unsigned char *blob, size_t n, uint32_t block)
{
    const unsigned char *want = s->blob[block];
    size_t sum_at = part_at(s->n_part);
    uint64_t sum, row_bytes, offset;

    if (n != s->bytes || memcmp(blob, want, part_at(0)) != 0)
        return false;
    for (uint32_t i = 0; i < s->n_part; i++) {
        memcpy(&sum, blob + part_at(i) + 24, sizeof sum);
        if (memcmp(blob + part_at(i), want + part_at(i), 24) != 0 || sum != sum_of_rows(s, blob, i))
            return false;
    }
    memcpy(&sum, blob + sum_at, sizeof sum);
    part_of(s, s->n_part - 1, &row_bytes, &offset);
    size_t end = (size_t)(offset + BLOCK * row_bytes);
    return sum == kvl_checksum_of(blob, sum_at) &&
           !memcmp(blob + sum_at + 8, want + sum_at + 8, HEADER_BYTES - sum_at - 8) &&
           !memcmp(blob + end, want + end, s->bytes - end);
}

/* ---- a blob from bytes ---- */

/* Offset, length, bytes, again and again; a length of 255 cuts the blob there. */
static size_t change(unsigned char *blob, size_t n, const uint8_t *bytes, size_t n_byte)
{
    while (n_byte >= 3) {
        size_t at = (bytes[0] | (size_t)bytes[1] << 8) % BLOB_MOST, k = bytes[2];

        bytes += 3;
        n_byte -= 3;
        if (k == 255) {
            n = at < n ? at : n;
            continue;
        }
        k = k < n_byte ? k : n_byte;
        for (size_t i = 0; i < k && at + i < n; i++)
            blob[at + i] = bytes[i];
        bytes += k;
        n_byte -= k;
    }
    return n;
}

static size_t make_blob(const struct side *s, uint8_t how, const uint8_t *bytes, size_t n_byte, unsigned char *blob)
{
    size_t n = n_byte < BLOB_MOST ? n_byte : BLOB_MOST;

    memset(blob, 0, BLOB_MOST);
    if (how & 1) {
        memcpy(blob, s->blob[how / 4 % N_BLOCK], s->bytes);
        n = change(blob, s->bytes, bytes, n_byte);
    } else if (n) {
        memcpy(blob, bytes, n);
    }
    if (how & 2)
        mend(s, blob, n);
    return n;
}

/* ---- a load ---- */

/* The rows of token i of a block that came from `blob`. */
static void has_rows_of(struct side *s, const unsigned char *blob, uint32_t pos)
{
    kvl_entry at = kvl_index_at(kvl_index_of(s->to->cache, 0), pos);
    uint32_t stream = kvl_stream_number(s->to->cache, kvl_stream_of(s->to->cache, 0));

    assert_int_equal(at.pos, pos);
    for (uint32_t i = 0; i < s->n_part; i++) {
        unsigned char row[64];
        kvlazy_tensor t;
        uint32_t layer_and_kind[2];
        uint64_t row_bytes, offset;

        part_of(s, i, &row_bytes, &offset);
        memcpy(layer_and_kind, s->blob[0] + part_at(i), sizeof layer_and_kind);
        ok((layer_and_kind[1] % 2 ? kvlazy_v : kvlazy_k)(s->to->cache, layer_and_kind[0], &t));
        box_row(s->to, &t, stream, at.cell, row);
        assert_memory_equal(row, blob + offset + pos % BLOCK * row_bytes, (size_t)row_bytes);
    }
}

static uint32_t load(struct side *s, uint32_t n_have)
{
    uint32_t n_live = 999;

    if (n_have)
        prefix_turn(s->to, 0, &prompt, 0, n_have);
    ok(kvlazy_init_batch(s->to->cache));
    ok(kvlazy_store_load(s->store, s->to->cache, 0, &prompt, n_have, 60000, &n_live));
    ok(kvlazy_end_batch(s->to->cache));
    box_sound(s->to);
    assert_int_equal(kvl_index_of(s->to->cache, 0)->n, n_live);
    return n_live;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_byte)
{
    static unsigned char blob[BLOB_MOST];

    if (n_byte < 2)
        return 0;
    struct side *s = side_of(bytes[0] % N_SHAPE);
    uint32_t block = bytes[1] / 4 % N_BLOCK, n_have = bytes[0] / N_SHAPE % 8 == 1 ? bytes[1] % N_TOKEN : 0;
    size_t n = make_blob(s, bytes[1], bytes + 2, n_byte - 2, blob);

    fake_clear(&s->fake);
    for (uint32_t i = 0; i < N_BLOCK; i++)
        fake_put(&s->fake, s->name[i], i == block ? blob : s->blob[i], i == block ? n : s->bytes);
    bool right = is_right(s, blob, n, block), asked = n_have < (block + 1) * BLOCK;
    uint32_t n_live = load(s, n_have), want = asked && !right ? block * BLOCK : N_TOKEN - 1;
    assert_int_equal(n_live, want > n_have ? want : n_have);
    for (uint32_t i = n_have; i < n_live; i++)
        has_rows_of(s, i / BLOCK == block ? blob : s->blob[i / BLOCK], i);
    assert_true(!fake_find(&s->fake, s->name[block]) == (asked && !right));
    ok(kvlazy_seq_rm(s->to->cache, 0, -1, -1));
    return 0;
}

/* ---- what libFuzzer changes ---- */

/* A field of the header gets another number. */
static size_t change_field(uint8_t *bytes, size_t n_byte, size_t n_most, unsigned seed)
{
    static const uint32_t number[] = {0, 1, 2, 15, 17, 4095, 4097, 8192, 0x7fffffff, 0xffffffff};
    size_t at = 4 * (size_t)(seed / 16 % 128);

    if (n_byte + 7 > n_most || !(bytes[1] & 1))
        return LLVMFuzzerMutate(bytes, n_byte, n_most);
    bytes[n_byte++] = (uint8_t)at;
    bytes[n_byte++] = (uint8_t)(at >> 8);
    bytes[n_byte++] = 4;
    memcpy(bytes + n_byte, &number[seed / 2048 % N_OF(number)], 4);
    return n_byte + 4;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n_byte, size_t n_most, unsigned seed)
{
    if (n_byte >= 2 && seed % 64 == 0) { /* a whole true blob, byte by byte */
        const struct side *s = side_of(bytes[0] % N_SHAPE);

        if (s->bytes + 2 <= n_most) {
            bytes[1] &= (uint8_t)~1;
            memcpy(bytes + 2, s->blob[bytes[1] / 4 % N_BLOCK], s->bytes);
            return s->bytes + 2;
        }
    }
    if (n_byte >= 2 && seed % 8 == 1)
        return change_field(bytes, n_byte, n_most, seed);
    return LLVMFuzzerMutate(bytes, n_byte, n_most);
}
