/* SPDX-License-Identifier: MIT */
/*
 * engine_script: what the conversations of a session say and in which order. engine_session.c runs it step by
 * step. The steps are data: growth well past kv_size_initial, slots that take turns and slots that share a batch,
 * reused and shared prefixes, context shifts, failures in the model, idle times that cost tokens, and their return,
 * neighbours that move when one goes. It decides nothing.
 */
#include "engine_session.h"

const char engine_text[] =
    "You look after the tide gauge at the end of the old pier. Answer in whole sentences, give every height in "
    "centimetres above the chart datum, and say so when a reading is missing instead of guessing it.\n\n"
    "The gauge stands in a tarred wooden hut hardly wider than a wardrobe. A copper float rides in a pipe below "
    "the floor, out of reach of the waves, and a steel wire carries its rise and fall over a wheel to a pen. The "
    "pen draws one line on a drum of paper that turns once a day, and whoever comes in the morning winds the "
    "clock, writes the date in the corner and hangs yesterday's sheet on a nail with the others. Nobody ever "
    "throws a sheet away while it may still be asked for; but the hut is small, and so each spring the bundle "
    "that no one has opened since the autumn goes up to the harbour office, and the nail is free again.\n\n"
    "On most days the line is a slow and even swell, two crests and two troughs, a little later than the day "
    "before. Now and then the wind leans on the bay for a night and the pen climbs where it should fall, draws a "
    "blunt shoulder, and comes down in small steps as if it were looking for the stairs in the dark. Those are "
    "the sheets that people come for. They ask how high, how long, how fast it went; they lay a ruler across "
    "the paper and copy five numbers into a notebook, and the keeper, who was there, looks on and says nothing, "
    "since the line has already said it.\n\n"
    "When was the highest water of the week, and how far did it stand above the quay?\n";

const uint32_t engine_text_length = sizeof engine_text - 1;

#define ALL 0xfu

const engine_step engine_script[] = {
    /* A long conversation grows well past what idle ones may keep; two more join it. */
    {ENGINE_PROMPT, .slots = 1u << 0, .a = 0, .n_a = 700, .expect = ENGINE_GREW},
    {ENGINE_DECODE, .slots = 1u << 0, .n = 20, .ms = 50},
    {ENGINE_PROMPT, .slots = 1u << 1, .a = 0, .n_a = 200, .b = 900, .n_b = 200, .expect = ENGINE_GREW},
    {ENGINE_DECODE, .slots = 1u << 0 | 1u << 1, .n = 10, .ms = 50},
    {ENGINE_PROMPT, .slots = 1u << 2, .a = 700, .n_a = 60},
    {ENGINE_DECODE, .slots = 1u << 2 | 1u << 0 | 1u << 1, .n = 5, .ms = 50},

    /* The next question keeps the first 500 tokens of the last one. */
    {ENGINE_PROMPT, .slots = 1u << 0, .a = 0, .n_a = 500, .b = 1200, .n_b = 100, .expect = ENGINE_REUSED},
    {ENGINE_DECODE, .slots = 1u << 0 | 1u << 1, .n = 4, .ms = 50},

    /* The fourth ubatch fails once and is tried again in the middle of its batch; later one fails twice. */
    {ENGINE_BREAK, .a = 3, .n = 1},
    {ENGINE_PROMPT, .slots = 1u << 3, .a = 300, .n_a = 300, .expect = ENGINE_UNDONE},
    {ENGINE_BREAK, .a = 1, .n = 2},
    {ENGINE_PROMPT, .slots = 1u << 3, .a = 300, .n_a = 300, .b = 100, .n_b = 90,
     .expect = ENGINE_UNDONE | ENGINE_FAILED | ENGINE_REUSED},
    {ENGINE_BREAK, .a = 0, .n = 1},
    {ENGINE_DECODE, .slots = ALL, .n = 3, .ms = 50, .expect = ENGINE_UNDONE},
    {ENGINE_DROP, .slots = 1u << 2},

    /* A quiet minute costs tokens. Decode finds out by being refused, a prompt by asking. */
    {ENGINE_IDLE, .ms = 60000, .expect = ENGINE_EVICTED | ENGINE_RELEASED},
    {ENGINE_DECODE, .slots = 1u << 0, .n = 4, .ms = 50, .expect = ENGINE_REFUSED | ENGINE_RECOMPUTED | ENGINE_GREW},
    {ENGINE_PROMPT, .slots = 1u << 1, .a = 0, .n_a = 200, .b = 900, .n_b = 260, .expect = ENGINE_RECOMPUTED},
    {ENGINE_PROMPT, .slots = 1u << 3, .a = 300, .n_a = 300, .expect = ENGINE_RECOMPUTED},
    {ENGINE_PROMPT, .slots = 1u << 2, .a = 40, .n_a = 300},

    /* One slot talks on, slowly, while the others idle and are cut behind its back. */
    {ENGINE_DECODE, .slots = 1u << 0, .n = 60, .ms = 1000, .expect = ENGINE_EVICTED | ENGINE_IF_BUSY},
    {ENGINE_DECODE, .slots = ALL, .n = 3, .ms = 50, .expect = ENGINE_REFUSED | ENGINE_RECOMPUTED | ENGINE_IF_BUSY},

    /* Dropped in the middle, so that the next ones fill the holes; then the free pages decay under a busy slot. */
    {ENGINE_DROP, .slots = 1u << 1},
    {ENGINE_PROMPT, .slots = 1u << 2, .a = 40, .n_a = 300, .b = 800, .n_b = 350, .expect = ENGINE_REUSED},
    {ENGINE_PROMPT, .slots = 1u << 1, .a = 1000, .n_a = 90},
    {ENGINE_DECODE, .slots = 1u << 1 | 1u << 2 | 1u << 3, .n = 6, .ms = 50},
    {ENGINE_DROP, .slots = 1u << 0 | 1u << 2},
    {ENGINE_DECODE, .slots = 1u << 1, .n = 60, .ms = 1000, .expect = ENGINE_RELEASED},

    /* Two slots start with what a third one holds, go their own ways, and are cut together. */
    {ENGINE_PROMPT, .slots = 1u << 0, .a = 0, .n_a = 400, .expect = ENGINE_GREW},
    {ENGINE_PROMPT, .slots = 1u << 2 | 1u << 3, .a = 0, .n_a = 350, .b = 1000, .n_b = 40, .from = 1 + 0,
     .expect = ENGINE_REUSED},
    {ENGINE_DECODE, .slots = 1u << 0 | 1u << 2 | 1u << 3, .n = 4, .ms = 50},
    {ENGINE_DROP, .slots = 1u << 0},
    {ENGINE_DECODE, .slots = 1u << 3, .n = 40, .ms = 1000, .expect = ENGINE_RELEASED},
    {ENGINE_IDLE, .ms = 60000, .expect = ENGINE_EVICTED},
    {ENGINE_PROMPT, .slots = 1u << 0, .a = 0, .n_a = 300, .from = 1 + 3, .expect = ENGINE_REUSED},
    {ENGINE_DECODE, .slots = 1u << 0 | 1u << 2 | 1u << 3, .n = 4, .ms = 50, .expect = ENGINE_RECOMPUTED},

    /* The middle of one goes, and the next ones use its cells. */
    {ENGINE_SHIFT, .slots = 1u << 3, .a = 360, .n = 30},
    {ENGINE_DECODE, .slots = 1u << 0 | 1u << 3, .n = 20, .ms = 50},
    {ENGINE_SHIFT, .slots = 1u << 3, .a = 355, .n = 17},
    {ENGINE_PROMPT, .slots = 1u << 1, .a = 200, .n_a = 100},
    {ENGINE_DECODE, .slots = ALL, .n = 10, .ms = 50},

    /* Holes are closed at once, then tokens go too, and come again. */
    {ENGINE_SHIFT, .slots = 1u << 3, .a = 355, .n = 12},
    {ENGINE_DROP, .slots = 1u << 0},
    {ENGINE_TRIM, .expect = ENGINE_MOVED},
    {ENGINE_DECODE, .slots = 1u << 1 | 1u << 2 | 1u << 3, .n = 5, .ms = 50},
    {ENGINE_TRIM, .n = 90, .expect = ENGINE_EVICTED | ENGINE_RELEASED},
    {ENGINE_PROMPT, .slots = 1u << 1, .a = 200, .n_a = 100, .b = 600, .n_b = 20},

    /* Who was in front goes, those behind move down when they idle and lose nothing. */
    {ENGINE_DROP, .slots = ALL},
    {ENGINE_PROMPT, .slots = 1u << 0, .a = 500, .n_a = 250},
    {ENGINE_PROMPT, .slots = 1u << 1, .a = 0, .n_a = 120},
    {ENGINE_PROMPT, .slots = 1u << 2, .a = 0, .n_a = 100, .b = 700, .n_b = 30, .from = 1 + 1},
    {ENGINE_DROP, .slots = 1u << 0},
    {ENGINE_IDLE, .ms = 60000, .expect = ENGINE_RELEASED | ENGINE_MOVED | ENGINE_IF_UNIFIED},
    {ENGINE_DECODE, .slots = 1u << 1 | 1u << 2, .n = 5, .ms = 50},

    /* Everything goes, and comes again. */
    {ENGINE_DROP, .slots = ALL},
    {ENGINE_IDLE, .ms = 120000, .expect = ENGINE_RELEASED | ENGINE_EMPTY},
    {ENGINE_PROMPT, .slots = 1u << 0, .a = 100, .n_a = 400, .expect = ENGINE_GREW},
    {ENGINE_PROMPT, .slots = 1u << 1, .a = 100, .n_a = 300, .expect = ENGINE_GREW},
    {ENGINE_DECODE, .slots = 1u << 0 | 1u << 1, .n = 10, .ms = 50},
    {ENGINE_IDLE, .ms = 45000, .expect = ENGINE_EVICTED},
    {ENGINE_DECODE, .slots = 1u << 0 | 1u << 1, .n = 5, .ms = 50, .expect = ENGINE_RECOMPUTED},
};

const uint32_t engine_script_length = sizeof engine_script / sizeof *engine_script;
