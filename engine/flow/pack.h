/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h — third step of the flow: bytes become rows. Packer w of P takes the tickets that are w
 * modulo P. */
#ifndef RP_FLOW_PACK_H
#define RP_FLOW_PACK_H

#include "flow/files.h"
#include "flow/flow.h"
#include "flow/verified.h"
#include "flow/write_row.h"

struct rp_deliver;

/* Shared by all packers of a flow; read-only while they run, except for the words that deliver
 * guards. */
struct rp_pack_plan {
    const struct rp_arena *arena;
    struct rp_deliver *deliver;           /* NULL: packers are processes, and wake the engine */
    const struct rp_pack_target *targets; /* [ring] */
    const struct rp_files *files;         /* for tokens in mapped files */
    struct rp_verified *verified;         /* [packers]; NULL if no mapped file has hashes */
    uint32_t packers;
    uint32_t side_files; /* side columns of tokens; columns of documents follow */
    uint64_t token_limit;
    int64_t pad_id;
    const struct rp_row_form *form;
    int wake_fd; /* eventfd of deliver */
};

/** The packing loop: returns when the flow stops. Allocates no memory and takes no lock: a forked
 * child may run it. */
void rp_packer_run(const struct rp_pack_plan *plan, uint32_t index);

/** Could a packer that does not run pack its first unpacked ticket, *number? True if all
 * reads of that ticket are done, including reads by other tickets, and its batch slots are free.
 * Otherwise the packer would wait, for reads or for trainers. */
bool rp_packer_has_work(const struct rp_pack_plan *plan, uint32_t index, uint64_t *number);

#endif
