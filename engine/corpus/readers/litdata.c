/* SPDX-License-Identifier: Apache-2.0 */
/* litdata.c — chunks that optimize() of litData wrote for its TokensLoader, uncompressed:
 *
 *     chunk-0-0.bin  the table of samples (samples.h), and the bare tokens of each sample
 *     index.json     {"chunks": [{"filename": "chunk-0-0.bin", …}, …],
 *                     "config": {"data_format": ["no_header_tensor:16"], …}, …}
 *
 * The type of a token is in the index.json and nowhere else: the number after the colon, which
 * litData gives to the types of torch and of numpy. A chunk has no magic, so it is recognised by
 * the index.json in its folder that names it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "corpus/readers/index_json.h"
#include "corpus/readers/samples.h"

#define KEY "chunks"

static const struct {
    const char *kind;
    enum rp_token_type types[21]; /* by number */
} formats[] = {
    {"no_header_tensor:",
     {[11] = RP_TOKEN_U8,
      [12] = RP_TOKEN_I8,
      [13] = RP_TOKEN_I16,
      [14] = RP_TOKEN_I16,
      [15] = RP_TOKEN_I32,
      [16] = RP_TOKEN_I32,
      [17] = RP_TOKEN_I64,
      [18] = RP_TOKEN_I64,
      [20] = RP_TOKEN_U16}},
    {"no_header_numpy:",
     {[0] = RP_TOKEN_I8,
      [1] = RP_TOKEN_I16,
      [2] = RP_TOKEN_I32,
      [3] = RP_TOKEN_I64,
      [4] = RP_TOKEN_U8,
      [5] = RP_TOKEN_U16,
      [6] = RP_TOKEN_U32,
      [7] = RP_TOKEN_U64}},
};

/* The type of the tokens; NONE if a sample is not one array of integers. */
static enum rp_token_type type_of(const json_t *config)
{
    const json_t *list = json_object_get(config, "data_format");
    const char *text = json_string_value(json_array_get(list, 0));
    uint64_t number;
    for (size_t i = 0; text && json_array_size(list) == 1 && i < RP_ARRAY_COUNT(formats); i++) {
        size_t length = strlen(formats[i].kind);
        if (!strncmp(text, formats[i].kind, length) && rp_text_u64(text + length, &number) &&
            number < RP_ARRAY_COUNT(formats[i].types))
            return formats[i].types[number];
    }
    return RP_TOKEN_NONE;
}

static bool is_set(const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    return value && !json_is_null(value) && !json_is_false(value);
}

/* Refuse a config whose chunks cannot be read in place; else set the type of their tokens. */
static int check_config(const char *folder, const json_t *config, enum rp_token_type *type,
                        struct rp_error *error)
{
    const struct rp_probe probe = {.path = folder};
    const char *loader = json_string_value(json_object_get(config, "item_loader"));
    if (is_set(config, "encryption"))
        return rp_readers_refuse(&probe, "litData chunks that are encrypted",
                                 "write them again without encryption", error);
    if (is_set(config, "compression") || is_set(config, "ipc_compression"))
        return rp_readers_convert(&probe, "litData chunks that are compressed", error);
    if (!loader || strcmp(loader, "TokensLoader"))
        return rp_readers_convert(&probe, "litData chunks that its TokensLoader has not written",
                                  error);
    *type = type_of(config);
    return *type == RP_TOKEN_NONE
               ? rp_readers_convert(&probe, "litData chunks of something else than integers", error)
               : 0;
}

/* ---- folders --------------------------------------------------------------------------------- */

static int add_chunks(const struct rp_folder *folder, const json_t *index, struct rp_paths *files,
                      struct rp_error *error)
{
    const json_t *chunks = json_object_get(index, KEY);
    enum rp_token_type type;
    int code = check_config(folder->path, json_object_get(index, "config"), &type, error);
    for (size_t i = 0; code == 0 && i < json_array_size(chunks); i++) {
        const char *name = json_string_value(
            json_object_get(json_array_get(chunks, i), "filename"));
        code = rp_index_json_is_inside(name)
                   ? rp_folder_add(folder, name, files, error)
                   : rp_index_json_fail(folder, KEY, i, "the name of a file in the folder", error);
    }
    return code < 0 ? code : files->count > 0;
}

static int expand(const struct rp_folder *folder, struct rp_paths *files, struct rp_error *error)
{
    json_t *index;
    int code = rp_index_json_load(folder, KEY, &index, error);
    if (code == 1) {
        code = add_chunks(folder, index, files, error);
        json_decref(index);
    }
    return code;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* The config in the text of an index.json, if that names the file; else NULL. Every chunk calls
 * this, so the list of all chunks is not parsed. A quoted word inside a string has backslashes. */
static json_t *find_config(const char *text, size_t bytes, const char *name)
{
    static const char key[] = "\"config\"";
    char *quoted = rp_asprintf("\"%s\"", name);
    const char *at = memmem(text, bytes, key, sizeof key - 1);
    bool is_named = quoted && memmem(text, bytes, quoted, strlen(quoted));
    free(quoted);
    if (!at || !is_named)
        return NULL;
    at += sizeof key - 1;
    at += strspn(at, " \t\r\n"); /* the text ends with a NUL */
    return *at == ':'
               ? json_loadb(at + 1, bytes - (size_t)(at + 1 - text), JSON_DISABLE_EOF_CHECK, NULL)
               : NULL;
}

/* 1: *config_out is the config in *folder_out, the file's folder. 0: no index.json names the file.
 */
static int load_config(const char *path, json_t **config_out, char **folder_out,
                       struct rp_error *error)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? rp_asprintf("%.*s", (int)(slash - path), path) : strdup(".");
    char *index = folder ? rp_asprintf("%s/index.json", folder) : NULL;
    char *text = NULL;
    size_t bytes;
    int code = index ? 0 : rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    *config_out = NULL;
    if (code == 0 && access(index, F_OK) == 0)
        code = rp_file_read_all(index, RP_INDEX_JSON_BYTES_MAX, &text, &bytes, error);
    if (code == 0 && text)
        *config_out = find_config(text, bytes, slash ? slash + 1 : path);
    free(text);
    free(index);
    *folder_out = *config_out ? folder : NULL;
    if (!*config_out)
        free(folder);
    return code < 0 ? code : *config_out != NULL;
}

static int claim(const struct rp_probe *probe, char why[256], struct rp_error *error)
{
    json_t *config;
    char *folder;
    snprintf(why, 256, "the index.json of litData next to it names it");
    if (probe->is_declared)
        return 1;
    if (!rp_text_has_suffix(probe->path, ".bin"))
        return 0;
    int code = load_config(probe->path, &config, &folder, error);
    if (code <= 0)
        return code;
    bool is = json_is_array(json_object_get(config, "data_format"));
    json_decref(config);
    free(folder);
    return is;
}

static int find_type(const struct rp_probe *probe, enum rp_token_type *type, struct rp_error *error)
{
    json_t *config;
    char *folder;
    int code = load_config(probe->path, &config, &folder, error);
    if (code == 0)
        return rp_fail(error, -RP_E_FORMAT, "copy index.json into the folder of the chunk",
                       "%s: expected an index.json next to it that names it, found none",
                       probe->path);
    if (code > 0) {
        code = check_config(folder, config, type, error);
        json_decref(config);
        free(folder);
    }
    return code;
}

static int emit(struct rp_samples *samples, uint32_t width, struct rp_sink *sink,
                struct rp_error *error)
{
    uint64_t begin, end, number = samples->next;
    int code = rp_samples_next(samples, &begin, &end, error);
    if (code == 0 && (end - begin) % width != 0)
        code = rp_fail(error, -RP_E_CORRUPT, "copy or write the dataset again",
                       "%s: sample %" PRIu64 ": expected a multiple of %" PRIu32
                       " bytes, found %" PRIu64,
                       samples->probe->path, number, width, end - begin);
    return code < 0 ? code : rp_sink_document(sink, begin, (end - begin) / width, NULL, 0, error);
}

static int walk(const struct rp_probe *probe, const struct rp_reader_options *options,
                struct rp_sink *sink, struct rp_error *error)
{
    struct rp_layout layout = {.eos = RP_EOS_NONE};
    struct rp_samples samples = {0};
    int code = find_type(probe, &layout.type, error);
    if (code == 0)
        code = rp_samples_begin(&samples, probe, error);
    if (code == 0 && samples.begin != samples.table_end)
        code = rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                       "%s: expected tokens from byte %" PRIu64 " on, found %" PRIu64, probe->path,
                       samples.table_end, samples.begin);
    if (code == 0)
        code = rp_sink_begin(sink, &layout, options, error);
    while (code == 0 && samples.next < samples.count)
        code = emit(&samples, rp_token_width(layout.type), sink, error);
    return code;
}

static const struct rp_companion companions[] = {{"/", "/index.json"}, {NULL, NULL}};

const struct rp_reader rp_reader_litdata = {
    .format = RP_FORMAT_LITDATA,
    .title = "a chunk of litData",
    .holds_no_mask = true,
    .folders = "index.json with chunk-*.bin (litData)",
    .claims_by_name = true,
    .companions = companions,
    .claim = claim,
    .expand = expand,
    .walk = walk,
};
