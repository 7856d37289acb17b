/* SPDX-License-Identifier: Apache-2.0 */
/* contract.h — what the parts of a run must agree on, field by field, and when a field may change.
 *
 * A contract is two records (base/record.h). The *stream* record has what decides the tokens of
 * row g (engine/plan/STREAM.md, section 9); the *delivery* record has what decides how rows become
 * batches (engine/shm/ABI.md). As text: the stream record, an empty line, the delivery record.
 *
 * The two records are compared at three moments: when a run resumes from a state, when a trainer
 * that lives on attaches to another engine, and when the nodes of a job compare notes. The table in
 * contract.c says of each field at which of them it may differ. */
#ifndef RP_BASE_CONTRACT_H
#define RP_BASE_CONTRACT_H

#include "base/record.h"

/* Of the text. 4096 sources with the longest names need 1.2 MiB. */
#define RP_CONTRACT_BYTES_MAX (2u << 20)

/* A view of a text, of which the records are parts. */
struct rp_contract {
    struct rp_record stream, delivery;
};
static inline const char *rp_contract_text(const struct rp_contract *contract)
{
    return contract->stream.text;
}
static inline size_t rp_contract_bytes(const struct rp_contract *contract)
{
    return contract->stream.bytes + 1 + contract->delivery.bytes;
}

enum rp_contract_moment {
    RP_AT_RESUME = 1,     /* from a state token or a checkpoint */
    RP_AT_REWEIGHTED = 2, /* the same, where other weights of the sources are accepted */
    RP_AT_REATTACH = 4,   /* of a trainer that lives on, to another engine */
    RP_ON_NODES = 8,      /* of one job */
};

/** Check every byte of the text and make a view of it. -RP_E_CORRUPT. */
RP_MUST_CHECK int rp_contract_open(struct rp_contract *contract, const char *text, size_t bytes,
                                   struct rp_error *error);

/** Add a line to a record. The table has its sign, and the name must be in the table. */
void rp_contract_add(struct rp_record_writer *writer, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** The same for a field of source number `source`: "weight", "documents", "name". */
void rp_contract_add_of_source(struct rp_record_writer *writer, uint32_t source, const char *name,
                               const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The two sides of a comparison, as messages name them. */
struct rp_contract_sides {
    enum rp_contract_moment moment;
    const char *had, *has; /* "the state", "this run" */
};

/** Compare the contract that somebody `had` with the one that is there now. Returns 0 if they
 * differ in nothing that matters at this moment; or -RP_E_MISMATCH: the message names the fields
 * with both values, the most telling one first, and the hint says whether that one may ever change
 * and what to do next. */
RP_MUST_CHECK int rp_contract_compare(const struct rp_contract *had, const struct rp_contract *has,
                                      const struct rp_contract_sides *sides,
                                      struct rp_error *error);

/** Whether it has the full root of the corpus, of its whole content, which an index makes known.
 * Two contracts that have it are compared by it; others by the sampled root alone. */
bool rp_contract_knows_whole(const struct rp_contract *contract);

/** Of both records. */
struct rp_hash128 rp_contract_hash(const struct rp_contract *contract);

#endif
