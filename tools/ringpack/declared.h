/* SPDX-License-Identifier: Apache-2.0 */
/* declared.h — the common part of `inspect` and `index`: options that declare token files
 * are, and the loop over the files. */
#ifndef RP_TOOLS_DECLARED_H
#define RP_TOOLS_DECLARED_H

#include <jansson.h>

#include "corpus/corpus.h"
#include "options.h"

/* The arguments of both verbs, and of `index -c`. */
struct rp_declared {
    struct rp_cmd_line line;
    struct rp_source_spec hints;
    const char *index_dir;
    bool json, quiet;
    bool scan;          /* only `inspect` has this option */
    const char *output; /* only `index` has these two */
    uint64_t workers;
    void *state; /* the verb's */
};

bool rp_declared_take_format(const char *text, void *place);
bool rp_declared_take_type(const char *text, void *place);
bool rp_declared_take_eos(const char *text, void *place);

#define RP_DECLARED_FORMAT(id, name) " " name
#define RP_DECLARED_FORMATS "one of auto" RP_FORMAT_LIST(RP_DECLARED_FORMAT)
#define RP_DECLARED_TYPE(id, name, width, bits) " " name
#define RP_DECLARED_TYPES "one of" RP_TOKEN_LIST(RP_DECLARED_TYPE)

/* The rows of both tables. */
#define RP_DECLARED_OPTIONS                                                                        \
    {RP_TAKE("format", "F", struct rp_declared, hints.format, rp_declared_take_format),            \
     .expected = RP_DECLARED_FORMATS,                                                              \
     .help = "default: as the file says, never raw; " RP_DECLARED_FORMATS},                        \
        {RP_TAKE("dtype", "T", struct rp_declared, hints.type, rp_declared_take_type),             \
         .expected = RP_DECLARED_TYPES, .help = "type of raw tokens; " RP_DECLARED_TYPES},         \
        {RP_TAKE("eos", "N", struct rp_declared, hints.eos, rp_declared_take_eos),                 \
         .expected = "a token id", .help = "the token that separates documents (raw, npy, llmc)"}, \
        {RP_TEXT("column", "NAME", struct rp_declared, hints.column),                              \
         .help = "the column of token ids (default: as in convert)"},                              \
        {RP_TEXT("mask", "NAME", struct rp_declared, hints.mask.name),                             \
         .help = "the mask of trained tokens: auto (default) or none"},                            \
        {RP_CHOICE("mask-value", "V", struct rp_declared, hints.mask.value),                       \
         .expected = "train or ignore",                                                            \
         .help = "train (default) or ignore: meaning of entries not 0"},                           \
        {RP_CHOICE("mask-of", "T", struct rp_declared, hints.mask.of),                             \
         .expected = "token or next",                                                              \
         .help = "entry i is about token i (default) or the next one"},                            \
        {RP_LOCAL("index-dir", "DIR", struct rp_declared, index_dir),                              \
         .help = "keep sidecars in DIR, not next to the token files"},                             \
        {RP_FLAG("json", struct rp_declared, json), .help = "print one JSON array"},               \
    {                                                                                              \
        RP_FLAG("quiet", struct rp_declared, quiet), .letter = 'q', .help = "no progress"          \
    }

/* A verb that does the same with each token file of its paths. */
struct rp_declared_verb {
    /* Handles one file, which is called `name` where people see it (a URL without its query), and
     * returns an exit status. With --json it appends to `list`. */
    int (*one)(const char *path, const char *name, const struct rp_declared *declared,
               json_t *list);
    /* Called after the last file; may be NULL. Returns an exit status. */
    int (*end)(const struct rp_declared *declared, json_t *list);
    void *state; /* for both */
};

/** Call verb->one for each token file that the words expand to, also after one has failed. Returns
 * the exit status. */
int rp_declared_run(const struct rp_declared_verb *verb, struct rp_declared *declared);

/** The same for the shards of the sources of a config, each declared as its source is. Of `common`
 * the hints are ignored. */
int rp_declared_sources(const struct rp_declared_verb *verb, const struct rp_declared *common,
                        const struct rp_source_spec *sources, uint32_t source_count);

#endif
