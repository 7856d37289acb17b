/* SPDX-License-Identifier: Apache-2.0 */
/* client.h — the trainer's side: attach, next, release, state, detach.
 *
 *     struct rp_client_options options = {.run = "pretrain", .rank = rank};
 *     struct rp_client *client;
 *     struct rp_batch batch;
 *     rp_client_attach(&client, &options, &error);
 *     while (rp_client_next(client, -1, &batch, &error) == RP_NEXT_BATCH) {
 *         train(rp_batch_section(&batch, RP_SECTION_INPUT_IDS));
 *         rp_client_release(client, &batch);
 *     }
 *     rp_client_detach(client);
 *
 * Memory: a batch lies in shared memory that the engine owns; the caller holds a *lease* until it
 * releases it, and reads without a copy. Leases may be returned in any order. Memory of held leases
 * stays valid whatever happens to the engine; it is unmapped when the client is detached and the
 * last lease is returned.
 *
 * When the engine dies, rp_client_next waits, attaches to its successor at the right row, goes on.
 *
 * Threads: one client belongs to one thread at a time; leases may be released by any thread.
 * fork: the child must not use the client (it is refused). */
#ifndef RINGPACK_CLIENT_H
#define RINGPACK_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "ringpack/batch.h"
#include "ringpack/error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rp_client;

/* Zero means "default" in every field but rank and replica. */
struct rp_client_options {
    const char *run;     /* name of the run; NULL = "default" */
    const char *run_dir; /* directory of the socket, found anew when an engine dies: let it be
                            absolute, or never chdir; NULL = the default one */
    uint32_t rank;       /* 0 .. world - 1 */
    uint32_t world;      /* dp_world_size that the trainer believes in; 0 = do not check */
    uint32_t rows;       /* batch_size that the trainer believes in; 0 = do not check */
    uint32_t seq_len;    /* 0 = do not check */
    uint32_t replica;    /* 0 .. replicas - 1: which of those who need the batches of this rank */
    uint32_t replicas;   /* that the trainer believes in; 0 = do not check */
    const void
        *state; /* state token to go on from; NULL = where the engine stands (its start row) */
    size_t state_bytes;          /* 0 if and only if state is NULL */
    uint64_t connect_timeout_ns; /* to wait for an engine of that name; 0 = 10 s */
    uint64_t restart_timeout_ns; /* to wait for the successor of a dead engine; 0 = 60 s; UINT64_MAX
                                    = for ever */
};

/* A lease on one batch. Plain data; copies share the lease. */
struct rp_batch {
    uint64_t number;    /* k: micro-batch of this run */
    uint64_t first_row; /* global number of its first row */
    uint64_t next_row;  /* row at which the state after this batch stands */
    uint32_t rows, seq_len;
    uint32_t rows_real, tokens_real, tokens_loss, max_seqlen, segments;
    uint64_t sum_len_squared;
    const void *sections[RP_SECTION_COUNT]; /* NULL where the run does not have it */
    uint64_t lease;                         /* the client's own */
};

enum rp_next {
    RP_NEXT_BATCH = 1, /* *batch is a new lease */
    RP_NEXT_EMPTY = 2, /* nothing within the timeout */
    RP_NEXT_END = 3,   /* the stream has ended (num_epochs), every batch has been delivered */
};

/** Attach to an engine. Copies what it needs of options.
 *  Errors: -RP_E_GONE no engine of that name within the timeout, -RP_E_BUSY rank (or replica of
 * it) is taken by a live trainer, -RP_E_MISMATCH other geometry or stream (both values named),
 * -RP_E_USAGE, -RP_E_VERSION.
 */
RP_API RP_MUST_CHECK int rp_client_attach(struct rp_client **client_out,
                                          const struct rp_client_options *options,
                                          struct rp_error *error);

/** The immutable shape of the run. Valid until detach; may change only `slots`, `base_row` and slot
 * offsets when a restarted engine was attached to. */
RP_API const struct rp_geometry *rp_client_geometry(const struct rp_client *client);

/** Take the next batch: waits at most timeout_ns (0 = not at all, negative = for ever); only an
 * attach to a restarted engine is not cut short. Returns enum rp_next, or -RP_E_USAGE when the ring
 * is full from the oldest lease on (release that one first), -RP_E_GONE when the engine died and no
 * successor came in time, or the engine's own error (for example -RP_E_CORRUPT, with its message).
 */
RP_API RP_MUST_CHECK int rp_client_next(struct rp_client *client, int64_t timeout_ns,
                                        struct rp_batch *batch, struct rp_error *error);

/** Take the next batch if it is ready, at once: never waits, never attaches to a successor (then
 * RP_NEXT_EMPTY, and rp_client_next does), is not counted as a wait. Otherwise as rp_client_next.
 */
RP_API RP_MUST_CHECK int rp_client_take(struct rp_client *client, struct rp_batch *batch,
                                        struct rp_error *error);

/** Return a lease; its memory may be overwritten at once. Any order. Releasing twice is
 * -RP_E_USAGE, but behind rp_client_detach the last lease must be returned once only: the client
 * ends with it. */
RP_API int rp_client_release(struct rp_client *client, const struct rp_batch *batch);

/** Whether the lease is still held. Not to be asked when the client is detached and its last lease
 * returned. */
RP_API int rp_client_holds(const struct rp_client *client, const struct rp_batch *batch);

/** Copy the state token after the last batch that rp_client_next returned (before the first: the
 * one given to attach, or that of the row the run starts at). Same bytes on every rank at the same
 * micro-batch. No syscall, no pause. Returns its length in bytes; copies nothing if capacity is
 * smaller. buffer may be NULL to ask. */
RP_API size_t rp_client_state(const struct rp_client *client, void *buffer, size_t capacity);

/** The same before that batch: where a caller stands who was interrupted while it took it. */
RP_API size_t rp_client_state_before(const struct rp_client *client, void *buffer, size_t capacity);

/** Row boundary of that state. */
RP_API uint64_t rp_client_next_row(const struct rp_client *client);

/** Identity of the stream: corpus, seed, packing and all else that decides what row g holds. Ranks
 * of a job compare it, and next_row, before the first step: nodes share no memory, so nobody else
 * can. */
RP_API void rp_client_identity(const struct rp_client *client, uint64_t identity[2]);

/* What the client has seen since attach. */
struct rp_client_counts {
    uint64_t batches, rows, tokens; /* delivered; tokens without padding */
    uint64_t waits;                 /* calls of next that found nothing ready */
    uint64_t wait_ns;
    uint64_t reattaches; /* to a restarted engine */
};
RP_API void rp_client_counts(const struct rp_client *client, struct rp_client_counts *counts);

/** Detach: from now on only held leases may be released, or asked about. They stay readable until
 * then; the client ends with the last one, at once if there is none. NULL is fine. */
RP_API void rp_client_detach(struct rp_client *client);

/** Digest of the rows of a batch (engine/plan/STREAM.md section 7), to be added to *sum (low, high
 * u64). */
RP_API void rp_batch_digest(const struct rp_geometry *geometry, const struct rp_batch *batch,
                            uint64_t sum[2]);

/** Ask a running engine: "stat" (JSON object), "checkpoint" (path of the checkpoint, once it is
 * durable), "stop". The text is malloc'ed; the caller frees it with rp_text_free. */
RP_API RP_MUST_CHECK int rp_engine_ask(const char *run_dir, const char *run, const char *what,
                                       char **text_out, struct rp_error *error);
RP_API void rp_text_free(char *text);

/** Section of a batch, NULL where the run does not have it. */
static inline const void *rp_batch_section(const struct rp_batch *batch, enum rp_section section)
{
    return batch->sections[section];
}

#ifdef __cplusplus
}
#endif
#endif
