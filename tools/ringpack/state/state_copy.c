/* SPDX-License-Identifier: Apache-2.0 */
/* state_copy.c — `ringpack checkpoint export` and `import`. */
#include "state/state_copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/run_journal.h"
#include "cmd.h"
#include "cmd_state.h"
#include "plan/plan.h"
#include "ringpack/client.h"
#include "state/state_file.h"

/* The position of a running engine is taken from a checkpoint that it saves now. */
static int read_of_run(const struct rp_saved_copy *copy, char **token, size_t *bytes,
                       char **directory, struct rp_error *error)
{
    char *path;
    *token = NULL;
    int code = rp_run_checkpoint(copy->run_dir, copy->run, &path, error);
    if (code < 0)
        return code;
    code = rp_cmd_read_state(path, token, bytes, error);
    *directory = rp_path_directory(path);
    rp_text_free(path);
    return code;
}

/* The checkpoint directory of the exported state; NULL: it has none. */
static char *directory_of(const char *path)
{
    bool is_directory = rp_cmd_is_directory(path);
    if (!is_directory && !rp_checkpoint_is_file(path))
        return NULL;
    return is_directory ? strdup(path) : rp_path_directory(path);
}

/* An export is journaled in the directory of the state, an import in the target directory. */
static void journal_copy(const char *directory, const struct rp_saved_copy *copy,
                         const struct rp_state_info *info)
{
    char hex[RP_HASH_HEX_BYTES];
    json_t *entry = json_pack(
        "{s:s, s:I, s:s, s:o, s:I}", "event", copy->is_import ? "imported" : "exported", "row",
        (json_int_t)info->next_row, "plan_digest", rp_hash128_hex(info->digest, hex), "output",
        rp_checkpoint_journal_text(copy->output), "uid", (json_int_t)getuid());
    if (copy->is_import)
        json_object_set_new(entry, "input", rp_checkpoint_journal_text(copy->path));
    rp_checkpoint_journal_add_act(directory, entry);
}

static void report(const struct rp_saved_copy *copy, const struct rp_state_info *info)
{
    char row[RP_CMD_TEXT_BYTES];
    if (copy->json)
        rp_cmd_print_json(json_pack("{s:o, s:I, s:I}", "path", rp_cmd_json_text(copy->output),
                                    "row", (json_int_t)info->next_row, "bytes",
                                    (json_int_t)info->bytes));
    else
        printf("%s: the state token of row %s, %" PRIu32 " bytes\n", copy->output,
               rp_cmd_count_text(info->next_row, row), info->bytes);
}

int rp_saved_copy(const struct rp_saved_copy *copy)
{
    struct rp_error error;
    struct rp_state_info info;
    char *token, *directory = NULL;
    size_t bytes;
    int code = copy->run ? read_of_run(copy, &token, &bytes, &directory, &error)
                         : rp_cmd_read_state(copy->path, &token, &bytes, &error);
    if (code >= 0) {
        code = rp_state_info(token, bytes, &info, &error);
        if (code < 0)
            code = rp_fail_context(&error, code, "%s", copy->run ? copy->run : copy->path);
    }
    if (code >= 0)
        code = copy->is_import ? rp_file_replace(copy->output, token, bytes, &error)
                               : rp_saved_write(copy->output, token, bytes, &error);
    if (code >= 0 && !copy->run)
        directory = copy->is_import ? rp_path_directory(copy->output) : directory_of(copy->path);
    if (code >= 0 && directory)
        journal_copy(directory, copy, &info);
    if (code >= 0)
        report(copy, &info);
    free(directory);
    free(token);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}
