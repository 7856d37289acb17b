/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/preview.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd.h"
#include "cmd_state.h"

static int resume(struct rp_preview *preview, struct rp_plan *plan, const struct rp_config *config,
                  const char *token, size_t bytes, struct rp_error *error)
{
    struct rp_state_info info;
    struct rp_contract contract;
    char *text;
    bool is_known = rp_cmd_read_contract(preview->file, &text, &contract);
    struct rp_plan_start start = {.contract = is_known ? &contract.stream : NULL,
                                  .grow = config->grow};
    int code = rp_state_info(token, bytes, &info, error);
    if (code == 0)
        code = rp_plan_start(plan, token, bytes, &start, error);
    start.accept_weights = true;
    bool is_other = code == -RP_E_MISMATCH && rp_plan_version(plan) == 1 &&
                    rp_plan_start(plan, token, bytes, &start, NULL) == 0;
    free(text);
    if (is_other) {
        preview->has_other_weights = true;
        preview->weights = *error;
        code = 0;
    }
    if (code < 0)
        return code;
    preview->epochs = info.config.num_epochs;
    preview->has_other_epochs = info.stream_version == 1 && preview->epochs != config->num_epochs;
    preview->row = rp_plan_row(plan);
    rp_plan_counts(plan, &preview->counts);
    return 0;
}

int rp_preview_begin(struct rp_preview *preview, struct rp_plan *plan,
                     const struct rp_config *config, struct rp_error *error)
{
    char *token = NULL;
    size_t bytes;
    if (!preview->path)
        return 0;
    int code = rp_cmd_read_state_of(preview->path, &token, &bytes, &preview->file, error);
    if (code >= 0)
        code = resume(preview, plan, config, token, bytes, error);
    free(token);
    return code;
}

void rp_preview_close(struct rp_preview *preview)
{
    free(preview->file);
    preview->file = NULL;
}

void rp_preview_subtract(const struct rp_preview *preview, struct rp_plan_counts *counts)
{
    const struct rp_plan_counts *before = &preview->counts;
    counts->documents -= before->documents;
    counts->empty -= before->empty;
    counts->passed_over -= before->passed_over;
    counts->left_out -= before->left_out;
    counts->tokens_read -= before->tokens_read;
    counts->truncated -= before->truncated;
    counts->dropped -= before->dropped;
    counts->emitted -= before->emitted;
    counts->padding -= before->padding;
}

static void epochs_text(uint64_t epochs, char text[RP_CMD_TEXT_BYTES])
{
    if (epochs == 0)
        snprintf(text, RP_CMD_TEXT_BYTES, "endless");
    else
        snprintf(text, RP_CMD_TEXT_BYTES, "%" PRIu64, epochs);
}

void rp_preview_print(const struct rp_preview *preview, const struct rp_config *config)
{
    char row[RP_CMD_TEXT_BYTES], had[RP_CMD_TEXT_BYTES], has[RP_CMD_TEXT_BYTES];
    if (!preview->path)
        return;
    printf("from row %s, the position of %s\n", rp_cmd_count_text(preview->row, row),
           preview->file);
    if (preview->has_other_weights)
        printf("  %s\n  a start takes these weights with --accept-weights\n",
               preview->weights.message);
    epochs_text(preview->epochs, had);
    epochs_text(config->num_epochs, has);
    if (preview->has_other_epochs)
        printf("  num_epochs differs: the state has %s, this run has %s\n", had, has);
}

void rp_preview_json(const struct rp_preview *preview, json_t *report)
{
    if (!preview->path)
        return;
    json_object_set_new(
        report, "state",
        json_pack("{so sI sb so sI}", "file", rp_cmd_json_text(preview->file), "row",
                  (json_int_t)preview->row, "weights_differ", preview->has_other_weights, "weights",
                  preview->has_other_weights ? rp_cmd_json_text(preview->weights.message)
                                             : json_null(),
                  "num_epochs", (json_int_t)preview->epochs));
}
