/* SPDX-License-Identifier: Apache-2.0 */
/* choosing.h — the active source with the earliest deadline (STREAM2.md section 6.2).
 *
 * The feed names the active sources with their shares and credits, takes from the chosen one, and
 * charges it. The result equals section 6.2, in which the credits of all sources
 * change with each charge. Here each source has two keys that only its own charges change: with T,
 * the tokens charged since the keys were made, and d = c - T·s - θ,
 *
 *     eligible_at = ⌈-d / s⌉               the source has c >= θ from this T on
 *     due         = ⌊(d - X·2^32) / s⌋     its due of section 6.2, less T
 *
 * so T decides who is eligible, and the order of `due` is the order of section 6.2. θ stays while
 * the set and the shares stay, because a charge leaves the sum of credits as it is. A greater X
 * renews all keys; this happens about ln(documents) times.
 *
 * Places are in ascending order of the sources' numbers. They are searched in blocks: each knows
 * its choice, and the next T at which another place of it becomes eligible. So a charge searches
 * its own block and those where a place became eligible. */
#ifndef RP_PLAN_V2_CHOOSING_H
#define RP_PLAN_V2_CHOOSING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

/* Places of a block, which are searched together, without branches. */
#define RP_CHOOSING_BLOCK 16u

/* The keys of a block, by place. Places that are not used never become eligible. */
struct rp_choosing_keys {
    int64_t eligible_at[RP_CHOOSING_BLOCK], due[RP_CHOOSING_BLOCK];
};

struct rp_choosing_place {
    uint64_t share;
    int64_t distance; /* d, in units of 2^-32 token */
    /* X·2^32 = reach·share + reach_rest */
    int64_t reach;
    uint64_t reach_rest;
    uint32_t number; /* the source's number */
};

struct rp_choosing_block {
    int64_t due, next_at; /* due INT64_MIN: no choice; next_at INT64_MAX: never */
    uint32_t place;
};

struct rp_choosing {
    uint32_t capacity, count;      /* active sources */
    uint32_t chosen;               /* place */
    uint32_t longest;              /* X */
    int64_t charged;               /* T */
    int64_t mean;                  /* θ */
    struct rp_choosing_keys *keys; /* by block */
    struct rp_choosing_place *places;
    struct rp_choosing_block *blocks;
};

/* An active source, as the feed knows it. */
struct rp_choosing_source {
    uint32_t number;
    uint64_t share;
    int64_t credit;
};

RP_MUST_CHECK int rp_choosing_open(struct rp_choosing *choosing, uint32_t capacity,
                                   struct rp_error *error);
void rp_choosing_close(struct rp_choosing *choosing);

/** Forget all active sources. Their credits must have been read. */
static inline void rp_choosing_clear(struct rp_choosing *choosing)
{
    choosing->count = 0;
    choosing->charged = 0;
}
/** Add an active source, in ascending order of the numbers. */
void rp_choosing_add(struct rp_choosing *choosing, const struct rp_choosing_source *source);
/** Choose for the first time after the sources were added. False: the credit of the chosen place,
 * which is its distance, is out of the bound of section 13. */
RP_MUST_CHECK bool rp_choosing_begin(struct rp_choosing *choosing);

/** The number of the chosen source; count must be > 0. */
static inline uint32_t rp_choosing_first(const struct rp_choosing *choosing)
{
    return choosing->places[choosing->chosen].number;
}

bool rp_choosing_charge_mixture(struct rp_choosing *choosing, uint32_t tokens);
/** Charge tokens to the chosen source, and choose again. True: the keys must be renewed
 * (rp_choosing_clear, _add, _begin) before the next choice. */
static inline bool rp_choosing_charge(struct rp_choosing *choosing, uint32_t tokens)
{
    if (choosing->count > 1)
        return rp_choosing_charge_mixture(choosing, tokens);
    /* its share is all: the charge leaves its credit as it is */
    choosing->longest = tokens > choosing->longest ? tokens : choosing->longest;
    return false;
}

/** The credit of the source at a place. */
static inline int64_t rp_choosing_credit(const struct rp_choosing *choosing, uint32_t place)
{
    const struct rp_choosing_place *own = &choosing->places[place];
    return own->distance + choosing->mean + choosing->charged * (int64_t)own->share;
}

#endif
