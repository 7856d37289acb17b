/* SPDX-License-Identifier: Apache-2.0 */
/* story.h — what happens in one seed: a stream, some lives of a job, and a judge.
 *
 * A life is a job as a cluster would start it: an engine and one trainer for each rank, or in some
 * lives several, which need the same batches. In it the
 * engine and the trainers are killed, stopped and started again; at its end all of them are gone,
 * and perhaps the power was. The next life may have other ranks, batches, threads and ways of
 * reading. The last life is left in peace and must reach the end of the stream.
 *
 * The judge compares every row that a trainer takes with the reference, which comes from a plan
 * that was never resumed and from a formula for tokens that needs no file; and holds where a
 * trainer goes on against where its state says that it was. */
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
    char text[KEYS_MAX][2][32];
    uint32_t count;
};

struct reference_row {
    uint32_t fragments, tokens;
    int32_t *ids; /* [seq_len], with padding */
    struct rp_fragment *pieces;
    struct rp_hash128 state; /* of the state token before this row */
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
    struct token start;             /* to attach with; size 0: none */
    uint64_t start_low, start_high; /* where it may begin */
    struct token saved, older;      /* the newest that it put away, and the one before */
    uint64_t at;                    /* first row of the micro-batch that it takes next */
    uint64_t began;                 /* the first of them in this life of its process */
    uint64_t farthest;              /* that `at` was in this life, since all went back last */
    bool done, failed, ended;
};

/* When trainers put their state away: as a job that saves its model now and then, as one that keeps
 * a journal, as one that saves its model between two steps. */
enum keeping { NOW_AND_THEN, ALWAYS, BETWEEN_STEPS, KEEPINGS };

/* What is the same in one life. */
struct life {
    uint32_t number;
    bool calm; /* the last one */
    uint32_t world, batch, micro_batches;
    uint32_t rank_first, ranks;  /* that this node serves */
    uint32_t replicas, trainers; /* of each rank; of all */
    uint64_t global;
    uint32_t lease_max;
    uint64_t work_ns; /* that a trainer spends on a batch */
    enum keeping keeping;
    unsigned hang_up, lies; /* of 1000 batches, after how many a trainer does so */
    bool leave;             /* trainers are to go */
    uint64_t batches;
    bool begun; /* a trainer has begun, and the first of its steps: */
    uint64_t step_row;
    uint64_t row_high; /* of the story, when the life began */
    bool went_far;     /* behind checkpoints of this life, perhaps, when all went back */
    uint64_t end_row;  /* behind the padding, as the first one found it that came there; or 0 */
};

struct counts {
    uint64_t lives, engines, trainers, strangers, kills, returns, power_cuts, faults, rows, saves,
        steps;
};

struct story {
    uint64_t seed, random;
    struct keys stream; /* keys that stay the same */
    struct reference reference;
    struct life life;
    struct trainer trainers[TRAINERS_MAX]; /* [rank of this node * replicas + replica] */
    struct sim_process *engine;
    int engine_code;         /* of the intruder */
    struct keys engine_keys; /* of the next engine */
    bool engine_faults;      /* it may fail for what the machine did */
    bool checkpoints;
    bool sidecars;     /* token files have them, so that their bits may flip */
    bool has_rotted;   /* a checkpoint; once in a story, or none might be left */
    uint64_t row_high; /* all ranks have taken what lies below, at some time */
    uint64_t row_now;  /* the same, since all went back last: no checkpoint to come is later */
    bool returns;      /* all are to go back, and nobody has come yet */
    bool engine_told;  /* to stop */
    bool end_is_open;  /* it may end before all who went back have come */
    uint64_t row_safe; /* a checkpoint of this row was promised; a later one has no earlier row */
    struct counts counts;
};

uint64_t story_below(struct story *story, uint64_t limit);
bool story_chance(struct story *story, unsigned per_1000);

/* stream.c */
/** Draw the stream, and write its files. */
void stream_draw(struct story *story);
void keys_set(struct keys *keys, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int keys_configure(const struct keys *keys, struct rp_config *config, struct rp_error *error);

/* reference.c */
void reference_make(struct story *story);
/** Compare a batch; the story fails if it differs. `when` says at what occasion. */
void reference_compare(const struct story *story, const struct rp_geometry *geometry,
                       const struct rp_batch *batch, const char *when);
void reference_compare_state(const struct story *story, const struct rp_client *client);

/* trainer.c */
void *trainer_main(void *trainer);

/* director.c */
void *director_main(void *story);

#endif
