/* SPDX-License-Identifier: Apache-2.0 */
/* landmarks.h — state tokens of a stream at regular rows, kept between commands, so that any row is
 * near: what plans past such a row adds its token.
 *
 * A file of landmarks is state tokens, one behind the other: landmark k = 1, 2, … is the token of
 * row k * spacing. It is in a cache directory, and its name is the identity of the stream. Whoever
 * loads a token checks all of it, so a file that was damaged, cut or exchanged can make planning
 * longer, and nothing else. One process at a time adds to a file; another reads it meanwhile.
 *
 * Only tokens with a plan digest are landmarks, so that what is planned from one has it, too; and
 * only those that follow from row 0 by the weights of the stream: those of a stream whose weights
 * were changed at some row are not (rp_plan_is_reweighted). */
#ifndef RP_TOOLS_LANDMARKS_H
#define RP_TOOLS_LANDMARKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/hash.h"
#include "config/config.h"

struct rp_landmark {
    uint64_t row;
    uint64_t at; /* in the file */
    uint32_t bytes;
};

struct rp_landmarks {
    char *path;
    int fd;           /* -1: there is no file */
    bool can_add;     /* this process has the lock */
    uint64_t spacing; /* rows from one to the next */
    uint64_t end;     /* of the last token, in the file */
    struct rp_landmark *list;
    size_t count, capacity;
    size_t added; /* by this process */
};

/** Open the file of a stream, or make it. Without a place for it, or with a file that cannot be
 * used, there are no landmarks, and that is no error. state_bytes_max: of the stream's tokens. */
void rp_landmarks_open(struct rp_landmarks *landmarks, const struct rp_config *config,
                       struct rp_hash128 identity, size_t state_bytes_max);
void rp_landmarks_close(struct rp_landmarks *landmarks);

/** The row of the landmark that would be added next. */
static inline uint64_t rp_landmarks_next_row(const struct rp_landmarks *landmarks)
{
    return (landmarks->count + 1) * landmarks->spacing;
}
/** Add the token of that row, if it has a plan digest. A failure ends the adding. */
void rp_landmarks_add(struct rp_landmarks *landmarks, const void *token, size_t bytes);

/** Read the token of a landmark into memory of its `bytes`; false if that fails. */
bool rp_landmarks_read(const struct rp_landmarks *landmarks, size_t number, void *token);

/** Forget a landmark that is not a token of this stream, and those behind it. */
void rp_landmarks_drop(struct rp_landmarks *landmarks, size_t number);

#endif
