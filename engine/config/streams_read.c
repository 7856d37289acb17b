/* SPDX-License-Identifier: Apache-2.0 */
/* streams_read.c — read the value of `streams`. The keys of a stream are kept as YAML on one line.
 * They are checked here in a config of their own, so that a mistake has its line and column. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "config/yaml_reader.h"

#define NAME_MAX_BYTES 32u

/* Keys of the node, the job and the process, which all streams share. */
static const enum rp_key_index common_keys[] = {
    RP_KEY_run,     RP_KEY_run_dir, RP_KEY_dp_world_size, RP_KEY_ranks, RP_KEY_consumers_per_rank,
    RP_KEY_streams, RP_KEY_stream,  RP_KEY_log_format,
};

/* ---- a node as text -------------------------------------------------------------------------- */

static void put_scalar(FILE *out, const yaml_node_t *node)
{
    bool is_plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    const unsigned char *text = node->data.scalar.value;
    if (is_plain &&
        (!*text || !strcmp((const char *)text, "~") || !strcmp((const char *)text, "null"))) {
        fputs("null", out);
        return;
    }
    if (is_plain && strspn((const char *)text, "0123456789") == node->data.scalar.length) {
        fputs((const char *)text, out); /* yaml_reader.h: rp_yaml_number */
        return;
    }
    fputc('"', out);
    for (size_t i = 0; i < node->data.scalar.length; i++)
        fprintf(out, text[i] < ' ' ? "\\x%02x" : strchr("\"\\", text[i]) ? "\\%c" : "%c", text[i]);
    fputc('"', out);
}

static void put_node(FILE *out, struct rp_yaml *reader, const yaml_node_t *node)
{
    const char *lead = "";
    switch (node->type) {
    case YAML_SEQUENCE_NODE:
        fputc('[', out);
        for (yaml_node_item_t *item = node->data.sequence.items.start;
             item < node->data.sequence.items.top; item++, lead = ", ") {
            fputs(lead, out);
            put_node(out, reader, rp_yaml_at(reader, *item));
        }
        fputc(']', out);
        break;
    case YAML_MAPPING_NODE:
        fputc('{', out);
        for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
             pair < node->data.mapping.pairs.top; pair++, lead = ", ") {
            fputs(lead, out);
            put_node(out, reader, rp_yaml_at(reader, pair->key));
            fputs(": ", out);
            put_node(out, reader, rp_yaml_at(reader, pair->value));
        }
        fputc('}', out);
        break;
    default:
        put_scalar(out, node);
        break;
    }
}

static char *text_of(struct rp_yaml *reader, const yaml_node_t *node)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    put_node(out, reader, node);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_name(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++)
        if (!isascii((unsigned char)name[i]) ||
            !(isalnum((unsigned char)name[i]) || (i > 0 && strchr("_-", name[i]))))
            return false;
    return length > 0 && length <= NAME_MAX_BYTES;
}

static bool is_empty(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!node->data.scalar.length || !strcmp((const char *)node->data.scalar.value, "null"));
}

/* Check the keys of a stream in a config of their own. */
static int check_keys(struct rp_yaml *reader, struct rp_config_named_stream *stream,
                      const yaml_node_t *node)
{
    struct rp_config_place places[RP_KEY_COUNT] = {{0, 0}};
    struct rp_config own;
    struct rp_yaml sub = *reader;
    rp_config_init(&own);
    sub.config = &own;
    int code = rp_yaml_mapping(&sub, node, &rp_config_key_list, &own, places);
    reader->shards = sub.shards;
    reader->pairs = sub.pairs;
    for (size_t i = 0; i < sizeof common_keys / sizeof *common_keys && code == 0; i++) {
        struct rp_config_place place = places[common_keys[i]];
        const char *name = rp_config_key_table[common_keys[i]].name;
        if (place.line)
            code = rp_key_fail((struct rp_key_place){reader->path, place.line, place.column}, name,
                               "write it at the top of the config", reader->error,
                               "all streams have it in common, and stream %s gives its own",
                               stream->name);
    }
    stream->saves = own.checkpoint_dir && strcmp(own.checkpoint_dir, "none") != 0;
    rp_config_free(&own);
    return code;
}

static int add_stream(struct rp_yaml *reader, const struct rp_key *key,
                      struct rp_config_streams *streams, const yaml_node_pair_t *pair)
{
    const yaml_node_t *name_node = rp_yaml_at(reader, pair->key);
    const yaml_node_t *node = rp_yaml_at(reader, pair->value);
    struct rp_key_place place = rp_yaml_place(reader, name_node);
    const char *name = NULL;
    int code = rp_yaml_text(reader, name_node, key->name, &name);
    if (code < 0)
        return code;
    if (!is_name(name))
        return rp_key_expected(place, key,
                               "a name of at most 32 letters, digits, `-` and `_` that begins with "
                               "a letter or a digit",
                               name, reader->error);
    for (uint32_t i = 0; i < streams->count; i++)
        if (!strcmp(streams->streams[i].name, name))
            return rp_key_fail(place, key->name, "keep one of the two", reader->error,
                               "stream %s is given twice", name);
    if (streams->count == RP_STREAMS_MAX)
        return rp_key_fail(place, key->name, NULL, reader->error, "more than %u streams",
                           RP_STREAMS_MAX);
    if (node->type != YAML_MAPPING_NODE && !is_empty(node))
        return rp_key_fail(rp_yaml_place(reader, node), key->name, "write `{}` if it has none",
                           reader->error, "stream %s: expected a mapping of keys, found %s", name,
                           rp_yaml_word(node));
    struct rp_config_named_stream *stream = &streams->streams[streams->count];
    stream->place = (struct rp_config_place){place.line, place.column};
    stream->name = strdup(name);
    stream->keys = is_empty(node) ? strdup("{}") : text_of(reader, node);
    streams->count++;
    if (!stream->name || !stream->keys)
        return rp_key_no_memory(reader->error);
    return is_empty(node) ? 0 : check_keys(reader, stream, node);
}

int rp_yaml_streams(struct rp_yaml *reader, const struct rp_key *key,
                    struct rp_config_streams *streams, const yaml_node_t *node)
{
    if (node->type != YAML_MAPPING_NODE)
        return rp_key_fail(rp_yaml_place(reader, node), key->name, NULL, reader->error,
                           "expected a mapping of names to keys, found %s", rp_yaml_word(node));
    if (node->data.mapping.pairs.start == node->data.mapping.pairs.top)
        return rp_key_fail(rp_yaml_place(reader, node), key->name, "leave the key out",
                           reader->error, "expected a stream, found an empty mapping");
    streams->streams = rp_calloc(RP_STREAMS_MAX, sizeof *streams->streams);
    if (!streams->streams)
        return rp_key_no_memory(reader->error);
    int code = 0;
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         code == 0 && pair < node->data.mapping.pairs.top; pair++)
        code = add_stream(reader, key, streams, pair);
    return code;
}
