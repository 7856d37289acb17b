/* SPDX-License-Identifier: Apache-2.0 */
/* story.h — the run of one seed: a story, which is a stream and some lives of a job that reads it.
 *
 *   life       A job as a cluster would start it: an engine and one trainer for each rank, or in
 *              some lives several replicas. The director (director.c) kills, stops and restarts
 *              the engine and the trainers. At the end of a life all of them are killed, and the
 *              power may be cut. The next life may have other ranks, batches, threads and readers.
 *   calm life  The last one: no faults, and the trainers must reach the end of the stream. What may
 *              happen is that a rank falls behind (behind.c).
 *   keep       A trainer keeps its state token, as a job that saves a checkpoint of its model does.
 *   rollback   All trainers restart from one older state token.
 *   reference  All rows, from a plan that was never resumed and a formula for tokens (reference.c).
 *
 * A trainer compares each row that it takes with the reference, and its first row with its state
 * token. */
#ifndef RP_TESTS_STORY_H
#define RP_TESTS_STORY_H

#include "config/config.h"
#include "plan/plan.h"
#include "ringpack/client.h"
#include "sim.h"

#define RANKS_MAX 3u
#define REPLICAS_MAX 3u
#define TRAINERS_MAX (RANKS_MAX * REPLICAS_MAX)
#define KEYS_MAX 40u

/* The config of an engine, as options: key, text. */
struct keys {
    char text[KEYS_MAX][2][400];
    uint32_t count;
    bool grows;       /* the first source has a second shard */
    bool joins_later; /* the second source has weight 0 at first */
};

struct reference_row {
    uint32_t fragments, tokens;
    int32_t *ids; /* [seq_len], with padding */
    struct rp_fragment *pieces;
    struct rp_hash128 state; /* the state token's, before this row */
};

struct reference {
    struct reference_row *rows; /* [row_count + 1]: the last one has only a state */
    uint64_t row_count;
    uint64_t documents[2];
    uint32_t seq_len;
    bool drop_last;
};

struct token {
    void *bytes;
    size_t size;
    uint64_t row;
};

struct trainer {
    struct story *story;
    uint32_t rank, replica;
    char name[16];
    struct sim_process *process;
    const struct sim_process *engine; /* the one of its last attach */
    struct token start;               /* token to attach with; size 0 = none */
    uint64_t start_low, start_high;   /* its possible first rows */
    struct token saved, older;        /* the newest token that it has kept, and the one before */
    struct token first;               /* the first one of this life, or of the last rollback */
    uint64_t at;                      /* first row of the micro-batch that it takes next */
    uint64_t began;                   /* `at` when its process attached */
    uint64_t farthest;                /* the highest `at` of this life since the last rollback */
    uint64_t kill_row; /* it is killed soon after it has taken the rows below this one; 0 = not */
    bool falls_back;   /* it restarts from another token than the newest */
    bool attaches;     /* it was started, and the engine does not know its row yet */
    bool has_fallen_back; /* it has, in this life */
    bool done, failed, ended, detaches;
};

/* When trainers keep their states: after some batches, after every batch, or only between two
 * steps. */
enum keeping { NOW_AND_THEN, ALWAYS, BETWEEN_STEPS, KEEPINGS };

/* The constants of one life. */
struct life {
    uint32_t number;
    bool calm; /* the last one */
    /* Trainers may wait: for another engine, for an absent rank, for a replica that is behind, or
     * because all ranks have fallen behind. */
    bool may_wait;
    uint32_t world, batch, micro_batches;
    uint32_t rank_first, ranks;  /* the ranks that this node serves */
    uint32_t replicas, trainers; /* replicas of each rank; trainers of all ranks */
    uint64_t global;
    uint32_t lease_max;
    uint64_t work_ns; /* the mean time that a trainer spends on a batch */
    enum keeping keeping;
    unsigned hang_up;        /* after how many of 1000 batches a trainer loses its connection, */
    unsigned wrong_releases; /* or writes a wrong release watermark and dies */
    bool leave;              /* trainers are to detach */
    uint64_t batches;
    bool begun;        /* a trainer has begun, */
    uint64_t step_row; /* at this step boundary */
    uint64_t row_high; /* the story's, when the life began */
    bool saves_ahead; /* checkpoints of this life may be of later rows than trainers restart from */
    uint64_t end_row; /* row of the first trainer's end, padding included; or 0 */
};

struct counts {
    uint64_t lives, engines, trainers, strangers, kills, rollbacks, fallbacks, power_cuts, faults,
        rows, saves, steps, stages, growths, joins;
};

struct story {
    uint64_t seed, random;
    struct keys stream; /* keys that stay the same */
    struct reference reference;
    struct life life;
    struct trainer trainers[TRAINERS_MAX]; /* [rank of this node * replicas + replica] */
    struct sim_process *engine;
    int engine_code;         /* the intruder's exit code */
    struct keys engine_keys; /* the next engine's */
    bool engine_faults;      /* the engine may fail, because faults are injected */
    bool checkpoints;
    bool sidecars;     /* token files have sidecars, so reads may return wrong bits */
    bool has_rotted;   /* a bit of a checkpoint has flipped; once in a story, to leave one intact */
    uint64_t row_high; /* all ranks have taken the rows below it, or restarted after them */
    /* The highest row_now since a checkpoint was requested, or row of a restart of trainers: one
     * may die before it knows that the engine has accepted its state. */
    uint64_t row_peak;
    uint64_t row_now;      /* the same since the last rollback: no new checkpoint is later */
    bool rollback_pending; /* a rollback has begun, and no trainer has attached since */
    bool engine_told;      /* the engine has a stop request */
    bool end_is_open;      /* the engine may end before all trainers of a rollback have attached */
    uint64_t row_low;      /* the lowest row of a restart since a checkpoint was requested */
    uint64_t row_safe;     /* a checkpoint of this row or later must be found */
    struct counts counts;
};

uint64_t story_below(struct story *story, uint64_t limit);
bool story_chance(struct story *story, unsigned per_1000);

/* stream.c */
/** Choose the stream at random, and write its files. */
void stream_draw(struct story *story);
void keys_set(struct keys *keys, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int keys_configure(const struct keys *keys, struct rp_config *config, struct rp_error *error);

/* reference.c */
void reference_make(struct story *story);
/** Compare a batch; the story fails if it differs. `when`, for the message: "taken", "on lease". */
void reference_compare(const struct story *story, const struct rp_geometry *geometry,
                       const struct rp_batch *batch, const char *when);
void reference_compare_state(const struct story *story, const struct rp_client *client);

/* trainer.c */
/** Has it had all rows? Rows of an incomplete last step may be missing. */
bool trainer_has_had_all(const struct trainer *trainer);
/** All trainers have taken the rows below this one, or start after them. */
uint64_t trainers_come_to(const struct story *story);
void *trainer_main(void *trainer);

/* director.c */
void *director_main(void *story);

#endif
