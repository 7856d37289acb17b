/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h — go to any row of a stream, and plan from there, without an engine.
 *
 * Planning begins at the nearest state that is known: a landmark, the state token that the user has
 * given, or row 0. Rows before that token cannot be planned if the weights were changed at some row
 * before it, because that row is not known: they are refused by name. */
#ifndef RP_TOOLS_WALK_H
#define RP_TOOLS_WALK_H

#include "cmd.h"
#include "explain/landmarks.h"
#include "plan/trace.h"
#include "stream.h"

/* A state token. */
struct rp_known_state {
    uint64_t row;
    void *token;
    size_t bytes; /* 0 = none */
    bool follows; /* every row since the last landmark was planned to come here */
};

struct rp_walk {
    const struct rp_config *config;
    struct rp_corpus *corpus;
    struct rp_plan *plan;
    struct rp_hash128 identity;
    struct rp_landmarks landmarks;
    struct rp_known_state zero, given, near; /* near: the row that was gone to last */
    bool is_reweighted;                      /* before the given token */
    bool follows;                            /* as of a state; of the plan as it is */
    void *scratch;                           /* memory for a token, of: */
    size_t scratch_bytes;
    uint64_t end_row; /* the stream's, once it was met */
    struct rp_cmd_progress progress;
    uint64_t planned_rows, planned_ns; /* to reach rows */
};

/** Open the corpus and the plan of a config. `token` may be NULL; so may `contract`, the stream
 * record of its checkpoint. */
RP_MUST_CHECK int rp_walk_open(struct rp_walk *walk, const struct rp_config *config,
                               const void *token, size_t bytes, const struct rp_record *contract,
                               struct rp_error *error);
void rp_walk_close(struct rp_walk *walk);

/** Go to a row: rp_walk_next plans it next. Returns 0; 1 if the stream ends before that row, at
 * walk->end_row; or an error. */
RP_MUST_CHECK int rp_walk_to(struct rp_walk *walk, uint64_t row, struct rp_error *error);

/** Go to a row from a state token, which may have other weights than the config: they change at its
 * row. Returns as rp_walk_to. */
RP_MUST_CHECK int rp_walk_continue(struct rp_walk *walk, const void *token, size_t bytes,
                                   uint64_t row, struct rp_error *error);

/** Whether `rows` rows follow the row that rp_walk_to went to. That row is then the position of the
 * walk. Returns as rp_walk_to. */
RP_MUST_CHECK int rp_walk_reaches(struct rp_walk *walk, uint64_t rows, struct rp_error *error);

/** Go to a row before which the document is not read, and not far from where it is. */
RP_MUST_CHECK int rp_walk_before(struct rp_walk *walk, const struct rp_draw *draw,
                                 struct rp_error *error);

/** As rp_plan_next, and adds landmarks. It ends early after an interrupt. */
RP_MUST_CHECK int rp_walk_next(struct rp_walk *walk, struct rp_row *row, struct rp_error *error);

#endif
