/* SPDX-License-Identifier: MIT */
/*
 * The n-th allocation fails, for every n, while a state is measured, written, saved, read and loaded: ENOMEM, and
 * everything is as it was; and it succeeds when it is repeated.
 *
 * Linked with --wrap for malloc, calloc, realloc, reallocarray, recallocarray and strdup.
 */
#include "fail_alloc.h"
#include "state_support.h"

#include <stdlib.h>
#include <unistd.h>

static char path[] = "/tmp/kvlazy-fault-XXXXXX";
static struct tape tape;

/* A tape that needs no memory of its own while allocations are under fire. */
static int count_bytes(void *ctx, const void *data, size_t bytes)
{
    (void)data;
    *(size_t *)ctx += bytes;
    return 0;
}

static int do_measure(struct box *box, kvlazy_seq_id seq)
{
    uint64_t bytes;

    return kvlazy_state_bytes(box->cache, seq, &bytes);
}

static int do_write(struct box *box, kvlazy_seq_id seq)
{
    size_t bytes = 0;

    return kvlazy_state_write(box->cache, seq, count_bytes, &bytes);
}

static int do_save(struct box *box, kvlazy_seq_id seq)
{
    return kvlazy_state_save(box->cache, seq, path, NULL, 0, 0);
}

static int do_read(struct box *box, kvlazy_seq_id seq)
{
    return tape_into(&tape, box, seq);
}

static int do_load(struct box *box, kvlazy_seq_id seq)
{
    return kvlazy_state_load(box->cache, seq, path, NULL, NULL);
}

static void under_fire(struct box *box, kvlazy_seq_id seq, int (*call)(struct box *, kvlazy_seq_id))
{
    for (int n = 1;; n++) {
        struct picture *before = box_look(box);
        int status;

        alloc_fail_in = n;
        alloc_failed = false;
        UNDER_FIRE(status, call(box, seq));
        if (!alloc_failed) {
            ok(status);
            box_forget(before);
            assert_true(n > 1);
            return;
        }
        assert_int_equal(status, KVLAZY_ENOMEM);
        same(box, before);
    }
}

static void test_every_allocation(void **state)
{
    (void)state;
    for (kvlazy_seq_id seq = 0; seq >= -1; seq--) {
        struct box *from = box_transpose(box_new(), 2), *to = box_new();

        from->params.kv_size = to->params.kv_size = 8192; /* more than the first arrays hold */
        from->params.n_pos_per_token = to->params.n_pos_per_token = 3;
        to->params.budget_bytes = 1 << 24;
        box_turn(box_open(from), 0, 0, 4000);
        box_turn(from, 1, 0, 4000);
        ok(kvlazy_seq_cp(from->cache, 0, 2, 0, 1000));
        box_open(to);
        under_fire(from, seq, do_measure);
        under_fire(from, seq, do_write);
        under_fire(from, seq, do_save);
        tape = tape_of(from, seq);
        under_fire(to, seq, do_read);
        ok(kvlazy_clear(to->cache, true));
        under_fire(to, seq, do_load);
        assert_true(box_sum(to, 0) == box_sum(from, 0));
        tape_free(&tape);
        box_free(from);
        box_free(to);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    int fd = mkstemp(path);

    if (fd < 0)
        return 1;
    close(fd);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
