/* SPDX-License-Identifier: Apache-2.0 */
/* side.c — one of the two paths: its position, and the config that plans its rows. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"
#include "cmd_run.h"
#include "cmd_state.h"
#include "state/state_streams.h"
#include "stream_version.h"

static bool is_checkpoint(const char *path)
{
    return rp_cmd_is_directory(path) || rp_checkpoint_is_file(path);
}

/* `from`: the side with the token that a config without `stream_version` would continue from. */
static int read_config(struct rp_audit_side *side, const char *path,
                       const struct rp_audit_side *from, struct rp_error *error)
{
    int code = rp_cmd_config_read_file(&side->config, path, error);
    if (code >= 0 && rp_saved_stream())
        code = rp_config_set(&side->config, "stream", rp_saved_stream(), error);
    if (code >= 0) {
        rp_version_keep(&side->config, from->token, from->token_bytes);
        code = rp_config_finish(&side->config, error);
    }
    if (code == 0 && side->config.is_repeated && is_checkpoint(side->path))
        code = rp_fail(error, -RP_E_USAGE, "give a state of a trainer, which has all streams",
                       "--stream %s: checkpoint %s has the main stream only", rp_saved_stream(),
                       side->path);
    if (code < 0)
        return code;
    side->has_config = true;
    side->config_path = strdup(path);
    return side->config_path ? 0 : rp_fail(error, -ENOMEM, NULL, "%s: no memory", path);
}

/* A checkpoint keeps the config of its run, with absolute paths. */
static int read_kept_config(struct rp_audit_side *side, struct rp_error *error)
{
    struct rp_checkpoint *checkpoint;
    size_t bytes = 0;
    int code = rp_cmd_open_checkpoint(&checkpoint, side->path, error);
    if (code < 0)
        return code;
    const char *text = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONFIG, &bytes);
    if (text && bytes > 0)
        code = read_config(side, rp_checkpoint_path(checkpoint), side, error);
    rp_checkpoint_close(checkpoint);
    return code;
}

static int read_token(struct rp_audit_side *side, struct rp_error *error)
{
    struct rp_state_info info;
    int code = rp_cmd_read_state(side->path, &side->token, &side->token_bytes, error);
    if (code < 0)
        return code;
    code = rp_state_info(side->token, side->token_bytes, &info, error);
    if (code == 0)
        code = rp_state_contract(side->token, side->token_bytes, &side->stream, error);
    if (code < 0)
        return rp_fail_context(error, code, "%s", side->path);
    side->row = info.next_row;
    side->digest = info.digest;
    return 0;
}

bool rp_audit_is_config(const char *path)
{
    return !is_checkpoint(path) && !rp_cmd_is_state(path);
}

int rp_audit_side_open(struct rp_audit_side *side, const char *path, const char *config,
                       const struct rp_audit_side *other, struct rp_error *error)
{
    *side = (struct rp_audit_side){.path = path};
    rp_config_init(&side->config);
    if (rp_audit_is_config(path))
        return read_config(side, path, other, error);
    int code = read_token(side, error);
    if (code == 0 && config)
        code = read_config(side, config, side, error);
    else if (code == 0 && is_checkpoint(path))
        code = read_kept_config(side, error);
    return code;
}

static bool is_token_of_version_2(const struct rp_audit_side *side)
{
    struct rp_state_info info;
    return side->token && rp_state_info(side->token, side->token_bytes, &info, NULL) == 0 &&
           info.stream_version == 2;
}

/* A token of version 2 does not have its stages: they are in its config, and in its contract. */
static int complete_contract(struct rp_audit_side *side, struct rp_error *error)
{
    if (!is_token_of_version_2(side))
        return 0;
    int code = rp_audit_side_plan(side, error);
    if (code < 0)
        return code;
    free(side->stream.text);
    side->stream = (struct rp_record_writer){0};
    rp_plan_contract(side->walk.plan, &side->stream);
    return side->stream.out_of_memory
               ? rp_fail(error, -ENOMEM, NULL, "%s: no memory for its contract", side->path)
               : 0;
}

int rp_audit_side_borrow(struct rp_audit_side *side, const struct rp_audit_side *other,
                         struct rp_error *error)
{
    int code = side->has_config || !other->has_config
                   ? 0
                   : read_config(side, other->config_path, side, error);
    return code == 0 && side->has_config ? complete_contract(side, error) : code;
}

void rp_audit_side_close(struct rp_audit_side *side)
{
    if (side->is_open)
        rp_walk_close(&side->walk);
    rp_config_free(&side->config);
    free(side->stream.text);
    free(side->token);
    free(side->config_path);
}

int rp_audit_side_plan(struct rp_audit_side *side, struct rp_error *error)
{
    if (side->is_open)
        return 0;
    bool is_started = is_token_of_version_2(side);
    struct rp_contract contract;
    char *text = NULL;
    bool is_known = is_started && rp_cmd_read_contract(side->path, &text, &contract);
    int code = rp_walk_open(&side->walk, &side->config, is_started ? side->token : NULL,
                            is_started ? side->token_bytes : 0, is_known ? &contract.stream : NULL,
                            error);
    free(text);
    side->is_open = code == 0;
    return code < 0 ? rp_fail_context(error, code, "%s", side->path) : 0;
}

int rp_audit_side_place(struct rp_audit_side *side, uint64_t row, struct rp_error *error)
{
    int code = rp_audit_side_plan(side, error);
    if (code == 0)
        code = rp_walk_to(&side->walk, row, error);
    if (code > 0)
        return rp_fail(error, -RP_E_USAGE, "give a row that it has: `--row ROW`",
                       "%s: its stream ends with row %" PRIu64 ", before row %" PRIu64, side->path,
                       side->walk.end_row, row);
    if (code < 0)
        return code;
    rp_plan_contract(side->walk.plan, &side->stream);
    if (side->stream.out_of_memory)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its contract", side->path);
    side->row = row;
    side->digest = rp_plan_digest(side->walk.plan);
    return 0;
}
