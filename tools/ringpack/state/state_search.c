/* SPDX-License-Identifier: Apache-2.0 */
#include "state/state_search.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "plan/token_records.h"
#include "state/state_streams.h"

#define LENGTH_AT 12u /* u32 of a token: its length in bytes */

int rp_saved_take(struct rp_saved_search *search, const void *state, size_t state_bytes,
                  struct rp_error *error)
{
    struct rp_state_info info;
    struct rp_error found;
    size_t offset, bytes;
    int code = rp_saved_find_stream(state, state_bytes, &offset, &bytes, &found);
    const uint8_t *data = (const uint8_t *)state + offset;
    size_t length = bytes;
    if (bytes >= LENGTH_AT + sizeof(uint32_t))
        length = (size_t)rp_min_u64(bytes, rp_load_u32(data + LENGTH_AT));
    if (code == 0)
        code = rp_state_info(data, length, &info, &found);
    if (code < 0)
        return rp_fail(error, code, found.hint, "%s: %s", search->path, found.message);
    if (search->token && search->token_bytes == length && memcmp(search->token, data, length) == 0)
        return 0;
    if (search->token)
        return rp_fail(error, -RP_E_CORRUPT,
                       "give a file with one state: what state_dict() returned, saved alone",
                       "%s: two state tokens that differ are in it, one of row %" PRIu64,
                       search->path, info.next_row);
    search->token = malloc(length);
    if (!search->token)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a state token", search->path);
    memcpy(search->token, data, length);
    search->token_bytes = length;
    return 0;
}

int rp_saved_take_text(struct rp_saved_search *search, const char *text, struct rp_error *error)
{
    size_t bytes;
    uint8_t *data = rp_base64_decode(text, &bytes);
    int code = data
                   ? rp_saved_take(search, data, bytes, error)
                   : rp_fail(error, -RP_E_CORRUPT, "give the return value of state_dict(text=True)",
                             "%s: the text of %s is not base64", search->path, RP_STATE_KEY);
    free(data);
    return code;
}
