/* SPDX-License-Identifier: MIT */
/*
 * What the machine has left: first the numbers alone, read from made-up trees of /proc and /sys in a directory of our
 * own, then through a cache that refuses to grow beyond them, and last in a real control group, where this process may
 * make one.
 */
#include "support.h"
#include "host/limits_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define NO_LIMIT UINT64_MAX

/* ------------------------------------------------------------------------------------------- a tree */

static char root[64];

static void make_parents(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
}

__attribute__((format(printf, 2, 3))) static void file(const char *name, const char *format, ...)
{
    char path[512];
    va_list args;

    snprintf(path, sizeof path, "%s/%s", root, name);
    make_parents(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    assert_int_equal(fclose(f), 0);
}

static int remove_one(const char *path, const struct stat *stat, int kind, struct FTW *at)
{
    (void)stat, (void)kind, (void)at;
    return remove(path);
}

static int tree_setup(void **state)
{
    (void)state;
    strcpy(root, "/tmp/kvlazy-limits-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int tree_teardown(void **state)
{
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void available(uint64_t mib)
{
    file("proc/meminfo", "MemTotal: 99999999 kB\nMemFree:  1 kB\nMemAvailable:  %llu kB\nBuffers: 0 kB\n",
         (unsigned long long)mib * 1024);
}

static void group_v2(const char *dir, const char *max, const char *high, uint64_t current_mib, uint64_t cached_mib)
{
    char name[256];

    snprintf(name, sizeof name, "%s/memory.max", dir);
    file(name, "%s\n", max);
    snprintf(name, sizeof name, "%s/memory.high", dir);
    file(name, "%s\n", high);
    snprintf(name, sizeof name, "%s/memory.current", dir);
    file(name, "%llu\n", (unsigned long long)(current_mib * MIB));
    snprintf(name, sizeof name, "%s/memory.stat", dir);
    file(name, "anon 5\nfile 77777777777\ninactive_anon 3\ninactive_file %llu\nactive_file 88888888888\n",
         (unsigned long long)(cached_mib * MIB));
}

static void group_v1(const char *dir, const char *limit, uint64_t usage_mib, uint64_t cached_mib)
{
    char name[256];

    snprintf(name, sizeof name, "%s/memory.limit_in_bytes", dir);
    file(name, "%s\n", limit);
    snprintf(name, sizeof name, "%s/memory.usage_in_bytes", dir);
    file(name, "%llu\n", (unsigned long long)(usage_mib * MIB));
    snprintf(name, sizeof name, "%s/memory.stat", dir);
    file(name, "cache 1\ninactive_file 1\ntotal_cache 2\ntotal_inactive_file %llu\n",
         (unsigned long long)(cached_mib * MIB));
}

/* Some of what is left is for page tables. */
#define left_is(mib) assert_int_equal(kvl_headroom_bytes(root), (mib)*MIB - (mib)*MIB / 256)
#define nothing_known() assert_int_equal(kvl_headroom_bytes(root), NO_LIMIT)

/* ------------------------------------------------------------------------------------------- numbers */

static void an_empty_tree_is_no_limit(void **state)
{
    (void)state;
    nothing_known();
    assert_int_equal(kvl_headroom_bytes("/nowhere/at/all"), NO_LIMIT);
    file("proc/self/cgroup", "0::/a\n");
    nothing_known();
}

static void the_machine_alone(void **state)
{
    (void)state;
    available(300);
    left_is(300);
    file("proc/meminfo", "MemTotal: 5 kB\nMemFree: 5 kB\n"); /* before Linux 3.14 */
    nothing_known();
}

static void version_2(void **state)
{
    (void)state;
    available(900);
    file("proc/self/cgroup", "0::/a/b\n");
    group_v2("sys/fs/cgroup/a/b", "268435456", "max", 200, 0); /* 256 MiB */
    left_is(56);
    group_v2("sys/fs/cgroup/a/b", "268435456", "max", 200, 30);
    left_is(86);
    group_v2("sys/fs/cgroup/a/b", "268435456", "230686720", 200, 0); /* slowed down from 220 MiB */
    left_is(20);
    group_v2("sys/fs/cgroup/a/b", "max", "230686720", 100, 0);
    left_is(120);
    group_v2("sys/fs/cgroup/a/b", "max", "max", 100, 0);
    left_is(900);
    group_v2("sys/fs/cgroup/a/b", "0", "max", 0, 0);
    left_is(0);
}

static void the_tightest_is_in_the_middle(void **state)
{
    (void)state;
    available(4000);
    file("proc/self/cgroup", "0::/a/b/c\n");
    group_v2("sys/fs/cgroup/a/b/c", "1073741824", "max", 100, 0);
    group_v2("sys/fs/cgroup/a/b", "536870912", "max", 500, 2);
    group_v2("sys/fs/cgroup/a", "2147483648", "max", 600, 0);
    left_is(14);
    group_v2("sys/fs/cgroup", "1048576", "max", 0, 0); /* of the mount too: a container's own group */
    left_is(1);
}

static void version_1(void **state)
{
    (void)state;
    available(900);
    file("proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory,cpuacct:/a/b\n1:memoryless:/c\n");
    group_v1("sys/fs/cgroup/memory/a/b", "268435456", 250, 10);
    left_is(16);
    group_v1("sys/fs/cgroup/memory/a", "104857600", 99, 0);
    left_is(1);
    group_v1("sys/fs/cgroup/memory/a", "9223372036854771712", 250, 0);
    left_is(16);
    group_v1("sys/fs/cgroup/memory/a", "104857600", 99, 0); /* does not count for those below */
    file("sys/fs/cgroup/memory/a/memory.use_hierarchy", "0\n");
    left_is(16);
}

static void both_versions(void **state)
{
    (void)state;
    available(900);
    file("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
                                "35 31 0:32 / /sys/fs/cgroup/memory rw shared:4 master:7 - cgroup cgroup rw,memory\n"
                                "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                                "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
    file("proc/self/cgroup", "4:memory:/a\n0::/u\n");
    group_v1("sys/fs/cgroup/memory/a", "268435456", 100, 0);
    left_is(156);
    group_v2("sys/fs/cgroup/unified/u", "115343360", "max", 100, 0);
    left_is(10);
    group_v2("sys/fs/cgroup/u", "104857600", "max", 100, 0); /* nobody mounted that */
    left_is(10);
}

static void the_mount_shows_part_of_the_tree(void **state)
{
    (void)state;
    file("proc/self/mountinfo", "35 31 0:32 /docker/ab /mnt/groups ro - cgroup2 cgroup2 rw\n");
    file("proc/self/cgroup", "0::/docker/ab/in\n");
    group_v2("mnt/groups/in", "268435456", "max", 200, 0);
    left_is(56);
    group_v2("mnt/groups", "104857600", "max", 80, 0);
    left_is(20);
    file("proc/self/cgroup", "0::/docker/abc/in\n"); /* elsewhere */
    group_v2("mnt/groups/in", "10485760", "max", 10, 0);
    group_v2("mnt/groups/c/in", "10485760", "max", 10, 0);
    left_is(20);
    file("proc/self/cgroup", "0::/../ab\n"); /* outside the name space */
    left_is(20);
    file("proc/self/cgroup", "0::/docker/ab\n");
    left_is(20);
}

static void a_path_that_is_not_there(void **state)
{
    (void)state;
    file("proc/self/cgroup", "0::/host/path/nobody/sees\n");
    group_v2("sys/fs/cgroup", "104857600", "max", 80, 0);
    left_is(20);
    file("proc/self/cgroup", "0::/\n");
    left_is(20);
    file("proc/self/cgroup", "0::/gone (deleted)\n");
    left_is(20);
}

static void more_is_used_than_allowed(void **state)
{
    (void)state;
    file("proc/self/cgroup", "0::/a\n");
    group_v2("sys/fs/cgroup/a", "104857600", "max", 180, 5);
    left_is(0);
    group_v2("sys/fs/cgroup/a", "104857600", "max", 50, 500); /* more is cached than used? */
    left_is(100);
}

static void enormous_numbers(void **state)
{
    (void)state;
    file("proc/self/cgroup", "0::/a\n4:memory:/a\n");
    group_v2("sys/fs/cgroup/a", "18446744073709551615", "18446744073709551616", 50, 0);
    nothing_known();
    group_v2("sys/fs/cgroup/a", "99999999999999999999999999999999999999999999999999999999999999999999999", "max", 50,
             0);
    nothing_known();
    group_v1("sys/fs/cgroup/memory/a", "18446744073709551615", 50, 0);
    nothing_known();
    file("proc/meminfo", "MemAvailable: 18446744073709551615 kB\n");
    nothing_known();
    file("proc/meminfo", "MemAvailable: 99999999999999999999 kB\n");
    nothing_known();
}

static void garbage(void **state)
{
    static const char *const texts[] = {"",         "\n",     "-1",     "-5\n",   "1x\n",
                                        "0x10\n",   "1 2\n",  "nan\n",  "12e3\n", "max1",
                                        "\xff\xfe", "1\n2\n", "maxi\n", "+7\n",   "10485760K\n"};

    (void)state;
    available(900);
    file("proc/self/cgroup", "0::/a\n");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        group_v2("sys/fs/cgroup/a", texts[i], texts[i], 5, 0);
        left_is(900);
        group_v2("sys/fs/cgroup/a", "104857600", "max", 0, 0);
        file("sys/fs/cgroup/a/memory.current", "%s", texts[i]);
        left_is(900);
        group_v2("sys/fs/cgroup/a", "104857600", "max", 80, 3);
        file("sys/fs/cgroup/a/memory.stat", "inactive_file %s", texts[i]);
        assert_in_range(kvl_headroom_bytes(root), 20 * MIB - 20 * MIB / 256, 21 * MIB);
        group_v2("sys/fs/cgroup/a", "max", "max", 0, 0);
        file("proc/self/mountinfo", "%s", texts[i]);
        file("proc/self/cgroup", "%s", texts[i]);
        left_is(900);
        file("proc/self/cgroup", "0::/a\n");
        remove("proc/self/mountinfo");
        file("proc/meminfo", "MemAvailable: %s", texts[i]);
        nothing_known();
        available(900);
    }
}

static void awkward_lines(void **state)
{
    char line[9000];

    (void)state;
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = 0;
    file("proc/meminfo", "%s\n\n:\nMemAvailable: 102400 kB", line); /* no end of line either */
    left_is(100);
    file("proc/self/mountinfo", "%s\n - \n1 2 3\n1 2 3 - cgroup2\n35 31 0:32 / /m rw - cgroup2 x rw\n", line);
    file("proc/self/cgroup", "%s\n:\n::\n0:\n0::\n0::relative\n0::/a\n", line);
    group_v2("m/a", "104857600", "max", 80, 0);
    left_is(20);
    memset(line, '/', sizeof line - 1);
    file("proc/self/cgroup", "0::%s\n", line);
    left_is(100);
    mkdir("memory.max", 0777);
    for (int i = 0; i < 2000; i++)
        memcpy(&line[2 * i], "/d", 2);
    line[4000] = 0;
    file("proc/self/cgroup", "0::%s\n", line); /* deeper than anybody looks, and nothing is there */
    group_v2("m", "104857600", "max", 90, 0);
    assert_in_range(kvl_headroom_bytes(root), 9 * MIB, 100 * MIB);
}

static void this_machine(void **state)
{
    (void)state;
    uint64_t left = kvl_headroom_bytes("/");

    print_message("this machine has %llu MiB left\n", (unsigned long long)(left / MIB));
    assert_true(left > 0);
    assert_int_equal(kvlazy_mem_host()->headroom(NULL, "/nowhere"), NO_LIMIT);
    assert_true(kvlazy_mem_host()->now_ns(NULL) > 0);
}

/* ------------------------------------------------------------------------------------------- through a cache */

static int n_read;
static kvlazy_mem table;

static uint64_t count_headroom(void *ctx, const char *at)
{
    (void)ctx;
    n_read++;
    return kvl_headroom_bytes(at);
}

/* A cell is two pages; `pages` are left. Pages for page tables are not counted here. */
static void left_pages(uint64_t pages)
{
    file("proc/meminfo", "MemAvailable: %llu kB\n", (unsigned long long)((pages * 4096 * 256 / 255 + 1023) / 1024));
}

static void open_limited(struct rig *r, const char *host_root)
{
    static const size_t rows[1][2] = {{4096, 4096}};

    n_read = 0;
    rig_rows(r, 1, rows);
    table = r->fake.table;
    table.headroom = count_headroom;
    r->params.mem = &table;
    r->params.host_root = host_root;
    rig_open(r);
    assert_int_equal(n_read, 0); /* creating costs nothing */
}

static int both_setup(void **state)
{
    return tree_setup(state) ? -1 : rig_setup(state);
}

static int both_teardown(void **state)
{
    int status = rig_teardown(state);

    return tree_teardown(NULL) ? -1 : status;
}

static void growth_beyond_the_limit_is_refused(void **state)
{
    struct rig *r = *state;
    char *dump;

    left_pages(100);
    open_limited(r, root);
    ok(turn(r, 0, 0, 20));
    assert_int_equal(n_read, 1);
    dump = rig_dump(r);
    ok(kvlazy_init_batch(r->cache));
    expect(put(r, 0, 20, 31), KVLAZY_EBUDGET); /* 51 cells would be 102 pages */
    ok(kvlazy_end_batch(r->cache));
    unchanged(r, dump);
    assert_int_equal(kvlazy_refused(r->cache), 0);
    assert_int_equal(n_read, 1); /* what was seen last counts for a while */
    assert_int_equal(stats(r).n_refused_budget, 1);
    ok(turn(r, 0, 20, 30)); /* exactly */
    sound(r);
}

static void room_tells_it(void **state)
{
    struct rig *r = *state;

    left_pages(100);
    open_limited(r, root);
    assert_int_equal(kvlazy_room(r->cache, 0), 50);
    ok(turn(r, 0, 0, 20));
    assert_int_equal(kvlazy_room(r->cache, 0), 30);
    assert_int_equal(kvlazy_room(r->cache, 1), 30);
    left_pages(0); /* 40 pages are ours already, and nothing more is there */
    r->fake.now += 100;
    assert_int_equal(kvlazy_room(r->cache, 0), 0);
    expect(turn(r, 0, 20, 1), KVLAZY_EBUDGET);
    left_pages(1 << 20);
    r->fake.now += 100;
    assert_int_equal(kvlazy_room(r->cache, 0), 492);
    sound(r);
}

static void when_others_gave_back_it_fits(void **state)
{
    struct rig *r = *state;

    left_pages(100);
    open_limited(r, root);
    ok(turn(r, 0, 0, 20));
    expect(turn(r, 0, 20, 60), KVLAZY_EBUDGET);
    left_pages(300); /* another cache has shrunk */
    r->fake.now += 99;
    expect(turn(r, 0, 20, 60), KVLAZY_EBUDGET);
    assert_int_equal(n_read, 1);
    r->fake.now += 1;
    ok(turn(r, 0, 20, 60));
    assert_int_equal(n_read, 2);
    sound(r);
}

static void free_pages_go_first(void **state)
{
    struct rig *r = *state;
    uint64_t released;

    left_pages(100);
    open_limited(r, root);
    ok(turn(r, 0, 0, 20));
    ok(turn(r, 1, 0, 20));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1)); /* 40 free pages, in cells 0 to 19 */
    released = stats(r).released_bytes;
    expect(turn(r, 1, 20, 31), KVLAZY_EBUDGET);
    assert_int_equal(stats(r).released_bytes, released); /* not for nothing */
    ok(turn(r, 1, 20, 30));
    sound(r);
    assert_int_equal(stats(r).touched_bytes, 100 * 4096);
}

static void steady_decode_reads_nothing(void **state)
{
    struct rig *r = *state;

    left_pages(1 << 20);
    open_limited(r, root);
    for (int i = 0; i < 400; i++) {
        r->fake.now += 10;
        ok(turn(r, 0, i, 1));
    }
    assert_int_equal(n_read, 1);
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    left_pages(0); /* nobody asks about pages that are there */
    for (int i = 0; i < 400; i++)
        ok(turn(r, 0, i, 1));
    assert_int_equal(n_read, 1);
}

static void it_is_read_ten_times_a_second_at_most(void **state)
{
    struct rig *r = *state;
    int n_refused = 0;

    left_pages(8);
    open_limited(r, root);
    for (int i = 0; i < 500; i++) {
        r->fake.now += 1;
        n_refused += turn(r, 0, kvlazy_seq_pos_max(r->cache, 0) + 1, 40) == KVLAZY_EBUDGET;
    }
    assert_int_equal(n_refused, 500);
    assert_in_range(n_read, 4, 5);
    sound(r);
}

static void an_empty_root_reads_nothing(void **state)
{
    struct rig *r = *state;

    left_pages(8);
    open_limited(r, "");
    ok(turn(r, 0, 0, 400));
    assert_int_equal(kvlazy_room(r->cache, 0), 112);
    assert_int_equal(n_read, 0);
}

static void what_went_back_must_be_asked_for_again(void **state)
{
    struct rig *r = *state;

    left_pages(1000);
    open_limited(r, root);
    ok(turn(r, 0, 0, 200));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(kvlazy_trim(r->cache, 0));
    assert_int_equal(stats(r).touched_bytes, 0);
    left_pages(20); /* somebody else has them */
    r->fake.now += 100;
    expect(turn(r, 0, 0, 200), KVLAZY_EBUDGET);
    ok(turn(r, 0, 0, 10));
    sound(r);
}

/* ------------------------------------------------------------------------------------------- a real group */

static bool write_text(const char *dir, const char *name, const char *text)
{
    char path[KVL_PATH_BYTES + 64];
    bool done;

    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
        return false;
    int fd = open(path, O_WRONLY);
    if (fd < 0)
        return false;
    done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    return close(fd) == 0 && done;
}

/* Where this process's groups may have one below. */
static bool own_group(bool v2, char *dir, size_t bytes)
{
    char line[KVL_PATH_BYTES], path[KVL_PATH_BYTES] = "";
    FILE *f = fopen("/proc/self/cgroup", "r");

    while (f && fgets(line, sizeof line, f))
        if (v2 ? sscanf(line, "0::%s", path) == 1 : sscanf(line, "%*d:memory:%s", path) == 1)
            break;
    if (f)
        fclose(f);
    if (!*path)
        return false;
    snprintf(dir, bytes, "/sys/fs/cgroup%s%s/kvlazy-test-%d", v2 ? "" : "/memory", strcmp(path, "/") ? path : "",
             (int)getpid());
    return true;
}

static bool make_group(char *dir, size_t bytes)
{
    static const char *const limits[2] = {"memory.limit_in_bytes", "memory.max"};

    for (int v2 = 0; v2 < 2; v2++) {
        if (!own_group(v2, dir, bytes) || mkdir(dir, 0777) != 0)
            continue;
        if (write_text(dir, limits[v2], "67108864"))
            return true;
        rmdir(dir);
    }
    return false;
}

/* In the group: takes what there is, is refused, and goes on living. Answers the number of the step that failed. */
static int live_in_group(const char *dir)
{
    kvlazy_layer layer = {.k_row_bytes = 128 << 10, .v_row_bytes = 128 << 10};
    kvlazy_params params;
    kvlazy_cache *cache;
    kvlazy_tensor k, v;
    int n_refused = 0;
    kvlazy_pos pos = 0;
    kvlazy_seq_id seq = 0;

    if (!write_text(dir, "cgroup.procs", "0"))
        return 77;
    kvlazy_params_init(&params);
    params.kv_size = 4096; /* 1 GiB */
    params.layers = &layer;
    params.n_layer = 1;
    if (kvlazy_create(&params, &cache) || kvlazy_k(cache, 0, &k) || kvlazy_v(cache, 0, &v))
        return 1;
    while (pos < 4096 && n_refused < 3) {
        kvlazy_ubatch u = UBATCH(1, &pos, &seq);
        kvlazy_slot slot;

        kvlazy_init_batch(cache);
        int status = kvlazy_prepare(cache, &u, 1, &slot);
        if (!status)
            status = kvlazy_apply_ubatch(cache, &slot, &u);
        if (!status) {
            memset((char *)k.data + slot.cell[0] * k.cell_stride, 1, k.row_bytes);
            memset((char *)v.data + slot.cell[0] * v.cell_stride, 1, v.row_bytes);
        }
        kvlazy_end_batch(cache);
        if (status && status != KVLAZY_EBUDGET)
            return 2;
        if (status)
            usleep(110000); /* so that it looks again */
        n_refused += status == KVLAZY_EBUDGET;
        pos += !status;
    }
    if (n_refused < 3 || kvlazy_room(cache, 0) != 0)
        return 3;
    if (pos < 160 || kvlazy_check(cache, NULL)) /* 40 of 64 MiB; the rest is ours before */
        return 4;
    kvlazy_clear(cache, true);
    usleep(110000);
    if (kvlazy_room(cache, 0) < 160)
        return 5;
    kvlazy_destroy(cache);
    return 0;
}

static void in_a_real_group(void **state)
{
    char dir[KVL_PATH_BYTES + 64];
    int status;

    (void)state;
#if defined(__SANITIZE_THREAD__)
    print_message("what ThreadSanitizer takes does not fit the group: skipped\n");
    skip();
#endif
    if (!make_group(dir, sizeof dir)) {
        print_message("no memory control group can be made here: skipped\n");
        skip();
    }
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(30);
        _exit(live_in_group(dir));
    }
    waitpid(child, &status, 0);
    for (int i = 0; i < 100 && rmdir(dir) != 0 && errno == EBUSY; i++)
        usleep(10000);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("no process may join a new group here: skipped\n");
        skip();
    }
    assert_true(WIFEXITED(status)); /* alive to the end */
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define TREE_TEST(f) cmocka_unit_test_setup_teardown(f, tree_setup, tree_teardown)
#define BOTH_TEST(f) cmocka_unit_test_setup_teardown(f, both_setup, both_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TREE_TEST(an_empty_tree_is_no_limit),
        TREE_TEST(the_machine_alone),
        TREE_TEST(version_2),
        TREE_TEST(the_tightest_is_in_the_middle),
        TREE_TEST(version_1),
        TREE_TEST(both_versions),
        TREE_TEST(the_mount_shows_part_of_the_tree),
        TREE_TEST(a_path_that_is_not_there),
        TREE_TEST(more_is_used_than_allowed),
        TREE_TEST(enormous_numbers),
        TREE_TEST(garbage),
        TREE_TEST(awkward_lines),
        cmocka_unit_test(this_machine),
        BOTH_TEST(growth_beyond_the_limit_is_refused),
        BOTH_TEST(room_tells_it),
        BOTH_TEST(when_others_gave_back_it_fits),
        BOTH_TEST(free_pages_go_first),
        BOTH_TEST(steady_decode_reads_nothing),
        BOTH_TEST(it_is_read_ten_times_a_second_at_most),
        BOTH_TEST(an_empty_root_reads_nothing),
        BOTH_TEST(what_went_back_must_be_asked_for_again),
        cmocka_unit_test(in_a_real_group),
    };

    alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
