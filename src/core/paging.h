/* SPDX-License-Identifier: MIT */
/*
 * paging: which pages a new cache is made of. Called once, when a cache is created or planned, before anything is laid
 * out: tensors begin on such pages.
 */
#ifndef KVL_PAGING_H
#define KVL_PAGING_H

#include "base/log.h"
#include "base/params.h"
#include "memory/pace.h"
#include "memory/page.h"

/* Chooses the pages that suit resolved parameters. A line says so where the operator gets smaller ones than were named.
 * Returns KVLAZY_EINVAL with a line, where the host's table names no page. */
int kvl_paging_choose(const kvlazy_params *params, kvl_page *page, kvl_log *log);

/* Returns whether pages are to be made present before they are written: the host can, and it is the cheaper way or the
 * parameters do not leave it open. Where they do, *pacer, which is zero, gets to know what calls may cost. */
bool kvl_paging_commits_ahead(const kvlazy_params *params, kvl_page page, kvl_pacer *pacer);

#endif
