/* SPDX-License-Identifier: Apache-2.0 */
/* flow_struct.h — the state of a flow: one struct, for flow.c, flow_open.c, flow_view.c,
 * catch_up.c and ending.c. */
#ifndef RP_FLOW_FLOW_STRUCT_H
#define RP_FLOW_FLOW_STRUCT_H

#include "flow/catch_up.h"
#include "flow/deliver.h"
#include "flow/dispatch.h"
#include "flow/fetch.h"
#include "flow/files.h"
#include "flow/prefault.h"
#include "flow/flow.h"
#include "flow/packer.h"

/* Written by flow.c only (tests/tidy checks that).
 *
 *   NEW      it has not run: the pages of its arena are zero and untouched. rp_flow_start: RUNNING
 *   RUNNING  its stages run, and its caller delivers.
 *            rp_flow_park: PARKED; rp_flow_stop, or a failure to start or resume: STOPPED
 *   PARKED   as RUNNING, but packer threads deliver. rp_flow_unpark: RUNNING
 *   STOPPED  no stage runs. rp_flow_start: RUNNING
 *
 * Packers are paused only while it is RUNNING; packers read that in words->stop (ticket.h). */
enum rp_flow_state { RP_FLOW_NEW, RP_FLOW_RUNNING, RP_FLOW_PARKED, RP_FLOW_STOPPED };

struct rp_flow {
    enum rp_flow_state flow_state;
    struct rp_flow_options options;
    struct rp_arena arena;
    struct rp_prefault prefault;
    struct rp_files files;
    struct rp_revalidation revalidation;
    struct rp_dispatch dispatch;
    struct rp_fetcher *fetchers; /* [readers] */
    struct rp_pack_plan pack_plan;
    struct rp_pack_target *targets; /* [rank_count] */
    struct rp_packer *packers;      /* [packers] */
    struct rp_verified *verified;   /* [packers], if a mapped file has hashes; else NULL */
    struct rp_deliver deliver;
    uint64_t *start_batch;      /* [rank_count] */
    struct rp_batch_sums *sums; /* [rank_count]: deliver's */
    struct rp_flow_costs costs; /* deliver's; catch-up flows that have ended are included */
    struct rp_flow **catch_up;  /* [rank_count]: of the ring (catch_up.h), or NULL */
    struct rp_flow *ending[RP_ENDINGS_MAX]; /* earlier catch-up flows (ending.h), or NULL */
    bool *is_left_out;                      /* [rank_count]: deliver's */
    struct rp_flow_counts
        earlier_counts; /* of ended catch-up flows, and of the flow that it replaces */
    /* code < 0: a token file that such a flow has read has changed */
    struct rp_error caught_up_error;
    uint64_t wake_at; /* the last argument of rp_flow_wake_at */
    uint64_t packers_replaced;
    int wake_fd;
    /* a catch-up flow that is ending has these */
    pthread_t ender;
    bool has_ender;
    struct rp_a32 has_ended; /* 1: no thread of it runs. Writer: the ender. PAIRS flow-ended */
};

static inline bool rp_flow_runs(const struct rp_flow *flow)
{
    return flow->flow_state == RP_FLOW_RUNNING || flow->flow_state == RP_FLOW_PARKED;
}
/** Add the counts of the flow's own stages. */
void rp_flow_add_counts(const struct rp_flow *flow, struct rp_flow_counts *counts);
/** Wait for the threads of all stages but packers. They have been told to stop. */
void rp_flow_join_threads(struct rp_flow *flow);
/** Free everything that rp_flow_open has made. No stage may run. */
void rp_flow_free(struct rp_flow *flow);

#endif
