/* SPDX-License-Identifier: MIT */
/* status: names and texts of the status codes, made from the one list in the public header. */
#include "base/base.h"

const char *kvlazy_status_name(int status)
{
    switch (status) {
#define NAME(name, value, text) \
    case value:                 \
        return "KVLAZY_" #name;
        KVLAZY_STATUS_LIST(NAME)
#undef NAME
    }
    return "KVLAZY_?";
}

const char *kvlazy_status_message(int status)
{
    switch (status) {
#define TEXT(name, value, text) \
    case value:                 \
        return text;
        KVLAZY_STATUS_LIST(TEXT)
#undef TEXT
    }
    return "not a kvlazy status";
}
