/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_state.c — see cmd_state.h. */
#include "cmd_state.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "plan/token_records.h"

#define STATE_BYTES_MAX (64u << 20)
#define LENGTH_AT 12u /* u32 of a token: its length in bytes */

/* The length of the token according to its header, if only zeros follow; otherwise `bytes`. */
static size_t without_padding(const char *state, size_t bytes)
{
    uint32_t length;
    if (bytes < LENGTH_AT + sizeof length)
        return bytes;
    memcpy(&length, state + LENGTH_AT, sizeof length);
    size_t end = bytes;
    while (end > length && state[end - 1] == 0)
        end--;
    return length > 0 && end == length ? end : bytes;
}

static int read_checkpoint(const char *path, char **state, size_t *bytes, struct rp_error *error)
{
    struct rp_checkpoint *checkpoint = NULL;
    int code = rp_checkpoint_open(&checkpoint, path, error);
    if (code < 0)
        return code;
    const void *section = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, bytes);
    *state = section ? malloc(*bytes) : NULL;
    if (!section)
        code = rp_fail(error, -RP_E_CORRUPT, "take another checkpoint of this run",
                       "%s: the checkpoint has no state", path);
    else if (!*state)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for its state", path);
    else
        memcpy(*state, section, *bytes);
    rp_checkpoint_close(checkpoint);
    return code;
}

int rp_cmd_read_state(const char *path, char **state, size_t *bytes, struct rp_error *error)
{
    *state = NULL;
    if (rp_checkpoint_is_file(path))
        return read_checkpoint(path, state, bytes, error);
    int code = rp_file_read_all(path, STATE_BYTES_MAX, state, bytes, error);
    if (code >= 0)
        *bytes = without_padding(*state, *bytes);
    return code;
}

bool rp_cmd_is_state(const char *path)
{
    char magic[sizeof RP_TOKEN_MAGIC];
    int fd = rp_file_open_read(path, NULL, NULL);
    bool is_one = fd >= 0 && pread(fd, magic, sizeof magic, 0) == sizeof magic &&
                  memcmp(magic, RP_TOKEN_MAGIC, sizeof magic) == 0;
    if (fd >= 0)
        close(fd);
    return is_one;
}
