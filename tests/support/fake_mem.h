/* SPDX-License-Identifier: MIT */
/*
 * A scripted operating system behind kvlazy_mem. Tests set its clock by hand, read the requests that it got, let any
 * call fail, refuse releases, hand out dirty memory and choose the size of a page. It keeps a record of its own of
 * which pages are committed and writable, with which a test can compare the library's figures, and checks that every
 * request keeps the contract of mem.h. Read-only pages are protected: a stray write ends the test. It decides nothing
 * that a script does not say.
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

/* The bits of a page's byte in fake_map.state. */
enum { FAKE_COMMITTED = 1, FAKE_WRITABLE = 2 };

/* One reservation. state has a byte per page. */
struct fake_map {
    unsigned char *addr, *state;
    size_t bytes;
    uint32_t flags;      /* KVLAZY_RESERVE_* */
    unsigned char *base; /* the whole mapping, larger so that addr is aligned to a page of the fake */
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
    size_t page;                   /* in which caches come and go here. Default 4096 */
    size_t host_page;              /* of the host itself, what page_bytes returns; 0: page */
    size_t any_page, advised_page; /* what granted returns, without advice and with it; 0: the host's page */
    bool refuse_small;             /* keep_small fails */
    uint64_t now;                  /* what now_ms returns */
    bool dirty_reserve;            /* fresh pages hold 0xAA */
    bool lazy_decommit;            /* decommit reports success and leaves the bytes */
    bool refuse_decommit;          /* every range */
    const unsigned char *refuse_lo, *refuse_hi; /* ranges that overlap [lo, hi) */
    uint64_t budget_bytes;                      /* commit is refused when more than this would be committed; 0: never */
    bool half_commit;                           /* a commit that fails has committed its first pages before */
    uint64_t charge_limit_bytes; /* no more than this may be writable, so that larger reservations are refused unless
                                    they are read-only; 0: no limit */
    size_t huge_page;            /* what huge_page_bytes returns; default 2 MiB */
    uint32_t host_traits;        /* what traits returns; KVLAZY_HOST_* */
    uint64_t max_mappings;       /* what max_mappings returns; 0: no limit */
    bool ask_kernel;             /* resident asks mincore instead of the record; 4 KiB pages only */
    enum fake_kind fail_kind;    /* with fail_in: */
    int fail_in;                 /* n > 0: the n-th call of that kind from now fails, once */
    bool failed;                 /* that call has failed */

    /* What happened. */
    struct fake_map map[FAKE_MAPS];
    uint64_t n_call[FAKE_KINDS];
    uint64_t committed_bytes, decommitted_bytes; /* committed now; ever taken back, of pages that were committed */
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

/* Adds the optional members to the table: set_writable, huge_page_bytes, traits, max_mappings. */
void fake_complete(struct fake_mem *fake);

/* The host's own pages are of 4 KiB, and it grants larger ones of this size too: where they are advised, or without
 * advice. Adds granted to the table. */
void fake_grant(struct fake_mem *fake, size_t page, bool advised);

/* The n-th call of a kind from now on fails once. */
void fake_fail(struct fake_mem *fake, enum fake_kind kind, int n);

/* Empties the log and the counters of calls; keeps the memory. */
void fake_forget(struct fake_mem *fake);

/* Returns how many reservations are still there. */
int fake_mappings(const struct fake_mem *fake);

/* Returns the committed bytes among [addr, addr + bytes), by the fake's record. */
uint64_t fake_committed(struct fake_mem *fake, const void *addr, size_t bytes);

/* Fails the running test if the contract was broken. */
void fake_assert_kept(const struct fake_mem *fake);

#endif
