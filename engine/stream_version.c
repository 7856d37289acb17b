/* SPDX-License-Identifier: Apache-2.0 */
/* stream_version.c — see stream_version.h. A checkpoint is only peeked at: the start verifies it,
 * and refuses a token of another version. */
#include "stream_version.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
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

void rp_version_keep(struct rp_config *config, const void *token, size_t bytes)
{
    uint8_t found[RP_STATE_HEAD_BYTES];
    if (config->stream_version != 0)
        return;
    if (!token && find_token(config, found)) {
        token = found;
        bytes = sizeof found;
    }
    uint32_t version = token && bytes >= sizeof found ? rp_state_head(token).stream_version : 0;
    if (version != 0)
        rp_config_keep_version(config, version);
}

void rp_version_tell(const struct rp_config *config)
{
    if (config->version_from == RP_VERSION_NEW)
        rp_log(RP_LOG_INFO,
               "stream version %" PRIu32 ", because this run is new (`stream_version: 1` gives the "
               "rows of earlier releases)",
               config->stream_version);
    else if (config->version_from == RP_VERSION_KEPT &&
             config->stream_version != RP_STREAM_VERSION_NEW)
        rp_log(RP_LOG_INFO, "stream version %" PRIu32 ", with which this run has begun",
               config->stream_version);
}
