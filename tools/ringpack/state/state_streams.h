/* SPDX-License-Identifier: Apache-2.0 */
/* state_streams.h — the state of a Loader that has several streams: the token of the main stream,
 * zeros, and then for each other stream a header of 48 bytes, its token, and zeros.
 *
 *     offset  bytes
 *          0      8  "RPSTREAM"
 *          8      4  bytes that follow the header, little-endian
 *         12     36  name of the stream, and zeros
 *
 * A header begins at a multiple of 8. A reader of one stream finds the main one, because zeros or
 * anything else may follow a token. tools/python/ringpack/_streams.py writes the same. */
#ifndef RP_TOOLS_STATE_STREAMS_H
#define RP_TOOLS_STATE_STREAMS_H

#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

/** From now on, states are this stream's; NULL, or a main stream: the first token. A state
 * without other streams is taken as it is. */
void rp_saved_choose_stream(const char *name);
const char *rp_saved_stream(void);

/** Find the token of the chosen stream in the bytes of a state: its offset, and the bytes from
 * there on. -RP_E_USAGE lists the streams if it is not there. */
RP_MUST_CHECK int rp_saved_find_stream(const void *data, size_t bytes, size_t *offset,
                                       size_t *length, struct rp_error *error);

#endif
