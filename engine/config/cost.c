/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c — see cost.h.
 *
 * K follows from the operations of one layer, forward and backward. A multiplication and addition
 * are 2 of them.
 *
 *   - Matrices: each weight takes part in one product forward and two backward: 6·P for a token,
 *     with P weights. They are q and o (hidden × heads·head_dim each), k and v (hidden ×
 *     kv_heads·head_dim each) and the feed-forward network (hidden × ffn, 3 if gated, else 2). The
 *     logits (hidden × vocab) are shared out over the layers.
 *   - Attention: two products forward, and five backward, which compute the scores once more, as
 *     flash attention does: 7·2·heads·head_dim for a pair of tokens, of which a causal fragment of
 * l tokens has l²/2. So 7·heads·head_dim·l².
 *
 * l·(K + l) has the ratio K = 6·P / (7·heads·head_dim), times RATE, because attention reaches a
 * smaller part of a GPU's rate than matrix products. RATE was fitted to two models on an H100 with
 * bf16: 0.57 (hidden 2048, 16 heads, 8 kv_heads, ffn 8192: K is 15,072) and 0.52 (4096, 32, 8,
 * 14336: 23,866). With 0.55 the results are 14,482 and 25,102: 4 % below and 5 % above. */
#include "config/cost.h"

#include <inttypes.h>

#include "base/bits.h"

/* 0.55 as a fraction */
#define RATE_OF 11u
#define RATE_IN 20u
#define LAYERS_MAX 64u /* b of struct rp_cost */

void rp_config_cost_set_standard(struct rp_config_cost *cost)
{
    *cost = (struct rp_config_cost){.cost = {.k = RP_COST_K_STANDARD, .b = 1},
                                    .k = RP_COST_K_STANDARD,
                                    .gated = true,
                                    .layers = 1};
}

struct finishing {
    struct rp_config_cost *cost;
    const struct rp_config_place *places;
    struct rp_key_place place;
    struct rp_error *error;
};

static struct rp_key_place place_of(const struct finishing *f, const char *name)
{
    size_t i = rp_key_index(&rp_cost_key_list, name);
    struct rp_key_place place = f->place;
    if (i < rp_cost_key_list.count && f->places[i].line) {
        place.line = f->places[i].line;
        place.column = f->places[i].column;
    }
    return place;
}

static bool is_given(const struct finishing *f, const char *name)
{
    size_t i = rp_key_index(&rp_cost_key_list, name);
    RP_ASSERT(i < rp_cost_key_list.count);
    return f->places[i].line != 0;
}

#define FAIL(f, key, hint, ...) rp_key_fail(place_of(f, key), "cost", hint, (f)->error, __VA_ARGS__)

/* `weights` are below 2^44, and there are at most 2^12 layers, so all products are below 2^62. */
static int k_of_model(const struct finishing *f)
{
    struct rp_config_cost *cost = f->cost;
    static const char *const required[] = {"hidden", "heads", "ffn"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(required); i++)
        if (!is_given(f, required[i]))
            return FAIL(f, "", "`ringpack calibrate` measures K; or give {k: N}",
                        "`%s` is required without `k`", required[i]);
    uint64_t hidden = cost->hidden, heads = cost->heads;
    uint64_t kv_heads = cost->kv_heads ? cost->kv_heads : heads;
    if (heads % kv_heads != 0)
        return FAIL(f, "kv_heads", NULL,
                    "heads: expected a multiple of kv_heads %" PRIu64 ", found %" PRIu64, kv_heads,
                    heads);
    if (!cost->head_dim && hidden % heads != 0)
        return FAIL(f, "hidden", "give `head_dim`",
                    "hidden %" PRIu64 " is no multiple of heads %" PRIu64, hidden, heads);
    if (cost->vocab && !is_given(f, "layers"))
        return FAIL(f, "vocab", "give the number of all layers as `layers`",
                    "`vocab` is shared out over the layers");
    uint64_t head_dim = cost->head_dim ? cost->head_dim : hidden / heads;
    if (head_dim > UINT64_C(1) << 12)
        return FAIL(f, "hidden", "give `head_dim`",
                    "head_dim: expected 1 … 4096, found hidden / heads, which is %" PRIu64,
                    head_dim);
    uint64_t weights = 2 * hidden * head_dim * (heads + kv_heads) +
                       (cost->gated ? 3 : 2) * hidden * cost->ffn;
    uint64_t all = cost->layers * weights + hidden * cost->vocab;
    uint64_t k = 6 * RATE_OF * all / (7 * RATE_IN * heads * head_dim * cost->layers);
    if (k >= UINT64_C(1) << 24)
        return FAIL(
            f, "", "give {k: N}",
            "expected a K of at most 16777215 from the numbers of the model, found %" PRIu64, k);
    cost->cost.k = (uint32_t)k;
    return 0;
}

static int take_k(const struct finishing *f)
{
    static const char *const of_model[] = {"hidden",   "ffn",   "heads", "kv_heads",
                                           "head_dim", "gated", "vocab"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(of_model); i++)
        if (is_given(f, of_model[i]))
            return FAIL(f, of_model[i], "keep one of the two",
                        "both `k` and `%s`, from which it would follow, are given", of_model[i]);
    f->cost->cost.k = f->cost->k;
    return 0;
}

static int take_windows(const struct finishing *f)
{
    struct rp_config_cost *cost = f->cost;
    if (!cost->attention_window)
        return is_given(f, "window_layers")
                   ? FAIL(f, "window_layers", "give `attention_window`, in tokens",
                          "`window_layers` have no window")
                   : 0;
    uint64_t b = cost->layers, h = is_given(f, "window_layers") ? cost->window_layers : b;
    if (h > b)
        return FAIL(f, "window_layers", NULL,
                    "window_layers %" PRIu64 " are more than layers %" PRIu64, h, b);
    uint64_t divisor = rp_gcd_u64(h, b);
    h /= divisor;
    b /= divisor;
    if (b > LAYERS_MAX)
        return FAIL(f, "layers", "give a ratio near it, such as {window_layers: 5, layers: 6}",
                    "expected window_layers of layers as a ratio of numbers up to %u, found "
                    "%" PRIu64 " of %" PRIu64,
                    LAYERS_MAX, h, b);
    cost->cost.w = cost->attention_window;
    cost->cost.h = (uint8_t)h;
    cost->cost.b = (uint8_t)b;
    return 0;
}

int rp_config_cost_finish(struct rp_config_cost *cost, const struct rp_config_place *places,
                          struct rp_key_place place, struct rp_error *error)
{
    const struct finishing f = {cost, places, place, error};
    cost->cost = (struct rp_cost){.b = 1};
    cost->is_given = true;
    int code = cost->k ? take_k(&f) : k_of_model(&f);
    return code < 0 ? code : take_windows(&f);
}
