/* SPDX-License-Identifier: MIT */
/*
 * The figures of `bench/run fleet`: several engines with one Redis server in common. What their prompts cost them
 * together, what the server costs beside hiredis alone, what a server that hangs costs, and whether any row was wrong.
 * fleet_server.c is the server: of this run's own, on a Unix socket, ended with the bench. Without hiredis fleet_none.c
 * says that it is missing.
 */
#ifndef BENCH_FLEET_H
#define BENCH_FLEET_H

#include "report.h"

#include <kvlazy/store_ops.h>

#include <sys/types.h>

struct fleet_server {
    char dir[64], socket[96];
    pid_t pid; /* 0: none runs */
};

/** 0; -1; or 1 where there is no redis-server, or not so much memory. fleet_server_end in any case. */
int fleet_server_start(struct fleet_server *server, uint64_t max_bytes);
void fleet_server_end(struct fleet_server *server);
/** It is there and says nothing; and goes on. */
int fleet_server_hang(struct fleet_server *server);
int fleet_server_go_on(struct fleet_server *server);
/** All that it has goes. 0 or -1. */
int fleet_server_empty(const struct fleet_server *server);
/** A place for blobs on it. 0 or -1. For struct bench_fleet too. */
int fleet_place(void *server, kvlazy_store_ops *ops);

/** Rows that were compared, and those that were not as they should be: counted here, told by fleet_rows. */
void fleet_note_rows(uint64_t n_row, uint64_t n_wrong);

/** One figure each group: 0, -1, or 1 when this machine does not allow it. */
int fleet_serve(const struct bench_config *config);
int fleet_speed(const struct bench_config *config);
int fleet_hung(const struct bench_config *config);
int fleet_rows(const struct bench_config *config);

#endif
