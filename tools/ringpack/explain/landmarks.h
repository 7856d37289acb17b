/* SPDX-License-Identifier: Apache-2.0 */
/* landmarks.h — state tokens of a stream, kept between commands, so that any row is near: a
 * command that plans past such a row adds its token.
 *
 * A file of landmarks is state tokens, one after another, at ascending rows. It is in a cache
 * directory, and its name is the identity of the stream. Next to it, NAME.index has a struct
 * rp_landmark for each token, so that one is found without reading the others; an entry that it
 * lacks is found in the file. Whoever loads a token checks all of it, so files that were damaged,
 * cut or exchanged can only make planning longer. One process at a time adds to a file; others may
 * read it at the same time.
 *
 * The plan from one landmark to the next (documents read and rows made) takes some
 * milliseconds, and more if tokens are large, so that the file is small against the index of the
 * corpus. Rows would be no measure: a row may have one document or a thousand.
 *
 * Only tokens with a plan digest are landmarks, so that plans from one also have it; and only those
 * that follow from row 0 by the weights of the stream: tokens of a stream whose weights were
 * changed at some row are not (rp_plan_is_reweighted). */
#ifndef RP_TOOLS_LANDMARKS_H
#define RP_TOOLS_LANDMARKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/hash.h"
#include "config/config.h"
#include "plan/plan.h"

struct rp_landmark {
    uint64_t row;
    uint64_t at; /* in the file */
    uint64_t bytes;
};
RP_STATIC_ASSERT(sizeof(struct rp_landmark) == 24, "the index is a file of them");

struct rp_landmarks {
    char *path;
    int fd, index_fd; /* -1: there is no file */
    bool can_add;     /* this process has the lock */
    uint64_t end;     /* the last token's, in the file */
    uint64_t planned; /* documents and rows, up to the last landmark */
    struct rp_landmark *list;
    size_t count, capacity;
    size_t indexed; /* number of them in the index */
    size_t added;   /* by this process */
};

/** Open the file of a stream, or make it. Without a place for it, or with a file that cannot be
 * used, there are no landmarks, and that is no error. state_bytes_max: of the stream's tokens. */
void rp_landmarks_open(struct rp_landmarks *landmarks, const struct rp_config *config,
                       struct rp_hash128 identity, size_t state_bytes_max);
void rp_landmarks_close(struct rp_landmarks *landmarks);

/** The row of the last landmark, or 0. */
static inline uint64_t rp_landmarks_last_row(const struct rp_landmarks *landmarks)
{
    return landmarks->count > 0 ? landmarks->list[landmarks->count - 1].row : 0;
}
/** How many landmarks are at rows up to `row`. */
size_t rp_landmarks_until(const struct rp_landmarks *landmarks, uint64_t row);

/** Whether a plan, which has planned every row since the last landmark, is so far past it that
 * its state is to be added. */
bool rp_landmarks_want(const struct rp_landmarks *landmarks, const struct rp_plan *plan);
/** Add the state of that plan, if it has a plan digest. A failure ends the adding. `token` is
 * memory for it. */
void rp_landmarks_add(struct rp_landmarks *landmarks, const struct rp_plan *plan, void *token);

/** Read the token of a landmark into memory of its `bytes`; false if that fails. */
bool rp_landmarks_read(const struct rp_landmarks *landmarks, size_t number, void *token);

/** Forget a landmark that is not a token of this stream, and those after it. */
void rp_landmarks_drop(struct rp_landmarks *landmarks, size_t number);

#endif
