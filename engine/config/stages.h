/* SPDX-License-Identifier: Apache-2.0 */
/* stages.h — the nested parts of a config: `stages`, `deal`, `skip` and `repeat`, which belong to
 * stream version 2 (engine/plan/STREAM2.md), `cost` and `streams`. rp_config_finish compiles stages
 * and skips to rows. */
#ifndef RP_CONFIG_STAGES_H
#define RP_CONFIG_STAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cost.h"
#include "base/numbering.h"

/* In the file, or in the text of an option; from 1. Line 0: not given. */
struct rp_config_place {
    uint32_t line, column;
};

/* `cost: 15072`, or a mapping from which K follows (config/cost.h). */
struct rp_config_cost {
    bool is_given;
    struct rp_cost cost; /* always set: by default K is RP_COST_K_STANDARD */
    uint32_t k;          /* as given; 0: K follows from the numbers of the model */
    uint32_t hidden, ffn, heads, kv_heads, head_dim, vocab;
    bool gated;
    uint32_t attention_window, window_layers, layers;
};

enum rp_deal_mode { RP_DEAL_OFF, RP_DEAL_AUTO, RP_DEAL_GIVEN };

/* Bits of rp_config_deal.sets, in the order of rp_deal_key_list. */
enum {
    RP_DEAL_WINDOW = 1 << 0,
    RP_DEAL_STEP = 1 << 1,
    RP_DEAL_TIER = 1 << 2,
    RP_DEAL_BUNDLE = 1 << 3,
    RP_DEAL_ORDER = 1 << 4,
    RP_DEAL_COST = 1 << 5,
    RP_DEAL_LAYERS = 7 << 6, /* attention_window, window_layers, layers */
    /* With these it is declared; otherwise a record has it. */
    RP_DEAL_DECLARED = RP_DEAL_WINDOW | RP_DEAL_STEP | RP_DEAL_TIER | RP_DEAL_COST,
};

/* `deal: off | auto | {window: 64, step: 8, tier: 2, cost: 4096}` (STREAM2.md section 8). */
struct rp_config_deal {
    enum rp_deal_mode mode;
    uint32_t sets; /* the keys that are given; others have their default, or 0 */
    struct rp_config_place place;
    uint32_t window, step, tier, bundle; /* rows: Y, T, C, m */
    uint32_t order;                      /* descending | middle | wave | late_wave */
    uint32_t cost;                       /* tokens: K */
    uint32_t attention_window;           /* tokens: w; 0 = all layers attend to all tokens */
    uint32_t window_layers, layers;      /* h of b layers have the window */
};

/* `max_epochs`, `max_tokens`, `on_exhausted` of a source. */
struct rp_config_limits {
    uint64_t max_epochs, max_tokens; /* 0 = endless, none */
    uint32_t on_exhausted;           /* continue | stop | error */
    uint32_t sets;                   /* bits in this order: which of them are given */
};

/* One pair of a mapping by name of a source: `weights: {web: 2}`. */
struct rp_config_of_source {
    char *name;
    struct rp_config_place place;
    uint32_t source; /* its number in `sources`, once the config is finished */
    uint64_t number; /* a weight in millionths, or documents */
    uint32_t weight; /* reduced, once the config is finished */
    char *path;      /* a file of document numbers */
    struct rp_config_limits limits;
};
struct rp_config_by_source {
    struct rp_config_of_source *pairs;
    uint32_t count;
};

enum rp_until { RP_UNTIL_NONE, RP_UNTIL_STEPS, RP_UNTIL_TOKENS, RP_UNTIL_ROW };
struct rp_config_until {
    enum rp_until unit;
    uint64_t number;
};

#define RP_CONFIG_STAGE_KEYS_MAX 20
struct rp_config_stage {
    struct rp_config_place place;
    struct rp_config_place places[RP_CONFIG_STAGE_KEYS_MAX]; /* each key's, as in the table */
    struct rp_config_until until;
    struct rp_config_by_source weights, limits, without, documents;
    uint64_t ramp; /* rows */
    uint64_t global_batch_size;
    uint32_t batch_size;
    uint32_t seq_len, align, packing, packing_buffer, open_bins, row_gap, spread, max_docs_per_row;
    struct rp_config_deal deal;
    bool has_window; /* packing_buffer and open_bins were set by their older name, `window` */
    /* Once the config is finished: the size of its packing, if the stage gives or changes it, else
     * 0; its first row and step, and the values in force. */
    uint32_t window;
    uint64_t from, first_step, step_rows, batch_rows; /* batch_rows: over all ranks */
};

/* Numbers first … end - 1, of rows or of steps. */
struct rp_config_range {
    uint64_t first, end;
    struct rp_config_place place;
};
struct rp_config_ranges {
    struct rp_config_range *ranges;
    uint32_t count;
};
/* `skip: {rows: [100-200], steps: [5000]}`. Once the config is finished, `all` has the rows of
 * both, ascending and not adjacent. */
struct rp_config_skip {
    struct rp_config_ranges rows, steps, all;
};

/* `repeat: {2: "score >= 4"}`, ascending. */
struct rp_config_repeat {
    uint32_t count;
    char *expression;
    struct rp_config_place place;
};
struct rp_config_repeats {
    struct rp_config_repeat *entries;
    uint32_t count;
};

/* `stages: [...]`. None: the whole config is stage 0. */
struct rp_config_stages {
    struct rp_config_stage *stages;
    uint32_t count;
};

/* `streams: {train: {}, eval: {num_epochs: 1}}`. None: the config is of one stream. */
struct rp_config_named_stream {
    char *name;
    char *keys; /* its mapping, as YAML on one line */
    bool saves; /* it has a checkpoint_dir of its own */
    struct rp_config_place place;
};
#define RP_STREAMS_MAX 64u
struct rp_config_streams {
    struct rp_config_named_stream *streams;
    uint32_t count;
    uint32_t chosen; /* its number plus 1; 0: rp_config_choose_stream was not called */
};

/* The sizes of batches and steps by stage. A stage that changes none of them has no entry. */
struct rp_config_batches {
    struct rp_batch_stage *stages;
    uint32_t count;
    uint32_t rows_max;         /* the largest batch_size */
    uint64_t step_batches_max; /* the most micro-batches of a step */
};

#endif
