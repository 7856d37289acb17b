/* SPDX-License-Identifier: Apache-2.0 */
/* choosing.c — see choosing.h. */
#include "plan/v2/choosing.h"

#include <errno.h>
#include <inttypes.h>

#include "base/bits.h"
#include "base/mem.h"

__extension__ typedef __int128 wide;

#define TOKEN_BITS 32                     /* credits are in units of 2^-32 token */
#define CREDIT_BOUND (INT64_C(1) << 62)   /* section 13 */
#define CHARGED_MAX (INT64_C(1) << 27)    /* T·s stays below 2^61 */
#define DISTANCE_BOUND (INT64_C(3) << 61) /* d - X·2^32 fits */

int rp_choosing_open(struct rp_choosing *choosing, uint32_t capacity, struct rp_error *error)
{
    size_t blocks = rp_div_up(capacity, RP_CHOOSING_BLOCK);
    *choosing = (struct rp_choosing){
        .capacity = capacity,
        .keys = rp_calloc(capacity, sizeof *choosing->keys),
        .places = rp_calloc(capacity, sizeof *choosing->places),
        .blocks = rp_calloc(blocks, sizeof *choosing->blocks),
    };
    if (choosing->keys && choosing->places && choosing->blocks)
        return 0;
    rp_choosing_close(choosing);
    return rp_fail(error, -ENOMEM, "fewer sources need less memory",
                   "no memory for the mixture of %" PRIu32 " sources", capacity);
}

void rp_choosing_close(struct rp_choosing *choosing)
{
    free(choosing->keys);
    free(choosing->places);
    free(choosing->blocks);
    *choosing = (struct rp_choosing){0};
}

void rp_choosing_add(struct rp_choosing *choosing, const struct rp_choosing_source *source)
{
    RP_DASSERT(choosing->count < choosing->capacity && source->share > 0);
    choosing->places[choosing->count++] = (struct rp_choosing_place){
        .share = source->share, .distance = source->credit, .number = source->number};
}

/* ⌊a / b⌋ and a - b·⌊a / b⌋, for b > 0. */
static inline int64_t divide(int64_t a, int64_t b, int64_t *rest)
{
    int64_t quotient = a / b, left = a % b, is_below = left < 0 ? -1 : 0;
    *rest = left + (b & is_below);
    return quotient + is_below;
}

static inline void make_key(struct rp_choosing *choosing, uint32_t place)
{
    const struct rp_choosing_place *own = &choosing->places[place];
    int64_t rest, whole = divide(own->distance, (int64_t)own->share, &rest);
    choosing->keys[place] = (struct rp_choosing_key){
        .eligible_at = -whole,
        .due = whole - own->reach - (rest < (int64_t)own->reach_rest),
    };
}

/* Search the places first … end - 1. next_at is wanted only if there are other blocks. Masks of all
 * bits select, because compilers make branches of ?: here, which would be mispredicted: the order
 * of keys is random. */
static inline struct rp_choosing_block search(const struct rp_choosing *choosing, uint32_t first,
                                              uint32_t end, bool has_others)
{
    int64_t due = INT64_MIN, next_at = INT64_MAX, now = choosing->charged, best = first;
    for (uint32_t place = first; place < end; place++) {
        struct rp_choosing_key key = choosing->keys[place];
        int64_t waits = -(int64_t)(key.eligible_at > now);
        int64_t is_better = -(int64_t)(key.due > due) & ~waits;
        best ^= (best ^ place) & is_better;
        due ^= (due ^ key.due) & is_better;
        int64_t is_sooner = -(int64_t)(key.eligible_at < next_at) & waits;
        next_at ^= (next_at ^ key.eligible_at) & (has_others ? is_sooner : 0);
    }
    return (struct rp_choosing_block){due, next_at, (uint32_t)best};
}

static inline void search_block(struct rp_choosing *choosing, uint32_t block)
{
    uint32_t first = block * RP_CHOOSING_BLOCK, end = first + RP_CHOOSING_BLOCK;
    end = end < choosing->count ? end : choosing->count;
    choosing->blocks[block] = search(choosing, first, end, true);
}

/* Blocks other than `changed` are searched only if a place of them has become eligible. */
static void choose(struct rp_choosing *choosing, uint32_t changed)
{
    uint32_t blocks = (choosing->count + RP_CHOOSING_BLOCK - 1) / RP_CHOOSING_BLOCK;
    if (blocks == 1) {
        choosing->chosen = search(choosing, 0, choosing->count, false).place;
        return;
    }
    search_block(choosing, changed);
    int64_t due = INT64_MIN;
    for (uint32_t block = 0; block < blocks; block++) {
        if (choosing->blocks[block].next_at <= choosing->charged)
            search_block(choosing, block);
        bool is_better = choosing->blocks[block].due > due;
        due = is_better ? choosing->blocks[block].due : due;
        choosing->chosen = is_better ? choosing->blocks[block].place : choosing->chosen;
    }
}

/* Make all keys, after X has grown or sources were added. */
static void make_keys(struct rp_choosing *choosing)
{
    int64_t reach = (int64_t)choosing->longest << TOKEN_BITS;
    for (uint32_t place = 0; place < choosing->count; place++) {
        struct rp_choosing_place *own = &choosing->places[place];
        own->reach = reach / (int64_t)own->share;
        own->reach_rest = (uint64_t)reach % own->share;
        make_key(choosing, place);
    }
    for (uint32_t block = 1; block * RP_CHOOSING_BLOCK < choosing->count; block++)
        search_block(choosing, block);
    choose(choosing, 0);
}

bool rp_choosing_begin(struct rp_choosing *choosing)
{
    uint32_t count = choosing->count;
    choosing->chosen = 0;
    choosing->charged = 0;
    choosing->mean = 0;
    if (count == 0)
        return true;
    wide sum = 0;
    for (uint32_t place = 0; place < count; place++)
        sum += choosing->places[place].distance;
    wide mean = sum / count;
    choosing->mean = (int64_t)(mean - (sum % count < 0));
    for (uint32_t place = 0; place < count; place++) {
        struct rp_choosing_place *own = &choosing->places[place];
        int64_t credit = own->distance;
        wide distance = (wide)credit - choosing->mean;
        if (credit >= CREDIT_BOUND || credit <= -CREDIT_BOUND || distance >= DISTANCE_BOUND ||
            distance <= -DISTANCE_BOUND) {
            choosing->chosen = place;
            return false;
        }
        own->distance = (int64_t)distance;
    }
    if (count > 1)
        make_keys(choosing);
    return true;
}

bool rp_choosing_charge_mixture(struct rp_choosing *choosing, uint32_t tokens)
{
    bool is_longest = tokens > choosing->longest;
    choosing->longest = is_longest ? tokens : choosing->longest;
    struct rp_choosing_place *own = &choosing->places[choosing->chosen];
    own->distance -= (int64_t)tokens << TOKEN_BITS;
    choosing->charged += tokens;
    if (is_longest) {
        make_keys(choosing);
    } else {
        make_key(choosing, choosing->chosen);
        choose(choosing, choosing->chosen / RP_CHOOSING_BLOCK);
    }
    return choosing->charged > CHARGED_MAX;
}
