/* SPDX-License-Identifier: Apache-2.0 */
/* revalidate.h — token files without hashes are checked once more before their tokens count: as
 * contents of a checkpoint, or as delivered by an engine that ends without an error.
 *
 * Invariant: neither a save nor a stop waits longer than RP_REVALIDATE_SECONDS for the disk. */
#ifndef RP_SERVER_REVALIDATE_H
#define RP_SERVER_REVALIDATE_H

#include "server/engine.h"

#define RP_REVALIDATE_SECONDS 3u

/** Request a check of the files of all tokens copied until now. Its result is also the one of
 * earlier requests, within the time of the first. */
void rp_engine_request_revalidation(struct rp_engine *engine);
/** If a result is there, pass it to the saver. Negative: the engine must fail, because it is
 * stopping and a file has changed, which *engine->life.error names. An engine that continues gets
 * that error from the flow, after the batches that are planned already. */
RP_MUST_CHECK int rp_engine_poll_revalidation(struct rp_engine *engine);
/** Has a check come too late, and has it still no result? A thread then hangs at the disk, and must
 * not be waited for. */
bool rp_engine_disk_is_silent(const struct rp_engine *engine);

#endif
