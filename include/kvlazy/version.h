/* SPDX-License-Identifier: MIT */
/* kvlazy/version.h: which kvlazy this is, at compile time and at run time. */
#ifndef KVLAZY_VERSION_H
#define KVLAZY_VERSION_H

#define KVLAZY_VERSION_MAJOR 0
#define KVLAZY_VERSION_MINOR 1
#define KVLAZY_VERSION_PATCH 0
#define KVLAZY_VERSION_STRING "0.1.0"

/* major · 10000 + minor · 100 + patch, so that two versions compare as numbers */
#define KVLAZY_VERSION (KVLAZY_VERSION_MAJOR * 10000 + KVLAZY_VERSION_MINOR * 100 + KVLAZY_VERSION_PATCH)

#ifndef KVLAZY_API
#if defined(__GNUC__)
#define KVLAZY_API __attribute__((visibility("default")))
#else
#define KVLAZY_API
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** The version of the library that is linked, as KVLAZY_VERSION; compare it with the header's. */
KVLAZY_API int kvlazy_version(void);
/** The same as text, "0.1.0". Never NULL. */
KVLAZY_API const char *kvlazy_version_string(void);

#ifdef __cplusplus
}
#endif

#endif
