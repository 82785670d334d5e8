/* SPDX-License-Identifier: MIT */
/*
 * fresh: pages that were read before they are written. Reading leaves the host's page of zeros behind, and where one
 * of those lies inside a larger page, no part of that becomes one: each of its parts then costs a fault, and populating
 * does not help. So such pages are given back just before they are committed, by rows alone.
 */
#ifndef KVL_FRESH_H
#define KVL_FRESH_H

#include "memory/arena.h"

/* Returns the most cells whose rows lie on one page. */
uint64_t kvl_fresh_cells(const kvl_geometry *geometry);

/* Gives back the gathered pages of an arena, none of which is touched. Does nothing where such pages may hold bytes of
 * the engine's. What the host refuses only costs time later. */
void kvl_fresh_gathered(const kvl_geometry *geometry, uint32_t arena);

#endif
