/* SPDX-License-Identifier: MIT */
/*
 * Reads a trace from CSV, strictly: a header that is not the expected one, a missing column, anything that is
 * not a number in range, or a time before the one above it ends the reading with file, line and value. Called
 * once a run; it never repairs or skips a line.
 *
 * The columns are those of the Azure LLM inference traces of 2023 (Patel et al., "Splitwise", ISCA 2024;
 * published by Microsoft Azure under CC-BY 4.0), or those of the Mooncake traces (Qin et al., "Mooncake", FAST 2025;
 * published by kvcache-ai under Apache-2.0) with a column of prefix blocks, so that those can be replayed as they are.
 */
#include "trace.h"

#include "bench.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <bsd/stdlib.h>

#define TRACE_HEADER "TIMESTAMP,ContextTokens,GeneratedTokens"
#define TRACE_BLOCK_HEADER "timestamp_ms,input_length,output_length,hash_ids"

enum {
    TRACE_LINE_MAX = 16384,
    TRACE_BLOCK_ID_MAX = 1 << 21, /* token ids are made of them */
    TRACE_SPAN_DAYS_MAX = 31,
};

/* Where the reader stands, for its messages, and what it must remember from line to line. */
struct reader {
    const char *path;
    size_t line;
    bool dated;     /* timestamps are dates */
    bool has_block; /* the other header: milliseconds, and a column of block ids */
    uint64_t first_us, last_us;
    size_t n_seen;
};

static int reader_error(const struct reader *reader, const char *what, const char *value)
{
    char shown[61];
    size_t n = 0;
    for (; n < sizeof(shown) - 1 && value[n] != '\0'; n++) { /* a file that is no text must not reach the terminal */
        shown[n] = value[n] >= ' ' && value[n] <= '~' ? value[n] : '?';
    }
    shown[n] = '\0';
    return bench_error("%s:%zu: %s: \"%s\"", reader->path, reader->line, what, shown);
}

int trace_append(struct trace *trace, uint64_t arrival_us, uint32_t context_tokens, uint32_t generated_tokens)
{
    if ((trace->n_request & (trace->n_request + 1)) == 0) { /* full at 1, 3, 7, …: room doubles */
        struct request *request = reallocarray(trace->request, 2 * trace->n_request + 2, sizeof(*request));
        if (request == NULL) {
            return bench_error("out of memory for %zu requests", trace->n_request);
        }
        trace->request = request;
    }
    trace->request[trace->n_request++] = (struct request){arrival_us, context_tokens, generated_tokens, trace->n_block};
    return 0;
}

void trace_free(struct trace *trace)
{
    free(trace->request);
    free(trace->block);
    *trace = (struct trace){0};
}

/* Digits after a point as microseconds; further digits are cut. Returns what follows them, or NULL. */
static const char *read_fraction(const char *text, uint64_t *us)
{
    uint64_t unit = 100000;
    if (!isdigit((unsigned char)*text)) {
        return NULL;
    }
    for (; isdigit((unsigned char)*text); text++) {
        *us += unit * (uint64_t)(*text - '0');
        unit /= 10;
    }
    return text;
}

static bool read_date(const char *text, uint64_t *us)
{
    struct tm tm = {0};
    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    const char *rest = strptime(text, "%Y-%m-%d %H:%M:%S", &tm);
    struct tm given = tm;
    if (rest == NULL || tm.tm_year < 70) {
        return false;
    }
    time_t seconds = timegm(&tm); /* moves February 30 to March: then it is not what was given */
    if (seconds < 0 || tm.tm_mday != given.tm_mday || tm.tm_mon != given.tm_mon) {
        return false;
    }
    *us = (uint64_t)seconds * 1000000;
    if (*rest == '.') {
        rest = read_fraction(rest + 1, us);
    }
    return rest != NULL && *rest == '\0';
}

static bool read_seconds(const char *text, uint64_t *us)
{
    char whole[24];
    size_t n_digit = strspn(text, "0123456789");
    const char *why = NULL, *rest = text + n_digit;
    if (n_digit == 0 || n_digit >= sizeof(whole)) {
        return false;
    }
    memcpy(whole, text, n_digit);
    whole[n_digit] = '\0';
    *us = (uint64_t)strtonum(whole, 0, 100000000000LL, &why) * 1000000;
    if (why != NULL) {
        return false;
    }
    if (*rest == '.') {
        rest = read_fraction(rest + 1, us);
    }
    return rest != NULL && *rest == '\0';
}

static int read_time(struct reader *reader, const char *text, uint64_t *us)
{
    if (reader->n_seen == 0 && !reader->has_block) {
        reader->dated = strchr(text, '-') != NULL && text[0] != '-';
    }
    if (!(reader->dated ? read_date(text, us) : read_seconds(text, us))) {
        return reader_error(reader,
                            reader->dated ? "TIMESTAMP is not a date and time (2023-11-16 18:17:03.97)"
                                          : "TIMESTAMP is neither a date and time nor seconds from 0 to 1e11",
                            text);
    }
    if (reader->has_block) {
        *us /= 1000; /* milliseconds stood there */
    }
    if (reader->n_seen == 0) {
        reader->first_us = *us;
    } else if (*us < reader->last_us) {
        return reader_error(reader, "TIMESTAMP lies before that of the line above", text);
    }
    if (*us - reader->first_us > TRACE_SPAN_DAYS_MAX * UINT64_C(86400000000)) {
        return reader_error(reader, "TIMESTAMP lies more than 31 days after the first", text);
    }
    reader->last_us = *us;
    return 0;
}

static int read_tokens(const struct reader *reader, const char *column, const char *text, int least, uint32_t *tokens)
{
    const char *why = NULL;
    bool digits = *text != '\0' && text[strspn(text, "0123456789")] == '\0';
    long long value = strtonum(text, least, INT32_MAX, &why);
    if (why != NULL || !digits) {
        char what[96];
        snprintf(what, sizeof(what), "%s is not a whole number from %d to %d", column, least, INT32_MAX);
        return reader_error(reader, what, text);
    }
    *tokens = (uint32_t)value;
    return 0;
}

/* The ids of the blocks of one context, as many as it takes. */
static int read_blocks(const struct reader *reader, struct trace *trace, char *text, uint32_t context_tokens)
{
    size_t n = 0, n_wanted = (context_tokens + (size_t)TRACE_BLOCK - 1) / TRACE_BLOCK;
    for (char *word; (word = strsep(&text, " ")) != NULL; n++) {
        const char *why = NULL;
        uint32_t id = (uint32_t)strtonum(word, 0, TRACE_BLOCK_ID_MAX, &why);
        if (why != NULL) {
            return reader_error(reader, "hash_ids has what is no whole number up to 2^21", word);
        }
        if (trace->n_block == trace->block_room) {
            size_t room = trace->block_room == 0 ? 1024 : 2 * trace->block_room;
            uint32_t *block = reallocarray(trace->block, room, sizeof(*block));
            if (block == NULL) {
                return bench_error("out of memory for %zu blocks", room);
            }
            trace->block = block;
            trace->block_room = room;
        }
        trace->block[trace->n_block++] = id;
        trace->n_block_id = id + 1 > trace->n_block_id ? id + 1 : trace->n_block_id;
    }
    return n == n_wanted ? 0 : reader_error(reader, "hash_ids has not one id for every 512 tokens", "");
}

static int read_request(struct reader *reader, struct trace *trace, char *line, uint32_t take)
{
    char *column[4] = {line, NULL, NULL, NULL};
    size_t n_column = 1, n_wanted = reader->has_block ? 4 : 3;
    char whole[61];
    snprintf(whole, sizeof(whole), "%s", line);
    for (char *comma = strchr(line, ','); comma != NULL; comma = strchr(comma + 1, ',')) {
        *comma = '\0';
        if (n_column < n_wanted) {
            column[n_column] = comma + 1;
        }
        n_column++;
    }
    if (n_column != n_wanted) {
        return reader_error(reader,
                            n_column < n_wanted
                                ? reader->has_block ? "a column is missing, want 4" : "a column is missing, want 3"
                            : reader->has_block ? "too many columns, want 4"
                                                : "too many columns, want 3",
                            whole);
    }
    uint64_t us = 0;
    uint32_t context_tokens = 0, generated_tokens = 0;
    if (read_time(reader, column[0], &us) != 0 ||
        read_tokens(reader, "ContextTokens", column[1], 1, &context_tokens) != 0 ||
        read_tokens(reader, "GeneratedTokens", column[2], 0, &generated_tokens) != 0) {
        return -1;
    }
    if (reader->n_seen++ % take != 0) {
        return 0;
    }
    if (trace_append(trace, us - reader->first_us, context_tokens, generated_tokens) != 0) {
        return -1;
    }
    return reader->has_block ? read_blocks(reader, trace, column[3], context_tokens) : 0;
}

/* One line without its end; false at the end of the file. */
static int read_line(struct reader *reader, FILE *file, char **line, size_t *room, bool *more)
{
    ssize_t n = getline(line, room, file);
    *more = n >= 0;
    if (n < 0) {
        return ferror(file) ? bench_error("%s: %s", reader->path, strerror(errno)) : 0;
    }
    reader->line++;
    if ((size_t)n != strlen(*line) || n > TRACE_LINE_MAX) {
        return reader_error(reader, "not a line of text", *line);
    }
    (*line)[strcspn(*line, "\r\n")] = '\0';
    return 0;
}

static int read_all(struct reader *reader, struct trace *trace, FILE *file, uint32_t take)
{
    char *line = NULL;
    size_t room = 0;
    bool more = true;
    int status = read_line(reader, file, &line, &room, &more);
    if (status == 0 && !more) {
        status = bench_error("%s:1: the file is empty, want the header \"" TRACE_HEADER "\"", reader->path);
    }
    if (status == 0) {
        const char *header = strncmp(line, "\xef\xbb\xbf", 3) == 0 ? line + 3 : line;
        reader->has_block = strcmp(header, TRACE_BLOCK_HEADER) == 0;
        if (!reader->has_block && strcmp(header, TRACE_HEADER) != 0) {
            status = reader_error(reader, "the header is not " TRACE_HEADER, header);
        }
    }
    size_t empty_line = 0; /* empty lines may end a file, but no request may follow */
    while (status == 0 && more) {
        status = read_line(reader, file, &line, &room, &more);
        if (status != 0 || !more) {
            break;
        }
        if (line[0] == '\0') {
            empty_line = empty_line == 0 ? reader->line : empty_line;
        } else if (empty_line != 0) {
            reader->line = empty_line;
            status = reader_error(reader, "an empty line among the requests", "");
        } else {
            status = read_request(reader, trace, line, take);
        }
    }
    if (status == 0 && trace->n_request == 0) {
        status = bench_error("%s:%zu: no request after the header", reader->path, reader->line + 1);
    }
    free(line);
    return status;
}

int trace_read(struct trace *trace, const char *path, uint32_t take)
{
    struct reader reader = {.path = path};
    FILE *file = fopen(path, "r");
    *trace = (struct trace){0};
    if (file == NULL) {
        return bench_error("%s: %s", path, strerror(errno));
    }
    int status = read_all(&reader, trace, file, take);
    fclose(file);
    trace->n_in_file = reader.n_seen;
    if (status != 0) {
        trace_free(trace);
    }
    return status;
}
