/* SPDX-License-Identifier: Apache-2.0 */
/* contract.h — the fields that the parts of a run must agree on, and when each may change.
 *
 * A contract has two records (base/record.h). The *stream* record has the fields that decide the
 * tokens of row g (engine/plan/STREAM.md, section 9); the *delivery* record has the fields that
 * decide how rows become batches (engine/shm/ABI.md). As text it is the stream record, an empty
 * line, the delivery record.
 *
 * Contracts are compared when a run resumes from a state token, when a trainer that describes its
 * stream attaches, when it attaches to the successor of its engine, and when the nodes of a job
 * check that they agree. The table in contract.c lists the cases that allow a field to differ. */
#ifndef RP_BASE_CONTRACT_H
#define RP_BASE_CONTRACT_H

#include "base/record.h"

/* 4096 sources with the longest names need 1.2 MiB of text. */
#define RP_CONTRACT_BYTES_MAX (2u << 20)

/* A view: both records point into one text. */
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
    RP_AT_RESUME = 1,     /* a run resumes from a state token or a checkpoint */
    RP_AT_REWEIGHTED = 2, /* the same, and other weights of the sources are accepted */
    RP_AT_REATTACH = 4,   /* a trainer attaches to the successor of its engine */
    RP_AT_EXTENSION = 16, /* as RP_AT_RESUME, if a run continues with another num_epochs */
    RP_ON_NODES = 8,      /* the nodes of a job compare their contracts */
    /* A trainer attaches for the first time, with its expectations. Fields that its side, the
     * earlier one, lacks are not compared. */
    RP_AT_ATTACH = 32,
};

/** Check every byte of the text and make a view of it. Error: -RP_E_CORRUPT. */
RP_MUST_CHECK int rp_contract_open(struct rp_contract *contract, const char *text, size_t bytes,
                                   struct rp_error *error);

/** Add a line to a record. `name` must be in the table, which has the sign of the line; there
 * `column[weight].type` is `column[].type`. */
void rp_contract_add(struct rp_record_writer *writer, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Add a line for a field of an entry of a list: "weight", "documents" or "name" of a "source", or
 * "batch_size" or "global_batch_size" of a "stage". */
void rp_contract_add_of(struct rp_record_writer *writer, const char *list, uint32_t number,
                        const char *name, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The two sides of a comparison, as messages name them. */
struct rp_contract_sides {
    enum rp_contract_moment moment;
    const char *had, *has; /* "the state", "this run" */
    uint64_t weight_unit;  /* for messages: as in base/weights.h, or 0 */
    /* The earlier side's next row: records of version 2 from it on may differ, because they are not
     * begun (STREAM2.md section 9.5). 0: none may. */
    uint64_t records_from;
};

/* The names of the records of version 2 begin with it. */
#define RP_CONTRACT_RECORD "record["

/* records_from where the state token of the earlier side, which has a hash of the begun records, is
 * compared as well: its contract lacks the records that an engine appended since. */
#define RP_RECORDS_OF_TOKEN UINT64_C(1)

/** Compare an earlier contract, `had`, with the current one, `has`. Returns 0 if all fields that
 * differ may differ at this moment; otherwise -RP_E_MISMATCH: the message names the fields with
 * both values, the most important one first, and the hint says whether that one may ever change,
 * and the next step. */
RP_MUST_CHECK int rp_contract_compare(const struct rp_contract *had, const struct rp_contract *has,
                                      const struct rp_contract_sides *sides,
                                      struct rp_error *error);

/** The key of a config that sets a field: `row_gap` for `fill`, else the field's own name. */
const char *rp_contract_key(const char *name);
/** The moments (bits of enum rp_contract_moment) that allow the field of a key to differ. UINT_MAX,
 * all of them, for a key without a field. */
unsigned rp_contract_may_differ(const char *key);

/** Whether the contract has the full fingerprint of the corpus, which needs sidecars of all shards.
 * Two contracts that have it are compared by it, others only by the sampled fingerprint. */
bool rp_contract_knows_whole(const struct rp_contract *contract);

/** A hash of both records, without the fields that are not compared, and without the records of
 * version 2: a running engine may append one, while its rings keep the hash. (Documents that a
 * record adds also change the fingerprints of their source, and with them the hash.) */
struct rp_hash128 rp_contract_hash(const struct rp_contract *contract);

#endif
