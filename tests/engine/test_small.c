/* SPDX-License-Identifier: MIT */
/*
 * The small engine of small.c as two processes, one over calloc and one over kvlazy: what they answer and every logit
 * is the same to the bit, and the memory of a conversation comes back while its process sleeps in a read.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
enum { SHADOW_BYTES = 768 << 10 }; /* the sanitizer's own record of bytes that were looked at */
#else
enum { SHADOW_BYTES = 0 };
#endif

enum {
    MESSAGES = 5,
    ANSWER = 20, /* tokens, and letters of an answer */
    ROWS = 700,  /* tokens of all messages and answers */
    VOCAB = 256,
    TOKEN_BYTES = 2 * 8 * 64 * 4, /* of K and V in the blocks */
    KEPT = 64,
    OTHER_BYTES = (256 << 10) + SHADOW_BYTES, /* of a process that are no rows: stacks, the library's own lists */
    MOST_MS = 60000,                          /* for memory to come back on a machine that has other work */
};

typedef struct logits_row {
    int pos;
    float logits[VOCAB];
} logits_row;

typedef struct child {
    pid_t pid;
    int in, out; /* its standard input and output */
    char path[64];
    uint64_t base_bytes; /* resident before it talked much */
    logits_row *row;
    size_t n_row;
} child;

static void start(child *c, const char *kind)
{
    int in[2], out[2];

    snprintf(c->path, sizeof c->path, "/tmp/kvlazy-small-XXXXXX");
    close(mkstemp(c->path));
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (c->pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        execl(SMALL_PATH, SMALL_PATH, kind, c->path, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    c->in = in[1];
    c->out = out[0];
}

static void say(child *c, const char *text, size_t n, char answer[ANSWER + 1])
{
    size_t n_read = 0;

    assert_int_equal(write(c->in, text, n), n);
    while (n_read < ANSWER + 1) {
        const ssize_t n_more = read(c->out, answer + n_read, ANSWER + 1 - n_read);

        assert_true(n_more > 0);
        n_read += (size_t)n_more;
    }
    assert_int_equal(answer[ANSWER], '\n');
}

/* In RAM, of anonymous memory. */
static uint64_t resident_bytes(const child *c)
{
    char path[64], line[128];
    uint64_t n_kib = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", (int)c->pid);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL && sscanf(line, "RssAnon: %" SCNu64, &n_kib) != 1) {
    }
    fclose(file);
    return n_kib * 1024;
}

static void finish(child *c)
{
    FILE *file;
    long n_bytes;
    int status;

    close(c->in);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(c->out);
    file = fopen(c->path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    n_bytes = ftell(file);
    rewind(file);
    c->n_row = (size_t)n_bytes / sizeof *c->row;
    c->row = calloc(c->n_row, sizeof *c->row);
    assert_non_null(c->row);
    assert_int_equal(fread(c->row, sizeof *c->row, c->n_row, file), c->n_row);
    fclose(file);
    unlink(c->path);
}

static uint64_t growth(const child *c)
{
    const uint64_t n_bytes = resident_bytes(c);

    return n_bytes > c->base_bytes ? n_bytes - c->base_bytes : 0;
}

/* The lazy process grew so much less than the plain one, sooner or later, though no request comes. */
static void wait_until_smaller(const child *lazy, const child *plain, uint64_t n_bytes)
{
    for (int ms = 0; growth(lazy) + n_bytes > growth(plain); ms += 10) {
        assert_true(ms < MOST_MS);
        nanosleep(&(struct timespec){0, 10 * 1000000}, NULL);
    }
}

/* Every row of the lazy one is that of the plain one at its position. */
static size_t count_different(const child *lazy, const child *plain)
{
    size_t n = 0;

    for (const logits_row *row = lazy->row; row < lazy->row + lazy->n_row; row++) {
        assert_in_range(row->pos, 0, ROWS - 1);
        n += memcmp(row, &plain->row[row->pos], sizeof *row) != 0;
    }
    return n;
}

static void memory_comes_back_while_it_waits_in_a_read(void **state)
{
    static const size_t length[MESSAGES] = {1, 299, 200, 80, 20}; /* the first is for figures to begin with */
    child lazy = {0}, plain = {0};
    uint32_t n_token = 0;

    (void)state;
    start(&plain, "plain");
    start(&lazy, "lazy");
    for (int i = 0; i < MESSAGES; i++) {
        char text[300], answers[2][ANSWER + 1];

        for (size_t at = 0; at < length[i]; at++) {
            text[at] = (char)(at + 1 < length[i] ? ' ' + (at * at + (size_t)i * 31) % 90 : '\n');
        }
        say(&plain, text, length[i], answers[0]);
        say(&lazy, text, length[i], answers[1]);
        assert_memory_equal(answers[0], answers[1], sizeof *answers);
        n_token += (uint32_t)length[i] + ANSWER;
        if (i == 0) {
            plain.base_bytes = resident_bytes(&plain);
            lazy.base_bytes = resident_bytes(&lazy);
            continue;
        }
        wait_until_smaller(&lazy, &plain, (uint64_t)(n_token - KEPT) * TOKEN_BYTES - OTHER_BYTES);
    }
    assert_int_equal(n_token, ROWS);
    finish(&plain);
    finish(&lazy);
    print_message("%u logit rows, computed %zu times with kvlazy, of which %zu differ\n", n_token, lazy.n_row,
                  count_different(&lazy, &plain));
    assert_int_equal(plain.n_row, ROWS);
    assert_true(lazy.n_row > ROWS); /* what went came again */
    assert_int_equal(count_different(&lazy, &plain), 0);
    for (uint32_t pos = 0; pos < ROWS; pos++) {
        assert_int_equal(plain.row[pos].pos, pos);
    }
    free(lazy.row);
    free(plain.row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_comes_back_while_it_waits_in_a_read),
    };

    signal(SIGPIPE, SIG_IGN); /* a process that is gone is told by the write */
    return cmocka_run_group_tests_name("small", tests, NULL, NULL);
}
