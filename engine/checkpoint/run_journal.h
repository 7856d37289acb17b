/* SPDX-License-Identifier: Apache-2.0 */
/* run_journal.h — the file in a checkpoint directory that records the history of its run's data:
 * starts of engines with their rows and origins, their ends, and acts of operators. FORMAT.md
 * describes its entries, base/chain.h the chain.
 *
 * It is for people and for `ringpack audit`. A journal that cannot be read or written is a warning,
 * and never the reason for an error, but for `weights` and `documents`: they hold only once they
 * are written, and a start of a stream of version 2 takes them from here. */
#ifndef RP_CHECKPOINT_RUN_JOURNAL_H
#define RP_CHECKPOINT_RUN_JOURNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

#define RP_RUN_JOURNAL_NAME "run-journal.jsonl"

/* The value of `event`, its writer, and its meaning. */
#define RP_RUN_JOURNAL_EVENTS(X)                                                                   \
    X(started, "engine", "an engine serves from this row on")                                      \
    X(rolled_back, "engine", "trainers attached from a state at this row, not at the engine's")    \
    X(weights, "engine", "`ringpack weights` set the weights from this row on")                    \
    X(documents, "engine", "`ringpack grow` set the documents of sources from this row on")        \
    X(save_failed, "engine", "a save failed, or was not read back; the one before had succeeded")  \
    X(stopped, "engine", "an engine ended in order; this is the newest position that it saved")    \
    X(rewound, "operator", "`checkpoint rewind` made an older checkpoint the newest")              \
    X(exported, "operator", "`checkpoint export` took the state out of a checkpoint")              \
    X(imported, "operator", "`checkpoint import` put a state token into the directory")

/** The path of a directory's journal; the caller frees it. NULL when out of memory. */
char *rp_checkpoint_journal_path(const char *directory);

/** A text of any bytes as a JSON string of at most 1,000 bytes. */
json_t *rp_checkpoint_journal_text(const char *text);

/** Append an entry: an object without nested values, which is released. Name of the host and pid
 * are added. */
RP_MUST_CHECK int rp_checkpoint_journal_append(const char *directory, json_t *entry,
                                               struct rp_error *error);

/** The same for an operator's act. Only a directory that has a journal gets the entry, and a
 * failure is a warning in the log. */
void rp_checkpoint_journal_add_act(const char *directory, json_t *entry);

/* A record that a run took while it ran: `text` has its weights or its documents. */
typedef int rp_run_journal_record(void *context, uint64_t row, bool is_documents, const char *text,
                                  struct rp_error *error);
/** Call for each of them, in the order of their writing, since the last fresh start; the first
 * error ends it. Without a journal there are none. Errors: of reading it, and the caller's. */
RP_MUST_CHECK int rp_checkpoint_journal_records(const char *directory, rp_run_journal_record *call,
                                                void *context, struct rp_error *error);

/* The last engine's entries. The caller releases both. */
struct rp_run_journal_last {
    json_t *started; /* NULL: no engine is known to have started */
    json_t *stopped; /* NULL: it has not written that it ended */
};
/** Find them at the end of the journal, as far as it can be read. */
void rp_checkpoint_journal_find_last(const char *directory, struct rp_run_journal_last *last);

#endif
