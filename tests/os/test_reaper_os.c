/* SPDX-License-Identifier: MIT */
/*
 * The reaper on the real host: how late memory comes back, what the sleep makes of the kernel's word of pressure (a
 * socket with urgent data stands for the file, since poll(2) tells of it the same way), and the loop of docs/idle.md
 * for engines that have one.
 */
#include "support.h"
#include "host/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <kvlazy/reaper.h>

enum { IDLE_MS = 50 };

static void nap(long ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

/* ------------------------------------------------------------------------------------------- how late */

static void open_real(struct rig *r, uint32_t idle_ms)
{
    static const size_t rows[1][2] = {{64 << 10, 64 << 10}};

    rig_rows(r, 1, rows);
    r->params.mem = NULL;
    r->params.log = NULL;
    r->params.on_evict = NULL;
    r->params.slot_shrink_idle_ms = idle_ms;
    r->params.kv_size_initial = 64;
    rig_open(r);
}

static void it_comes_back_in_time(void **state)
{
    struct rig *r = *state;
    kvlazy_reaper *reaper;
    uint64_t worst = 0, bytes;

    open_real(r, IDLE_MS);
    ok(kvlazy_reaper_create(NULL, &reaper));
    ok(kvlazy_reaper_add(reaper, r->cache));
    for (int i = 0; i < 8; i++) {
        nap(3 + 7 * i % 11); /* the thread is at any point of its sleep */
        ok(kvlazy_init_batch(r->cache));
        ok(put(r, 0, kvlazy_seq_pos_max(r->cache, 0) + 1, 200)); /* 25 MiB */
        uint64_t before = kvl_wait_now_ms();
        ok(kvlazy_end_batch(r->cache));
        uint64_t begin = kvl_wait_now_ms();
        while (stats(r).live_cells > 64 || stats(r).touched_bytes > cover(r)) {
            assert_true(kvl_wait_now_ms() - begin < 20000);
            nap(1);
        }
        uint64_t took = kvl_wait_now_ms() - begin;
        assert_true(begin + took - before + 10 >= IDLE_MS); /* not before: a coarse clock is 10 ms off at most */
        worst = took > worst ? took : worst;
    }
    kvlazy_reaper_destroy(reaper);
    print_message("idle for %d ms, given back after %d ms at the latest\n", IDLE_MS, (int)worst);
    ok(kvlazy_resident(r->cache, &bytes));
    assert_in_range(bytes, 0, cover(r));
    r->n_tensor = 0; /* no look at the rows: the rig wants small ones */
}

/* ------------------------------------------------------------------------------------------- the sleep */

static void a_sleep_ends(void **state)
{
    kvl_wait w;
    uint64_t begin = kvl_wait_now_ms();

    (void)state;
    ok(kvl_wait_open(&w, ""));
    assert_int_equal(w.pressure_fd, -1);
    assert_int_equal(kvl_wait_sleep(&w, begin + 5), 0);
    assert_true(kvl_wait_now_ms() >= begin + 5);
    assert_int_equal(kvl_wait_sleep(&w, 0), 0); /* that was long ago */
    kvl_wait_wake(&w);
    kvl_wait_wake(&w);
    assert_int_equal(kvl_wait_sleep(&w, UINT64_MAX), KVL_WOKEN);
    assert_int_equal(kvl_wait_sleep(&w, kvl_wait_now_ms() + 1), 0); /* two were one */
    kvl_wait_close(&w);
    assert_int_equal(kvl_wait_open(&w, "/nowhere"), KVLAZY_OK);
    assert_int_equal(w.pressure_fd, -1);
    kvl_wait_close(&w);
}

/* A pair of sockets of which the second sends urgent data. */
static void urgent_pair(int fd[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    if (listener < 0 || bind(listener, (struct sockaddr *)&at, bytes) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &bytes))
        skip();
    fd[1] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd[1], (struct sockaddr *)&at, bytes), 0);
    fd[0] = accept(listener, NULL, NULL);
    assert_true(fd[0] >= 0);
    close(listener);
}

static void pressure_is_told_once_a_second(void **state)
{
    kvl_wait w;
    int fd[2];

    (void)state;
    urgent_pair(fd);
    ok(kvl_wait_open(&w, ""));
    w.pressure_fd = fd[0];
    assert_int_equal(kvl_wait_sleep(&w, kvl_wait_now_ms() + 1), 0);
    assert_int_equal(send(fd[1], "!", 1, MSG_OOB), 1);
    assert_int_equal(kvl_wait_sleep(&w, UINT64_MAX), KVL_PRESSURE);
    uint64_t begin = kvl_wait_now_ms(); /* it goes on being told, and nobody spins */
    assert_int_equal(kvl_wait_sleep(&w, begin + 20), 0);
    assert_true(kvl_wait_now_ms() >= begin + 20);
    w.deaf_ms = 0;
    assert_int_equal(kvl_wait_sleep(&w, UINT64_MAX), KVL_PRESSURE);
    w.deaf_ms = kvl_wait_now_ms() + 5;
    assert_int_equal(kvl_wait_sleep(&w, UINT64_MAX), 0); /* to listen again */
    kvl_wait_wake(&w);
    assert_int_equal(kvl_wait_sleep(&w, UINT64_MAX), KVL_WOKEN | KVL_PRESSURE);
    kvl_wait_close(&w);
    close(fd[1]);
}

static void a_file_in_error_is_dropped(void **state)
{
    kvl_wait w;
    int fd[2];

    (void)state;
    assert_int_equal(pipe(fd), 0);
    ok(kvl_wait_open(&w, ""));
    w.pressure_fd = fd[1]; /* nobody reads it: POLLERR for ever, as when the group is removed */
    close(fd[0]);
    assert_int_equal(kvl_wait_sleep(&w, UINT64_MAX), 0);
    assert_int_equal(w.pressure_fd, -1);
    assert_int_equal(kvl_wait_sleep(&w, kvl_wait_now_ms() + 1), 0);
    kvl_wait_close(&w);
}

static void file(const char *root, const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = strchr(path + 5, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void assert_file(const char *root, const char *name, const char *text)
{
    char path[256], got[64] = "";

    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    if (!fgets(got, sizeof got, f))
        got[0] = 0;
    fclose(f);
    assert_string_equal(got, text);
}

static void the_nearest_file_is_asked(void **state)
{
    char root[] = "/tmp/kvlazy-wait-XXXXXX", command[64];
    kvl_wait w;

    (void)state;
    assert_non_null(mkdtemp(root));
    file(root, "proc/pressure/memory", "");
    ok(kvl_wait_open(&w, root));
    assert_true(w.pressure_fd >= 0);
    assert_int_equal(kvl_wait_sleep(&w, kvl_wait_now_ms() + 1), 0);
    kvl_wait_close(&w);
    assert_file(root, "proc/pressure/memory", "some 150000 1000000");
    file(root, "proc/pressure/memory", "");
    file(root, "proc/self/cgroup", "0::/a/b\n");
    file(root, "sys/fs/cgroup/a/b/memory.pressure", "");
    ok(kvl_wait_open(&w, root));
    kvl_wait_close(&w);
    assert_file(root, "sys/fs/cgroup/a/b/memory.pressure", "some 150000 1000000");
    assert_file(root, "proc/pressure/memory", "");
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
    ok(kvl_wait_open(&w, "/"));
    print_message("the kernel here %s of memory pressure\n", w.pressure_fd >= 0 ? "tells" : "does not tell");
    assert_int_equal(kvl_wait_sleep(&w, kvl_wait_now_ms() + 1) & ~(unsigned)KVL_PRESSURE, 0);
    kvl_wait_close(&w);
}

/* ------------------------------------------------------------------------------------------- docs/idle.md */

typedef struct request {
    kvlazy_seq_id seq;
    kvlazy_pos pos;
    uint32_t n_token;
} request;

typedef struct loop {
    struct rig *engine;
    kvlazy_cache *cache;
    int epoll_fd, timer_fd, request_fd;
    request next;
} loop;

static void watch_fd(loop *l, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    assert_int_equal(epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &event), 0);
}

/* The timer that wakes the loop when memory can come back. */
static void set_timer(loop *l, uint64_t next_ms)
{
    struct itimerspec when;

    memset(&when, 0, sizeof when); /* zero: it is off */
    if (next_ms != UINT64_MAX) {
        when.it_value.tv_sec = (time_t)(next_ms / 1000);
        when.it_value.tv_nsec = (long)(next_ms % 1000) * 1000000 + 1; /* 0 ms is at once, and not off */
    }
    timerfd_settime(l->timer_fd, 0, &when, NULL);
}

static void serve(loop *l)
{
    ok(turn(l->engine, l->next.seq, l->next.pos, l->next.n_token));
}

/* Before each sleep, whatever woke the loop: a batch that ended meanwhile has made the old time stale. */
static void before_sleep(loop *l)
{
    uint64_t next_ms;

    kvlazy_poll(l->cache, &next_ms); /* EBUSY is an answer like any other: next_ms is always written */
    set_timer(l, next_ms);
}

static bool sleep_and_serve(loop *l)
{
    struct epoll_event event;
    uint64_t count;

    if (epoll_wait(l->epoll_fd, &event, 1, -1) != 1)
        return false;
    if (read(event.data.fd, &count, sizeof count) != sizeof count)
        return false;
    if (event.data.fd == l->request_fd)
        serve(l);
    return true;
}

static void a_loop_of_its_own(void **state)
{
    struct rig *r = *state;
    loop l = {.engine = r, .next = {0, 0, 200}};
    uint64_t one = 1;

    open_real(r, 20);
    l.cache = r->cache;
    l.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    l.request_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    watch_fd(&l, l.timer_fd);
    watch_fd(&l, l.request_fd);
    assert_int_equal(write(l.request_fd, &one, sizeof one), sizeof one);
    before_sleep(&l);
    assert_true(sleep_and_serve(&l));
    assert_int_equal(stats(r).live_cells, 200);
    for (before_sleep(&l); stats(r).live_cells > 64; before_sleep(&l))
        assert_true(sleep_and_serve(&l)); /* nothing but the timer wakes it */
    close(l.epoll_fd);
    close(l.timer_fd);
    close(l.request_fd);
    r->n_tensor = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(it_comes_back_in_time),
        cmocka_unit_test(a_sleep_ends),
        cmocka_unit_test(pressure_is_told_once_a_second),
        cmocka_unit_test(a_file_in_error_is_dropped),
        cmocka_unit_test(the_nearest_file_is_asked),
        RIG_TEST(a_loop_of_its_own),
    };

    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
