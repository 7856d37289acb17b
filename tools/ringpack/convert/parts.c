/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c — the record of a part: PREFIX.parts/NNNNNN.json, written after its part. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cmd.h"
#include "convert/parts.h"

#define RECORD_VERSION 3
#define RECORD_BYTES_MAX 65536u

char *rp_part_path(const struct rp_conversion *conversion, const struct rp_task *task,
                   const char *ending)
{
    return rp_asprintf("%s/%06zu%s%s", conversion->folder, (size_t)(task - conversion->tasks),
                       ending ? "." : "", ending ? ending : "");
}

static char *task_hash(const struct rp_conversion *conversion, const struct rp_task *task,
                       bool times, char text[RP_HASH_HEX_BYTES])
{
    struct rp_hasher hasher;
    rp_hasher_begin(&hasher);
    rp_hasher_add(&hasher, &conversion->made_of, sizeof conversion->made_of);
    for (size_t i = 0; i < task->count; i++) {
        const struct rp_input *input = &task->inputs[i];
        rp_hasher_add(&hasher, times ? &input->mtime_ns : &input->bytes, sizeof(uint64_t));
        rp_hasher_add(&hasher, input->path, strlen(input->path) + 1);
        rp_hasher_add(&hasher, input->form->name, strlen(input->form->name) + 1);
        rp_hasher_add(&hasher, &input->begin, sizeof input->begin);
    }
    return rp_hash128_hex(rp_hasher_finish(&hasher), text);
}

static json_t *file_json(uint64_t bytes, struct rp_hash128 hash)
{
    char text[RP_HASH_HEX_BYTES];
    return json_pack("{s:I, s:s}", "bytes", (json_int_t)bytes, "xxh3_128",
                     rp_hash128_hex(hash, text));
}

static json_t *counts_json(const struct rp_counts *counts)
{
    uint64_t numbers[RP_COUNTS] = {0};
    json_t *list = json_array();
    memcpy(numbers, counts, sizeof numbers);
    for (size_t i = 0; i < RP_COUNTS; i++)
        json_array_append_new(list, json_integer((json_int_t)numbers[i]));
    return list;
}

static bool take_counts(struct rp_counts *counts, const json_t *list)
{
    uint64_t numbers[RP_COUNTS] = {0};
    for (size_t i = 0; i < RP_COUNTS; i++)
        numbers[i] = (uint64_t)json_integer_value(json_array_get(list, i));
    memcpy(counts, numbers, sizeof numbers);
    return json_array_size(list) == RP_COUNTS;
}

static json_t *sides_json(const struct rp_conversion *conversion, const struct rp_task_part *made)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < conversion->options->sides.count; i++)
        json_array_append_new(list, file_json(made->sides[i].bytes, made->sides[i].hash));
    return list;
}

static json_t *record_json(const struct rp_conversion *conversion, const struct rp_task *task)
{
    const struct rp_task_part *made = &task->made;
    char made_of[RP_HASH_HEX_BYTES], times[RP_HASH_HEX_BYTES], content[RP_HASH_HEX_BYTES];
    return json_pack(
        "{s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:o, s:o, s:o, s:o, s:o}", "ringpack_part",
        RECORD_VERSION, "content", rp_hash128_hex(made->content, content), "made_of",
        task_hash(conversion, task, false, made_of), "times",
        task_hash(conversion, task, true, times), "documents", (json_int_t)made->documents,
        "tokens", (json_int_t)made->tokens, "token_max", (json_int_t)made->token_max, "wide",
        made->wide, "bin", file_json(made->token_bytes, made->token_hash), "idx",
        file_json(made->index_bytes, made->index_hash), "spans",
        file_json(made->spans.bytes, made->spans.hash), "sides", sides_json(conversion, made),
        "counts", counts_json(&made->counts));
}

/* A record's hash of itself: of its other fields, sorted. */
static char *self_hash(json_t *record, char text[RP_HASH_HEX_BYTES])
{
    json_object_del(record, "self");
    char *fields = json_dumps(record, JSON_SORT_KEYS | JSON_COMPACT);
    rp_hash128_hex(fields ? rp_hash128(fields, strlen(fields)) : (struct rp_hash128){0}, text);
    free(fields);
    return text;
}

static int save_json(json_t *value, char *path, struct rp_error *error)
{
    char *text = value ? json_dumps(value, JSON_INDENT(1)) : NULL;
    int code = text && path ? rp_file_replace(path, text, strlen(text), error)
                            : rp_fail(error, -ENOMEM, NULL, "no memory for a record");
    free(text);
    free(path);
    json_decref(value);
    return code;
}

int rp_part_save(const struct rp_conversion *conversion, const struct rp_task *task,
                 struct rp_error *error)
{
    char self[RP_HASH_HEX_BYTES];
    json_t *record = record_json(conversion, task);
    if (record)
        json_object_set_new(record, "self", json_string(self_hash(record, self)));
    return save_json(record, rp_part_path(conversion, task, "json"), error);
}

static int hash_file(struct rp_hasher *hasher, const char *path, struct rp_error *error)
{
    struct rp_map map;
    int code = rp_map_open(&map, path, error);
    if (code < 0)
        return code;
    rp_hasher_add(hasher, &map.bytes, sizeof map.bytes);
    rp_hasher_add(hasher, map.data, (size_t)map.bytes);
    rp_map_close(&map);
    return 0;
}

/* For a Megatron data set also the tokens: its input is the index. */
static int hash_input(struct rp_hasher *hasher, const struct rp_input *input,
                      struct rp_error *error)
{
    int code = hash_file(hasher, input->path, error);
    if (code < 0 || input->form->reading != RP_READ_MEGATRON)
        return code;
    size_t stem = strlen(input->path) - strlen(".idx");
    char *tokens = rp_asprintf("%.*s.bin", (int)stem, input->path);
    code = tokens ? hash_file(hasher, tokens, error)
                  : rp_fail(error, -ENOMEM, NULL, "no memory for a name");
    free(tokens);
    return code;
}

int rp_part_hash_inputs(const struct rp_task *task, struct rp_hash128 *hash, struct rp_error *error)
{
    struct rp_hasher hasher;
    *hash = (struct rp_hash128){0};
    for (size_t i = 0; i < task->count; i++)
        if (task->inputs[i].url || task->inputs[i].is_folder || task->inputs[i].end > 0)
            return 0;
    rp_hasher_begin(&hasher);
    int code = 0;
    for (size_t i = 0; i < task->count && code == 0; i++)
        code = hash_input(&hasher, &task->inputs[i], error);
    *hash = rp_hasher_finish(&hasher);
    return code;
}

static bool same_file(const struct rp_conversion *conversion, const struct rp_task *task,
                      const char *ending, uint64_t bytes, const char *hash)
{
    struct rp_map map;
    char text[RP_HASH_HEX_BYTES];
    char *path = rp_part_path(conversion, task, ending);
    bool same = path && rp_map_open(&map, path, NULL) == 0;
    if (same) {
        same = map.bytes == bytes &&
               !strcmp(rp_hash128_hex(rp_hash128(map.data, map.bytes), text), hash);
        rp_map_close(&map);
    }
    free(path);
    return same;
}

/* The side columns of a part. Records of older versions name none. */
static bool same_sides(const struct rp_conversion *conversion, struct rp_task *task,
                       const json_t *list)
{
    const struct rp_wanted_sides *wanted = &conversion->options->sides;
    for (uint32_t i = 0; i < wanted->count; i++) {
        json_int_t bytes;
        const char *hash;
        if (json_unpack(json_array_get(list, i), "{s:I, s:s}", "bytes", &bytes, "xxh3_128", &hash))
            return false;
        char *ending = rp_asprintf("%s.col", wanted->columns[i].name);
        bool same = ending &&
                    (bytes == 0 || same_file(conversion, task, ending, (uint64_t)bytes, hash));
        free(ending);
        task->made.sides[i].bytes = (uint64_t)bytes;
        if (!same)
            return false;
    }
    return true;
}

/* Other times of an object or of a folder mean other content. */
static bool same_content(const struct rp_task *task, const char *content)
{
    struct rp_hash128 hash;
    char text[RP_HASH_HEX_BYTES];
    return rp_part_hash_inputs(task, &hash, NULL) == 0 &&
           !rp_hash128_equal(hash, (struct rp_hash128){0}) &&
           !strcmp(rp_hash128_hex(hash, text), content);
}

/* A record is believed if its own hash is right and its part fits it. */
static bool take_record(const struct rp_conversion *conversion, struct rp_task *task,
                        json_t *record, bool elsewhere)
{
    struct rp_task_part *made = &task->made;
    const char *made_of, *times, *content, *token_hash, *index_hash, *span_hash;
    char text[RP_HASH_HEX_BYTES], self[RP_HASH_HEX_BYTES] = "";
    json_int_t documents, tokens, token_max, token_bytes, index_bytes, span_bytes;
    json_t *counts;
    int version, wide;
    const char *said = json_string_value(json_object_get(record, "self"));
    snprintf(self, sizeof self, "%s", said ? said : "");
    if (strcmp(self, self_hash(record, text)))
        return false;
    if (json_unpack(record,
                    "{s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:{s:I, s:s}, s:{s:I, s:s}, "
                    "s:{s:I, s:s}, s:o}",
                    "ringpack_part", &version, "content", &content, "made_of", &made_of, "times",
                    &times, "documents", &documents, "tokens", &tokens, "token_max", &token_max,
                    "wide", &wide, "bin", "bytes", &token_bytes, "xxh3_128", &token_hash, "idx",
                    "bytes", &index_bytes, "xxh3_128", &index_hash, "spans", "bytes", &span_bytes,
                    "xxh3_128", &span_hash, "counts", &counts))
        return false;
    if (version != RECORD_VERSION || strcmp(made_of, task_hash(conversion, task, false, text)))
        return false;
    if (strcmp(times, task_hash(conversion, task, true, text)) &&
        !(elsewhere && same_content(task, content))) {
        task->changed = true;
        return false;
    }
    *made = (struct rp_task_part){
        .documents = (uint64_t)documents,
        .tokens = (uint64_t)tokens,
        .token_max = (uint64_t)token_max,
        .wide = wide,
        .token_bytes = (uint64_t)token_bytes,
        .index_bytes = (uint64_t)index_bytes,
        .spans.bytes = (uint64_t)span_bytes,
    };
    return take_counts(&made->counts, counts) && made->tokens <= UINT64_MAX / 8 &&
           made->documents <= UINT64_MAX / 32 &&
           made->token_bytes == made->tokens * (wide ? 4 : 2) &&
           made->index_bytes == RP_OUTPUT_INDEX_BYTES(made->documents) &&
           same_file(conversion, task, "bin", made->token_bytes, token_hash) &&
           same_file(conversion, task, "idx", made->index_bytes, index_hash) &&
           (made->spans.bytes == 0 ||
            same_file(conversion, task, "spans", made->spans.bytes, span_hash)) &&
           same_sides(conversion, task, json_object_get(record, "sides"));
}

void rp_part_check(const struct rp_conversion *conversion, struct rp_task *task, bool elsewhere)
{
    char *text = NULL, *path = rp_part_path(conversion, task, "json");
    size_t bytes = 0;
    if (path && rp_file_read_all(path, RECORD_BYTES_MAX, &text, &bytes, NULL) == 0) {
        json_t *record = json_loadb(text, bytes, 0, NULL);
        task->finished = record && take_record(conversion, task, record, elsewhere);
        json_decref(record);
    }
    free(text);
    free(path);
}

void rp_parts_remove(const struct rp_conversion *conversion)
{
    DIR *folder = opendir(conversion->folder);
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
}

/* The meaning of the ids, as JSON. NULL: no memory. The tokenizer of ids that came as ids is not
 * known from their size, nor is its vocabulary. */
static char *origin_text(const struct rp_conversion *conversion, const struct rp_counts *counts)
{
    char hash[RP_HASH_HEX_BYTES];
    char *name = rp_tokenizer_title(conversion->options->tokenizer.name);
    json_t *tokenizer = NULL, *origin = json_object();
    bool is_known = counts->as_ids == 0;
    if (conversion->tokenizer_known && is_known && name) {
        tokenizer = json_object();
        json_object_set_new(tokenizer, "name", rp_cmd_json_text(name));
        if (!rp_hash128_equal(conversion->tokenizer_hash, (struct rp_hash128){0}))
            json_object_set_new(tokenizer, "xxh3_128",
                                json_string(rp_hash128_hex(conversion->tokenizer_hash, hash)));
    }
    json_object_set_new(origin, "tokenizer", tokenizer ? tokenizer : json_null());
    if (conversion->vocab_size && is_known)
        json_object_set_new(origin, "vocab_size", json_integer((json_int_t)conversion->vocab_size));
    if (conversion->bos >= 0)
        json_object_set_new(origin, "bos", json_integer(conversion->bos));
    if (conversion->append_eos)
        json_object_set_new(origin, "eos", json_integer(conversion->eos));
    char *text = name ? json_dumps(origin, JSON_INDENT(1)) : NULL;
    json_decref(origin);
    free(name);
    return text;
}

int rp_origin_add(const struct rp_conversion *conversion, const struct rp_counts *counts,
                  struct rp_output *output, struct rp_error *error)
{
    output->full = true;
    output->origin = origin_text(conversion, counts);
    return output->origin ? 0 : rp_fail(error, -ENOMEM, NULL, "no memory for a record");
}
