/* SPDX-License-Identifier: MIT */
/* limits_linux: see limits_linux.h. */
#include "host/limits_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <bsd/string.h>

enum {
    KEPT_BYTES = 2 << 20, /* of what is left, for the code of the process and the kernel's own needs: at most, */
    KEPT_LEAST_BYTES = 128 << 10, /* and where little is left */
    LINE_BYTES = 4096,            /* what a line has beyond is not looked at */
    DEPTH_MAX = 64,               /* control groups above one another */
    PAGE_TABLES = 256, /* of what is touched, this part is needed beside it: page tables, and what CPUs hold back */
};

#define NO_LIMIT UINT64_MAX
#define NO_LIMIT_V1 (UINT64_C(1) << 62) /* PAGE_COUNTER_MAX is 2^63 less a page: no limit is set */

/* ------------------------------------------------------------------------------------------- files */

/* "dir" "/" "name". False: it does not fit. */
static bool join_path(char path[KVL_PATH_BYTES], const char *dir, const char *name)
{
    int n = snprintf(path, KVL_PATH_BYTES, "%s/%s", dir, name);

    return n > 0 && n < KVL_PATH_BYTES;
}

static int open_below(const char *dir, const char *name)
{
    char path[KVL_PATH_BYTES];

    return join_path(path, dir, name) ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1;
}

static size_t read_some(int fd, char *buffer, size_t bytes)
{
    ssize_t n;

    do
        n = read(fd, buffer, bytes);
    while (n < 0 && errno == EINTR);
    return n > 0 ? (size_t)n : 0;
}

/* A file line by line, through one buffer. */
typedef struct reader {
    int fd;
    size_t at, end;
    char buffer[LINE_BYTES];
    char line[LINE_BYTES]; /* without its end; cut where it is longer */
} reader;

static bool open_reader(reader *r, const char *dir, const char *name)
{
    r->fd = open_below(dir, name);
    r->at = r->end = 0;
    return r->fd >= 0;
}

static bool next_line(reader *r)
{
    size_t n = 0;
    bool any = false;

    for (;;) {
        if (r->at == r->end) {
            r->at = 0;
            r->end = read_some(r->fd, r->buffer, sizeof r->buffer);
        }
        if (r->end == 0)
            break;
        any = true;
        char byte = r->buffer[r->at++];
        if (byte == '\n')
            break;
        if (n + 1 < sizeof r->line)
            r->line[n++] = byte;
    }
    r->line[n] = 0;
    return any;
}

/* ------------------------------------------------------------------------------------------- numbers */

/* Digits, and behind them `unit`; white space before, between and after. False: it is something else, or too large. */
static bool parse_number(const char *text, const char *unit, uint64_t *value)
{
    uint64_t sum = 0;

    text += strspn(text, " \t");
    if (*text < '0' || *text > '9')
        return false;
    for (; *text >= '0' && *text <= '9'; text++)
        if (kvl_mul_overflows(sum, 10, &sum) || kvl_add_overflows(sum, (uint64_t)(*text - '0'), &sum))
            return false;
    text += strspn(text, " \t");
    if (strncmp(text, unit, strlen(unit)) != 0)
        return false;
    text += strlen(unit);
    if (text[strspn(text, " \t\r\n")])
        return false;
    *value = sum;
    return true;
}

/* A file that is one number. */
static bool read_number(const char *dir, const char *name, uint64_t *value)
{
    char text[64];
    int fd = open_below(dir, name);

    if (fd < 0)
        return false;
    size_t n = read_some(fd, text, sizeof text);
    close(fd);
    if (n == sizeof text)
        return false;
    text[n] = 0;
    return strlen(text) == n && parse_number(text, "", value);
}

/* The line of a file that begins with a key is a number. */
static bool read_keyed(const char *dir, const char *name, const char *key, const char *unit, uint64_t *value)
{
    reader r;
    bool found = false;

    if (!open_reader(&r, dir, name))
        return false;
    while (!found && next_line(&r))
        if (strncmp(r.line, key, strlen(key)) == 0) {
            found = parse_number(r.line + strlen(key), unit, value);
            break;
        }
    close(r.fd);
    return found;
}

/* ------------------------------------------------------------------------------------------- where the groups are */

/* One hierarchy: where it is mounted, and this process in it. */
typedef struct hierarchy {
    bool is_v2;
    char mount[KVL_PATH_BYTES]; /* with the root before it */
    char path[KVL_PATH_BYTES];  /* below the mount; "" is the mount itself */
} hierarchy;

/* One of the words of a list with commas. */
static bool has_word(const char *list, size_t bytes, const char *word)
{
    size_t n = strlen(word);

    for (const char *end = list + bytes; list < end;) {
        size_t part = (size_t)(end - list);
        const char *comma = memchr(list, ',', part);

        part = comma ? (size_t)(comma - list) : part;
        if (part == n && memcmp(list, word, n) == 0)
            return true;
        list += part + 1;
    }
    return false;
}

/* "4:memory:/path", "0::/path". */
static const char *path_in_line(const char *line, bool v2)
{
    const char *names = strchr(line, ':');
    const char *path = names ? strchr(names + 1, ':') : NULL;

    if (!path || path[1] != '/')
        return NULL;
    bool is_it = v2 ? path == names + 1 && *line == '0' : has_word(names + 1, (size_t)(path - names) - 1, "memory");
    return is_it ? path + 1 : NULL;
}

static bool find_path(const char *root, hierarchy *h)
{
    reader r;
    bool found = false;

    if (!open_reader(&r, root, "proc/self/cgroup"))
        return false;
    while (!found && next_line(&r)) {
        const char *path = path_in_line(r.line, h->is_v2);

        found = path && strlcpy(h->path, path, sizeof h->path) < sizeof h->path;
    }
    close(r.fd);
    return found;
}

/* The part of a line up to the next blank; *rest is behind that. */
static char *next_word(char **rest)
{
    char *word = *rest, *end = word + strcspn(word, " ");

    *rest = *end ? end + 1 : end;
    *end = 0;
    return word;
}

/* "31 23 0:28 /top /sys/fs/cgroup rw shared:9 - cgroup2 none rw": whether it is a mount of this hierarchy. */
static bool parse_mount(char *line, bool v2, char **top, char **mount)
{
    char *kind = strstr(line, " - ");

    if (!kind)
        return false;
    *kind = 0;
    kind += 3;
    char *type = next_word(&kind);
    next_word(&kind); /* the source */
    for (int i = 0; i < 3; i++)
        next_word(&line);
    *top = next_word(&line);
    *mount = next_word(&line);
    if (**mount != '/' || **top != '/')
        return false;
    return v2 ? strcmp(type, "cgroup2") == 0 : strcmp(type, "cgroup") == 0 && has_word(kind, strlen(kind), "memory");
}

/* A mount shows the hierarchy from `top` on. What lies elsewhere cannot be seen there: its root is all there is. */
static void cut_path(hierarchy *h, const char *top)
{
    size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);
    bool inside = strncmp(h->path, top, n) == 0 && (h->path[n] == '/' || !h->path[n]) && !strstr(h->path, "/..");

    if (!inside)
        h->path[0] = 0;
    else
        memmove(h->path, h->path + n, strlen(h->path + n) + 1);
    for (n = strlen(h->path); n && h->path[n - 1] == '/';)
        h->path[--n] = 0;
}

static void find_mount(const char *root, hierarchy *h)
{
    reader r;
    char *top, *mount;
    bool found = false;

    if (open_reader(&r, root, "proc/self/mountinfo")) {
        while (!found && next_line(&r))
            found = parse_mount(r.line, h->is_v2, &top, &mount) && join_path(h->mount, root, mount + 1);
        if (found)
            cut_path(h, top);
        close(r.fd);
    }
    if (found)
        return;
    cut_path(h, "/");
    if (!join_path(h->mount, root, h->is_v2 ? "sys/fs/cgroup" : "sys/fs/cgroup/memory"))
        h->mount[0] = 0;
}

static bool find_hierarchy(const char *root, bool v2, hierarchy *h)
{
    h->is_v2 = v2;
    if (!find_path(root, h))
        return false;
    find_mount(root, h);
    return h->mount[0] != 0;
}

bool kvl_cgroup_dir(const char *root, char dir[KVL_PATH_BYTES])
{
    hierarchy h;

    if (!find_hierarchy(root, true, &h))
        return false;
    return join_path(dir, h.mount, h.path[0] ? h.path + 1 : "");
}

/* ------------------------------------------------------------------------------------------- limits */

/* What the kernel would take from a group before it refuses anything: file pages, those that were read twice too.
 * "Active" says in which order they go, not whether (mm/vmscan.c, shrink_lruvec: the inactive list is refilled from the
 * active one); MemAvailable counts both in the same way (mm/show_mem.c, si_mem_available). These lists hold neither
 * tmpfs and shared memory, which lie with the anonymous pages, nor what is locked, which is on the unevictable list.
 * Dirty pages and those under writeback have to be written first, and a group may run out meanwhile, so they are
 * deducted. */
typedef struct reclaimable {
    uint64_t inactive_file, active_file, dirty, writeback;
} reclaimable;

static const struct {
    const char *v1, *v2;
    size_t offset;
} stat_keys[] = {
    {"total_inactive_file ", "inactive_file ", offsetof(reclaimable, inactive_file)},
    {"total_active_file ", "active_file ", offsetof(reclaimable, active_file)},
    {"total_dirty ", "file_dirty ", offsetof(reclaimable, dirty)},
    {"total_writeback ", "file_writeback ", offsetof(reclaimable, writeback)},
};

static void note_stat(reclaimable *sums, const char *line, bool v2)
{
    uint64_t value;

    for (size_t i = 0; i < sizeof stat_keys / sizeof *stat_keys; i++) {
        const char *key = v2 ? stat_keys[i].v2 : stat_keys[i].v1;

        if (strncmp(line, key, strlen(key)) == 0 && parse_number(line + strlen(key), "", &value))
            memcpy((char *)sums + stat_keys[i].offset, &value, sizeof value);
    }
}

static uint64_t reclaimable_in(const char *dir, bool v2)
{
    reader r;
    reclaimable sums = {0};
    uint64_t clean, unclean;

    if (!open_reader(&r, dir, "memory.stat"))
        return 0;
    while (next_line(&r))
        note_stat(&sums, r.line, v2);
    close(r.fd);
    if (kvl_add_overflows(sums.inactive_file, sums.active_file, &clean) ||
        kvl_add_overflows(sums.dirty, sums.writeback, &unclean))
        return 0;
    return clean - kvl_min(clean, unclean);
}

/* What a group may use more. */
static uint64_t left_below(uint64_t limit, uint64_t used, uint64_t reclaimable_bytes)
{
    used -= kvl_min(used, reclaimable_bytes);
    return limit > used ? limit - used : 0;
}

/* Above `high` a group is not refused but slowed down until it is of no use (cgroup-v2.rst), so it counts like max. */
static uint64_t left_v2(const char *dir)
{
    uint64_t max, high, used;
    uint64_t limit = read_number(dir, "memory.max", &max) ? max : NO_LIMIT;

    limit = read_number(dir, "memory.high", &high) ? kvl_min(limit, high) : limit;
    if (limit == NO_LIMIT || !read_number(dir, "memory.current", &used))
        return NO_LIMIT;
    return left_below(limit, used, reclaimable_in(dir, true));
}

static uint64_t left_v1(const char *dir, bool is_ours)
{
    uint64_t limit, used, counts;

    if (!read_number(dir, "memory.limit_in_bytes", &limit) || limit >= NO_LIMIT_V1 ||
        !read_number(dir, "memory.usage_in_bytes", &used))
        return NO_LIMIT;
    if (!is_ours && read_number(dir, "memory.use_hierarchy", &counts) && !counts)
        return NO_LIMIT; /* before Linux 5.11: not for those below */
    return left_below(limit, used, reclaimable_in(dir, false));
}

/* The tightest of a group and all above it. */
static uint64_t left_in(hierarchy *h)
{
    uint64_t left = NO_LIMIT;
    char dir[KVL_PATH_BYTES];
    char *end = h->path + strlen(h->path);

    for (int i = 0; i < DEPTH_MAX; i++) {
        bool is_top = end == h->path;

        *end = 0;
        if (join_path(dir, h->mount, is_top ? "" : h->path + 1))
            left = kvl_min(left, h->is_v2 ? left_v2(dir) : left_v1(dir, i == 0));
        if (is_top)
            break;
        end = strrchr(h->path, '/');
    }
    return left;
}

uint64_t kvl_headroom_bytes(const char *root)
{
    hierarchy h;
    uint64_t left = NO_LIMIT, kib, bytes;

    if (read_keyed(root, "proc/meminfo", "MemAvailable:", "kB", &kib) && !kvl_mul_overflows(kib, 1024, &bytes))
        left = bytes;
    for (int v2 = 0; v2 < 2; v2++)
        if (find_hierarchy(root, v2, &h))
            left = kvl_min(left, left_in(&h));
    return left == NO_LIMIT ? left : left - left / PAGE_TABLES;
}

/* ------------------------------------------------------------------------------------------- members of the table */

/* Pages of files count as free, for they can be had back; but among them is the code that runs. In a group that is full
 * to its last page the kernel finds nothing to take when this code is wanted again, and ends the process. */
uint64_t kvl_linux_headroom(void *ctx, const char *root)
{
    uint64_t left = kvl_headroom_bytes(root);

    (void)ctx;
    return left == NO_LIMIT ? left : left - kvl_min(left, kvl_min(KEPT_BYTES, left / 16 + KEPT_LEAST_BYTES));
}

/* The only state of the host: one process has one memory, so all its caches count together. */
uint64_t kvl_linux_count(void *ctx, int what, uint64_t change)
{
    static atomic_uint_least64_t sum[KVLAZY_COUNTS];

    (void)ctx;
    return atomic_fetch_add(&sum[what], change) + change;
}

uint64_t kvl_linux_now_ns(void *ctx)
{
    struct timespec t = {0};

    (void)ctx;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
