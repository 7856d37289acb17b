/* SPDX-License-Identifier: Apache-2.0 */
/* index_json.h — files of JSON in a folder. The index.json of MDS and litData lists the files of a
 * dataset, in order. */
#ifndef RP_CORPUS_READERS_INDEX_JSON_H
#define RP_CORPUS_READERS_INDEX_JSON_H

#include <jansson.h>

#include "corpus/reader.h"

#define RP_INDEX_JSON_BYTES_MAX (256u << 20)

/** A JSON file of a folder; the caller calls json_decref. -RP_E_FORMAT, with the hint, if it is not
 * JSON. */
RP_MUST_CHECK int rp_folder_json(const struct rp_folder *folder, const char *name, const char *hint,
                                 json_t **json_out, struct rp_error *error);

/** The index.json of a folder, if it has one with the list `key`. 1: *index_out is it, to be given
 * to json_decref. 0: no such file. */
RP_MUST_CHECK int rp_index_json_load(const struct rp_folder *folder, const char *key,
                                     json_t **index_out, struct rp_error *error);

/** Whether a name in an index.json leads to a file in the folder or below it. */
bool rp_index_json_is_inside(const char *name);

/** -RP_E_FORMAT: entry `number` of the list `key` is not as expected. */
int rp_index_json_fail(const struct rp_folder *folder, const char *key, size_t number,
                       const char *expected, struct rp_error *error);

/** -RP_E_FORMAT: the folder's files cannot be read in place; the hint is the command that converts
 * them. */
int rp_index_json_convert(const struct rp_folder *folder, const char *found,
                          struct rp_error *error);

#endif
