/* SPDX-License-Identifier: MIT */
/* version: what the linked library calls itself, so that it can be compared with the header's. */
#include "base/base.h"

int kvlazy_version(void)
{
    return KVLAZY_VERSION;
}

const char *kvlazy_version_string(void)
{
    return KVLAZY_VERSION_STRING;
}
