/* SPDX-License-Identifier: Apache-2.0 */
#include "state/token_sources.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd.h"
#include "plan/v2/planner_token.h"

static const char *const outcomes[] = {[RP_EXHAUSTED_CONTINUE] = "continue",
                                       [RP_EXHAUSTED_STOP] = "stop",
                                       [RP_EXHAUSTED_ERROR] = "error"};

static void print_limits(const struct rp_limits *limits)
{
    char text[RP_CMD_TEXT_BYTES];
    if (limits->max_epochs > 0)
        printf("max_epochs %" PRIu32, limits->max_epochs);
    else
        printf("endless");
    if (limits->max_tokens > 0)
        printf(", max_tokens %s", rp_cmd_count_text(limits->max_tokens, text));
    printf(", %s", outcomes[limits->on_exhausted]);
}

/* A forged token may have any bytes in a name. */
static void print_name(const struct rp_planner_token_source *source)
{
    for (const char *at = source->name; *at; at++)
        putchar((unsigned char)*at < 0x20 || *at == 0x7f ? '?' : *at);
}

static void print_source(uint32_t number, const struct rp_planner_token_source *source)
{
    const struct rp_source_state *state = &source->state;
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], c[RP_CMD_TEXT_BYTES];
    printf("  %" PRIu32 " ", number);
    print_name(source);
    printf(": weight %" PRIu32 ", epoch %" PRIu32 ", pass %u, item %s of %s documents\n",
           source->weight, state->epoch, state->pass, rp_cmd_count_text(state->position, a),
           rp_cmd_count_text(state->documents, b));
    printf("    %s tokens of %s documents planned, %s withheld; ",
           rp_cmd_count_text(state->tokens, a), rp_cmd_count_text(state->taken, b),
           rp_cmd_count_text(state->withheld, c));
    print_limits(&source->limits);
    putchar('\n');
    if (source->documents_next != state->documents)
        printf("    %s documents from its next epoch on\n",
               rp_cmd_count_text(source->documents_next, a));
}

void rp_holdings_print(const void *token, size_t bytes)
{
    struct rp_planner_token_info info;
    struct rp_planner_token_source *sources;
    uint32_t count;
    char text[RP_CMD_TEXT_BYTES];
    if (rp_planner_token_info(token, bytes, &info, NULL) < 0)
        return;
    printf("  %-16s%s documents\n", "passed over",
           rp_cmd_count_text(info.counts.passed_over, text));
    printf("  %-16s%s\n", "left out", rp_cmd_count_text(info.counts.left_out, text));
    printf("  %-16s%" PRIu32 ", spread %" PRIu32 ", max_docs_per_row %" PRIu32 "\n", "stages begun",
           info.stages_begun, info.spread, info.max_docs_per_row);
    printf("sources, by number\n");
    int code = rp_planner_token_sources(token, bytes, &sources, &count, NULL);
    for (uint32_t j = 0; code == 0 && j < count; j++)
        print_source(j, &sources[j]);
    free(sources);
}

static json_t *source_json(const struct rp_planner_token_source *source)
{
    const struct rp_source_state *state = &source->state;
    return json_pack(
        "{so sI sI sI sI sI sI sI sI sI sI sI ss}", "source", rp_cmd_json_text(source->name),
        "weight", (json_int_t)source->weight, "epoch", (json_int_t)state->epoch, "pass",
        (json_int_t)state->pass, "position", (json_int_t)state->position, "documents",
        (json_int_t)state->documents, "documents_next", (json_int_t)source->documents_next, "taken",
        (json_int_t)state->taken, "tokens", (json_int_t)state->tokens, "withheld",
        (json_int_t)state->withheld, "max_epochs", (json_int_t)source->limits.max_epochs,
        "max_tokens", (json_int_t)source->limits.max_tokens, "on_exhausted",
        outcomes[source->limits.on_exhausted]);
}

void rp_holdings_json(const void *token, size_t bytes, json_t *value)
{
    struct rp_planner_token_info info = {0};
    struct rp_planner_token_source *sources;
    uint32_t count;
    json_t *ledger = json_array();
    int code = rp_planner_token_info(token, bytes, &info, NULL);
    if (code < 0 || rp_planner_token_sources(token, bytes, &sources, &count, NULL) < 0)
        sources = NULL;
    for (uint32_t j = 0; sources && j < count; j++)
        json_array_append_new(ledger, source_json(&sources[j]));
    free(sources);
    json_object_set_new(value, "ledger", ledger);
    json_object_set_new(value, "stages_begun", json_integer((json_int_t)info.stages_begun));
    json_object_set_new(value, "window_first",
                        json_integer((json_int_t)info.position.window_first));
    json_object_set_new(value, "window_end", json_integer((json_int_t)info.position.window_end));
}
