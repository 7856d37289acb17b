/* SPDX-License-Identifier: Apache-2.0 */
/* run_record.c — see run_record.h.
 *
 * The host is part of the name, because machines may share a home directory while the same path
 * leads to different checkpoint directories. The path is canonical, so that links to a directory
 * have the same record. */
#include "checkpoint/run_record.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/file.h"
#include "base/lock_holder.h"
#include "base/mem.h"
#include "base/record.h"
#include "base/text.h"

#define RECORD_BYTES_MAX 4096u

char *rp_checkpoint_run_record_dir(const char *chosen, const char **why)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    *why = "out of memory";
    if (chosen)
        return strdup(chosen);
    if (state && state[0] == '/')
        return rp_asprintf("%s/ringpack", state);
    if (home && home[0] == '/')
        return rp_asprintf("%s/.local/state/ringpack", home);
    *why = "neither XDG_STATE_HOME nor HOME is set";
    return NULL;
}

char *rp_checkpoint_run_record_path(const char *record_dir, const char *run, const char *directory)
{
    char host[RP_HOST_BYTES], hex[RP_HASH_HEX_BYTES];
    char *canonical = realpath(directory, NULL);
    if (!canonical)
        return NULL;
    rp_host_name(host);
    struct rp_hasher hasher;
    rp_hasher_begin(&hasher);
    rp_hasher_add(&hasher, host, strlen(host) + 1);
    rp_hasher_add(&hasher, run, strlen(run) + 1);
    rp_hasher_add(&hasher, canonical, strlen(canonical));
    free(canonical);
    rp_hash128_hex(rp_hasher_finish(&hasher), hex);
    return rp_asprintf("%s/%s-%.16s.record", record_dir, run, hex);
}

/* ---- the file -------------------------------------------------------------------------------- */

static bool get_text(const struct rp_record *record, const char *name, char *text, size_t bytes)
{
    struct rp_field field;
    if (!rp_record_find(record, name, &field) || field.value_bytes >= bytes)
        return false;
    memcpy(text, field.value, field.value_bytes);
    text[field.value_bytes] = 0;
    return true;
}

static bool get_number(const struct rp_record *record, const char *name, uint64_t *number)
{
    char text[24];
    return get_text(record, name, text, sizeof text) && rp_text_u64(text, number);
}

int rp_checkpoint_run_record_read(struct rp_run_record *out, const char *path,
                                  struct rp_error *error)
{
    struct stat info;
    struct rp_record record;
    char *text;
    size_t bytes;
    *out = (struct rp_run_record){.row = 0};
    if (stat(path, &info) < 0 && errno == ENOENT)
        return 0;
    int code = rp_file_read_all(path, RECORD_BYTES_MAX, &text, &bytes, error);
    if (code < 0)
        return code;
    code = rp_record_open(&record, text, bytes, error);
    bool is_whole = code == 0 && get_text(&record, "id", out->id, sizeof out->id) &&
                    rp_directory_id_is_valid(out->id) && get_number(&record, "row", &out->row) &&
                    get_number(&record, "device", &out->device) &&
                    get_text(&record, "date", out->date, sizeof out->date);
    free(text);
    return is_whole ? 1 : rp_fail(error, -RP_E_CORRUPT, NULL, "%s: the record is damaged", path);
}

int rp_checkpoint_run_record_write(struct rp_run_record *out, const char *path, const char *run,
                                   const char *directory, struct rp_error *error)
{
    struct rp_record_writer writer = {0};
    char host[RP_HOST_BYTES];
    time_t now = time(NULL);
    struct tm utc = {0};
    gmtime_r(&now, &utc);
    strftime(out->date, sizeof out->date, "%Y-%m-%d %H:%M:%S", &utc);
    rp_host_name(host);
    rp_record_add(&writer, ':', "date", "%s", out->date);
    rp_record_add(&writer, ':', "device", "%" PRIu64, out->device);
    rp_record_add(&writer, ':', "directory", "%s", directory);
    rp_record_add(&writer, ':', "host", "%s", host);
    rp_record_add(&writer, '=', "id", "%s", out->id);
    rp_record_add(&writer, '=', "row", "%" PRIu64, out->row);
    rp_record_add(&writer, ':', "run", "%s", run);
    int code = writer.out_of_memory
                   ? rp_fail(error, -ENOMEM, NULL, "%s: no memory for the record", path)
                   : rp_file_replace(path, writer.text, writer.bytes, error);
    free(writer.text);
    return code;
}
