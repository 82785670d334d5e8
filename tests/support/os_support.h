/* SPDX-License-Identifier: MIT */
/*
 * What tests over the real kernel share: a rig whose cache has the host's own memory, and what /proc says of this
 * process. The clock is the only member of the host's table that is replaced.
 */
#ifndef OS_SUPPORT_H
#define OS_SUPPORT_H

#include "support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* A cache of the host's own memory: 4 layers, 2 streams. open_host is use_host and rig_open. */
void use_host(struct rig *r, uint32_t kv_size);
void open_host(struct rig *r, uint32_t kv_size);

/* Returns the bytes of its tensors in RAM, by mincore, and fails the test if kvlazy_resident says otherwise. */
uint64_t resident(struct rig *r);

/* What the kernel says of the mapping in which the first tensor begins. */
struct mapping {
    uintptr_t begin, end;
    uint64_t rss_bytes, huge_bytes;
    bool named;
    char flags[512]; /* " rd wr mr mw me ac dd nh " */
};

/* Skips the test where the kernel does not tell of mappings. */
struct mapping mapping_of(struct rig *r);
bool has(const struct mapping *m, const char *flag);

/* Lines of /proc/self/maps with any of these addresses; those of all tensors. Skips the test where there are none. */
int map_lines(uintptr_t begin, uintptr_t end);
int map_lines_of(struct rig *r);

/* "VmData:" of this process, in bytes. */
uint64_t proc_status(const char *name);

/* Batches, holes and a release: resident is what is touched, and that what is live, before and after. */
void serve(struct rig *r);

/* A test in a process of its own, so that it may limit itself. 0: it passed or was skipped. */
int run_in_child(const struct CMUnitTest *test);

/* Locks pages without mlock(), which sanitizers make a no-op. */
bool lock_pages(void *at, size_t bytes);

#endif
