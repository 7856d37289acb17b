/* SPDX-License-Identifier: Apache-2.0 */
/* stream_version.h — the stream version of a config that has no `stream_version`: a run stays in
 * its version, and a new one is of RP_STREAM_VERSION_NEW (plan/STREAM2.md section 12.6). */
#ifndef RP_STREAM_VERSION_H
#define RP_STREAM_VERSION_H

#include <stddef.h>

#include "config/config.h"

/** Give a config the version of the state token that a start of it continues from: of `token`, or
 * if that is NULL, of the newest checkpoint of its directory, or of the mirror. A config
 * that has the key, and a start without a state, stay as they are. Call it before rp_config_finish.
 */
void rp_version_keep(struct rp_config *config, const void *token, size_t bytes);

/** Log the version of a run that a start begins, or that continues in an older one. */
void rp_version_tell(const struct rp_config *config);

#endif
