/* SPDX-License-Identifier: Apache-2.0 */
/* log_read.c — finding and reading a chained file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "audit/log.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/run_journal.h"
#include "cmd_run.h"

#define LOG_BYTES_MAX (1ull << 30)

/* ---- its place ------------------------------------------------------------------------------- */

/* The journal of a run that has an engine. */
static int ask_run(struct rp_audit_log *log, const char *run, const char *run_dir,
                   struct rp_error *error)
{
    char *directory;
    int code = rp_cmd_run_directory(run_dir, run, &directory, error);
    if (code < 0)
        return code;
    log->path = rp_checkpoint_journal_path(directory);
    free(directory);
    return log->path ? 0 : rp_fail(error, -ENOMEM, NULL, "%s: no memory for a path", run);
}

static int find_file(struct rp_audit_log *log, const char *name, const char *run_dir,
                     struct rp_error *error)
{
    struct stat info;
    if (stat(name, &info) < 0 && errno == ENOENT)
        return ask_run(log, name, run_dir, error);
    bool is_directory = S_ISDIR(info.st_mode);
    log->path = is_directory ? rp_checkpoint_journal_path(name) : strdup(name);
    if (!log->path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a path", name);
    if (is_directory && stat(log->path, &info) < 0 && errno == ENOENT)
        return rp_fail(error, -RP_E_EMPTY, "give the checkpoint directory of a run",
                       "%s: no engine has written a run journal here", name);
    return 0;
}

/* ---- its entries ----------------------------------------------------------------------------- */

static int add_entry(struct rp_audit_log *log, const struct rp_chain_entry *chain,
                     struct rp_error *error)
{
    if (!RP_GROW(log->entries, log->room, log->count + 1))
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its entries", log->path);
    json_t *value = json_loadb(chain->text, chain->bytes, 0, NULL);
    if (!json_is_object(value)) { /* its hash is right, so it was written so */
        json_decref(value);
        value = json_object();
    }
    log->entries[log->count++] = (struct rp_audit_log_entry){*chain, value};
    return 0;
}

static int read_entries(struct rp_audit_log *log, struct rp_error *error)
{
    struct rp_chain_reader reader = {.text = log->text, .bytes = log->bytes};
    struct rp_chain_entry chain;
    bool is_whole = true;
    int code = 0;
    while (code == 0 && rp_chain_next(&reader, &chain)) {
        is_whole = is_whole && chain.link != RP_CHAIN_BROKEN;
        log->whole += is_whole;
        code = add_entry(log, &chain, error);
    }
    log->end = reader.end;
    if (code == 0 && log->count == 0)
        return rp_fail(error, -RP_E_FORMAT, "give a run journal, or a checkpoint directory",
                       "%s: none of its %zu bytes are of an entry", log->path, log->bytes);
    return code;
}

static int read_file(struct rp_audit_log *log, struct rp_error *error)
{
    int code = rp_file_read_all(log->path, LOG_BYTES_MAX, &log->text, &log->bytes, error);
    return code < 0 ? code : read_entries(log, error);
}

int rp_audit_log_open(struct rp_audit_log *log, const char *name, const char *run_dir,
                      struct rp_error *error)
{
    *log = (struct rp_audit_log){.path = NULL};
    int code = find_file(log, name, run_dir, error);
    return code < 0 ? code : read_file(log, error);
}

int rp_audit_log_open_of(struct rp_audit_log *log, const char *config_path, const char *stream,
                         const char *run_dir, struct rp_error *error)
{
    struct rp_run_of of;
    *log = (struct rp_audit_log){.path = NULL};
    int code = rp_cmd_run_of(config_path, stream, &of, error);
    if (code == 0)
        code = ask_run(log, of.run, run_dir ? run_dir : of.run_dir, error);
    if (code < 0 && code != -RP_E_TIMEOUT && of.checkpoint_dir)
        code = find_file(log, of.checkpoint_dir, NULL, error);
    rp_cmd_run_free(&of);
    return code < 0 ? code : read_file(log, error);
}

void rp_audit_log_close(struct rp_audit_log *log)
{
    for (size_t i = 0; i < log->count; i++)
        json_decref(log->entries[i].value);
    free(log->entries);
    free(log->text);
    free(log->path);
}

void rp_audit_make_printable(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        if (*c < 0x20 || *c == 0x7f) {
            *c = '?';
        } else if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f) { /* U+0080 to U+009F in UTF-8 */
            *c++ = '?';
            *c = '?';
        }
    }
}

void rp_audit_log_make_printable(struct rp_audit_log *log)
{
    const char *key;
    json_t *value;
    for (size_t i = 0; i < log->count; i++) {
        json_object_foreach(log->entries[i].value, key, value)
        {
            char *copy = json_is_string(value) ? strdup(json_string_value(value)) : NULL;
            if (copy) {
                rp_audit_make_printable(copy);
                json_string_set(value, copy);
            }
            free(copy);
        }
    }
}

const char *rp_audit_log_text(const struct rp_audit_log_entry *entry, const char *key)
{
    return json_string_value(json_object_get(entry->value, key));
}

json_int_t rp_audit_log_number(const struct rp_audit_log_entry *entry, const char *key,
                               json_int_t otherwise)
{
    const json_t *value = json_object_get(entry->value, key);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

bool rp_audit_log_is(const struct rp_audit_log_entry *entry, const char *event)
{
    const char *text = rp_audit_log_text(entry, "event");
    return text && strcmp(text, event) == 0;
}
