/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.h — second step of the flow: tickets become bytes. Reader r of R takes the tickets that are
 * r modulo R. */
#ifndef RP_FLOW_FETCH_H
#define RP_FLOW_FETCH_H

#include <pthread.h>

#include "flow/files.h"
#include "flow/flow.h"

enum rp_fetcher_io { RP_FETCHER_OPENING, RP_FETCHER_OPENED, RP_FETCHER_NOT_OPENED };

struct rp_fetcher {
    const struct rp_flow_options *options;
    struct rp_arena *arena;
    const struct rp_files *files;
    uint32_t index;

    struct rp_io *io;     /* opened and closed on the reader's own thread */
    bool has_region;      /* the data is registered with `io` */
    uint32_t *reads_left; /* [slot]: reads of its ticket not yet done */
    uint64_t next_ticket; /* the first ticket of this reader that is not submitted yet */
    uint32_t next_read;   /* its first read that is not submitted yet */

    pthread_t thread;
    bool started;
    struct rp_a32 opened; /* enum rp_fetcher_io */
    struct rp_event opened_event;
    struct rp_error error;
    struct rp_error refusal;       /* code < 0: io_uring was refused, and `io` reads with pread */
    struct rp_io_counts published; /* counts of `io` that are added to the following ones */
    struct rp_a64 reads, read_bytes, short_reads, retries; /* for stat; writer: the reader */
    struct rp_a32 at_server; /* reads that wait for a server; for stat; writer: the reader */
};

RP_MUST_CHECK int rp_fetcher_start(struct rp_fetcher *fetcher, struct rp_error *error);
void rp_fetcher_join(struct rp_fetcher *fetcher);

#endif
