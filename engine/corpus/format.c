/* SPDX-License-Identifier: Apache-2.0 */
/* Flow: find the token file and its .idx, find the sidecar, check the magic; each step may settle
 * the format, and says why. */
#include "corpus/format.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "corpus/encoded.h"

#define RAW_OPTIONS "`--format raw --dtype u16 --eos 50256`, or the same in the config"
#define TEXT_HINT "`ringpack convert --tokenizer FOLDER -o PREFIX FILE`"
#define CONVERT_HINT "run `ringpack convert --no-append-eos -o OUTPUT FILE`"

/* Files that begin like this are known, and are not token files that can be read in place. */
static const struct {
    const char *magic;
    size_t bytes;
    const char *name, *hint;
} foreign[] = {
    {"TNTIDX\0\0", 8, "a legacy fairseq/Megatron index (TNTIDX)",
     "convert it with Megatron's own tools to MMIDIDX"},
    {"MMIDIDX\0\0", 9, "a Megatron index (MMIDIDX)", "name it NAME.idx, next to its NAME.bin"},
    {"\x8a\xd8\x34\x01", 4, "an llm.c evaluation file (magic 20240522)",
     "evaluation files hold no training stream"},
    {"\xff\xff\xff\xff", 4, "the beginning of an Arrow IPC stream, but no schema",
     "copy or write the file again; if it has raw tokens, declare them: " RAW_OPTIONS},
    {"FEA1", 4, "a Feather file of version 1",
     "write it again: feather.write_feather(table, path, "
     "compression=\"uncompressed\")"},
    {"PAR1", 4, "a Parquet file", CONVERT_HINT},
    {"\x89HDF\r\n\x1a\n", 8, "an HDF5 file", CONVERT_HINT},
    {RP_INDEX_MAGIC, 8, "a ringpack index",
     "give the token file next to it, the name without " RP_INDEX_SUFFIX
     "; or name the index of a corpus in the config (`index: PATH`)"},
    {"\x89RPM\r\n\x1a\n", 8, "a manifest of an older ringpack",
     "run `ringpack index -c CONFIG`, which makes an index in its place"},
    {"\x89RPX\r\n\x1a\n", 8, "a sidecar of an older ringpack",
     "run `ringpack index` on the token file next to it, the name without .rpx"},
    {"(\xb5/\xfd", 4, "a zstd archive",
     "decompress it first; JSONL and text in it go through `ringpack convert`"},
    {"\x1f\x8b", 2, "a gzip archive",
     "decompress it first; JSONL and text in it go through `ringpack convert`"},
};

static bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

/* A Megatron shard may be named by its prefix, its .bin or its .idx. If no format is declared, an
 * .idx counts only if it exists and has the magic of any kind of index, so that a wrong kind is
 * refused. */
static int find_megatron(struct rp_found *found, const char *path, bool declared,
                         struct rp_error *error)
{
    size_t stem = strlen(path);
    if (rp_text_has_suffix(path, ".bin") || rp_text_has_suffix(path, ".idx"))
        stem -= 4;
    else if (!declared && exists(path))
        return 0;
    char *index_path = rp_asprintf("%.*s.idx", (int)stem, path);
    char *token_path = rp_asprintf("%.*s.bin", (int)stem, path);
    if (!index_path || !token_path) {
        free(index_path);
        free(token_path);
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    }
    bool settled = declared || rp_text_has_suffix(path, ".idx") ||
                   rp_file_begins(index_path, "MMIDIDX", 7) ||
                   rp_file_begins(index_path, "TNTIDX", 6);
    if (!settled) {
        free(index_path);
        free(token_path);
        return 0;
    }
    free(found->token_path);
    found->token_path = token_path;
    found->index_path = index_path;
    found->format = RP_FORMAT_MEGATRON;
    snprintf(found->why, sizeof found->why, "%s",
             declared ? "declared as megatron" : "the .bin has an .idx");
    return 0;
}

/* The format by the first bytes, if none is declared. */
static int find_claim(struct rp_found *found, const struct rp_probe *probe, struct rp_error *error)
{
    const struct rp_reader *reader;
    int code = rp_readers_claim(probe, &reader, found->sidecar != NULL, found->why, error);
    if (code > 0)
        found->format = reader->format;
    if (code != 0)
        return code < 0 ? code : 0;
    /* With a sidecar the file may be raw, and raw tokens may begin with any bytes. */
    for (size_t i = 0; i < RP_ARRAY_COUNT(foreign) && !found->sidecar; i++)
        if (!memcmp(probe->head, foreign[i].magic, foreign[i].bytes))
            return rp_readers_refuse(probe, foreign[i].name, foreign[i].hint, error);
    return 0;
}

/* A declared format that the first bytes contradict would give junk tokens without any error. */
static int check_declared(struct rp_found *found, struct rp_probe *probe, struct rp_error *error)
{
    const struct rp_reader *reader = rp_readers_find(found->format);
    char why[256];
    probe->is_declared = true;
    if (!reader->claim)
        return 0;
    int code = reader->claim(probe, why, error);
    if (code == 0)
        code = rp_fail(error, -RP_E_FORMAT, "declare another format, or none",
                       "%s: expected %s, as declared, found something else", probe->path,
                       reader->title);
    return code < 0 ? code : 0;
}

/* Open the token file once: it must exist, be a file, and begin as its format does. */
static int probe_tokens(struct rp_found *found, const struct rp_find_options *options,
                        struct rp_error *error)
{
    struct rp_probe probe = {.path = found->token_path};
    probe.fd = rp_file_open_read(found->token_path, &probe.bytes, error);
    if (probe.fd < 0) {
        found->data_missing = options->allow_missing_data && found->sidecar;
        return found->data_missing ? 0 : probe.fd;
    }
    int code = rp_file_read_at(probe.fd, probe.path, probe.head,
                               (size_t)rp_min_u64(probe.bytes, sizeof probe.head), 0, error);
    if (code == 0 && probe.bytes == 0)
        code = rp_fail(error, -RP_E_EMPTY, "remove it from the list of shards, or write it again",
                       "%s: expected tokens, found an empty file", found->token_path);
    if (code == 0)
        code = found->format == RP_FORMAT_AUTO ? find_claim(found, &probe, error)
                                               : check_declared(found, &probe, error);
    close(probe.fd);
    return code;
}

static int find_sidecar(struct rp_found *found, const struct rp_find_options *options,
                        struct rp_error *error)
{
    const char *given = options->sidecar_path, *path = found->token_path;
    int code = given ? rp_sidecar_open(&found->sidecar, &found->record, given, path, error)
                     : rp_sidecar_find(&found->sidecar, &found->record, path, options->index_dir,
                                       error);
    return code < 0 && !options->replacing_sidecar ? code : 0;
}

/* The sidecar may know an undeclared type or EOS: it was built with such a declaration. */
static void take_from_sidecar(struct rp_found *found)
{
    if (!found->sidecar)
        return;
    const struct rp_index_record *record = &found->record;
    if (found->format == RP_FORMAT_AUTO) {
        found->format = record->format;
        snprintf(found->why, sizeof found->why, "its sidecar says that it was indexed as %s",
                 rp_format_name(record->format));
    }
    if (found->format != record->format)
        return;
    if (found->type == RP_TOKEN_NONE)
        found->type = record->type;
    if (found->eos == RP_EOS_NONE)
        found->eos = record->eos;
}

/* An .idx that is no Megatron index explains more than a .bin without a declaration. */
static int fail_unknown(const struct rp_found *found, struct rp_error *error)
{
    const char *path = found->token_path;
    const struct rp_encoded *encoded = rp_encoded_of(path);
    if (encoded)
        return rp_encoded_refuse(encoded, path, false, error);
    char *index_path = rp_text_has_suffix(path, ".bin")
                           ? rp_asprintf("%.*s.idx", (int)(strlen(path) - 4), path)
                           : NULL;
    int code;
    if (index_path && exists(index_path))
        code = rp_fail(
            error, -RP_E_FORMAT,
            "copy or write the .idx again, or declare the format of the .bin: " RAW_OPTIONS,
            "%s: expected the Megatron index of %s, found something else", index_path, path);
    else
        code = rp_fail(error, -RP_E_FORMAT,
                       "raw tokens must be declared: " RAW_OPTIONS "; text: " TEXT_HINT,
                       "%s: unknown format: no known magic, no .idx next to it, no sidecar", path);
    free(index_path);
    return code;
}

/* Open the given sidecar; else the one in the index directory, else the object's in the store. */
static int find_remote_sidecar(struct rp_found *found, const struct rp_find_options *options,
                               struct rp_error *error)
{
    const struct rp_remote *remote = options->remote;
    const char *given = options->sidecar_path;
    char *path = given                ? strdup(given)
                 : options->index_dir ? rp_sidecar_path(remote->id, options->index_dir)
                                      : NULL;
    int code = -ENOENT;
    if ((given || options->index_dir) && !path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", remote->name);
    if (path)
        code = rp_sidecar_open(&found->sidecar, &found->record, path, remote->name, error);
    if (code == -ENOENT && !given && remote->sidecar_path)
        code = rp_sidecar_open(&found->sidecar, &found->record, remote->sidecar_path, remote->name,
                               error);
    free(path);
    return code == -ENOENT ? 0 : code;
}

/* As find, for an object whose companion files have been fetched. A sidecar knows the format and
 * the documents; without one, only a Megatron index does. */
static int find_remote(struct rp_found *found, const struct rp_find_options *options,
                       struct rp_error *error)
{
    const struct rp_remote *remote = options->remote;
    bool takes_index = found->format == RP_FORMAT_MEGATRON || found->format == RP_FORMAT_AUTO;
    found->remote = remote;
    if (remote->index_path && takes_index) {
        found->index_path = strdup(remote->index_path);
        if (!found->index_path)
            return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", remote->name);
        found->format = RP_FORMAT_MEGATRON;
        snprintf(found->why, sizeof found->why, "the .bin has an .idx in the store");
    }
    int code = find_remote_sidecar(found, options, error);
    if (code < 0)
        return code;
    take_from_sidecar(found);
    if (found->format == RP_FORMAT_MEGATRON && !found->index_path)
        return rp_fail(error, -ENOENT, "put the .idx next to it, under the same name",
                       "%s: a Megatron shard whose .idx is not there", remote->name);
    if (found->sidecar || (found->index_path && remote->identity[0]))
        return 0;
    const struct rp_encoded *encoded = rp_encoded_of(remote->name);
    if (encoded)
        return rp_encoded_refuse(encoded, remote->name, false, error);
    return rp_fail(error, -RP_E_FORMAT,
                   "run `ringpack index --index-dir DIR` on the URL, and set `index: DIR`; or "
                   "index the file on a disk, and put its " RP_INDEX_SUFFIX " next to it",
                   "%s: it has no sidecar (" RP_INDEX_SUFFIX ") in the store or the folder of "
                   "`index:`, and %s",
                   remote->name,
                   found->index_path ? "the server gives no ETag by which a change would be noticed"
                                     : "no Megatron index (.idx) says where its documents are");
}

static int find(struct rp_found *found, const char *path, const struct rp_find_options *options,
                struct rp_error *error)
{
    bool megatron = found->format == RP_FORMAT_MEGATRON;
    int code = 0;
    if (megatron || found->format == RP_FORMAT_AUTO)
        code = find_megatron(found, path, megatron, error);
    if (code == 0)
        code = find_sidecar(found, options, error);
    if (code == 0)
        code = probe_tokens(found, options, error);
    if (code < 0)
        return code;
    take_from_sidecar(found);
    if (found->format == RP_FORMAT_AUTO)
        return fail_unknown(found, error);
    if (found->format == RP_FORMAT_MEGATRON && !found->index_path) /* no index now, or a bad one: */
        return find_megatron(found, path, true, error);            /* opening it will say so */
    if (!found->why[0])
        snprintf(found->why, sizeof found->why, "declared as %s", rp_format_name(found->format));
    return 0;
}

int rp_find_shard(struct rp_found *found, const char *path, const struct rp_find_options *options,
                  struct rp_error *error)
{
    static const struct rp_source_spec nothing_declared = {.eos = RP_EOS_NONE};
    const struct rp_source_spec *hints = options->hints ? options->hints : &nothing_declared;
    *found = (struct rp_found){.format = hints->format,
                               .type = hints->type,
                               .eos = hints->eos,
                               .column = hints->column,
                               .mask = hints->mask};
    found->token_path = strdup(options->remote ? options->remote->name : path);
    if (!found->token_path)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    int code = options->remote ? find_remote(found, options, error)
                               : find(found, path, options, error);
    if (code < 0)
        rp_found_release(found);
    return code;
}

void rp_found_release(struct rp_found *found)
{
    rp_index_close(found->sidecar);
    free(found->token_path);
    free(found->index_path);
    *found = (struct rp_found){0};
}

struct rp_reader_options rp_found_options(const struct rp_found *found)
{
    return (struct rp_reader_options){.type = found->type,
                                      .eos = found->eos,
                                      .column = found->column,
                                      .mask = found->mask,
                                      .read_bytes_max = UINT64_MAX};
}
