/* SPDX-License-Identifier: MIT */
/*
 * The cache in a sandbox that refuses calls, with every error that sandboxes and old kernels are known to answer. A
 * call that only makes things faster is done without; only the lack of memory is KVLAZY_ENOMEM. Every test runs in a
 * child of its own, whose calls a filter refuses.
 */
#define _DEFAULT_SOURCE
#include "os_support.h"
#include "unit.h"

#include <kvlazy/reaper.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A call whose argument `arg` lies in [low, high] is refused. */
struct refusal {
    uint32_t nr, arg, low, high;
};

static const struct refusal optional[] = {
    {SYS_process_madvise, 0, 0, UINT32_MAX}, {SYS_madvise, 2, 14, 16}, /* MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP
                                                                        */
    {SYS_madvise, 2, 22, UINT32_MAX},                                  /* MADV_POPULATE_READ and younger ones */
    {SYS_prctl, 0, 0x53564d41, 0x53564d41},  {SYS_mlock2, 0, 0, UINT32_MAX}, {SYS_mincore, 0, 0, UINT32_MAX},
    {SYS_eventfd2, 0, 0, UINT32_MAX},
};
static const struct refusal populate = {SYS_madvise, 2, 23, 23}, batches = {SYS_process_madvise, 0, 0, UINT32_MAX};

static int error; /* that refused calls answer */

static void refuse_one(const struct refusal *r, int with)
{
    enum { NR = offsetof(struct seccomp_data, nr), ARGS = offsetof(struct seccomp_data, args) };
    const uint32_t low_half = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 4;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NR),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, r->nr, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGS + 8 * r->arg + low_half),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, r->low, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, r->high, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)with),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {N_OF(code), code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
        return;
    print_message("seccomp: %s\n", strerror(errno));
    skip();
}

static void refuse_all_but(uint32_t nr)
{
    for (size_t i = 0; i < N_OF(optional); i++)
        if (optional[i].nr != nr)
            refuse_one(&optional[i], error);
}

/* ---- refused calls ---- */

/* Naive: takes any refusal but EINVAL for a lack of memory, and every batch is refused. The test itself asks mincore.
 */
static void from_the_start(void **state)
{
    struct rig *r = *state;

    refuse_all_but(SYS_mincore);
    assert_int_equal(kvlazy_mem_host()->traits(NULL) & KVLAZY_HOST_FAULTS, KVLAZY_HOST_FAULTS);
    open_host(r, 1 << 17);
    serve(r);
}

static void once_the_cache_is_there(void **state)
{
    struct rig *r = *state;

    assert_int_equal(kvlazy_mem_host()->traits(NULL) & KVLAZY_HOST_FAULTS, 0);
    open_host(r, 1 << 17);
    refuse_all_but(SYS_mincore);
    serve(r);
}

/* Locked memory asks for calls of its own. */
static void with_all_memory_locked(void **state)
{
    struct rig *r = *state;

    if (SANITIZED || mlockall(MCL_FUTURE) != 0) {
        print_message("memory cannot be locked here\n");
        skip();
    }
    void *at = mmap(NULL, (size_t)64 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        print_message("this process may lock too little: %s\n", strerror(errno));
        skip();
    }
    munmap(at, (size_t)64 << 30);
    refuse_all_but(SYS_mincore);
    open_host(r, 1 << 17);
    serve(r);
}

/* Naive: says that nothing is resident. */
static void what_is_resident_is_told_all_the_same(void **state)
{
    struct rig *r = *state;
    uint64_t before, told = 0;

    open_host(r, 1 << 17);
    ok(turn(r, 1, 0, 2000));
    before = resident(r);
    assert_int_equal(before, cover(r));
    refuse_all_but(0);
    ok(kvlazy_resident(r->cache, &told));
    assert_int_equal(told, before);
    ok(kvlazy_seq_rm(r->cache, 1, 1000, -1));
    ok(kvlazy_trim(r->cache, 0));
    ok(kvlazy_resident(r->cache, &told));
    assert_int_equal(told, cover(r));
}

/* Naive: no thread of ours without an eventfd. It is woken to look, and woken to end. */
static void a_reaper_is_woken_all_the_same(void **state)
{
    struct rig *r = *state;
    kvlazy_reaper *reaper;

    refuse_all_but(SYS_mincore);
    use_host(r, 1 << 10);
    r->params.mem = NULL; /* the clock is the host's own, too: the reaper sleeps by it */
    r->params.log = NULL;
    r->params.on_evict = NULL;
    r->params.slot_shrink_idle_ms = 20;
    r->params.kv_size_initial = 256;
    rig_open(r);
    ok(kvlazy_reaper_create("", &reaper));
    ok(kvlazy_reaper_add(reaper, r->cache));
    ok(turn(r, 0, 0, 1000));
    for (int i = 0; i < 500 && stats(r).live_cells > 256; i++)
        usleep(10000);
    assert_int_equal(stats(r).live_cells, 256);
    for (int i = 0; i < 10000; i++)
        ok(kvlazy_reaper_pressure(reaper)); /* more than a pipe holds */
    kvlazy_reaper_destroy(reaper);
}

/* ---- no memory ---- */

static void lack_of_memory_is_told(void **state)
{
    struct rig *r = *state;
    char *dump;

    r->params.flags = KVLAZY_COMMIT_AHEAD; /* what faults is not asked for before */
    open_host(r, 1 << 17);
    ok(turn(r, 0, 0, 100));
    refuse_one(&batches, EPERM);
    refuse_one(&populate, error);
    dump = rig_dump(r);
    expect(turn(r, 0, 100, 2000), KVLAZY_ENOMEM);
    unchanged(r, dump);
    sound(r);
}

static int run_with(int with, const struct CMUnitTest *test, size_t n_test)
{
    int n_failed = 0;

    error = with;
    for (size_t i = 0; i < n_test; i++)
        n_failed += run_in_child(&test[i]);
    if (n_failed)
        print_error("where refused calls answer \"%s\"\n", strerror(with));
    return n_failed;
}

int main(void)
{
    static const int refusals[] = {EPERM, EACCES, ENOSYS, EOPNOTSUPP, EINVAL, EBADF};
    static const int lacks[] = {ENOMEM, EFAULT, EHWPOISON};
    const struct CMUnitTest tests[] = {
        RIG_TEST(from_the_start),
        RIG_TEST(once_the_cache_is_there),
        RIG_TEST(with_all_memory_locked),
        RIG_TEST(what_is_resident_is_told_all_the_same),
        RIG_TEST(a_reaper_is_woken_all_the_same),
    };
    const struct CMUnitTest no_memory[] = {RIG_TEST(lack_of_memory_is_told)};
    int n_failed = 0;

    for (size_t i = 0; i < N_OF(refusals); i++)
        n_failed += run_with(refusals[i], tests, N_OF(tests));
    for (size_t i = 0; i < N_OF(lacks); i++)
        n_failed += run_with(lacks[i], no_memory, N_OF(no_memory));
    return n_failed;
}
