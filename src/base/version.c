/* SPDX-License-Identifier: MIT */
/* version: the version of the linked library, so that an embedder can compare it with the header's. */
#include "base/base.h"

int kvlazy_version(void)
{
    return KVLAZY_VERSION;
}

const char *kvlazy_version_string(void)
{
    return KVLAZY_VERSION_STRING;
}
