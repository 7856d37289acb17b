/* SPDX-License-Identifier: Apache-2.0 */
/* log.h — `ringpack journal`: the entries of a chained file (base/chain.h), and the part that is
 * whole. The file is a run journal (checkpoint/run_journal.h). */
#ifndef RP_TOOLS_AUDIT_LOG_H
#define RP_TOOLS_AUDIT_LOG_H

#include <jansson.h>
#include <stdbool.h>

#include "base/chain.h"

struct rp_audit_log_entry {
    struct rp_chain_entry chain; /* its texts belong to the log */
    json_t *value;               /* an object */
};

struct rp_audit_log {
    char *path, *text;
    size_t bytes;
    struct rp_audit_log_entry *entries;
    size_t count, room;
    size_t end;   /* bytes of the file that are of entries, or skipped by one */
    size_t whole; /* entries before the first that is missing, damaged or inserted */
};

/** Read the log of `name`: a file, a directory with a run journal, or a run whose engine says where
 * its directory is. */
RP_MUST_CHECK int rp_audit_log_open(struct rp_audit_log *log, const char *name, const char *run_dir,
                                    struct rp_error *error);
/** The same of the run that a config is of: where its engine says, or, if none is running, in the
 * checkpoint directory of the config. */
RP_MUST_CHECK int rp_audit_log_open_of(struct rp_audit_log *log, const char *config_path,
                                       const char *stream, const char *run_dir,
                                       struct rp_error *error);
void rp_audit_log_close(struct rp_audit_log *log);

/** Text or number of an entry; NULL or `otherwise` if it is absent. */
const char *rp_audit_log_text(const struct rp_audit_log_entry *entry, const char *key);
json_int_t rp_audit_log_number(const struct rp_audit_log_entry *entry, const char *key,
                               json_int_t otherwise);
bool rp_audit_log_is(const struct rp_audit_log_entry *entry, const char *event);

/** Put question marks in the place of control characters, which a terminal would obey: of a text,
 * or of all texts of a log. */
void rp_audit_make_printable(char *text);
void rp_audit_log_make_printable(struct rp_audit_log *log);

/** Print the entries, a line each, and the problems. `expected`: a hash that one of the entries
 * must have, or NULL. Returns the exit status. */
int rp_audit_log_print(const struct rp_audit_log *log, const char *expected, bool json);

#endif
