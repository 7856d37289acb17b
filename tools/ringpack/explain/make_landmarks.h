/* SPDX-License-Identifier: Apache-2.0 */
/* make_landmarks.h — `ringpack plan --landmarks`: plan a stream once, so that any row of it is near
 * for all commands that follow. */
#ifndef RP_TOOLS_MAKE_LANDMARKS_H
#define RP_TOOLS_MAKE_LANDMARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

/** Plan on from the last landmark, to row `rows` (0 = to the end of the stream), add the landmarks,
 * and print the result. */
RP_MUST_CHECK int rp_make_landmarks(const struct rp_config *config, uint64_t rows, bool json,
                                    struct rp_error *error);

#endif
