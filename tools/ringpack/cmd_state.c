/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd_state.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "plan/token_records.h"
#include "state/state_file.h"
#include "state/state_search.h"
#include "state/state_streams.h"

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

/* Keep the chosen stream's token from the bytes of a state. */
static int keep_stream(char *state, size_t *bytes, struct rp_error *error)
{
    size_t offset, length;
    int code = rp_saved_find_stream(state, *bytes, &offset, &length, error);
    if (code < 0)
        return code;
    memmove(state, state + offset, length);
    *bytes = without_padding(state, length);
    return 0;
}

bool rp_cmd_is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

int rp_cmd_open_checkpoint(struct rp_checkpoint **checkpoint, const char *path,
                           struct rp_error *error)
{
    if (!rp_cmd_is_directory(path))
        return rp_checkpoint_open(checkpoint, path, error);
    int code = rp_checkpoint_newest(checkpoint, path, false, error);
    if (code == 0)
        return rp_fail(error, -RP_E_EMPTY, "give the checkpoint directory of a run",
                       "%s: no checkpoint is here", path);
    return code < 0 ? code : 0;
}

int rp_cmd_copy_section(const struct rp_checkpoint *checkpoint,
                        enum rp_checkpoint_section_type type, char **copy, size_t *bytes,
                        struct rp_error *error)
{
    const void *section = rp_checkpoint_section(checkpoint, type, bytes);
    *copy = section ? malloc(*bytes + 1) : NULL;
    if (*copy)
        memcpy(*copy, section, *bytes);
    return *copy || !section ? 0
                             : rp_fail(error, -ENOMEM, NULL, "%s: no memory for its section %d",
                                       rp_checkpoint_path(checkpoint), type);
}

static int read_checkpoint(const char *path, char **state, size_t *bytes, char **file,
                           struct rp_error *error)
{
    struct rp_checkpoint *checkpoint = NULL;
    int code = rp_cmd_open_checkpoint(&checkpoint, path, error);
    if (code < 0)
        return code;
    code = rp_cmd_copy_section(checkpoint, RP_CHECKPOINT_STATE, state, bytes, error);
    *file = strdup(rp_checkpoint_path(checkpoint));
    if (code == 0 && !*state)
        code = rp_fail(error, -RP_E_CORRUPT, "take another checkpoint of this run",
                       "%s: the checkpoint has no state", path);
    else if (code == 0 && !*file)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for its state", path);
    rp_checkpoint_close(checkpoint);
    return code;
}

static int read_any_form(const char *path, char **state, size_t *bytes, char **file,
                         struct rp_error *error)
{
    if (rp_cmd_is_directory(path) || rp_checkpoint_is_file(path))
        return read_checkpoint(path, state, bytes, file, error);
    *file = strdup(path);
    if (!*file)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its name", path);
    int code = rp_saved_read(path, state, bytes, error);
    if (code != 0)
        return code < 0 ? code : 0;
    code = rp_file_read_all(path, RP_SAVED_BYTES_MAX, state, bytes, error);
    return code < 0 ? code : keep_stream(*state, bytes, error);
}

int rp_cmd_read_state_of(const char *path, char **state, size_t *bytes, char **file,
                         struct rp_error *error)
{
    struct rp_state_info info;
    *state = *file = NULL;
    int code = read_any_form(path, state, bytes, file, error);
    if (code >= 0 && *bytes == 0)
        code = rp_fail(error, -RP_E_CORRUPT, "nothing was read; give the file of a state token",
                       "%s: expected a state token, found an empty file", path);
    else if (code >= 0 && (code = rp_state_info(*state, *bytes, &info, error)) < 0)
        code = rp_fail_context(error, code, "%s", path);
    if (code < 0) {
        free(*state);
        free(*file);
        *state = *file = NULL;
    }
    return code;
}

int rp_cmd_read_state(const char *path, char **state, size_t *bytes, struct rp_error *error)
{
    char *file;
    int code = rp_cmd_read_state_of(path, state, bytes, &file, error);
    free(file);
    return code;
}

bool rp_cmd_read_contract(const char *path, char **text, struct rp_contract *contract)
{
    struct rp_checkpoint *checkpoint;
    size_t bytes;
    *text = NULL;
    if ((!rp_cmd_is_directory(path) && !rp_checkpoint_is_file(path)) ||
        rp_cmd_open_checkpoint(&checkpoint, path, NULL) < 0)
        return false;
    int code = rp_cmd_copy_section(checkpoint, RP_CHECKPOINT_CONTRACT, text, &bytes, NULL);
    rp_checkpoint_close(checkpoint);
    if (code == 0 && *text && rp_contract_open(contract, *text, bytes, NULL) == 0)
        return true;
    free(*text);
    *text = NULL;
    return false;
}

bool rp_cmd_is_state(const char *path)
{
    return rp_file_begins(path, RP_TOKEN_MAGIC, sizeof RP_TOKEN_MAGIC) || rp_saved_claimed(path);
}
