/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/run_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/chain.h"
#include "base/file.h"
#include "base/lock_holder.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

#define TAIL_BYTES (1u << 20) /* some thousand entries */
#define TEXT_BYTES 1001
#define JOURNAL_BYTES_MAX (UINT64_C(1) << 30)

char *rp_checkpoint_journal_path(const char *directory)
{
    return rp_asprintf("%s/" RP_RUN_JOURNAL_NAME, directory);
}

json_t *rp_checkpoint_journal_text(const char *text)
{
    char copy[TEXT_BYTES] = {0};
    memcpy(copy, text, strnlen(text, sizeof copy - 1));
    rp_text_make_utf8(copy);
    return json_string(copy);
}

static void add_writer(json_t *entry)
{
    char host[RP_HOST_BYTES];
    rp_host_name(host);
    json_object_set_new(entry, "host", rp_checkpoint_journal_text(host));
    json_object_set_new(entry, "pid", json_integer(getpid()));
}

int rp_checkpoint_journal_append(const char *directory, json_t *entry, struct rp_error *error)
{
    add_writer(entry);
    char *path = rp_checkpoint_journal_path(directory);
    char *text = json_dumps(entry, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(entry);
    int code;
    if (path && text) {
        text[strlen(text) - 1] = 0; /* its braces are the line's */
        code = rp_chain_append(path, text + 1, true, error);
    } else {
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for an entry of the run journal",
                       directory);
    }
    free(text);
    free(path);
    return code;
}

void rp_checkpoint_journal_add_act(const char *directory, json_t *entry)
{
    struct rp_error error;
    char *path = rp_checkpoint_journal_path(directory);
    if (!path || access(path, F_OK) < 0)
        json_decref(entry);
    else if (rp_checkpoint_journal_append(directory, entry, &error) < 0)
        rp_log(RP_LOG_WARNING, "this act is not in the run journal: %s", error.message);
    free(path);
}

/* The last bytes of the file; none if it is empty. */
static char *read_end(const char *path, size_t *bytes)
{
    uint64_t size = 0;
    int fd = rp_file_open_read(path, &size, NULL);
    *bytes = (size_t)rp_min_u64(size, TAIL_BYTES);
    char *text = fd < 0 ? NULL : rp_calloc(1, *bytes + 1);
    if (text && rp_file_read_at(fd, path, text, *bytes, size - *bytes, NULL) < 0) {
        free(text);
        text = NULL;
    }
    if (fd >= 0)
        close(fd);
    return text;
}

static bool is_event(const json_t *value, const char *name)
{
    const char *event = json_string_value(json_object_get(value, "event"));
    return event && strcmp(event, name) == 0;
}

static void replace(json_t **place, json_t *value)
{
    json_decref(*place);
    *place = value;
}

void rp_checkpoint_journal_find_last(const char *directory, struct rp_run_journal_last *last)
{
    size_t bytes = 0;
    struct rp_chain_entry entry;
    char *path = rp_checkpoint_journal_path(directory);
    char *text = path ? read_end(path, &bytes) : NULL;
    struct rp_chain_reader reader = {.text = text, .bytes = text ? bytes : 0};
    *last = (struct rp_run_journal_last){NULL, NULL};
    while (rp_chain_next(&reader, &entry)) {
        json_t *value = json_loadb(entry.text, entry.bytes, 0, NULL);
        if (is_event(value, "started")) {
            replace(&last->started, json_incref(value));
            replace(&last->stopped, NULL);
        } else if (is_event(value, "stopped")) {
            replace(&last->stopped, json_incref(value));
        }
        json_decref(value);
    }
    free(text);
    free(path);
}

/* ---- records --------------------------------------------------------------------------------- */

static bool is_fresh_start(const json_t *value)
{
    const char *policy = json_string_value(json_object_get(value, "policy"));
    return is_event(value, "started") && policy && strcmp(policy, "fresh") == 0;
}

/* The entries `weights` and `documents` after the last fresh start. */
static json_t *list_records(const char *text, size_t bytes)
{
    struct rp_chain_entry entry;
    struct rp_chain_reader reader = {.text = text, .bytes = bytes};
    json_t *list = json_array();
    while (list && rp_chain_next(&reader, &entry)) {
        json_t *value = json_loadb(entry.text, entry.bytes, 0, NULL);
        if (is_fresh_start(value))
            json_array_clear(list);
        if (is_event(value, "weights") || is_event(value, "documents"))
            json_array_append(list, value);
        json_decref(value);
    }
    return list;
}

int rp_checkpoint_journal_records(const char *directory, rp_run_journal_record *call, void *context,
                                  struct rp_error *error)
{
    char *text = NULL, *path = rp_checkpoint_journal_path(directory);
    size_t bytes = 0, at;
    json_t *list = NULL, *entry;
    int code = path ? 0 : rp_fail(error, -ENOMEM, NULL, "%s: no memory for its path", directory);
    if (code == 0 && access(path, F_OK) < 0 && errno == ENOENT) {
        free(path);
        return 0;
    }
    if (code == 0)
        code = rp_file_read_all(path, JOURNAL_BYTES_MAX, &text, &bytes, error);
    if (code >= 0 && !(list = list_records(text, bytes)))
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for its entries", path);
    json_array_foreach(list, at, entry)
    {
        bool is_documents = is_event(entry, "documents");
        const char *values = json_string_value(
            json_object_get(entry, is_documents ? "documents" : "weights"));
        json_int_t row = json_integer_value(json_object_get(entry, "row"));
        if (code >= 0 && values && row > 0)
            code = call(context, (uint64_t)row, is_documents, values, error);
    }
    json_decref(list);
    free(text);
    free(path);
    return code;
}
