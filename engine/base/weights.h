/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h — find the weights of two contracts that differ, and print them.
 *
 * Only ratios of weights count, and contracts have them divided by their greatest common divisor.
 * So a weight is compared relative to the others: it is kept if it is the earlier one times f,
 * where f is the factor of most sources. If factors are equally frequent, 1 comes first, then
 * the one whose sources had the largest share, then the one of the first source. Every other weight
 * has changed. Earlier weights are printed times f, so that they can be compared with the present
 * ones, which are printed as the user wrote them. */
#ifndef RP_BASE_WEIGHTS_H
#define RP_BASE_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/record.h"

#define RP_WEIGHT_TEXT_BYTES 32

struct rp_weights {
    struct rp_weight {
        uint64_t had, has; /* 1 … 2^32-1 */
    } * of;                /* by source; NULL = not known */
    uint32_t count;
    uint32_t kept; /* a source whose weight is kept */
    uint64_t unit; /* millionths that 1 of `has` is for the user */
};

/** Read the weights of two stream records. Returns false, with nothing to close, if the records
 * have other sources, or if no weight has changed relative to the others, or without memory. unit
 * 0: not known. */
bool rp_weights_open(struct rp_weights *weights, const struct rp_record *had,
                     const struct rp_record *has, uint64_t unit);
void rp_weights_close(struct rp_weights *weights);

bool rp_weights_is_kept(const struct rp_weights *weights, uint32_t source);
void rp_weights_had_text(const struct rp_weights *weights, uint32_t source,
                         char text[RP_WEIGHT_TEXT_BYTES]);
void rp_weights_has_text(const struct rp_weights *weights, uint32_t source,
                         char text[RP_WEIGHT_TEXT_BYTES]);

#endif
