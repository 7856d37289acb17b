/* SPDX-License-Identifier: Apache-2.0 */
/* declared.h — what `inspect` and `index` have in common: options that declare what token files
 * are, and the loop over the files. */
#ifndef RP_TOOLS_DECLARED_H
#define RP_TOOLS_DECLARED_H

#include <getopt.h>
#include <jansson.h>

#include "corpus/corpus.h"

struct rp_declared {
    struct rp_source_spec hints;
    const char *index_dir;
    bool json, quiet;
    bool scan;   /* only `inspect` has this option */
    void *state; /* the verb's own */
};

/* The entries of both verbs' option tables; their help is RP_DECLARED_HELP. */
#define RP_DECLARED_OPTIONS                                                                        \
    {"format", required_argument, NULL, 'f'}, {"dtype", required_argument, NULL, 'd'},             \
        {"eos", required_argument, NULL, 'e'}, {"column", required_argument, NULL, 'c'},           \
        {"index-dir", required_argument, NULL, 'I'}, {"json", no_argument, NULL, 'j'},             \
        {"quiet", no_argument, NULL, 'q'}, {"mask", required_argument, NULL, 'm'},                 \
        {"mask-value", required_argument, NULL, 'v'}, {"mask-of", required_argument, NULL, 'o'},   \
    {                                                                                              \
        "help", no_argument, NULL, 'h'                                                             \
    }
#define RP_DECLARED_FORMAT(id, name) " " name
#define RP_DECLARED_FORMATS RP_FORMAT_LIST(RP_DECLARED_FORMAT)
#define RP_DECLARED_TYPE(id, name, width, bits) " " name
#define RP_DECLARED_TYPES RP_TOKEN_LIST(RP_DECLARED_TYPE)
#define RP_DECLARED_HELP                                                                           \
    "  --format F       format of the file (default: as the file says, never raw):\n"              \
    "                  " RP_DECLARED_FORMATS "\n"                                                  \
    "  --dtype T        how raw tokens are stored:\n"                                              \
    "                  " RP_DECLARED_TYPES "\n"                                                    \
    "  --eos N          the token that separates documents (raw, npy, llmc)\n"                     \
    "  --column NAME    of token ids, where a file has several (default: input_ids, tokens,\n"     \
    "                   or the only list of integers)\n"                                           \
    "  --mask NAME      the mask of trained tokens; auto (default): the one that exists, none\n"   \
    "  --mask-value V   an entry of it that is not 0 means: train (default) or ignore\n"           \
    "  --mask-of T      an entry of it is about its own token (default) or the next one\n"         \
    "  --index-dir DIR  keep sidecars there and not beside the token files\n"                      \
    "  --json           print one JSON array\n"                                                    \
    "  -q, --quiet      no progress\n"

/* A verb that does the same with each token file of its paths. */
struct rp_declared_verb {
    const char *name, *help;
    const struct option *options;
    /* Handles one file, which is called `name` where people see it (a URL without its query), and
     * returns an exit status. With --json it appends to `list`. */
    int (*one)(const char *path, const char *name, const struct rp_declared *declared,
               json_t *list);
    /* After the last file, what is left to do; NULL: nothing. Returns an exit status. */
    int (*end)(const struct rp_declared *declared, json_t *list);
    void *state; /* for both */
};

/** Parse the command line, and call verb->one for each token file that the paths expand to, also
 * after one has failed. Returns the exit status. */
int rp_declared_run(const struct rp_declared_verb *verb, int argc, char **argv);

/** The same for the shards of the sources of a config, each declared as its source is. Of `common`
 * the hints are ignored. */
int rp_declared_sources(const struct rp_declared_verb *verb, const struct rp_declared *common,
                        const struct rp_source_spec *sources, uint32_t source_count);

#endif
