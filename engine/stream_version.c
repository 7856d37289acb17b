/* SPDX-License-Identifier: Apache-2.0 */
/* stream_version.c — see stream_version.h. A checkpoint is only peeked at: the start verifies it,
 * and refuses a token of another version. */
#include "stream_version.h"

#include <string.h>

#include "base/defect.h"
#include "checkpoint/checkpoint.h"
#include "plan/plan.h"

/* The first bytes of the token that a start without `--state` continues from. */
static bool find_token(const struct rp_config *config, uint8_t token[RP_STATE_HEAD_BYTES])
{
    const char *directory = config->checkpoint_dir, *copies = config->checkpoint_mirror_dir;
    if (!directory || !strcmp(directory, "none") || config->resume == RP_RESUME_FRESH)
        return false;
    return rp_checkpoint_peek(token, RP_STATE_HEAD_BYTES, directory) ||
           (copies && rp_checkpoint_peek(token, RP_STATE_HEAD_BYTES, copies));
}

void rp_stream_keep_version(struct rp_config *config, const void *token, size_t bytes)
{
    uint8_t found[RP_STATE_HEAD_BYTES];
    if (config->stream_version != 0 || RP_DEFECT(forget_version))
        return;
    if (!token && find_token(config, found)) {
        token = found;
        bytes = sizeof found;
    }
    uint32_t version = token && bytes >= sizeof found ? rp_state_head(token).stream_version : 0;
    if (version != 0)
        rp_config_keep_version(config, version);
}
