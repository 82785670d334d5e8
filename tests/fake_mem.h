/* SPDX-License-Identifier: MIT */
/*
 * A scripted operating system behind kvlazy_mem. Tests set its clock by hand, read what it was asked, let
 * any call fail, refuse releases, hand out dirty memory and choose the size of a page. It keeps its own
 * picture of which pages are committed and writable, so that a test can hold the library's figures against it,
 * and watches that every request keeps the contract of mem.h. Pages that are read-only are so in truth: a stray
 * write ends the test. It never decides anything a script does not say.
 */
#ifndef FAKE_MEM_H
#define FAKE_MEM_H

#include <kvlazy/mem.h>
#include <pthread.h>
#include <stdbool.h>

enum fake_kind {
    FAKE_PAGE_BYTES,
    FAKE_RESERVE,
    FAKE_UNRESERVE,
    FAKE_COMMIT,
    FAKE_DECOMMIT,
    FAKE_RESIDENT,
    FAKE_NOW,
    FAKE_SET_WRITABLE,
    FAKE_KINDS,
    FAKE_ANY /* reserve, commit, decommit and set_writable together: the calls that a host may refuse */
};

enum { FAKE_MAPS = 32, FAKE_LOG = 1024 };

/* What the byte of a page in fake_map.state says. */
enum { FAKE_COMMITTED = 1, FAKE_WRITABLE = 2 };

/* One reservation. state has a byte per page. */
struct fake_map {
    unsigned char *addr, *state;
    size_t bytes;
    uint32_t flags;      /* KVLAZY_RESERVE_* */
    unsigned char *base; /* what was really mapped, to have addr aligned to a page of the fake */
    size_t base_bytes;
};

struct fake_call {
    enum fake_kind kind;
    size_t n_range, bytes; /* asked for */
    const void *addr;      /* of the first range */
};

struct fake_mem {
    kvlazy_mem table; /* give this to kvlazy */

    /* The script. Set before or between calls. */
    size_t page;                                /* default 4096 */
    uint64_t now;                               /* what now_ms answers */
    bool dirty_reserve;                         /* fresh pages hold 0xAA */
    bool lazy_decommit;                         /* decommit answers "done" and leaves the bytes */
    bool refuse_decommit;                       /* every range */
    const unsigned char *refuse_lo, *refuse_hi; /* ranges that overlap [lo, hi) */
    uint64_t budget_bytes;                      /* commit is refused when more than this would be committed; 0: never */
    bool half_commit;                           /* a commit that fails has done its first pages all the same */
    uint64_t charge_limit_bytes; /* no more than this may be writable, so that larger reservations are refused unless
                                    they are read-only; 0: no limit */
    size_t huge_page;            /* what huge_page_bytes answers; default 2 MiB */
    uint32_t host_traits;        /* what traits answers; KVLAZY_HOST_* */
    uint64_t max_mappings;       /* what max_mappings answers; 0: no limit */
    bool ask_kernel;             /* resident answers with mincore instead of the model; 4 KiB pages only */
    enum fake_kind fail_kind;    /* with fail_in: */
    int fail_in;                 /* n > 0: the n-th call of that kind from now fails, once */
    bool failed;                 /* it did */

    /* What happened. */
    struct fake_map map[FAKE_MAPS];
    uint64_t n_call[FAKE_KINDS];
    uint64_t committed_bytes, decommitted_bytes; /* in the model now; ever taken back (pages that were committed) */
    uint64_t charged_bytes;                      /* writable now */
    uint64_t sum[KVLAZY_COUNTS];                 /* what caches took, and were promised */
    struct fake_call log[FAKE_LOG]; /* commit, decommit, reserve, unreserve, set_writable; the first FAKE_LOG since
                                       fake_forget */
    size_t n_log;
    char broken[200]; /* the first breach of the contract, or "" */
    pthread_mutex_t lock;
};

void fake_init(struct fake_mem *fake);
void fake_done(struct fake_mem *fake);

/* Gives the table what a host may lack, too: set_writable, huge_page_bytes, traits, max_mappings. */
void fake_complete(struct fake_mem *fake);

/* The n-th call of a kind from now on fails once. */
void fake_fail(struct fake_mem *fake, enum fake_kind kind, int n);

/* Empties the log and the counters of calls; keeps the memory. */
void fake_forget(struct fake_mem *fake);

/* Reservations that are still there. */
int fake_mappings(const struct fake_mem *fake);

/* Committed bytes among [addr, addr + bytes), by the model. */
uint64_t fake_committed(struct fake_mem *fake, const void *addr, size_t bytes);

/* Fails the running test if the contract was broken. */
void fake_assert_kept(const struct fake_mem *fake);

#endif
