/* SPDX-License-Identifier: MIT */
/*
 * pages_linux: which pages Linux hands out. No call asks for a size, and the settings that decide are several and
 * differ between kernels. So the kernel is asked by doing: a small mapping, one advice, one byte. Called by mem_linux
 * alone.
 */
#ifndef KVL_PAGES_LINUX_H
#define KVL_PAGES_LINUX_H

#include <kvlazy/mem.h>

/* Members of kvlazy_mem. What is granted the kernel is asked once a process. */
size_t kvl_linux_granted(void *ctx, uint32_t flags);
size_t kvl_linux_huge_page_bytes(void *ctx);
int kvl_linux_keep_small(void *ctx, void *addr, size_t bytes);
int kvl_linux_why_not_granted(void *ctx, size_t page_bytes, char *text, size_t text_bytes);

#endif
