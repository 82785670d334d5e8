/* SPDX-License-Identifier: MIT */
/* See fail_alloc.h. */
#include "fail_alloc.h"

#include <errno.h>
#include <stddef.h>

int alloc_fail_in;
bool alloc_armed, alloc_failed, alloc_stays_failed;

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__real_reallocarray(void *, size_t, size_t);
void *__real_recallocarray(void *, size_t, size_t, size_t);
char *__real_strdup(const char *);
void *__wrap_malloc(size_t);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);
void *__wrap_reallocarray(void *, size_t, size_t);
void *__wrap_recallocarray(void *, size_t, size_t, size_t);
char *__wrap_strdup(const char *);

static bool lose(void)
{
    if (alloc_armed && alloc_failed && alloc_stays_failed) {
        errno = ENOMEM;
        return true;
    }
    if (!alloc_armed || alloc_fail_in <= 0 || --alloc_fail_in > 0)
        return false;
    alloc_failed = true;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return lose() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return lose() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    return lose() ? NULL : __real_realloc(p, size);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
    return lose() ? NULL : __real_reallocarray(p, n, size);
}

void *__wrap_recallocarray(void *p, size_t had, size_t n, size_t size)
{
    return lose() ? NULL : __real_recallocarray(p, had, n, size);
}

char *__wrap_strdup(const char *text)
{
    return lose() ? NULL : __real_strdup(text);
}
