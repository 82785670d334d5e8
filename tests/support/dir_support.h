/* SPDX-License-Identifier: MIT */
/* A fixture with a directory as a place for blobs, and how a test reaches its files behind its back. */
#ifndef DIR_SUPPORT_H
#define DIR_SUPPORT_H

#include "store_support.h"

struct place {
    char *path; /* of the directory; made by the setup */
    kvlazy_store_ops ops;
    bool is_open;
    int n_open_files; /* before it was opened */
};

/* The setup makes the directory and opens nothing; the teardown closes the place and wants no descriptor left. */
int place_setup(void **state);
int quick_place_setup(void **state); /* in memory, where it can */
int place_teardown(void **state);
#define PLACE_TEST(f) cmocka_unit_test_setup_teardown(f, place_setup, place_teardown)

void open_place(struct place *p, uint64_t max_bytes); /* must succeed */
void close_place(struct place *p);

/* Whether a directory may be a place: what kvlazy_store_dir answers. And that it may not, with the same answer from
 * both calls, and a reason that has this word in it. */
int try_place(const char *path);
void place_refused(const char *path, int status, const char *word);

/* Where blob i lies; of 8 static buffers in turn. */
const char *blob_path(const struct place *p, uint32_t i);

/* The modification time of a path becomes so long ago; negative: in the future. And back again. */
void set_age(const char *path, double age_s);
double age_of(const char *path);

void write_file(const char *path, const char *text, int mode);

#endif
