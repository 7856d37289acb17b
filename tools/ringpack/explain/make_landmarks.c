/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/make_landmarks.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "base/clock.h"
#include "explain/walk.h"
#include "interrupt.h"
#include "plan/v2/spec.h"

#define PROGRESS_ROWS 4096u

struct making {
    struct rp_walk walk;
    uint64_t first, row; /* planned from, and to */
    double seconds;
};

static int fail_unwritten(const struct rp_landmarks *landmarks, struct rp_error *error)
{
    if (!landmarks->path)
        return rp_fail(error, -RP_E_CONFIG, "give `--cache-dir DIR`, a directory that can be made",
                       "there is no directory for landmarks");
    return rp_fail(error, -RP_E_CONFIG,
                   "wait for the other command; or make room, or give `--cache-dir DIR`, and run "
                   "this again: it continues from the last landmark",
                   "%s: landmarks cannot be added: another command adds to this file, or it cannot "
                   "be written",
                   landmarks->path);
}

/* Plan from the last landmark on. Returns 0, also where the stream ends early. */
static int plan_on(struct making *making, uint64_t rows, struct rp_error *error)
{
    struct rp_walk *walk = &making->walk;
    struct rp_cmd_progress progress;
    uint64_t began = rp_now_ns();
    int code = rp_walk_to(walk, rp_landmarks_last_row(&walk->landmarks), error);
    making->first = making->row = rp_plan_row(walk->plan);
    rp_cmd_progress_begin(&progress, "planning rows", false);
    code = code == 0 ? 1 : code;
    while (code == 1 && making->row < rows && walk->landmarks.can_add) {
        struct rp_row passed;
        code = rp_walk_next(walk, &passed, error);
        making->row = rp_plan_row(walk->plan);
        if (making->row % PROGRESS_ROWS == 0)
            rp_cmd_progress(&progress, making->row - making->first,
                            rows < UINT64_MAX ? rows - making->first : 0);
    }
    rp_cmd_progress_end(&progress);
    making->seconds = (double)(rp_now_ns() - began) * 1e-9;
    if (code >= 0 && !walk->landmarks.can_add)
        return fail_unwritten(&walk->landmarks, error);
    return code < 0 ? code : 0;
}

static void report(const struct making *making, bool json)
{
    const struct rp_landmarks *landmarks = &making->walk.landmarks;
    char hex[RP_HASH_HEX_BYTES], count[RP_CMD_TEXT_BYTES], row[RP_CMD_TEXT_BYTES];
    char bytes[RP_CMD_TEXT_BYTES], planned[RP_CMD_TEXT_BYTES], seconds[RP_CMD_TEXT_BYTES];
    if (json) {
        rp_cmd_print_json(json_pack(
            "{s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:f}", "path", rp_cmd_json_text(landmarks->path),
            "stream", rp_hash128_hex(making->walk.identity, hex), "landmarks",
            (json_int_t)landmarks->count, "added", (json_int_t)landmarks->added, "bytes",
            (json_int_t)landmarks->end, "row", (json_int_t)making->row, "planned_rows",
            (json_int_t)(making->row - making->first), "seconds", making->seconds));
        return;
    }
    printf("%s: %s landmarks up to row %s, %s\n", landmarks->path,
           rp_cmd_count_text(landmarks->count, count), rp_cmd_count_text(making->row, row),
           rp_cmd_bytes_text(landmarks->end, bytes));
    printf("planned %s rows in %s; %zu landmarks are new\n",
           rp_cmd_count_text(making->row - making->first, planned),
           rp_cmd_seconds_text(making->seconds, seconds), landmarks->added);
}

/* A source that no limit ends, if it may keep the stream without an end; NULL: the stream ends, by
 * the weights and limits of the first stage. */
static const struct rp_config_source *find_endless(const struct rp_config *config)
{
    const struct rp_config_source *endless = NULL;
    if (config->stream_version == 1)
        return config->num_epochs == 0 ? config->sources : NULL;
    for (uint32_t i = 0; i < config->source_count; i++) {
        const struct rp_config_source *source = &config->sources[i];
        bool ends = source->limits.max_epochs > 0 || source->limits.max_tokens > 0;
        if (source->weight > 0 && ends && source->limits.on_exhausted != RP_EXHAUSTED_CONTINUE)
            return NULL;
        if (source->weight > 0 && !ends && !endless)
            endless = source;
    }
    return endless;
}

int rp_make_landmarks(const struct rp_config *config, uint64_t rows, bool json,
                      struct rp_error *error)
{
    struct making making = {0};
    const struct rp_config_source *endless = rows == 0 ? find_endless(config) : NULL;
    if (endless)
        return rp_fail(error, -RP_E_USAGE, "give `--rows N`: landmarks are made up to row N",
                       "this stream may have no end: source %.256s has no limit", endless->name);
    rp_interrupt_catch();
    int code = rp_walk_open(&making.walk, config, NULL, 0, NULL, error);
    if (code < 0)
        return code;
    code = making.walk.landmarks.can_add ? plan_on(&making, rows ? rows : UINT64_MAX, error)
                                         : fail_unwritten(&making.walk.landmarks, error);
    if (code == 0)
        report(&making, json);
    rp_walk_close(&making.walk);
    return code;
}
