/* SPDX-License-Identifier: Apache-2.0 */
/* yaml.c — read a YAML file into a config, by libyaml.
 *
 * The text is parsed twice. The first pass reads only events; it refuses malformed YAML, several
 * documents, and documents that would take libyaml too much time or memory. The second pass loads
 * the document and visits its nodes; every value is set from text by a table of keys, and a mapping
 * by another table (nested.c).
 *
 * Errors: -RP_E_CONFIG with file:line:column. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "config/yaml_reader.h"

#define FILE_BYTES_MAX (1u << 20)
#define SHARDS_MAX (1u << 20) /* a small file can name more, by aliases */
#define SOURCES_MAX 4096u
#define DEPTH_MAX 16u /* libyaml takes quadratic time for deep nesting and for many anchors */
#define ANCHORS_MAX 100u
#define LIST_BYTES 4096

static int add_shard(struct rp_yaml *reader, struct rp_config_source *source,
                     const yaml_node_t *node)
{
    struct rp_key_place place = rp_yaml_place(reader, node);
    const char *path = NULL;
    int code = rp_yaml_text(reader, node, "shards", &path);
    if (code < 0)
        return code;
    if (!*path)
        return rp_key_fail(place, "shards", NULL, reader->error, "the path is empty");
    if (++reader->shards > SHARDS_MAX)
        return rp_key_fail(place, "shards", "name a directory or a glob instead", reader->error,
                           "more than %u paths", SHARDS_MAX);
    return rp_config_source_add_shard(source, reader->directory, path, reader->error);
}

static int read_shards(struct rp_yaml *reader, struct rp_config_source *source,
                       const yaml_node_t *node)
{
    struct rp_key_place place = rp_yaml_place(reader, node);
    if (source->shard_count)
        return rp_key_fail(place, "shards", "keep one of the two", reader->error,
                           "shards and path mean the same, and both are given");
    if (node->type != YAML_SEQUENCE_NODE)
        return add_shard(reader, source, node);
    int code = 0;
    for (yaml_node_item_t *item = node->data.sequence.items.start;
         code == 0 && item < node->data.sequence.items.top; item++)
        code = add_shard(reader, source, rp_yaml_at(reader, *item));
    return code;
}

static int read_source(struct rp_yaml *reader, const yaml_node_t *node)
{
    struct rp_key_place place = rp_yaml_place(reader, node);
    if (reader->config->source_count == SOURCES_MAX)
        return rp_key_fail(place, "sources", NULL, reader->error, "more than %u sources",
                           SOURCES_MAX);
    struct rp_config_source *source = rp_config_add_source(reader->config);
    if (!source)
        return rp_key_no_memory(reader->error);
    source->line = place.line;
    if (node->type != YAML_MAPPING_NODE)
        return add_shard(reader, source, node);
    return rp_yaml_mapping(reader, node, &rp_source_key_list, source, source->places);
}

static int read_sources(struct rp_yaml *reader, const yaml_node_t *node)
{
    if (node->type != YAML_SEQUENCE_NODE)
        return read_source(reader, node);
    int code = 0;
    for (yaml_node_item_t *item = node->data.sequence.items.start;
         code == 0 && item < node->data.sequence.items.top; item++)
        code = read_source(reader, rp_yaml_at(reader, *item));
    return code;
}

/* A scalar, or the list of sections or of words of a command, joined with commas as in an option.
 */
static int joined_text(struct rp_yaml *reader, const yaml_node_t *node, const struct rp_key *key,
                       char *buffer, size_t bytes, const char **text)
{
    bool is_list = key->kind == RP_KIND_SECTIONS || key->kind == RP_KIND_COMMAND ||
                   key->kind == RP_KIND_NAMES;
    bool is_number = key->kind <= RP_KIND_EPOCHS || key->kind == RP_KIND_WEIGHT;
    if (!is_list || node->type != YAML_SEQUENCE_NODE)
        return is_number ? rp_yaml_number(reader, node, key->name, text)
                         : rp_yaml_text(reader, node, key->name, text);
    size_t used = 0;
    buffer[0] = '\0';
    for (yaml_node_item_t *item = node->data.sequence.items.start;
         item < node->data.sequence.items.top; item++) {
        const yaml_node_t *element = rp_yaml_at(reader, *item);
        struct rp_key_place place = rp_yaml_place(reader, element);
        const char *word;
        int code = rp_yaml_text(reader, element, key->name, &word);
        if (code < 0)
            return code;
        if (key->kind == RP_KIND_COMMAND && strchr(word, ','))
            return rp_key_fail(place, key->name, "put it into a script", reader->error,
                               "a word of a command cannot contain a comma");
        int more = snprintf(buffer + used, bytes - used, "%s%s", used ? "," : "", word);
        if ((size_t)more >= bytes - used)
            return rp_key_fail(place, key->name, NULL, reader->error, "the list is too long");
        used += (size_t)more;
    }
    *text = buffer;
    return 0;
}

static int read_value(struct rp_yaml *reader, const struct rp_key *key, void *object,
                      const yaml_node_t *node)
{
    char list[LIST_BYTES];
    const char *text;
    if (rp_key_is_nested(key))
        return rp_yaml_nested(reader, key, object, node);
    if (key->kind == RP_KIND_SOURCES)
        return read_sources(reader, node);
    if (key->kind == RP_KIND_SHARDS)
        return read_shards(reader, object, node);
    int code = joined_text(reader, node, key, list, sizeof list, &text);
    return code < 0 ? code
                    : rp_key_set(key, object, text, rp_yaml_place(reader, node), reader->error);
}

/* A key of a stream replaces the value of the file, but no option. */
static int replace_value(struct rp_yaml *reader, const struct rp_key *key, void *object,
                         const yaml_node_t *node)
{
    if (object != reader->config)
        return read_value(reader, key, object, node);
    if (reader->config->lines[key - rp_config_key_table] == RP_CONFIG_OPTION)
        return 0;
    if (key->kind == RP_KIND_SOURCES)
        rp_config_free_sources(reader->config);
    return read_value(reader, key, object, node);
}

static int read_document(struct rp_yaml *reader)
{
    const yaml_node_t *root = yaml_document_get_root_node(&reader->document);
    struct rp_key_place top = {reader->path, 0, 0};
    const char *hint = "a config starts with `sources:`, `seq_len:` and `batch_size:`";
    if (!root)
        return rp_key_fail(top, reader->option ? reader->option->name : "config",
                           reader->option ? NULL : hint, reader->error, "the %s is empty",
                           reader->option ? "value" : "file");
    if (reader->option)
        return rp_yaml_nested(reader, reader->option, reader->config, root);
    if (root->type != YAML_MAPPING_NODE) {
        top = rp_yaml_place(reader, root);
        return rp_key_fail(top, "config", hint, reader->error, "expected `key: value`, found %s",
                           rp_yaml_word(root));
    }
    struct rp_config_place places[RP_KEY_COUNT] = {{0, 0}};
    int code = rp_yaml_mapping(reader, root, &rp_config_key_list, reader->config, places);
    for (size_t i = 0; i < RP_KEY_COUNT && code == 0; i++)
        if (places[i].line && (!reader->stream || reader->config->lines[i] != RP_CONFIG_OPTION)) {
            reader->config->lines[i] = places[i].line;
            reader->config->of_stream[i] = reader->stream != NULL;
        }
    return code;
}

/* Where character `number` begins. libyaml counts characters, which have one to four bytes. */
static const char *character_at(const char *text, size_t number)
{
    while (number > 0 && *text) {
        text++;
        number -= (*text & 0xc0) != 0x80; /* the first byte of a character */
    }
    return text;
}

/* Report libyaml's message, with its place. */
static int syntax_error(const struct rp_yaml *reader, const yaml_parser_t *parser, const char *text)
{
    struct rp_key_place place = {reader->path, (uint32_t)parser->problem_mark.line + 1,
                                 (uint32_t)parser->problem_mark.column + 1};
    if (parser->error == YAML_MEMORY_ERROR || !parser->problem) /* no problem: also out of memory */
        return rp_fail(reader->error, -ENOMEM, NULL, "out of memory while reading %s",
                       reader->path);
    if (parser->error == YAML_READER_ERROR) { /* it has only a byte offset */
        place.column = 0;
        place.line = 1;
        for (size_t i = 0; i < parser->problem_offset && text[i]; i++)
            place.line += text[i] == '\n';
    } else if (*character_at(text, parser->problem_mark.index) == '\t') {
        return rp_key_fail(place, "YAML", "indent with spaces", reader->error, "found a tab");
    }
    return rp_key_fail(place, "YAML", NULL, reader->error, "%s%s%s", parser->problem,
                       parser->context ? " " : "", parser->context ? parser->context : "");
}

/* Counts of the first pass. */
struct survey {
    unsigned depth, anchors, documents;
};

static int survey_event(struct rp_yaml *reader, struct survey *survey, const yaml_event_t *event)
{
    struct rp_key_place place = {reader->path, (uint32_t)event->start_mark.line + 1,
                                 (uint32_t)event->start_mark.column + 1};
    const yaml_char_t *anchor = NULL;
    if (event->type == YAML_DOCUMENT_START_EVENT && ++survey->documents > 1)
        return rp_key_fail(place, "config", "put each config into a file of its own", reader->error,
                           "the file holds more than one YAML document");
    if (event->type == YAML_SEQUENCE_START_EVENT || event->type == YAML_MAPPING_START_EVENT)
        survey->depth++;
    if (event->type == YAML_SEQUENCE_END_EVENT || event->type == YAML_MAPPING_END_EVENT)
        survey->depth--;
    if (event->type == YAML_SCALAR_EVENT)
        anchor = event->data.scalar.anchor;
    else if (event->type == YAML_SEQUENCE_START_EVENT)
        anchor = event->data.sequence_start.anchor;
    else if (event->type == YAML_MAPPING_START_EVENT)
        anchor = event->data.mapping_start.anchor;
    survey->anchors += anchor != NULL;
    if (survey->depth > DEPTH_MAX)
        return rp_key_fail(place, "config", NULL, reader->error,
                           "lists and mappings are nested more than %u deep", DEPTH_MAX);
    if (survey->anchors > ANCHORS_MAX)
        return rp_key_fail(place, "config", NULL, reader->error, "more than %u anchors",
                           ANCHORS_MAX);
    return 0;
}

static int survey_text(struct rp_yaml *reader, yaml_parser_t *parser, const char *text)
{
    struct survey survey = {0};
    for (bool end = false; !end;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return syntax_error(reader, parser, text);
        end = event.type == YAML_STREAM_END_EVENT;
        int code = survey_event(reader, &survey, &event);
        yaml_event_delete(&event);
        if (code < 0)
            return code;
    }
    return 0;
}

static int load_text(struct rp_yaml *reader, yaml_parser_t *parser, const char *text)
{
    if (!yaml_parser_load(parser, &reader->document))
        return syntax_error(reader, parser, text);
    int code = read_document(reader);
    yaml_document_delete(&reader->document);
    return code;
}

static int with_parser(struct rp_yaml *reader, const char *text, size_t bytes,
                       int (*pass)(struct rp_yaml *, yaml_parser_t *, const char *))
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return rp_fail(reader->error, -ENOMEM, NULL, "out of memory while reading %s",
                       reader->path);
    /* Skip a byte order mark, which some editors write: libyaml takes it for text if the encoding
     * is set. */
    size_t mark = strncmp(text, "\xef\xbb\xbf", 3) ? 0 : 3;
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text + mark, bytes - mark);
    int code = pass(reader, &parser, text + mark);
    yaml_parser_delete(&parser);
    return code;
}

/* The name of the file in messages: its path, or, if it is a memfd that is given as
 * /proc/self/fd/N, the name that it was made with. */
static char *name_of(const char *path)
{
    static const char prefix[] = "/memfd:", suffix[] = " (deleted)";
    char target[300];
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length < 0 ? 0 : length] = '\0';
    char *end = strstr(target, suffix);
    if (!end || strncmp(target, prefix, sizeof prefix - 1))
        return strdup(path);
    *end = '\0';
    return strdup(target + sizeof prefix - 1);
}

static int read_text(struct rp_yaml *reader, const char *text, size_t bytes)
{
    int code = with_parser(reader, text, bytes, survey_text);
    return code < 0 ? code : with_parser(reader, text, bytes, load_text);
}

int rp_config_read_text(struct rp_config *config, const char *text, size_t bytes, const char *path,
                        struct rp_error *error)
{
    free(config->path);
    free(config->called);
    free(config->text);
    config->path = strdup(path);
    config->called = name_of(path);
    config->text = strndup(text, bytes);
    struct rp_yaml reader = {.config = config,
                             .path = config->called,
                             .directory = rp_path_directory(path),
                             .value = read_value,
                             .error = error};
    int code = 0;
    if (!reader.directory || !config->path || !config->called || !config->text)
        code = rp_fail(error, -ENOMEM, NULL, "out of memory while reading %s", path);
    if (code == 0)
        code = read_text(&reader, text, bytes);
    free(reader.directory);
    return code;
}

/* Relative paths begin at the working directory, as in every option. */
int rp_config_set_nested(struct rp_config *config, const struct rp_key *key, const char *text,
                         struct rp_error *error)
{
    char path[RP_TEXT_WORD_MAX];
    snprintf(path, sizeof path, "--%s", key->name);
    for (char *c = path; *c; c++)
        *c = *c == '_' ? '-' : *c;
    struct rp_yaml reader = {
        .config = config, .path = path, .option = key, .value = read_value, .error = error};
    return read_text(&reader, text, strlen(text));
}

int rp_config_read_stream(struct rp_config *config, const struct rp_config_named_stream *stream,
                          struct rp_error *error)
{
    bool is_option = config->lines[RP_KEY_streams] == RP_CONFIG_OPTION;
    struct rp_yaml reader = {.config = config,
                             .path = is_option ? "--streams" : config->called,
                             .directory = is_option ? NULL : rp_path_directory(config->path),
                             .stream = stream,
                             .value = replace_value,
                             .error = error};
    if (!is_option && !reader.directory)
        return rp_key_no_memory(error);
    int code = read_text(&reader, stream->keys, strlen(stream->keys));
    free(reader.directory);
    return code;
}

int rp_config_read(struct rp_config *config, const char *path, struct rp_error *error)
{
    char *text;
    size_t bytes;
    int code = rp_file_read_all(path, FILE_BYTES_MAX, &text, &bytes, error);
    if (code < 0)
        return code;
    code = rp_config_read_text(config, text, bytes, path, error);
    free(text);
    return code;
}
