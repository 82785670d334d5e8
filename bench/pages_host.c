/* SPDX-License-Identifier: MIT */
/* The host of the page figures: whether it grants a size, and its setting for 64 KiB, which is put back. */
#include "pages.h"

#include "micro.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTING "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled"

static volatile sig_atomic_t setting_fd = -1;
static char setting_was[16];

static void put_back(void)
{
    int fd = setting_fd;
    setting_fd = -1;
    if (fd >= 0 && write(fd, setting_was, strlen(setting_was)) < 0) {
        static const char why[] = "bench: " SETTING " could not be put back\n";
        ssize_t told = write(STDERR_FILENO, why, sizeof(why) - 1);
        (void)told; /* there is no other place to tell it */
    }
}

static void put_back_and_end(int signal_number)
{
    put_back();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* "always inherit madvise [never]": the word that is in force. */
static int read_setting(int fd)
{
    char text[128];
    ssize_t n = read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = 0;
    const char *begin = strchr(text, '['), *end = begin == NULL ? NULL : strchr(begin, ']');
    if (end == NULL || (size_t)(end - begin) > sizeof(setting_was)) {
        return bench_error(SETTING ": \"%s\" is not understood", text);
    }
    memcpy(setting_was, begin + 1, (size_t)(end - begin - 1));
    return 0;
}

int pages_set_folios(void)
{
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE};
    int fd = open(SETTING, O_RDWR | O_CLOEXEC);
    if (fd < 0 || read_setting(fd) != 0) {
        return fd < 0 ? bench_error(SETTING ": %s", strerror(errno)) : -1;
    }
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        signal(signals[i], put_back_and_end);
    }
    atexit(put_back);
    setting_fd = fd;
    return write(fd, "always", 6) == 6 ? 0 : bench_error(SETTING ": %s", strerror(errno));
}

int pages_granted(uint64_t page_bytes)
{
    kvlazy_layer layer = {.k_row_bytes = 1};
    kvlazy_plan_info plan = {.struct_size = sizeof(plan)};
    kvlazy_params params;
    static bool told;
    char why[160] = "";
    kvlazy_params_init(&params);
    params.kv_size = 1;
    params.layers = &layer;
    params.n_layer = 1;
    params.page_bytes = page_bytes;
    int status = kvlazy_plan(&params, &plan);
    if (status != KVLAZY_OK) {
        return rig_error("kvlazy_plan", status);
    }
    if (plan.page_bytes == page_bytes) {
        return 0;
    }
    if (!told) { /* once is enough */
        kvlazy_mem_host()->why_not_granted(NULL, page_bytes, why, sizeof(why));
    }
    bench_error("pages of %zu KiB are not granted here%s%s", (size_t)(page_bytes >> 10), *why ? ": " : "", why);
    told = told || page_bytes == PAGES_BYTES;
    return 1;
}
