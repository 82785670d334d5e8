/* SPDX-License-Identifier: MIT */
/* Statuses by name: fails the test unless a call answers one, and says both. */
#ifndef EXPECT_H
#define EXPECT_H

#include <kvlazy/kvlazy.h>

#define expect(call, status) expect_status((call), (status), #call, __FILE__, __LINE__)
#define ok(call) expect(call, KVLAZY_OK)
void expect_status(int got, int want, const char *call, const char *file, int line);

#endif
