/* SPDX-License-Identifier: Apache-2.0 */
/* origin.h — the stream of a verb: a config and keys on the command
 * line; a checkpoint, which keeps its config; or a running engine, whose command line is
 * read in /proc. */
#ifndef RP_TOOLS_ORIGIN_H
#define RP_TOOLS_ORIGIN_H

#include "cmd_config.h"
#include "explain/steps.h"
#include "explain/walk.h"

/* The arguments of a verb about a stream begin with this. */
struct rp_origin {
    struct rp_cmd_line line;
    const char *path;  /* the word: a checkpoint, a directory of them, a state token, or NULL */
    uint64_t base_row; /* --base-row */
    bool base_row_given;
    uint64_t step; /* step of a running engine's position */
    bool has_step;
    /* found by rp_origin_finish */
    char *checkpoint; /* its path, where `path` is one or a directory; else NULL */
    char *token;      /* its state token; NULL = none */
    size_t token_bytes;
    char *contract; /* the checkpoint's; NULL: none is known */
    size_t contract_bytes;
    bool has_position;    /* the position of the checkpoint or the engine: */
    uint64_t position;    /* a row */
    uint64_t base_known;  /* the first row of some step of the engine or checkpoint */
    struct rp_steps kept; /* the saving run's, if -c is also given */
    char stream[40];      /* the identity of the stream that the engine serves; "" = not known */
};

#define RP_ORIGIN_BASE_ROW_OPTION(type, member)                                                    \
    {                                                                                              \
        RP_COUNT("base-row", "ROW", type, member.base_row),                                        \
            .given = offsetof(type, member.base_row_given),                                        \
            .help = "row at which step 0 begins (default 0), if the global batch of the run was "  \
                    "changed"                                                                      \
    }
#define RP_ORIGIN_USAGE "[CHECKPOINT|DIR|STATE|RUN]"

/** Finish the config (`finish` of a struct rp_verb). */
int rp_origin_finish(struct rp_cmd_line *arguments);
void rp_origin_free(struct rp_origin *origin);

/** Open the finished config: go anywhere in its stream, by its steps. Errors: the config of a
 * running engine is another stream by now; the steps of the run do not begin at multiples of the
 * global batch, and --base-row was not given (only for a step: by_step). */
RP_MUST_CHECK int rp_origin_open(const struct rp_origin *origin, const struct rp_config *config,
                                 bool by_step, struct rp_walk *walk, struct rp_steps *steps,
                                 struct rp_error *error);

/** A path that stays the same when the working directory changes. The caller frees it. */
char *rp_origin_absolute(const char *path);

/* running.c */

/** Take over the config of the engine of that name, which runs as a process of this machine: its
 * working directory, and the keys that it was started with. */
RP_MUST_CHECK int rp_origin_of_engine(struct rp_origin *origin, const char *run,
                                      const char *run_dir, struct rp_error *error);

#endif
