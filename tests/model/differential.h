/* SPDX-License-Identifier: MIT */
/*
 * The library and the naive model of model.h side by side in one world: a step chooses an operation, does it
 * to both and holds all that can be seen of one against the other. What a step chooses comes from a seed, or
 * from bytes that a fuzzer made. A difference fails the running test and says where it came from.
 */
#ifndef DIFFERENTIAL_H
#define DIFFERENTIAL_H

#include "model_plan.h"
#include "support.h"

struct shape {
    const char *name;
    uint32_t n_stream, n_seq, kv_size, n_pad, initial, keep_tokens;
    int shrink;
    uint32_t flags, budget_pages;
    size_t page;
    int window;
    uint32_t n_swa, n_plane;  /* n_plane 0: 1 */
    const struct shape *with; /* of a linked cache that sees the same batches; NULL: none */
};

extern const struct shape shapes[];
extern const int n_shape;

struct world {
    struct world *first, *next; /* a linked cache is a world of its own behind the first, which chooses for all */
    const struct shape *shape;
    struct rig *r;
    struct model m;
    uint32_t random, seed;
    const unsigned char *bytes; /* of a fuzzer; NULL: random decides */
    size_t n_byte;
    int op;
    char what[160];
    uint64_t budget;
    uint32_t target; /* what the next has_shrunk allows each stream */
    bool twice;      /* there was no room to move all, so that a second round asks for more */
    struct model_plan plan;
    kvlazy_slot planned[MODEL_UBATCHES], former[MODEL_UBATCHES]; /* slots of this plan, and of the one before */
    uint64_t off_bytes;                                          /* that a failed commit did, and gave back */

    /* Of the first world, for all. */
    uint64_t n_opened; /* batches so far */
    uint64_t n_asked;  /* questions of on_evict so far */
    struct fire {
        int kind;  /* what refuses in this step; FIRE_NONE: nothing does */
        bool hit;  /* the last call met a refusal */
        bool sore; /* pages are where they should not be for a while, since something refused */
    } fire;
    bool parted;         /* what one cache did, a linked one refused */
    const char *without; /* names of operations that are left out */

    bool restores; /* this batch puts saved tokens back */
    struct model_token token[MODEL_TOKENS];
    int n_token, n_ubatch;
    kvlazy_pos pos[4][MODEL_TOKENS];
    int32_t n_owner[MODEL_TOKENS];
    kvlazy_seq_id owner[MODEL_TOKENS][MODEL_SEQS];
    const kvlazy_seq_id *owners[MODEL_TOKENS];
    kvlazy_ubatch ubatch[MODEL_UBATCHES];
};

/* What all worlds came across. */
struct sights {
    uint64_t status[16]; /* of prepare */
    uint64_t packed, held_back, packed_twice, decoded;
    uint64_t evicted, recycled, unfillable, copied_rows, copies_refused, moved, shared, replayed, refused_by_other,
        restored;
    uint64_t applied[16]; /* apply between other calls, by status */
    uint64_t undone_late, asked, vetoed, disturbed, hits[4], not_for_whole, n_step;
};
extern struct sights sights;

void world_open(struct world *w, const struct shape *shape, uint32_t seed, const unsigned char *bytes, size_t n_byte);
void world_step(struct world *w);
void world_close(struct world *w);

/* What the files of the driver do for one another. */
uint32_t pick(struct world *w, uint32_t n); /* one of n */
bool left_out(const struct world *w, const char *name);
void pass_time(struct world *w, uint64_t ms);
void read_cells(struct world *w, struct model *into);

void op_batch(struct world *w);
void op_between(struct world *w);
void op_decode(struct world *w);
void op_remove(struct world *w);
void op_copy(struct world *w);
void op_move(struct world *w);
void op_keep(struct world *w);
void op_shift_done(struct world *w);
void op_poll(struct world *w);
void op_trim(struct world *w);
void op_clear(struct world *w);
void op_limits(struct world *w);
void op_squeeze(struct world *w);
void op_doubt(struct world *w);

bool must_begin_at_0(const struct world *w,
                     uint32_t q);                 /* of a sequence that one cache has nothing of no more is known */
void remove_whole(struct world *w, uint32_t seq); /* from all */
void remove_range(struct world *w, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);
void copy_range(struct world *w, uint32_t src, uint32_t dst, kvlazy_pos p0, kvlazy_pos p1);
void move_range(struct world *w, uint32_t seq, kvlazy_pos p0, kvlazy_pos p1, int64_t delta, int divisor);
void begin_at(struct world *w, uint32_t q, kvlazy_pos pos, int n); /* a batch of one sequence alone, in w->token */
void op_poll_now(struct world *w, struct world *called);
void adopt_places(struct world *w);
void has_decayed(struct world *w);
void may_keep_initial(struct world *w);         /* sets the targets */
void may_keep(struct world *w, uint32_t cells); /* 0: all */
enum packs { PACKS_RESTED, PACKS_ALL, PACKS_NONE };
void has_shrunk(struct world *called, bool force, enum packs packs);

/* Batches. */
void clear_the_way(struct world *w); /* of sequences that no batch can go on with */
void make_batch(struct world *w);
bool prepare_all(struct world *w);
void open_batch(struct world *w);
void end_batch(struct world *w);
void empty_batch(struct world *w); /* opens and ends one, which lets free pages decay */

/* Slots, of which one may be stale. All answer the status. */
int slot_number(const struct world *w, const kvlazy_slot *slot); /* of the ubatch that it stands for; -1: it is stale */
int apply_slot(struct world *w, const kvlazy_slot *slot, int ubatch);
int apply_all(struct world *w, int u); /* in every cache; where one refuses it is taken back in all */
void undo_slot(struct world *w, const kvlazy_slot *slot);
void undo_all(struct world *w, int u);

/* What refuses. A step is on fire or not, and in such a step each call may meet a refusal: CALL answers the status. */
enum { FIRE_NONE, FIRE_ALLOC, FIRE_COMMIT, FIRE_DECOMMIT };
void kindle(struct world *w);
void put_out(struct world *w);
void fire_begin(struct world *w);
int fire_end(struct world *w, int status);
#define CALL(w, call) (fire_begin(w), fire_end((w), (call)))
bool may_lack(const struct world *w, int status);      /* ENOMEM, and what a refusal makes of EBUDGET */
void refused_unchanged(struct world *w, char *before); /* a call that takes pages left all as it was in rig_dump */
void make_good(struct world *w);                       /* after a fire: everything works, and nothing is left of it */

/* Questions of on_evict. */
void begin_asking(struct world *called);
uint32_t curbed(const struct world *called, bool force); /* a bit a sequence */
void heed_answers(struct world *called);                 /* after that, and before the losses are judged */
void keep_word(struct world *called);                    /* and after */
void op_poll_disturbed(struct world *w, struct world *called);

/* Moves together in the models what should be; false: a budget is in the way of some of it. */
bool pack(struct world *w, uint32_t streams);
bool is_dense(const struct model *m, uint32_t stream);
uint64_t packed_cover(struct world *w); /* what all live cells of one cache need, once they are dense */

/* Linked caches. */
struct world *any(struct world *w);
int shuffled(struct world *w, struct world **all); /* every cache of a world, in any order; how many */
void link_models(struct world *w);
void tell_model(struct world *w);                    /* after a call, what the model cannot know */
void carry_torn(struct world *w);                    /* what the call emptied here is empty in all */
int32_t furthest(const struct world *w, uint32_t q); /* where a sequence ends in one of them at least */
bool ends_differ(const struct world *w, uint32_t q);
bool is_stuck(const struct world *w, uint32_t q); /* no batch of it can be right in all */
void same_batch(struct world *w);
void compare_linked(struct world *w);

#define HOLDS(w, fact)                    \
    do {                                  \
        if (!(fact))                      \
            broken((w), #fact, __LINE__); \
    } while (0)
void broken(struct world *w, const char *fact, int line);

#endif
