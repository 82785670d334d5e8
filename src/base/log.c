/* SPDX-License-Identifier: MIT */
/* log: see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include <bsd/stdlib.h>
#include <bsd/string.h>

void kvl_log_init(kvl_log *log, const kvlazy_params *params)
{
    memset(log, 0, sizeof *log);
    log->sink = params->log;
    log->ctx = params->log_ctx;
    strlcpy(log->name, params->name ? params->name : "kv", sizeof log->name);
}

void kvl_log_note(kvl_log *log, int level, const char *format, ...)
{
    va_list args;

    if (!log->sink)
        return;
    if (log->n_line == KVL_LOG_LINES) {
        log->n_lost++;
        return;
    }
    kvl_log_line *line = &log->line[log->n_line++];
    int n = snprintf(line->text, sizeof line->text, "%s: ", log->name);
    line->level = level;
    va_start(args, format);
    vsnprintf(line->text + n, sizeof line->text - (size_t)n, format, args);
    va_end(args);
}

void kvl_log_take(kvl_log *log, kvl_log *out)
{
    *out = *log;
    log->n_line = log->n_lost = 0;
}

bool kvl_log_tell_next(kvl_log *log, uint32_t i)
{
    char text[KVL_LOG_LINE_BYTES];

    if (i < log->n_line) {
        log->sink(log->ctx, log->line[i].level, log->line[i].text);
        return true;
    }
    if (i > log->n_line || !log->n_lost)
        return false;
    snprintf(text, sizeof text, "%s: %u more lines not shown", log->name, log->n_lost);
    log->sink(log->ctx, KVLAZY_LOG_INFO, text);
    return true;
}

void kvl_log_tell(kvl_log *log)
{
    for (uint32_t i = 0; kvl_log_tell_next(log, i); i++)
        ;
    log->n_line = log->n_lost = 0;
}

const char *kvl_human(char text[KVL_HUMAN_BYTES], uint64_t bytes)
{
    if (humanize_number(text, KVL_HUMAN_BYTES, (int64_t)kvl_min(bytes, INT64_MAX), "", HN_AUTOSCALE,
                        HN_NOSPACE | HN_B | HN_DECIMAL) < 0)
        strlcpy(text, "?", KVL_HUMAN_BYTES);
    return text;
}
