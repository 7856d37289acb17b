/* SPDX-License-Identifier: Apache-2.0 */
/* keys.h — `ringpack config`: the keys of a config listed, shown, checked, compared and written. It
 * reads only configs: only `contract` opens the corpus; `check`, `init` and `stream`
 * list its files. */
#ifndef RP_TOOLS_CONFIG_KEYS_H
#define RP_TOOLS_CONFIG_KEYS_H

#include "cmd_config.h"

#define RP_KEYS_WORDS_MAX 256
/* Room for the text of a value: a path, or the list of a source's shards, which is cut to it. */
#define RP_KEYS_VALUE_BYTES 4608
#define RP_KEYS_STAGE_BYTES (1u << 20) /* as much as a file of a config has */

struct rp_keys_arguments {
    struct rp_cmd_line line;
    const char **words; /* words of the command line after the action */
    size_t word_count;
    const char *output; /* -o */
    bool json, manual;
};

/** The actions. Each returns the exit status. */
int rp_keys_show(const struct rp_keys_arguments *arguments, const struct rp_config *config);
int rp_keys_check(const struct rp_keys_arguments *arguments, struct rp_config *config);
int rp_keys_stream(const struct rp_keys_arguments *arguments, struct rp_config *config);
int rp_keys_contract(const struct rp_keys_arguments *arguments, struct rp_config *config);
int rp_keys_diff(const struct rp_keys_arguments *arguments);
int rp_keys_list(const struct rp_keys_arguments *arguments);
int rp_keys_init(const struct rp_keys_arguments *arguments, struct rp_config *config);

/** Finish the config, and check that the files it names are there. -ENOENT names the first that is
 * not. URLs are not checked. */
RP_MUST_CHECK int rp_keys_finish(struct rp_config *config, struct rp_error *error);

/** The value of key number `i` that a run would have, before values are derived from others: the
 * given value, else the default, which may be a description in parentheses. */
void rp_keys_value(const struct rp_config *config, size_t i, char *text, size_t bytes);

/** A stage as YAML on one line. The caller frees it; NULL when out of memory. */
char *rp_keys_stage(const struct rp_config *config, uint32_t stage);

/** The meaning of a change of the key for a run that resumes, as words. */
const char *rp_keys_at_resume(const char *key);
const char *rp_keys_of_source_at_resume(const char *key);

#endif
