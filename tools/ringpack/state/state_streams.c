/* SPDX-License-Identifier: Apache-2.0 */
#include "state/state_streams.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"

#define MAGIC "RPSTREAM"
#define MAGIC_BYTES 8u
#define NAME_BYTES 36u
#define HEADER_BYTES 48u
#define LENGTH_AT 12u /* u32 of a token: its length in bytes */

static const char *chosen;

void rp_saved_choose_stream(const char *name)
{
    chosen = name;
}

const char *rp_saved_stream(void)
{
    return chosen;
}

/* The first header at `at` or behind it; `bytes` if no header follows. */
static size_t next_header(const uint8_t *data, size_t bytes, size_t at)
{
    for (at = rp_align_up(at, 8); at + HEADER_BYTES <= bytes; at += 8)
        if (!memcmp(data + at, MAGIC, MAGIC_BYTES))
            return at;
    return bytes;
}

int rp_saved_find_stream(const void *data, size_t bytes, size_t *offset, size_t *length,
                         struct rp_error *error)
{
    char names[512] = "";
    size_t used = 0, at = bytes;
    *offset = 0;
    *length = bytes;
    if (bytes >= LENGTH_AT + sizeof(uint32_t))
        at = next_header(data, bytes, rp_load_u32((const uint8_t *)data + LENGTH_AT));
    if (at == bytes)
        return 0; /* a state of one stream */
    *length = at;
    if (!chosen)
        return 0;
    while (at < bytes) {
        const uint8_t *header = (const uint8_t *)data + at;
        char name[NAME_BYTES + 1] = "";
        memcpy(name, header + HEADER_BYTES - NAME_BYTES, NAME_BYTES);
        size_t room = rp_load_u32(header + MAGIC_BYTES), begin = at + HEADER_BYTES;
        if (room > bytes - begin)
            return rp_fail(error, -RP_E_CORRUPT, "take another state",
                           "the state of stream %.36s is cut short", name);
        if (!strcmp(name, chosen)) {
            *offset = begin;
            *length = room;
            return 0;
        }
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                     name);
        at = next_header(data, bytes, begin + room);
    }
    return rp_fail(error, -RP_E_USAGE, "without --stream, the position of the main stream is taken",
                   "the state has no stream `%.64s`: its other streams are %.200s", chosen, names);
}
