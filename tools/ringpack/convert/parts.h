/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h — the tasks of a conversion, and the parts that survive a kill. convert.h has the flow.
 */
#ifndef RP_TOOLS_PARTS_H
#define RP_TOOLS_PARTS_H

#include "convert/convert.h"

/* The options of the command line. */
struct rp_convert_options {
    const char *output, *column, *dtype;
    struct rp_tokenizer_choice tokenizer;
    bool tokenizer_given, force, no_append_eos, quiet, merge;
    struct rp_mask_choice mask; /* --drop-labels is "none" */
    struct rp_wanted_sides sides;
    uint64_t vocab_size, min_bytes, split_bytes, max_tokens, group_bytes;
    uint32_t workers;     /* 0: as many as there are CPUs, eight at most */
    uint32_t part, parts; /* from --part; parts 0: all tasks are this process's */
};

/* The part that a task made, as in its record. */
struct rp_task_part {
    struct rp_hash128 content; /* hash of its inputs, which are files; zeros: times identify them */
    uint64_t documents, tokens, token_max;
    bool wide;
    uint64_t token_bytes, index_bytes;
    struct rp_hash128 token_hash, index_hash;
    struct rp_hashed_file spans, sides[RP_SIDES_MAX]; /* without a mask, without documents: none */
    struct rp_counts counts;
};

/* Consecutive inputs. The limits of tasks depend only on the names and sizes of the inputs. */
struct rp_task {
    const struct rp_input *inputs;
    size_t count;
    uint64_t bytes;
    bool mine;             /* this process makes it */
    bool changed;          /* its part is there, but its inputs have changed since */
    _Atomic bool finished; /* `made` describes the part on the disk */
    struct rp_task_part made;
};

struct rp_conversion {
    const struct rp_convert_options *options;
    const struct rp_inputs *inputs;
    struct rp_input *pieces; /* the inputs, large ones cut into pieces */
    struct rp_task *tasks;
    size_t task_count;
    int lock;     /* the folder's; -1: none */
    char *folder; /* PREFIX.parts; NULL: there is one task, which writes the output itself */
    struct rp_hash128 made_of;        /* hash of all that decides a part, but its inputs */
    struct rp_hash128 tokenizer_hash; /* its file's; zero for bytes */
    bool tokenizer_known;             /* it made the tokens, or is said to have made them */
    enum rp_text_rule text;
    uint64_t vocab_size; /* 0: the ids say it */
    int64_t eos, bos;
    bool append_eos;
    bool joined;       /* the output is there, and parts are of no use */
    _Atomic bool wide; /* for tasks that begin from now on */
    _Atomic uint64_t done_bytes, done_tokens;
    uint64_t total_bytes; /* sum of the unfinished tasks at the start */
};

/* conversion.c */

/** The whole of `ringpack convert`. */
RP_MUST_CHECK int rp_conversion_run(const struct rp_convert_options *options,
                                    const struct rp_inputs *inputs, struct rp_error *error);

/* tasks.c */

/** Cut the inputs into tasks, and see which of them are this process's. */
RP_MUST_CHECK int rp_tasks_make(struct rp_conversion *conversion, struct rp_error *error);
/** Whether a token that is put around documents does not fit u16. */
bool rp_ends_are_wide(const struct rp_conversion *conversion);
/** One thread's state: its own tokenizer is opened later. */
struct rp_convert rp_task_convert(struct rp_conversion *conversion);
/** Convert a task to its part, or to the output. */
RP_MUST_CHECK int rp_task_run(struct rp_conversion *conversion, struct rp_convert *convert,
                              struct rp_task *task, struct rp_error *error);
/** Enough tokens (--max-tokens) are in finished tasks without a gap before them. */
bool rp_tasks_enough(const struct rp_conversion *conversion);

/* parts.c */

/** The path of a file of a task's part: "bin", "idx", "spans", "NAME.col" or "json"; the caller
 * frees it. */
char *rp_part_path(const struct rp_conversion *conversion, const struct rp_task *task,
                   const char *ending);
/** Write the record of a part that is on the disk. */
RP_MUST_CHECK int rp_part_save(const struct rp_conversion *conversion, const struct rp_task *task,
                               struct rp_error *error);
/** Hash the content of the inputs of a task, before they are read. Zeros: some are not whole files,
 * but objects, folders or pieces. */
RP_MUST_CHECK int rp_part_hash_inputs(const struct rp_task *task, struct rp_hash128 *hash,
                                      struct rp_error *error);
/** Is the part of a task there, made of the same, and unchanged? Then it is finished. Reads all of
 * it. `elsewhere`: the inputs may have other times, because another machine has read its own copies
 * of them: then their content is compared. */
void rp_part_check(const struct rp_conversion *conversion, struct rp_task *task, bool elsewhere);
/** Remove all parts. */
void rp_parts_remove(const struct rp_conversion *conversion);

/* parts_lock.c */

/** Make the folder of the parts, or find it, and take it: together with other machines where each
 * makes some parts, else exclusively. A folder that others may write to is refused. */
RP_MUST_CHECK int rp_parts_take(struct rp_conversion *conversion, struct rp_error *error);
/** Give it back. `remove`: delete it if no part is left in it. */
void rp_parts_give_back(struct rp_conversion *conversion, bool remove);
/** Make an opened output the one that users see: with all companion files. */
RP_MUST_CHECK int rp_origin_add(const struct rp_conversion *conversion,
                                const struct rp_counts *counts, struct rp_output *output,
                                struct rp_error *error);

/* pool.c */

/** Convert every task that is this process's and not finished, by threads, with progress. */
RP_MUST_CHECK int rp_pool_run(struct rp_conversion *conversion, struct rp_convert *first,
                              struct rp_error *error);

/* join.c */

/** Join the parts, in order, to the output. */
RP_MUST_CHECK int rp_parts_join(struct rp_conversion *conversion, struct rp_task_part *joined,
                                struct rp_error *error);

#endif
