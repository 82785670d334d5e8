/* SPDX-License-Identifier: MIT */
/*
 * Pages of 64 KiB where the machine has none in one piece: a child takes all memory that is free and gives every other
 * page of it back. A prefill then costs what the kernel does for want of larger pages. The child is the first that the
 * kernel ends, should memory run out, and the figure is absent then.
 */
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_TOKEN = 1200, ROUNDS = 5, LEFT_BYTES = 64 << 20, LARGE_BYTES = 1 << 30, WAYS = 4 };

/* Bytes that nothing uses, not even as a cache of files; 0: it cannot be told. */
static size_t free_bytes(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemFree: %llu", &kib) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return (size_t)kib << 10;
}

/* What is left in one piece: larger pages come as long as there are any. */
static void take_large(void)
{
    char *map = mmap(NULL, LARGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (size_t at = 0; map != MAP_FAILED && at < LARGE_BYTES; at += bench_page_bytes()) {
        map[at] = 1;
    }
}

/* In the child: takes memory, gives half of it back, says so, and holds the rest until it is ended. */
static void hold(int told)
{
    size_t page_bytes = bench_page_bytes(), bytes = free_bytes();
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "1000", 4) != 4 || bytes < 2 * (size_t)LEFT_BYTES) {
        _exit(1);
    }
    bytes = (bytes - LEFT_BYTES) / page_bytes * page_bytes;
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED || madvise(map, bytes, MADV_NOHUGEPAGE) != 0) {
        _exit(1);
    }
    for (size_t at = 0; at < bytes; at += page_bytes) {
        map[at] = 1;
    }
    for (size_t at = 0; at < bytes; at += 2 * page_bytes) {
        if (madvise(map + at, page_bytes, MADV_DONTNEED) != 0) {
            _exit(1);
        }
    }
    take_large();
    if (write(told, "x", 1) != 1) {
        _exit(1);
    }
    for (;;) {
        pause();
    }
}

/* The child that holds memory, once it does. 0: it could not. */
static pid_t start_holding(void)
{
    int told[2];
    char byte;
    if (pipe(told) != 0) {
        return 0;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(told[0]);
        hold(told[1]);
    }
    close(told[1]);
    ssize_t n = pid > 0 ? read(told[0], &byte, 1) : 0;
    close(told[0]);
    if (pid > 0 && n != 1) {
        waitpid(pid, NULL, 0);
        pid = 0;
    }
    return pid > 0 ? pid : 0;
}

static int rounds(struct tensors_rig rig[WAYS], struct bench_series whole[WAYS])
{
    for (int k = 0; k < WAYS * ROUNDS; k++) {
        struct tensors_time time;
        if (tensors_put(&rig[k % WAYS], N_TOKEN, &time) != 0 || tensors_drop(&rig[k % WAYS], true) != 0) {
            return -1;
        }
        bench_series_add(&whole[k % WAYS], (double)time.whole_ns);
    }
    return 0;
}

static double better(struct bench_series *a, struct bench_series *b)
{
    double p = bench_series_at(a, 0.5), q = bench_series_at(b, 0.5);
    return p < q ? p : q;
}

int pages_fragmented(const struct bench_config *config)
{
    static const uint32_t flags[2] = {KVLAZY_COMMIT_AHEAD, KVLAZY_NO_COMMIT_AHEAD};
    static struct tensors_rig rig[WAYS];
    static struct bench_series whole[WAYS];
    int status = pages_granted(PAGES_BYTES);
    if (status != 0) {
        return status;
    }
    for (int i = 0; status == 0 && i < WAYS; i++) {
        status = tensors_open_pages(&rig[i], &tensors_layouts[TENSORS_F16], flags[i % 2],
                                    i < 2 ? bench_page_bytes() : PAGES_BYTES, 0);
    }
    pid_t holder = status == 0 ? start_holding() : 0;
    if (status == 0) {
        status = holder != 0 ? rounds(rig, whole) : 1;
    }
    bool held = holder != 0 && waitpid(holder, NULL, WNOHANG) == 0;
    if (held) {
        kill(holder, SIGKILL);
        waitpid(holder, NULL, 0);
    }
    for (int i = 0; i < WAYS; i++) {
        tensors_close(&rig[i]);
    }
    if (status != 0 || !held) {
        bench_error("no process could take all free memory and keep it");
        return status < 0 ? -1 : 1;
    }
    double small_ns = better(&whole[0], &whole[1]), large_ns = better(&whole[2], &whole[3]);
    struct figure figure = {.key = "pages_fragmented",
                            .value = large_ns / small_ns,
                            .digits = 3,
                            .what = "memory in pieces: a prefill of 1200",
                            .wanted = "<= 1.25"};
    snprintf(figure.ours, sizeof(figure.ours), "64 KiB: %.1f ms", large_ns / 1e6);
    snprintf(figure.other, sizeof(figure.other), "4 KiB: %.1f ms", small_ns / 1e6);
    report_figure(config, &figure);
    return 0;
}
