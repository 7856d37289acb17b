/* SPDX-License-Identifier: Apache-2.0 */
/* client.h — the trainer's side: attach, next, release, state, detach.
 *
 *     struct rp_client_options options = {
 *         .struct_size = sizeof options, .run = "pretrain", .rank = rank};
 *     struct rp_client *client;
 *     struct rp_batch batch = {.struct_size = sizeof batch};
 *     rp_client_attach(&client, &options, &error);
 *     while (rp_client_next(client, -1, &batch, &error) == RP_NEXT_BATCH) {
 *         train(rp_batch_section(&batch, RP_SECTION_INPUT_IDS));
 *         rp_client_release(client, &batch);
 *     }
 *     rp_client_detach(client);
 *
 * Memory: a batch lies in shared memory that the engine owns. The caller reads it without a copy,
 * and holds a *lease* on it until rp_client_release. Leases may be released in any order. The
 * memory of a held lease stays valid and unchanged whatever happens to the engine; all is unmapped
 * when the client is detached and its last lease released.
 *
 * When the engine dies, rp_client_next waits, attaches to its successor (the next engine of that
 * run), and goes on at the row where it was.
 *
 * Threads: one thread at a time uses a client; leases may be released by any thread, at any time.
 * fork: the child must not use the client (calls return -RP_E_USAGE).
 *
 * Versions: a program runs with an older or a newer library of the same SONAME, because the structs
 * that cross the border begin with struct_size, which the caller sets to sizeof. Fields are only
 * appended, and 0 means "default" or "unknown" in each field that is.
 *   The library reads and writes at most struct_size bytes.
 *   Options: fields beyond struct_size are taken as 0. Where struct_size is larger than the library
 *     knows, the rest must be 0, else the call is refused: an option would have been ignored.
 *   Batches and counts: bytes of struct_size that the library does not know are set to 0.
 *   A struct_size that does not cover the fields named "required" below is -RP_E_USAGE, as is one
 *     above 4096: it was never set. */
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

/* Zero means "default" in every field but rank and replica. Required: up to rank. */
struct rp_client_options {
    uint64_t struct_size; /* sizeof(struct rp_client_options) */
    const char *run;      /* name of the run; NULL = "default" */
    /* Directory of the engine's socket; NULL = the default one. It is looked up again when an
     * engine dies: give an absolute path, or never chdir. */
    const char *run_dir;
    uint32_t rank;    /* 0 .. world - 1 */
    uint32_t world;   /* expected dp_world_size; 0 = do not check */
    uint32_t rows;    /* expected batch_size; 0 = do not check */
    uint32_t seq_len; /* expected seq_len; 0 = do not check */
    /* Several trainers may need the batches of one rank, as tensor-parallel neighbours do: */
    uint32_t replica;  /* which of them this one is, 0 .. replicas - 1 */
    uint32_t replicas; /* expected number of them; 0 = do not check */
    /* State token to go on from; NULL = where the engine stands (its start row). */
    const void *state;
    size_t state_bytes; /* 0 if and only if state is NULL */
    /* For rp_client_attach as a whole: until there is an engine of that name, the seat is free, and
     * the engine has placed this trainer. If the trainer's row is far from the engine's, the engine
     * plans its way there first, and that counts. 0 = 10 s; UINT64_MAX = for ever */
    uint64_t connect_timeout_ns;
    uint64_t restart_timeout_ns; /* for the next engine of it; 0 = 60 s; UINT64_MAX = for ever */
};

/* A lease on one batch. Plain data; copies share the lease. Required: up to sections. */
struct rp_batch {
    uint64_t struct_size; /* sizeof(struct rp_batch), set by the caller before each call */
    uint64_t lease;       /* for the library */
    uint64_t number;      /* k: micro-batch of this run */
    uint64_t first_row;   /* global number of its first row */
    uint64_t next_row;    /* row at which the state after this batch stands */
    uint32_t rows, seq_len;
    uint32_t rows_real;       /* rows with a fragment */
    uint32_t tokens_real;     /* tokens that are not padding */
    uint32_t tokens_loss;     /* (shifted) labels that are not -100 */
    uint32_t max_seqlen;      /* tokens of the longest segment of CU_SEQLENS, padding included */
    uint32_t segments;        /* of CU_SEQLENS, padding included: its first segments + 1 entries */
    uint32_t reserved;        /* zero */
    uint64_t sum_len_squared; /* over all fragments, in tokens²: the cost of masked attention */
    const void *sections[RP_SECTION_ROOM]; /* by enum rp_section; NULL: the run does not have it */
};

enum rp_next {
    RP_NEXT_BATCH = 1, /* *batch is a new lease */
    RP_NEXT_EMPTY = 2, /* nothing within the timeout */
    RP_NEXT_END = 3,   /* the stream has ended (num_epochs), every batch has been delivered */
};

/** Attach to an engine; 0 and *client_out on success. Copies what it needs of options.
 *  Errors: -RP_E_GONE no engine of that name within the timeout; -RP_E_TIMEOUT there is one, and it
 *  did not place this trainer within the timeout; -RP_E_BUSY a live trainer has that rank and
 *  replica; -RP_E_MISMATCH another geometry or stream (with both values); -RP_E_VERSION an
 *  engine of another version; -RP_E_USAGE; -ENOMEM. */
RP_API RP_MUST_CHECK int rp_client_attach(struct rp_client **client_out,
                                          const struct rp_client_options *options,
                                          struct rp_error *error);

/** The shape of the run; belongs to the client, valid until detach. Constant, but for `slots`,
 * `base_row` and the offsets, which may differ after rp_client_next has found another engine. */
RP_API const struct rp_geometry *rp_client_geometry(const struct rp_client *client);

/** Take the next batch: waits at most timeout_ns (0 = not at all, negative = without limit;
 * attaching to a restarted engine may take longer). Returns enum rp_next; -RP_E_USAGE when every
 * slot from the oldest held lease on is used (release that one first); -RP_E_GONE when the engine
 * died and no successor came within restart_timeout_ns; or the error that stopped the engine (for
 * example -RP_E_CORRUPT), with its message. */
RP_API RP_MUST_CHECK int rp_client_next(struct rp_client *client, int64_t timeout_ns,
                                        struct rp_batch *batch, struct rp_error *error);

/** Take the next batch if it is ready: as rp_client_next, but it never waits, counts no wait, and
 * never attaches to a successor (it returns RP_NEXT_EMPTY: call rp_client_next). */
RP_API RP_MUST_CHECK int rp_client_take(struct rp_client *client, struct rp_batch *batch,
                                        struct rp_error *error);

/** Return a lease: its memory may be overwritten at once. Any order, any thread. Releasing one
 * twice is -RP_E_USAGE; but after rp_client_detach, releasing the last one frees the client, so
 * that a second release of it is undefined. */
RP_API int rp_client_release(struct rp_client *client, const struct rp_batch *batch);

/** 1 while the lease is held, else 0. Undefined once the client is detached and its last lease
 * released. */
RP_API int rp_client_holds(const struct rp_client *client, const struct rp_batch *batch);

/** Copy the state token after the last batch that rp_client_next returned (before the first batch:
 * the one given to attach, or that of the row the run starts at). The bytes are the same on every
 * rank at the same micro-batch. No system call. Returns its length in bytes; copies nothing if that
 * exceeds `capacity`, so buffer = NULL and capacity = 0 ask for the length. */
RP_API size_t rp_client_state(const struct rp_client *client, void *buffer, size_t capacity);

/** The same, but before that batch: for a caller that was interrupted while it took the batch. */
RP_API size_t rp_client_state_before(const struct rp_client *client, void *buffer, size_t capacity);

/** Global row at which the state of rp_client_state stands. */
RP_API uint64_t rp_client_next_row(const struct rp_client *client);

/** Identity of the stream, low and high u64: a hash of corpus, seed, packing and all else that
 * decides what row g holds (engine/plan/STREAM.md section 9). Equal identities are equal streams.
 * Equal streams have different identities where one node has an index of its corpus and the other
 * has none: rp_contract_agree tells. */
RP_API void rp_client_identity(const struct rp_client *client, uint64_t identity[2]);

/** Copy the run's contract: what its engines and trainers agree on, as lines of named fields. Valid
 * from attach on. Returns its length in bytes, as rp_client_state does. */
RP_API size_t rp_client_contract(const struct rp_client *client, char *buffer, size_t capacity);

/** Compare the contracts of two processes of a job, which messages call by their names. The ranks
 * of a job should compare contracts, and next_row, before the first step: nodes share no memory, so
 * no engine can. Returns 1 if they agree and both know the whole content of the corpus (it is
 * indexed), 0 if they agree and samples of it were compared; -RP_E_MISMATCH with every field that
 * differs; -RP_E_CORRUPT for text that is no contract. */
RP_API RP_MUST_CHECK int rp_contract_agree(const char *name, const char *text, size_t bytes,
                                           const char *other_name, const char *other_text,
                                           size_t other_bytes, struct rp_error *error);

/* What the client has seen since attach. */
struct rp_client_counts {
    uint64_t struct_size;           /* sizeof(struct rp_client_counts), set by the caller */
    uint64_t batches, rows, tokens; /* delivered; tokens without padding */
    uint64_t waits;                 /* calls of rp_client_next that found nothing ready */
    uint64_t wait_ns;               /* spent in these */
    uint64_t reattaches;            /* to another engine */
};
/** Fill in *counts; 0, or -RP_E_USAGE for a struct_size that was not set. */
RP_API int rp_client_counts(const struct rp_client *client, struct rp_client_counts *counts);

/** Detach. Held leases stay readable; only rp_client_release and rp_client_holds may still be
 * called, for these. The client is freed with the last of them, at once if there is none. NULL is
 * fine. */
RP_API void rp_client_detach(struct rp_client *client);

/** Add the digest of a batch's rows (engine/plan/STREAM.md section 7) to sum (low, high u64) modulo
 * 2^128. The batch must be held. */
RP_API void rp_batch_digest(const struct rp_geometry *geometry, const struct rp_batch *batch,
                            uint64_t sum[2]);

/* Questions to the engine of a run. run and run_dir are those of struct rp_client_options. The
 * caller frees a text with rp_text_free; it is NULL after a failure. Errors: -RP_E_GONE there is no
 * such engine; what the engine refuses. */

/** What the engine says about itself: a JSON object. */
RP_API RP_MUST_CHECK int rp_run_stat(const char *run_dir, const char *run, char **json_out,
                                     struct rp_error *error);

/** Save a checkpoint. Returns once it is durable; *path_out is its file. */
RP_API RP_MUST_CHECK int rp_run_checkpoint(const char *run_dir, const char *run, char **path_out,
                                           struct rp_error *error);

/** Save a checkpoint, where the run has a directory for them, and end the engine. */
RP_API RP_MUST_CHECK int rp_run_stop(const char *run_dir, const char *run, struct rp_error *error);

RP_API void rp_text_free(char *text);

/** Section of a batch; NULL where the run does not have it, or the library does not know it. */
static inline const void *rp_batch_section(const struct rp_batch *batch, enum rp_section section)
{
    return batch->sections[section];
}

#ifdef __cplusplus
}
#endif
#endif
