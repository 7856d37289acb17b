/* SPDX-License-Identifier: Apache-2.0 */
/* plan_spec.h — a spec of the oracle as a plan of the engine, for tests that compare the two.
 *
 * Sources are given by lengths, and have the tokens of rp_spec_token. Files of tests are trusted: a
 * fault in one ends the program with its line. */
#ifndef RP_TESTS_ORACLE_PLAN_SPEC_H
#define RP_TESTS_ORACLE_PLAN_SPEC_H

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "plan/plan.h"

struct rp_spec {
    struct rp_plan_config config;
    struct rp_plan_source *sources;
    uint32_t source_count;
};

static inline void rp_spec_fail(const char *what, const char *detail)
{
    fprintf(stderr, "spec: %s: %s\n", what, detail);
    exit(2);
}

static inline json_t *rp_spec_get(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    if (value == NULL)
        rp_spec_fail("missing key", key);
    return value;
}

static inline uint64_t rp_spec_u64(const json_t *object, const char *key)
{
    const json_t *value = rp_spec_get(object, key);
    if (json_is_string(value)) /* JSON integers of jansson are signed */
        return strtoull(json_string_value(value), NULL, 0);
    return (uint64_t)json_integer_value(value);
}

static inline uint32_t rp_spec_u32(const json_t *object, const char *key)
{
    return (uint32_t)rp_spec_u64(object, key);
}

/* Place of a word in a list that NULL ends. */
static inline unsigned rp_spec_word(const json_t *object, const char *key, const char *const *words)
{
    const char *value = json_string_value(rp_spec_get(object, key));
    for (unsigned i = 0; value != NULL && words[i] != NULL; i++) {
        if (strcmp(value, words[i]) == 0)
            return i;
    }
    rp_spec_fail("unknown word for", key);
    return 0;
}

static inline struct rp_hash128 rp_spec_hash(const json_t *object, const char *key)
{
    struct rp_hash128 hash = {0, 0};
    const char *hex = json_string_value(rp_spec_get(object, key));
    if (hex == NULL || sscanf(hex, "%16" SCNx64 "%16" SCNx64, &hash.high, &hash.low) != 2)
        rp_spec_fail("not 32 hex digits", key);
    return hash;
}

/* lengths[0] is their number. */
static inline uint64_t rp_spec_length(const void *lengths, uint64_t document)
{
    return ((const uint64_t *)lengths)[1 + document];
}

static inline void rp_spec_source(struct rp_plan_source *source, const json_t *from)
{
    const json_t *list = rp_spec_get(from, "lengths");
    uint64_t *lengths = calloc(1 + json_array_size(list), sizeof *lengths);
    lengths[0] = json_array_size(list);
    for (uint64_t i = 0; i < lengths[0]; i++)
        lengths[1 + i] = (uint64_t)json_integer_value(json_array_get(list, i));
    *source = (struct rp_plan_source){.documents = lengths[0],
                                      .weight = rp_spec_u64(from, "weight"),
                                      .lengths = lengths,
                                      .length = rp_spec_length};
}

static inline struct rp_spec rp_spec_read(const json_t *from)
{
    static const char *const shuffles[] = {"none", "document", "block", NULL};
    static const char *const packings[] = {"lookahead", "concat", "best_fit", NULL};
    static const char *const fills[] = {"pad", "split", NULL};
    static const char *const long_docs[] = {"split", "truncate", "drop", NULL};
    const json_t *sources = rp_spec_get(from, "sources");
    bool block = rp_spec_word(from, "shuffle", shuffles) == RP_SHUFFLE_BLOCK;
    struct rp_spec spec = {
        .config = {.seed = rp_spec_u64(from, "seed"),
                   .num_epochs = rp_spec_u64(from, "num_epochs"),
                   .seq_len = rp_spec_u32(from, "seq_len"),
                   .shuffle = rp_spec_word(from, "shuffle", shuffles),
                   .block_documents = block ? rp_spec_u32(from, "block_documents") : 0,
                   .window_blocks = block ? rp_spec_u32(from, "window_blocks") : 0,
                   .packing = rp_spec_word(from, "packing", packings),
                   .window = rp_spec_u32(from, "window"),
                   .row_gap = rp_spec_word(from, "fill", fills),
                   .long_doc = rp_spec_word(from, "long_doc", long_docs),
                   .max_docs_per_row = rp_spec_u32(from, "max_docs_per_row"),
                   .lanes = rp_spec_u32(from, "lanes"),
                   .corpus_sampled = rp_spec_hash(from, "corpus_sampled"),
                   .corpus_full = rp_spec_hash(from, "corpus_full")},
        .source_count = (uint32_t)json_array_size(sources)};
    spec.sources = calloc(spec.source_count, sizeof *spec.sources);
    for (uint32_t j = 0; j < spec.source_count; j++)
        rp_spec_source(&spec.sources[j], json_array_get(sources, j));
    return spec;
}

static inline void rp_spec_free(struct rp_spec *spec)
{
    for (uint32_t j = 0; j < spec->source_count; j++)
        free((void *)spec->sources[j].lengths);
    free(spec->sources);
}

/* The token that the golden vectors put at `offset` of a document. */
static inline uint32_t rp_spec_token(uint32_t source, uint64_t document, uint64_t offset)
{
    unsigned char key[20];
    memcpy(key, &source, 4);
    memcpy(key + 4, &document, 8);
    memcpy(key + 12, &offset, 8);
    return (uint32_t)rp_hash64(key, sizeof key) % 50000u;
}

/* H(g) of STREAM.md section 7; zero for a row without fragments. */
static inline struct rp_hash128 rp_spec_row_digest(const struct rp_row *row)
{
    if (row->count == 0)
        return (struct rp_hash128){0, 0};
    struct rp_hasher hasher;
    rp_hasher_begin(&hasher);
    rp_hasher_add(&hasher, &row->count, 4);
    for (uint32_t i = 0; i < row->count; i++)
        rp_hasher_add(&hasher, &row->fragments[i].length, 4);
    for (uint32_t i = 0; i < row->count; i++) {
        const struct rp_fragment *fragment = &row->fragments[i];
        for (uint64_t at = fragment->offset; at < fragment->offset + fragment->length; at++) {
            uint32_t token = rp_spec_token(fragment->source, fragment->document, at);
            rp_hasher_add(&hasher, &token, 4);
        }
    }
    struct rp_hash128 content = rp_hasher_finish(&hasher);
    uint64_t numbered[3] = {row->row, content.low, content.high};
    return rp_hash128(numbered, sizeof numbered);
}

/* Bytes as hex digits and a NUL; the caller frees them. */
static inline char *rp_spec_hex(const unsigned char *bytes, size_t count)
{
    char *text = malloc(2 * count + 1);
    for (size_t i = 0; i < count; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    text[2 * count] = 0;
    return text;
}

/* The state token of the plan's position in hex; the caller frees it. */
static inline char *rp_spec_state(const struct rp_plan *plan)
{
    unsigned char *token = malloc(rp_plan_state_bytes_max(plan));
    char *text = rp_spec_hex(token, rp_plan_save(plan, token));
    free(token);
    return text;
}

static inline struct rp_hash128 rp_spec_identity(const struct rp_plan *plan)
{
    struct rp_record_writer writer = {0};
    rp_plan_contract(plan, &writer);
    struct rp_record record = {writer.text, writer.bytes};
    struct rp_hash128 identity = rp_record_hash(&record);
    free(writer.text);
    return identity;
}

#endif
