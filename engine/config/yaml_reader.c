/* SPDX-License-Identifier: Apache-2.0 */
#include "config/yaml_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "config/key_name.h"

struct rp_key_place rp_yaml_place(const struct rp_yaml *reader, const yaml_node_t *node)
{
    if (reader->stream) /* its text is one line of its own */
        return (struct rp_key_place){reader->path, reader->stream->place.line,
                                     reader->stream->place.column};
    return (struct rp_key_place){reader->path, (uint32_t)node->start_mark.line + 1,
                                 (uint32_t)node->start_mark.column + 1};
}

const char *rp_yaml_word(const yaml_node_t *node)
{
    return node->type == YAML_MAPPING_NODE    ? "a mapping"
           : node->type == YAML_SEQUENCE_NODE ? "a list"
                                              : "a value";
}

yaml_node_t *rp_yaml_at(struct rp_yaml *reader, int index)
{
    return yaml_document_get_node(&reader->document, index);
}

/* The text of a scalar. libyaml has checked that it is UTF-8; an escape may have made a NUL. */
int rp_yaml_text(struct rp_yaml *reader, const yaml_node_t *node, const char *key,
                 const char **text)
{
    struct rp_key_place place = rp_yaml_place(reader, node);
    if (node->type != YAML_SCALAR_NODE)
        return rp_key_fail(place, key, NULL, reader->error, "expected a value, found %s",
                           rp_yaml_word(node));
    *text = (const char *)node->data.scalar.value;
    if (strlen(*text) != node->data.scalar.length)
        return rp_key_fail(place, key, NULL, reader->error, "the text contains a NUL character");
    bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && (!**text || !strcmp(*text, "~") || !strcmp(*text, "null")))
        return rp_key_fail(place, key, "give it a value, or leave the key out", reader->error,
                           "expected a value, found none");
    return 0;
}

int rp_yaml_number(struct rp_yaml *reader, const yaml_node_t *node, const char *key,
                   const char **text)
{
    uint64_t decimal;
    char hint[80];
    int code = rp_yaml_text(reader, node, key, text);
    if (code < 0 || reader->config->is_kept || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE ||
        **text != '0' || strspn(*text, "01234567") < node->data.scalar.length ||
        !rp_text_u64(*text, &decimal))
        return code;
    uint64_t octal = strtoull(*text, NULL, 8);
    if (octal == decimal)
        return 0;
    snprintf(hint, sizeof hint, "write %" PRIu64 ", or %" PRIu64, decimal, octal);
    return rp_key_fail(rp_yaml_place(reader, node), key, hint, reader->error,
                       "`%.120s` could be %" PRIu64 " or %" PRIu64 ", as an octal number of YAML "
                       "1.1",
                       *text, decimal, octal);
}

/* Look up the keys that a pair sets, one or two, and mark them as seen. */
static int read_keys(struct rp_yaml *reader, const struct rp_key_list *list,
                     const yaml_node_pair_t *pair, bool *seen, const struct rp_key *keys[2])
{
    const yaml_node_t *node = rp_yaml_at(reader, pair->key);
    struct rp_key_place place = rp_yaml_place(reader, node);
    const char *name = NULL;
    int code = rp_yaml_text(reader, node, "key", &name);
    if (code == 0)
        code = rp_key_find(list, name, place, &keys[0], reader->error);
    if (code < 0)
        return code;
    keys[1] = rp_key_twin(list, name);
    for (size_t i = 0; i < 2 && keys[i]; i++) {
        size_t number = (size_t)(keys[i] - list->keys);
        if (seen[number])
            return rp_key_fail(place, name, "keep one of the two", reader->error,
                               "the key is given twice");
        seen[number] = true;
    }
    rp_key_tell_older(reader->config, keys[0], name);
    return 0;
}

/* Two keys: both sizes of packings have been set by one value. */
static void note_window(struct rp_yaml *reader, const struct rp_key_list *list, void *object,
                        const struct rp_key *const keys[2])
{
    struct rp_config *config = reader->config;
    if (list->keys == rp_stage_key_table && keys[1])
        ((struct rp_config_stage *)object)->has_window = true;
    for (size_t i = 0; i < 2 && keys[i] && list->keys == rp_config_key_table; i++)
        if (config->lines[keys[i] - list->keys] != RP_CONFIG_OPTION)
            config->of_window[keys[i] - list->keys] = keys[1] != NULL;
}

static int set_value(struct rp_yaml *reader, const struct rp_key_list *list,
                     const struct rp_key *key, void *object, const yaml_node_t *value)
{
    int code = reader->value(reader, key, object, value);
    return code < 0 || list->keys == rp_config_key_table
               ? code
               : rp_key_check(key, object, rp_yaml_place(reader, value), reader->error);
}

int rp_yaml_mapping(struct rp_yaml *reader, const yaml_node_t *node, const struct rp_key_list *list,
                    void *object, struct rp_config_place *places)
{
    bool seen[RP_CONFIG_KEYS_MAX] = {false};
    RP_ASSERT(list->count <= RP_CONFIG_KEYS_MAX);
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        const struct rp_key *keys[2] = {NULL, NULL};
        int code = read_keys(reader, list, pair, seen, keys);
        const yaml_node_t *value = rp_yaml_at(reader, pair->value);
        struct rp_key_place place = rp_yaml_place(reader, value);
        for (size_t i = 0; i < 2 && keys[i] && code == 0; i++) {
            code = set_value(reader, list, keys[i], object, value);
            if (places)
                places[keys[i] - list->keys] = (struct rp_config_place){place.line, place.column};
        }
        if (code < 0)
            return code;
        note_window(reader, list, object, keys);
    }
    return 0;
}
