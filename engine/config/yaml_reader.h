/* SPDX-License-Identifier: Apache-2.0 */
/* yaml_reader.h — the YAML text that is being read, for yaml.c and nested.c. */
#ifndef RP_CONFIG_YAML_READER_H
#define RP_CONFIG_YAML_READER_H

#include <yaml.h>

#include "config/key.h"

/* A file, or the text of an option. */
struct rp_yaml {
    struct rp_config *config;
    const char *path; /* in messages */
    char *directory;  /* where relative paths begin; NULL: the working directory */
    yaml_document_t document;
    uint32_t shards, pairs;      /* so far: a small text can name more, by aliases */
    const struct rp_key *option; /* its text is the value of this key; NULL: a file */
    const struct rp_config_named_stream *stream; /* its text is its keys; NULL: it is not */
    /* Sets the value of a key in an object, of any kind. */
    int (*value)(struct rp_yaml *reader, const struct rp_key *key, void *object,
                 const yaml_node_t *node);
    struct rp_error *error;
};

struct rp_key_place rp_yaml_place(const struct rp_yaml *reader, const yaml_node_t *node);
yaml_node_t *rp_yaml_at(struct rp_yaml *reader, int index);

/** "a mapping", "a list" or "a value". */
const char *rp_yaml_word(const yaml_node_t *node);

/** The text of a scalar; -RP_E_CONFIG if it is none, or empty. */
RP_MUST_CHECK int rp_yaml_text(struct rp_yaml *reader, const yaml_node_t *node, const char *key,
                               const char **text);

/** The same for a number: -RP_E_CONFIG also if YAML 1.1 reads another one, as 64 in 0100, unless it
 * is quoted or kept by a checkpoint, where nobody can edit it. */
RP_MUST_CHECK int rp_yaml_number(struct rp_yaml *reader, const yaml_node_t *node, const char *key,
                                 const char **text);

/** Set the fields of `object` from a mapping of keys of a list. places (NULL: none) gets the place
 * of each value; it has an element for each key of the list. */
RP_MUST_CHECK int rp_yaml_mapping(struct rp_yaml *reader, const yaml_node_t *node,
                                  const struct rp_key_list *list, void *object,
                                  struct rp_config_place *places);

/** The value of `streams`; the keys of each are checked (streams.c). */
RP_MUST_CHECK int rp_yaml_streams(struct rp_yaml *reader, const struct rp_key *key,
                                  struct rp_config_streams *streams, const yaml_node_t *node);

/** A nested value (nested.c). */
RP_MUST_CHECK int rp_yaml_nested(struct rp_yaml *reader, const struct rp_key *key, void *object,
                                 const yaml_node_t *node);

#endif
