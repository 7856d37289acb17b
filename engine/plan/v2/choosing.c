/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/v2/choosing.h"

#include <errno.h>
#include <inttypes.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "base/bits.h"
#include "base/mem.h"
#include "base/simd.h"

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
        .keys = rp_calloc(blocks, sizeof *choosing->keys),
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
    struct rp_choosing_keys *keys = &choosing->keys[place / RP_CHOOSING_BLOCK];
    keys->eligible_at[place % RP_CHOOSING_BLOCK] = -whole;
    keys->due[place % RP_CHOOSING_BLOCK] = whole - own->reach - (rest < (int64_t)own->reach_rest);
}

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))

AVX2 static inline __m256i smaller(__m256i a, __m256i b)
{
    return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b));
}
AVX2 static inline __m256i greater(__m256i a, __m256i b)
{
    return _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b));
}

/* As search, of all places of a block. */
AVX2 static struct rp_choosing_block search_avx2(const struct rp_choosing_keys *keys, int64_t now)
{
    enum { SWAP_HALVES = 0x4e, SWAP_NEIGHBOURS = 0xb1, VECTORS = RP_CHOOSING_BLOCK / 4 };
    const __m256i present = _mm256_set1_epi64x(now), never = _mm256_set1_epi64x(INT64_MAX);
    const __m256i none = _mm256_set1_epi64x(INT64_MIN);
    __m256i dues[VECTORS], due = none, next_at = never;
    uint32_t bits = 0;
    for (int v = 0; v < VECTORS; v++) {
        __m256i at = _mm256_loadu_si256((const __m256i *)(const void *)keys->eligible_at + v);
        __m256i own = _mm256_loadu_si256((const __m256i *)(const void *)keys->due + v);
        __m256i waits = _mm256_cmpgt_epi64(at, present);
        dues[v] = _mm256_blendv_epi8(own, none, waits);
        due = greater(due, dues[v]);
        next_at = smaller(next_at, _mm256_blendv_epi8(never, at, waits));
    }
    due = greater(due, _mm256_permute4x64_epi64(due, SWAP_HALVES));
    due = greater(due, _mm256_permute4x64_epi64(due, SWAP_NEIGHBOURS));
    next_at = smaller(next_at, _mm256_permute4x64_epi64(next_at, SWAP_HALVES));
    next_at = smaller(next_at, _mm256_permute4x64_epi64(next_at, SWAP_NEIGHBOURS));
    for (int v = 0; v < VECTORS; v++) {
        __m256d is_best = _mm256_castsi256_pd(_mm256_cmpeq_epi64(dues[v], due));
        bits |= (uint32_t)_mm256_movemask_pd(is_best) << 4 * v;
    }
    return (struct rp_choosing_block){_mm256_extract_epi64(due, 0),
                                      _mm256_extract_epi64(next_at, 0),
                                      (uint32_t)__builtin_ctz(bits)};
}
#endif

/* Search `count` places of a block: `place` of the result is within it. next_at is wanted only if
 * there are other blocks. Masks of all bits select, because compilers make branches of ?: here,
 * which would be mispredicted: the order of keys is random. Vectors pay from 9 places on, because
 * their loads wait for the key that was just stored. */
static inline struct rp_choosing_block search(const struct rp_choosing_keys *keys, uint32_t count,
                                              int64_t now, bool has_others)
{
    int64_t due = INT64_MIN, next_at = INT64_MAX, best = 0;
#ifdef __x86_64__
    if (count > RP_CHOOSING_BLOCK / 2 && rp_simd_has(RP_SIMD_AVX2))
        return search_avx2(keys, now);
#endif
    for (uint32_t i = 0; i < count; i++) {
        int64_t at = keys->eligible_at[i], own = keys->due[i];
        int64_t waits = -(int64_t)(at > now);
        int64_t is_better = -(int64_t)(own > due) & ~waits;
        best ^= (best ^ i) & is_better;
        due ^= (due ^ own) & is_better;
        int64_t is_sooner = -(int64_t)(at < next_at) & waits;
        next_at ^= (next_at ^ at) & (has_others ? is_sooner : 0);
    }
    return (struct rp_choosing_block){due, next_at, (uint32_t)best};
}

static void search_block(struct rp_choosing *choosing, uint32_t block)
{
    uint32_t first = block * RP_CHOOSING_BLOCK, left = choosing->count - first;
    struct rp_choosing_block *found = &choosing->blocks[block];
    *found = search(&choosing->keys[block], left < RP_CHOOSING_BLOCK ? left : RP_CHOOSING_BLOCK,
                    choosing->charged, true);
    found->place += first;
}

/* Blocks are searched only if a place of them has become eligible. */
static void choose(struct rp_choosing *choosing)
{
    int64_t due = INT64_MIN;
    for (uint32_t block = 0; block * RP_CHOOSING_BLOCK < choosing->count; block++) {
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
    uint32_t last = (choosing->count - 1) / RP_CHOOSING_BLOCK;
    for (uint32_t i = 0; i < RP_CHOOSING_BLOCK; i++)
        choosing->keys[last].eligible_at[i] = INT64_MAX;
    for (uint32_t place = 0; place < choosing->count; place++) {
        struct rp_choosing_place *own = &choosing->places[place];
        own->reach = reach / (int64_t)own->share;
        own->reach_rest = (uint64_t)reach % own->share;
        make_key(choosing, place);
    }
    for (uint32_t block = 0; block * RP_CHOOSING_BLOCK < choosing->count; block++)
        search_block(choosing, block);
    choose(choosing);
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
        if (choosing->count <= RP_CHOOSING_BLOCK) {
            choosing->chosen =
                search(choosing->keys, choosing->count, choosing->charged, false).place;
        } else {
            search_block(choosing, choosing->chosen / RP_CHOOSING_BLOCK);
            choose(choosing);
        }
    }
    return choosing->charged > CHARGED_MAX;
}
