/* SPDX-License-Identifier: MIT */
/*
 * The cache in a process that has limits: on address space, on writable memory, with all memory locked, in a sandbox,
 * and at its end when it dumps core. Every test runs in a child of its own, so that it may limit itself.
 */
#define _DEFAULT_SOURCE
#include "os_support.h"
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void skip_if_sanitized(const char *why)
{
    if (!SANITIZED)
        return;
    print_message("under a sanitizer: %s\n", why);
    skip();
}

static void limit(int resource, uint64_t bytes)
{
    const struct rlimit rlimit = {bytes, bytes};

    if (setrlimit(resource, &rlimit) == 0)
        return;
    print_message("setrlimit: %s\n", strerror(errno));
    skip();
}

static bool may_map(size_t bytes, int prot)
{
    void *at = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at != MAP_FAILED)
        munmap(at, bytes);
    return at != MAP_FAILED;
}

/* The kernel refuses to let more than this become writable, on top of what is. */
static void limit_writable(uint64_t bytes)
{
    if (!proc_status("VmData:")) {
        print_message("no VmData in /proc/self/status\n");
        skip();
    }
    limit(RLIMIT_DATA, proc_status("VmData:") + bytes);
    if (may_map(2 * bytes, PROT_READ | PROT_WRITE)) {
        print_message("the kernel does not count writable memory\n");
        skip();
    }
}

static void lock_future(void)
{
    skip_if_sanitized("munlock is a no-op");
    if (mlockall(MCL_FUTURE) == 0)
        return;
    print_message("mlockall: %s\n", strerror(errno));
    skip();
}

/* Root of a container may have no right to lock more than anybody. */
static void lock_future_without_limit(void)
{
    lock_future();
    if (may_map((size_t)64 << 30, PROT_NONE))
        return;
    print_message("this process may lock too little: %s\n", strerror(errno));
    skip();
}

/* ---- RLIMIT_AS ---- */

/* Naive: says "out of memory" on a machine that has plenty. */
static void too_little_address_space(void **state)
{
    struct rig *r = *state;

    skip_if_sanitized("it needs the address space itself");
    use_host(r, 1 << 28);
    limit(RLIMIT_AS, 256 << 20);
    expect(kvlazy_create(&r->params, &r->cache), KVLAZY_ENOMEM);
    assert_null(r->cache);
    assert_non_null(strstr(r->log, ": RLIMIT_AS is 256M\n"));
}

/* ---- RLIMIT_DATA: the frontier ---- */

/* Naive: create fails; or the reservation has no access, and attention crashes when it reads padding. */
static void too_little_writable_memory(void **state)
{
    enum { KV_SIZE = 16384 }; /* 225 MiB */
    struct rig *r = *state;
    kvlazy_plan_info plan = {.struct_size = sizeof plan};
    uint64_t before_bytes;
    kvlazy_pos end = 2000;

    use_host(r, KV_SIZE);
    ok(kvlazy_plan(&r->params, &plan));
    assert_int_equal(plan.writable_cells, KV_SIZE);
    limit_writable(64 << 20);
    ok(kvlazy_plan(&r->params, &plan));
    assert_int_equal(plan.writable_cells, 0);
    rig_open(r);
    assert_int_equal(resident(r), 0);
    before_bytes = proc_status("VmData:");
    ok(turn(r, 0, 0, 2000));
    for (kvlazy_pos p = 0; p < 100; p++)
        ok(turn(r, 1, p, 1));
    for (char *same = rig_dump(r);; end += 500) {
        int status = turn(r, 0, end, 500);

        if (status) {
            expect(status, KVLAZY_ENOMEM);
            unchanged(r, same);
            break;
        }
        free(same);
        same = rig_dump(r);
    }
    assert_in_range(end, 2500, 10000);
    ok(kvlazy_seq_rm(r->cache, 0, 1000, -1));
    ok(kvlazy_trim(r->cache, 0));
    assert_int_equal(resident(r), cover(r));
    ok(turn(r, 1, 100, (uint32_t)end - 1500)); /* what one stream gave back the other may have */
    sound(r);
    assert_true(cells_zero(r, 0, 1000, KV_SIZE)); /* reading is allowed everywhere */
    assert_true(cells_zero(r, 1, (uint32_t)end - 1400, KV_SIZE));
    ok(kvlazy_clear(r->cache, true));
    assert_in_range(proc_status("VmData:"), 0, before_bytes + (8 << 20)); /* the bookkeeping grew */
}

/* Naive: one mprotect a range. A frontier is one boundary for each tensor and stream. */
static void a_frontier_keeps_mappings_few(void **state)
{
    struct rig *r = *state;
    uint64_t random = 2;
    int n_refused = 0, most;

    skip_if_sanitized("so little is not enough for its own memory");
    use_host(r, 1024);
    limit_writable(2 << 20);
    rig_open(r);
    most = 2 * r->n_tensor * (int)r->n_stream;
    assert_int_equal(map_lines_of(r), 1);
    for (int i = 0; i < 10000; i++) {
        kvlazy_seq_id s = (kvlazy_seq_id)(next_random(&random) & 1);
        kvlazy_pos max = kvlazy_seq_pos_max(r->cache, s);

        if (turn(r, s, max + 1, 1 + (uint32_t)(next_random(&random) % 60)))
            n_refused++;
        if (i % 5 == 0)
            ok(kvlazy_seq_rm(r->cache, s, max / 2 + 1, max / 2 + 9)); /* holes */
        ok(kvlazy_trim(r->cache, i % 3 ? 0 : 1 + (uint32_t)(next_random(&random) % 200)));
        if (i % 100 == 0)
            assert_in_range(map_lines_of(r), 1, most);
    }
    assert_in_range(map_lines_of(r), 1, most);
    assert_in_range(n_refused, 1, 9000); /* the limit was met, and it was no dead end */
    sound(r);
    ok(kvlazy_clear(r->cache, true));
    assert_int_equal(map_lines_of(r), 1);
}

/* ---- locked memory ---- */

static bool is_locked(struct rig *r)
{
    struct mapping m = mapping_of(r);

    return has(&m, "lo");
}

/* Naive: mmap under mlockall(MCL_FUTURE) fills the reservation; and every release is EINVAL. The small reservation
 * comes first: it tells without hurting the machine. */
static void all_memory_is_locked(void **state)
{
    static const uint32_t sizes[] = {1 << 17, 1 << 22}; /* 1.8 and 56 GiB */

    (void)state;
    lock_future_without_limit();
    assert_int_equal(kvlazy_mem_host()->traits(NULL) & KVLAZY_HOST_LOCKED, KVLAZY_HOST_LOCKED);
    for (size_t i = 0; i < N_OF(sizes); i++) {
        struct rig *r = rig_new();

        open_host(r, sizes[i]);
        serve(r);
        assert_true(is_locked(r)); /* who locks all memory wants no page swapped, ours included */
        assert_in_range(proc_status("VmRSS:"), 0, 512 << 20); /* the rig's notes of 8 million cells are locked too */
        rig_free(r);
    }
}

/* Both at once: the frontier comes down on locked pages, too. */
static void locked_and_too_little_to_write(void **state)
{
    struct rig *r = *state;
    kvlazy_plan_info plan = {.struct_size = sizeof plan};

    lock_future_without_limit();
    use_host(r, 1 << 17);
    limit_writable(128 << 20);
    ok(kvlazy_plan(&r->params, &plan));
    assert_int_equal(plan.writable_cells, 0);
    rig_open(r);
    serve(r);
    assert_true(is_locked(r));
    assert_in_range(map_lines_of(r), 1, 2 * r->n_tensor * (int)r->n_stream);
    assert_in_range(proc_status("VmRSS:"), 0, 256 << 20);
}

/* Who may lock little may map little, then. */
static void too_little_to_lock(void **state)
{
    struct rig *r = *state;

    skip_if_sanitized("munlock is a no-op");
    use_host(r, 1 << 20);
    limit(RLIMIT_MEMLOCK, 4 << 20);
    if (geteuid() == 0 && setuid(65534)) { /* root may lock what it likes */
        print_message("setuid: %s\n", strerror(errno));
        skip();
    }
    lock_future();
    expect(kvlazy_create(&r->params, &r->cache), KVLAZY_ENOMEM);
    assert_non_null(strstr(r->log, ": RLIMIT_MEMLOCK is 4096K\n"));
}

/* ---- an old kernel, or a sandbox ---- */

/* No process_madvise, and no advice that is younger than Linux 5.14. */
static void forget_new_calls(void)
{
    enum { NR = offsetof(struct seccomp_data, nr), ADVICE = offsetof(struct seccomp_data, args[2]) };
    const uint32_t low = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 4; /* half of an argument */
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NR),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_madvise, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ADVICE + low),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 22, 0, 1), /* MADV_POPULATE_READ */
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {N_OF(code), code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
        return;
    print_message("seccomp: %s\n", strerror(errno));
    skip();
}

/* Naive: takes a refused call for a refused range, and gives nothing back; or lets a batch fail that could fault. */
static void an_old_kernel(void **state)
{
    struct rig *r = *state;

    forget_new_calls();
    open_host(r, 1 << 17);
    serve(r);
}

/* What could not be given back again is not locked. */
static void an_old_kernel_that_locks(void **state)
{
    struct rig *r = *state;

    lock_future_without_limit();
    forget_new_calls();
    open_host(r, 1 << 17);
    serve(r);
    assert_false(is_locked(r));
}

/* ---- a crash ---- */

/* Rows of 1 MiB: a terabyte needs few cells, so that the bookkeeping of the test itself is small in the dump. */
static void crash(struct rig *r)
{
    static const kvlazy_layer layer = {.k_row_bytes = 1 << 20, .v_row_bytes = 1 << 20};
    kvlazy_pos pos[100];
    kvlazy_seq_id seq[100] = {0};
    kvlazy_ubatch u = UBATCH(100, pos, seq);

    for (int i = 0; i < 100; i++)
        pos[i] = i;
    r->params.layers = &layer;
    r->params.n_layer = 1;
    r->params.kv_size = 1 << 19;
    r->params.mem = NULL;
    r->params.log = NULL;
    if (!kvlazy_create(&r->params, &r->cache) && !kvlazy_prepare(r->cache, &u, 1, r->slot) &&
        !kvlazy_apply_ubatch(r->cache, r->slot, &u) && stats(r).touched_bytes >= 200 << 20 &&
        stats(r).reserved_bytes >= UINT64_C(1) << 40)
        abort();
    _exit(1);
}

static uint64_t largest_file(const char *dir_name)
{
    DIR *dir = opendir(dir_name);
    uint64_t bytes = 0;

    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct stat st;

        if (fstatat(dirfd(dir), entry->d_name, &st, 0) || !S_ISREG(st.st_mode))
            continue;
        bytes = bytes > (uint64_t)st.st_size ? bytes : (uint64_t)st.st_size;
        unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
    return bytes;
}

static bool dumps_go_to_files(void)
{
    char pattern[8] = "|";
    FILE *file = fopen("/proc/sys/kernel/core_pattern", "r");

    if (file && !fgets(pattern, sizeof pattern, file))
        pattern[0] = '|';
    if (file)
        fclose(file);
    return pattern[0] != '|' && pattern[0] != '/' && pattern[0] != '\n';
}

/* Naive: the dump holds every page that is touched, and the kernel walks a terabyte to find them. Where dumps go
 * elsewhere, that the whole mapping is marked is tested in test_os.c all the same. */
static void a_crash_dumps_little(void **state)
{
    char dir[] = "/tmp/kvlazy-core-XXXXXX";
    int status;

    skip_if_sanitized("its shadow memory is in the dump");
    if (!dumps_go_to_files()) {
        print_message("core dumps do not go to the working directory here\n");
        skip();
    }
    limit(RLIMIT_CORE, RLIM_INFINITY);
    assert_non_null(mkdtemp(dir));
    pid_t pid = fork();
    if (!pid)
        chdir(dir) == 0 ? crash(*state) : _exit(1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    uint64_t bytes = largest_file(dir);
    rmdir(dir);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    if (!WCOREDUMP(status)) {
        print_message("no core was dumped\n");
        skip();
    }
    print_message("a core of %u MiB\n", (unsigned)(bytes >> 20));
    assert_in_range(bytes, 1, 64 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(too_little_address_space),
        RIG_TEST(too_little_writable_memory),
        RIG_TEST(a_frontier_keeps_mappings_few),
        cmocka_unit_test(all_memory_is_locked),
        RIG_TEST(locked_and_too_little_to_write),
        RIG_TEST(too_little_to_lock),
        RIG_TEST(an_old_kernel),
        RIG_TEST(an_old_kernel_that_locks),
        RIG_TEST(a_crash_dumps_little),
    };
    int n_failed = 0;

    for (size_t i = 0; i < N_OF(tests); i++)
        n_failed += run_in_child(&tests[i]);
    return n_failed;
}
