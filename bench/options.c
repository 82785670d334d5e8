/* SPDX-License-Identifier: MIT */
/*
 * The command line of the bench: defaults, ranges and --help. Called once by main.c. Every number is checked
 * here, so nothing behind it has to.
 */
#include "bench.h"

#include <kvlazy/kvlazy.h>

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bsd/stdlib.h>

static const char help_options[] =
    "usage: bench/run [OPTION...]\n"
    "       bench/run cells [--keys]\n"
    "       bench/run tensors [--keys]\n"
    "       bench/run idle [--keys]\n"
    "       bench/run scale [--keys]\n"
    "       bench/run state [--keys] [--state MIB]\n"
    "       bench/run store [--keys] [--store MIB]\n"
    "       bench/run fleet [--keys] [--trace FILE] [--store MIB]\n"
    "       bench/run pages [--keys] [--set-folios]\n"
    "\n"
    "Replays requests against the slots of an inference server, on a virtual clock, and shows where K/V memory\n"
    "goes under five policies: eager (cleared when created), demand (touched on use, never returned), seed (grows\n"
    "by powers of two, shrinks when the next request comes), kvlazy, and kvlazy+store, with a prefix store that a\n"
    "request is loaded from when it takes its slot, and saved to when it ends. Prints the micro figures and the "
    "memory\n"
    "table, and draws resident memory over time. Rows are really written; figures are measured in this run.\n"
    "\n"
    "  --trace FILE      CSV with the columns TIMESTAMP,ContextTokens,GeneratedTokens; TIMESTAMP is\n"
    "                    \"2023-11-16 18:17:03.97\" or seconds. Default: a built-in trace of 45 minutes. Or with\n"
    "                    the columns timestamp_ms,input_length,output_length,hash_ids: ids of blocks of 512 tokens\n"
    "                    in the last one say which prefixes are equal, and --shared says nothing\n"
    "  --take 1/N        only every N-th request: a cluster's trace thinned to one machine (1/1)\n"
    "  --plot FILE       where the PNG goes (build/bench/memory.png; with --keys: none)\n"
    "  --keys            one key=value per line on stdout and nothing else. Without --trace no trace_* keys\n"
    "  --no-micro        leave the micro figures out\n"
    "  --no-replay       leave the replay out\n"
    "  --help\n"
    "\n"
    "The replayed server:\n"
    "  --prefill N       tokens per second (1000)      --decode N    tokens per second and slot (30)\n"
    "  --slots N         slots, a stream each (2)      --kv-size N   cells per stream (8192)\n"
    "  --initial N       cells that stay, idle (256)   --idle S      seconds until a slot is idle (30)\n"
    "  --layers N        (28)                          --row-bytes N of a cell's K, and of its V, a layer (2048)\n"
    "  --ubatch N        tokens at most (512)          --shared N    prompt tokens that are the same in every\n"
    "                                                  request, a system prompt (512)\n"
    "  --seed-clock cache|slot   what the seed policy takes for idle: no batch anywhere for the idle time (cache,\n"
    "                    the default), or none in the slot that the next request goes to\n"
    "\n"
    "Of the kvlazy policy alone, the model does not follow them:\n"
    "  --flag NAME       shrink-at-init, huge-pages, no-commit-ahead; again for another\n"
    "  --shrink tails|whole|keep  what idle conversations lose (tails)\n"
    "  --keep N          positions that are never evicted (0)\n"
    "  --warm MIB        free pages that stay for the next prompt (0)\n"
    "  --block N         tokens of a block of kvlazy+store, 16 to 256 (64)\n"
    "  --budget MIB      ceiling for touched memory (0: none). What is refused then drops the slot that has rested\n"
    "                    longest and is tried again\n"
    "  --page-bytes KIB  pages of that size, if the host grants them (the host's own; 0: what the library takes)\n"
    "  --poll told|never|MS  when kvlazy_poll is called between steps (told: when the last one said)\n"
    "\n";

static const char help_words[] =
    "Requests wait for a slot; the one that has rested longest takes the next. Contexts are cut to kv-size - 1100. A\n"
    "slot keeps what it holds until its next request, which reuses what is left of the tokens they share. Where the\n"
    "trace has hash_ids, a slot that had at least half of the prompt goes before one that has rested longer.\n"
    "\n"
    "Columns: average, peak and end are resident MiB (end: after two idle times of silence). \"first token\" is the\n"
    "memory work before it, per request: wall time of all calls to the policy from the request's begin to the end of\n"
    "its prefill, page faults, clearing and the row writes themselves included, waiting and create left out.\n"
    "\"recomputed\" counts tokens of prompts that some slot computed before and that were computed again,\n"
    "\"prefilled\" is the part of all tokens of prompts that was computed. The store of kvlazy+store is in memory and\n"
    "saves the whole blocks of a request and its answer.\n"
    "\n"
    "cells: what the operations on cells cost beside a baseline of sets and maps per cell (ordered trees), what a\n"
    "mask costs beside memset of its bytes, and the bytes of metadata a cell.\n"
    "\n"
    "tensors: what layouts of K and V (f16, q8_0, q4_0, V transposed) keep resident beside the pages of their rows,\n"
    "what fresh pages cost a prefill and decode, committed ahead and by faults, what giving back costs beside one\n"
    "madvise, and what an engine keeps that appends above a hole or writes rows that it did not touch. Ratios of\n"
    "times are of medians, the ways taken in turn.\n"
    "\n"
    "idle: what the idle side gives back, when, and at what price for the hooks: memory after many short requests,\n"
    "time from the last token to memory back, what a hook waits that comes into a release or a compaction, system\n"
    "calls of a load that swings, and budgets across caches under threads.\n"
    "\n"
    "scale: what many sequences, shared prefixes, full windows, streams and layers cost, as the ratio of two sizes\n"
    "four apart, and the bytes of the library's own bookkeeping.\n"
    "\n"
    "state: what a conversation costs that is written out and read back, beside memcpy of its bytes into pages as\n"
    "fresh and beside a plain write to a file, of --state MiB of rows (1024); what a hook waits meanwhile, whether\n"
    "anything else changes, and whether the reference engine goes on with the same bits.\n"
    "\n"
    "store: what a prefix costs that is saved to a directory and loaded, cold, beside a plain write that is flushed\n"
    "and a plain read, of --store MiB of rows (1024); what a hook waits meanwhile, what stays in the page cache, how\n"
    "long a directory of 10,000 blobs takes to open, and whether the reference engine goes on with the same bits.\n"
    "\n"
    "fleet: four engine processes, each with a cache of its own (2 slots of 16384 cells, 4 layers of rows of 256\n"
    "bytes, whatever the options say), one Redis server on a Unix socket, which the bench starts and ends. The\n"
    "requests of a trace with hash_ids are dealt out to them at random, always in the same way: the part of all\n"
    "tokens of prompts that is computed, with the server in common, with a store for each alone, and without one. And\n"
    "what saving and loading cost through the server, beside hiredis alone with the same bytes, of --store MiB of\n"
    "rows (256); what calls take of which the server hangs; and how many rows were wrong in all of it.\n"
    "\n"
    "pages: what pages of 64 KiB cost, keep and give back beside those of 4 KiB, where the host grants them.\n"
    "--set-folios (root) switches them on for the run and puts the setting back, also when the run is interrupted.\n"
    "For one figure a process takes all free memory for some seconds.\n"
    "\n"
    "With the name of a part nothing else is measured. The micro figures are of the default geometry whatever the\n"
    "options say.\n"
    "Public traces of this form: Azure LLM inference traces 2023, AzurePublicDataset, CC-BY 4.0 (Patel\n"
    "et al., Splitwise, ISCA 2024); Mooncake traces, kvcache-ai/Mooncake, Apache-2.0 (Qin et al., FAST 2025), their\n"
    "hash_ids as one column. Exit: 0; 1 when something failed; 2 for a bad option or trace.\n";

void bench_config_default(struct bench_config *config)
{
    *config = (struct bench_config){
        .data_dir = ".",
        .micro = true,
        .replay = true,
        .take = 1,
        .n_slot = 2,
        .kv_size = 8192,
        .kv_initial = 256,
        .idle_ms = 30000,
        .n_layer = 28,
        .row_bytes = 2048,
        .ubatch_tokens = 512,
        .shared_tokens = 512,
        .prefill_per_s = 1000,
        .decode_per_s = 30,
        .shrink = KVLAZY_SHRINK_TAILS,
        .page_bytes = bench_page_bytes(),
        .block_tokens = 64,
    };
}

enum {
    OPTION_TRACE = 256,
    OPTION_TAKE,
    OPTION_PLOT,
    OPTION_DATA_DIR,
    OPTION_KEYS,
    OPTION_NO_MICRO,
    OPTION_NO_REPLAY,
    OPTION_HELP,
    OPTION_PREFILL,
    OPTION_DECODE,
    OPTION_SLOTS,
    OPTION_KV_SIZE,
    OPTION_INITIAL,
    OPTION_IDLE,
    OPTION_LAYERS,
    OPTION_ROW_BYTES,
    OPTION_UBATCH,
    OPTION_SHARED,
    OPTION_SEED_CLOCK,
    OPTION_FLAG,
    OPTION_SHRINK,
    OPTION_KEEP,
    OPTION_WARM,
    OPTION_BLOCK,
    OPTION_BUDGET,
    OPTION_POLL,
    OPTION_PAGE_BYTES,
    OPTION_SET_FOLIOS,
    OPTION_STATE,
    OPTION_STORE,
};

static const struct option options[] = {
    {"trace", required_argument, NULL, OPTION_TRACE},
    {"take", required_argument, NULL, OPTION_TAKE},
    {"plot", required_argument, NULL, OPTION_PLOT},
    {"data-dir", required_argument, NULL, OPTION_DATA_DIR}, /* bench/run says it */
    {"keys", no_argument, NULL, OPTION_KEYS},
    {"no-micro", no_argument, NULL, OPTION_NO_MICRO},
    {"no-replay", no_argument, NULL, OPTION_NO_REPLAY},
    {"help", no_argument, NULL, OPTION_HELP},
    {"prefill", required_argument, NULL, OPTION_PREFILL},
    {"decode", required_argument, NULL, OPTION_DECODE},
    {"slots", required_argument, NULL, OPTION_SLOTS},
    {"kv-size", required_argument, NULL, OPTION_KV_SIZE},
    {"initial", required_argument, NULL, OPTION_INITIAL},
    {"idle", required_argument, NULL, OPTION_IDLE},
    {"layers", required_argument, NULL, OPTION_LAYERS},
    {"row-bytes", required_argument, NULL, OPTION_ROW_BYTES},
    {"ubatch", required_argument, NULL, OPTION_UBATCH},
    {"shared", required_argument, NULL, OPTION_SHARED},
    {"seed-clock", required_argument, NULL, OPTION_SEED_CLOCK},
    {"flag", required_argument, NULL, OPTION_FLAG},
    {"shrink", required_argument, NULL, OPTION_SHRINK},
    {"keep", required_argument, NULL, OPTION_KEEP},
    {"warm", required_argument, NULL, OPTION_WARM},
    {"block", required_argument, NULL, OPTION_BLOCK},
    {"budget", required_argument, NULL, OPTION_BUDGET},
    {"poll", required_argument, NULL, OPTION_POLL},
    {"page-bytes", required_argument, NULL, OPTION_PAGE_BYTES},
    {"set-folios", no_argument, NULL, OPTION_SET_FOLIOS},
    {"state", required_argument, NULL, OPTION_STATE},
    {"store", required_argument, NULL, OPTION_STORE},
    {NULL, 0, NULL, 0},
};

static const char *option_name(int value)
{
    for (const struct option *option = options; option->name != NULL; option++) {
        if (option->val == value) {
            return option->name;
        }
    }
    return "?";
}

static uint32_t read_number(int option, const char *text, long long low, long long high)
{
    const char *why = NULL;
    long long value = strtonum(text, low, high, &why);
    if (why != NULL) {
        fprintf(stderr, "bench: --%s %s: %s, want a whole number from %lld to %lld\n", option_name(option), text, why,
                low, high);
        exit(2);
    }
    return (uint32_t)value;
}

static uint32_t read_take(const char *text)
{
    if (strncmp(text, "1/", 2) != 0) {
        fprintf(stderr, "bench: --take %s: want 1/N\n", text);
        exit(2);
    }
    return read_number(OPTION_TAKE, text + 2, 1, 1000000000);
}

struct word {
    const char *name;
    int value;
};
static const struct word flag_words[] = {{"shrink-at-init", KVLAZY_SHRINK_AT_INIT},
                                         {"huge-pages", KVLAZY_HUGE_PAGES},
                                         {"no-commit-ahead", KVLAZY_NO_COMMIT_AHEAD},
                                         {NULL, 0}};
static const struct word shrink_words[] = {
    {"tails", KVLAZY_SHRINK_TAILS}, {"whole", KVLAZY_SHRINK_WHOLE}, {"keep", KVLAZY_SHRINK_KEEP}, {NULL, 0}};

static int read_word(int option, const char *text, const struct word *word)
{
    for (const struct word *w = word; w->name != NULL; w++) {
        if (strcmp(text, w->name) == 0) {
            return w->value;
        }
    }
    fprintf(stderr, "bench: --%s %s: want", option_name(option), text);
    for (; word->name != NULL; word++) {
        fprintf(stderr, " %s", word->name);
    }
    fputc('\n', stderr);
    exit(2);
}

static uint32_t read_poll(const char *text)
{
    if (strcmp(text, "told") == 0) {
        return 0;
    }
    return strcmp(text, "never") == 0 ? BENCH_POLL_NEVER : read_number(OPTION_POLL, text, 1, 86400000);
}

static void read_option(struct bench_config *config, int option, const char *text)
{
    switch (option) {
    case OPTION_TRACE:
        config->trace_path = text;
        break;
    case OPTION_TAKE:
        config->take = read_take(text);
        break;
    case OPTION_PLOT:
        config->plot_path = text;
        break;
    case OPTION_DATA_DIR:
        config->data_dir = text;
        break;
    case OPTION_KEYS:
        config->keys = true;
        break;
    case OPTION_NO_MICRO:
        config->micro = false;
        break;
    case OPTION_NO_REPLAY:
        config->replay = false;
        break;
    case OPTION_HELP:
        fputs(help_options, stdout);
        fputs(help_words, stdout);
        exit(0);
    case OPTION_PREFILL:
        config->prefill_per_s = read_number(option, text, 1, 1000000);
        break;
    case OPTION_DECODE:
        config->decode_per_s = read_number(option, text, 1, 1000000);
        break;
    case OPTION_SLOTS:
        config->n_slot = read_number(option, text, 1, 1024);
        break;
    case OPTION_KV_SIZE:
        config->kv_size = read_number(option, text, 2048, 16 << 20);
        break;
    case OPTION_INITIAL:
        config->kv_initial = read_number(option, text, 0, 16 << 20);
        break;
    case OPTION_IDLE:
        config->idle_ms = 1000 * read_number(option, text, 0, 86400);
        break;
    case OPTION_LAYERS:
        config->n_layer = read_number(option, text, 1, 256);
        break;
    case OPTION_ROW_BYTES:
        config->row_bytes = read_number(option, text, 1, 1 << 20);
        break;
    case OPTION_UBATCH:
        config->ubatch_tokens = read_number(option, text, 1, 65536);
        break;
    case OPTION_SHARED:
        config->shared_tokens = read_number(option, text, 0, 16 << 20);
        break;
    case OPTION_SEED_CLOCK:
        if (strcmp(text, "cache") != 0 && strcmp(text, "slot") != 0) {
            fprintf(stderr, "bench: --seed-clock %s: want cache or slot\n", text);
            exit(2);
        }
        config->seed_slot_clock = strcmp(text, "slot") == 0;
        break;
    case OPTION_FLAG:
        config->flags |= (uint32_t)read_word(option, text, flag_words);
        break;
    case OPTION_SHRINK:
        config->shrink = read_word(option, text, shrink_words);
        break;
    case OPTION_WARM:
        config->warm_bytes = (uint64_t)read_number(option, text, 0, 1 << 24) << 20;
        break;
    case OPTION_BLOCK:
        config->block_tokens = read_number(option, text, 16, 256);
        break;
    case OPTION_KEEP:
        config->keep_tokens = read_number(option, text, 0, 16 << 20);
        break;
    case OPTION_BUDGET:
        config->budget_bytes = (uint64_t)read_number(option, text, 0, 1 << 24) << 20;
        break;
    case OPTION_POLL:
        config->poll_ms = read_poll(text);
        break;
    case OPTION_PAGE_BYTES:
        config->page_bytes = (uint64_t)read_number(option, text, 0, 1 << 20) << 10;
        break;
    case OPTION_SET_FOLIOS:
        config->set_folios = true;
        break;
    case OPTION_STATE:
        config->state_bytes = (uint64_t)read_number(option, text, 8, 1 << 20) << 20;
        break;
    case OPTION_STORE:
        config->store_bytes = (uint64_t)read_number(option, text, 8, 1 << 20) << 20;
        break;
    default: /* getopt said what was wrong */
        fprintf(stderr, "bench: see bench/run --help\n");
        exit(2);
    }
}

void bench_config_parse(struct bench_config *config, int argc, char **argv)
{
    static char name[] = "bench"; /* getopt begins its messages with it */
    int option;
    bench_config_default(config);
    argv[0] = name;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        read_option(config, option, optarg);
    }
    if (optind < argc && bench_is_part(argv[optind])) {
        config->part = argv[optind++];
    }
    if (optind < argc) {
        fprintf(stderr, "bench: %s: not an option; see bench/run --help\n", argv[optind]);
        exit(2);
    }
    if (config->part != NULL) {
        config->micro = config->replay = false;
        config->trace_path = strcmp(config->part, "fleet") == 0 ? config->trace_path : NULL;
    }
    if (config->keys && config->trace_path == NULL) {
        config->replay = false;
    }
    if (!config->replay) {
        config->plot_path = NULL;
    } else if (config->plot_path == NULL && !config->keys) {
        static char default_path[4096];
        snprintf(default_path, sizeof(default_path), "%s/memory.png", config->data_dir);
        config->plot_path = default_path;
    }
}
