/* SPDX-License-Identifier: MIT */
/*
 * What tests of places for blobs share: blobs whose bytes follow from their number, put and got whole;
 * what this process has open.
 */
#ifndef STORE_SUPPORT_H
#define STORE_SUPPORT_H

#include "unit.h"

#include <stdbool.h>

#include <kvlazy/store_ops.h>

#include "tree_support.h"

/* A different name for every number, in one of four directories. Static storage, 8 of them in turn. */
const uint8_t *blob_name(uint32_t i);

/* Byte `at` of blob i. */
uint8_t blob_byte(uint32_t i, uint64_t at);

/* Written in pieces of `step` bytes. 0, or the first errno value of open, write or close. */
int put_steps(kvlazy_store_ops *ops, uint32_t i, size_t bytes, size_t step);
int put_blob(kvlazy_store_ops *ops, uint32_t i, size_t bytes);

/* Opened, or the test fails; the first n bytes written. */
void *begin_put(kvlazy_store_ops *ops, uint32_t i, size_t bytes, size_t n);

/* Read in pieces of `step` bytes and compared: a wrong byte fails the test. 0, or the first errno value. */
int get_steps(kvlazy_store_ops *ops, uint32_t i, size_t bytes, size_t step);
int get_blob(kvlazy_store_ops *ops, uint32_t i, size_t bytes);

/* What `has` says, which must be 0. */
bool has_blob(kvlazy_store_ops *ops, uint32_t i);
void touch(kvlazy_store_ops *ops, uint32_t n, const uint32_t *i);
void drop(kvlazy_store_ops *ops, uint32_t i);

/* Pages of a file in the page cache; -1: the kernel does not tell. */
long cached_pages(const char *path);

int n_open_files(void); /* of this process */

#endif
