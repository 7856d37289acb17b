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
 * Memory: a batch is in shared memory that the engine owns. The caller reads it without a copy, and
 * holds a *lease* on it until rp_client_release. Leases may be released in any order. The memory of
 * a held lease stays valid and unchanged whatever happens to the engine. All memory is unmapped
 * when the client is detached and its last lease is released.
 *
 * When the engine dies, rp_client_next waits for its successor (the next engine of that run),
 * attaches to it, and continues at the same row.
 *
 * Threads: one thread at a time takes batches and detaches; any thread may release leases, read the
 * position and the counts, and close the client, at any time. While a thread is inside
 * rp_client_next, rp_client_take or rp_client_step, a call of one of these by another thread is
 * -RP_E_CONCURRENT: it takes and releases no batch, and the first call continues.
 * fork: the child must not use the client (calls return -RP_E_USAGE).
 *
 * Versions: a program works with an older or a newer library of the same SONAME, because every
 * struct that is passed begins with struct_size, which the caller sets to sizeof. Fields are only
 * appended, and in an appended field 0 means "default" or "unknown".
 *   The library reads and writes at most struct_size bytes.
 *   Options: fields beyond struct_size are taken as 0. Bytes that the library does not know must be
 *     0: otherwise an option would be ignored, so the call is refused.
 *   Batches and counts: bytes of struct_size that the library does not know are set to 0.
 *   A struct_size that does not cover the fields named "required" below is -RP_E_USAGE, and so is
 *     one above 4096, which means that it was never set. */
#ifndef RINGPACK_CLIENT_H
#define RINGPACK_CLIENT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ringpack/batch.h"
#include "ringpack/error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rp_client;

/* The reaction of a client to a batch that does not continue the one before it: its rows are not
 * the next ones, or its state is of another stream. Each batch is checked when it is taken. */
enum rp_monitor {
    RP_MONITOR_FAIL = 0, /* rp_client_next fails with -RP_E_PROTOCOL, and so does every later one */
    RP_MONITOR_COUNT = 1, /* it is delivered, and counted in struct rp_client_counts */
    RP_MONITOR_OFF = 2,
};

/* Zero means "default" in every field but rank and replica. Required: up to rank. */
struct rp_client_options {
    uint64_t struct_size; /* sizeof(struct rp_client_options) */
    const char *run;      /* name of the run; NULL = "default" */
    /* Directory of the engine's socket; NULL = the default one. It is opened again when an engine
     * dies, so give an absolute path, or never chdir. */
    const char *run_dir;
    uint32_t rank;    /* 0 .. world - 1 */
    uint32_t world;   /* expected dp_world_size; 0 = do not check */
    uint32_t rows;    /* expected batch_size; 0 = do not check */
    uint32_t seq_len; /* expected seq_len; 0 = do not check */
    /* Several trainers may need the batches of one rank, as tensor-parallel neighbours do: */
    uint32_t replica;  /* which of them this one is, 0 .. replicas - 1 */
    uint32_t replicas; /* expected number of them; 0 = do not check */
    /* Continue at this state token; NULL = at the row of the engine. */
    const void *state;
    size_t state_bytes; /* 0 if and only if state is NULL */
    /* Timeout of rp_client_attach, which waits for an engine of that name, for the rank and replica
     * to be free, and for the engine to plan to the row of the state. 0 = 10 s; UINT64_MAX = no
     * limit */
    uint64_t connect_timeout_ns;
    /* Timeout of rp_client_next for the successor of an engine that died. 0 = 60 s; UINT64_MAX =
     * no limit */
    uint64_t restart_timeout_ns;
    uint32_t monitor;  /* enum rp_monitor */
    uint32_t reserved; /* zero */
    /* File for the digests of this rank's batches, appended every digest_steps steps
     * (tools/python/docs/proof.md); NULL = none. Only replica 0 writes. It costs a pass over the
     * tokens of each batch. Give an absolute path, or never chdir. rp_client_next writes to it, so
     * it belongs on a local disk: one that hangs holds the trainer. */
    const char *digest_log;
    uint64_t digest_steps; /* at least 1 if there is a digest_log */
    /* Contract that the first engine must match, as text: copied from another process of the job
     * (rp_client_contract), or the output of `ringpack config stream` for a config. A field that it
     * lacks is not compared ("seed=7\n\n" expects that seed: the fields of the delivery follow an
     * empty line); one that differs is -RP_E_MISMATCH. NULL = any stream is accepted. */
    const char *expected;
    size_t expected_bytes; /* 0 if and only if expected is NULL */
};

/* A lease on one batch. Plain data; copies share the lease. Required: up to sections. */
struct rp_batch {
    uint64_t struct_size; /* sizeof(struct rp_batch), set by the caller before each call */
    uint64_t lease;       /* for the library */
    uint64_t number;      /* k: micro-batch of this run */
    uint64_t first_row;   /* global number of its first row */
    uint64_t next_row;    /* next row of the state after this batch */
    uint32_t rows, seq_len;
    uint32_t rows_real;       /* rows with a fragment */
    uint32_t tokens_real;     /* tokens that are not padding */
    uint32_t tokens_loss;     /* (shifted) labels that are not -100 */
    uint32_t max_seqlen;      /* tokens of the longest segment of CU_SEQLENS, padding included */
    uint32_t segments;        /* in CU_SEQLENS, padding included: its first segments + 1 entries */
    uint32_t reserved;        /* zero */
    uint64_t sum_len_squared; /* over all fragments, in tokens²: the cost of masked attention */
    const void *sections[RP_SECTION_ROOM]; /* by enum rp_section; NULL: the run does not have it */
    /* Sums over all rows of the batch's step, of all ranks and micro-batches: equal in all batches
     * of a step, and known before its first one. 0 unless `known` has RP_KNOWN_STEP: the first rows
     * of the step were delivered by an earlier engine, and this one cannot plan them; or the index
     * of a document in the step is damaged. */
    uint64_t step_rows;        /* rows with a fragment */
    uint64_t step_tokens;      /* tokens that are not padding */
    uint64_t step_tokens_loss; /* (shifted) labels that are not -100 */
    /* Cost of the batch's rows by the run's cost model (engine/plan/STREAM2.md, section 8). 0
     * unless `known` has RP_KNOWN_COST: the run has no cost model. */
    uint64_t cost;
    uint32_t known;         /* bits of enum rp_known_sums */
    uint32_t reserved_2;    /* zero */
    uint64_t step;          /* number of its step, counted as batches are */
    uint32_t micro_batch;   /* its place in the step, from 0 */
    uint32_t micro_batches; /* in the step: the batches that a rank accumulates */
};

enum rp_next {
    RP_NEXT_BATCH = 1, /* *batch is a new lease */
    RP_NEXT_EMPTY = 2, /* no batch became ready within the timeout */
    RP_NEXT_END = 3,   /* the stream, or a stage of it, has ended, and every batch was delivered */
};

/** Attach to an engine. Returns 0 with *client_out. The options are copied.
 *
 * Errors: -RP_E_GONE no engine of that name within the timeout; -RP_E_TIMEOUT there is one, but the
 * attach took longer than the timeout; -RP_E_BUSY a live trainer has that rank and replica;
 * -RP_E_MISMATCH another geometry or stream (with both values); -RP_E_VERSION an engine of another
 * version; -RP_E_USAGE; -ENOMEM. */
RP_API RP_MUST_CHECK int rp_client_attach(struct rp_client **client_out,
                                          const struct rp_client_options *options,
                                          struct rp_error *error);

/** The shape of the run. It belongs to the client and is valid until detach. `slots`, `base_row`,
 * `slot_bytes`, `state_bytes` and the offsets may change when rp_client_next attaches to a
 * successor; the rest is constant. */
RP_API const struct rp_geometry *rp_client_geometry(const struct rp_client *client);

/** Take the next batch: waits at most timeout_ns (0 = not at all, negative = without limit;
 * attaching to a successor may take longer). Returns enum rp_next; -RP_E_USAGE when all slots after
 * the oldest held lease are used (release that lease first); -RP_E_GONE when the engine died and no
 * successor came within restart_timeout_ns; or the error that stopped the engine (for example
 * -RP_E_CORRUPT), with its message. */
RP_API RP_MUST_CHECK int rp_client_next(struct rp_client *client, int64_t timeout_ns,
                                        struct rp_batch *batch, struct rp_error *error);

/** 1 if the last RP_NEXT_END is the end of a stage, not of the stream: rows of the next stage have
 * another seq_len (`stages` in the config), so another engine serves them. Its engine is started by
 * the command of the one before, and a trainer attaches at the state of rp_client_state. */
RP_API int rp_client_stage_ended(const struct rp_client *client);

/** Take the next batch if it is ready. Like rp_client_next with a timeout of 0, but it counts no
 * wait and never attaches to a successor: it returns RP_NEXT_EMPTY, and rp_client_next attaches. */
RP_API RP_MUST_CHECK int rp_client_take(struct rp_client *client, struct rp_batch *batch,
                                        struct rp_error *error);

/** Release a lease, in any order and from any thread. Its memory may be overwritten at once.
 * Releasing a lease twice is -RP_E_USAGE; but after rp_client_detach the release of the last lease
 * frees the client, so releasing that one twice is undefined. */
RP_API int rp_client_release(struct rp_client *client, const struct rp_batch *batch);

/** One step of a loop in one call: release the lease `done`, then rp_client_take. The structs may
 * be the same one. Returns as rp_client_take. The lease is released even if no batch is ready: call
 * rp_client_take or rp_client_next then. -RP_E_USAGE, without a release or a take, if `done` is not
 * on lease, in a forked child, or for a wrong struct_size. Not to be called after
 * rp_client_detach. */
RP_API RP_MUST_CHECK int rp_client_step(struct rp_client *client, const struct rp_batch *done,
                                        struct rp_batch *batch, struct rp_error *error);

/** 1 while the lease is held, otherwise 0. Undefined after the client was detached and its last
 * lease released. */
RP_API int rp_client_holds(const struct rp_client *client, const struct rp_batch *batch);

/** Copy the state token after the last batch that rp_client_next returned; before the first batch,
 * the token that was given to attach, or the token of the run's first row. The bytes are the same
 * on every rank at the same micro-batch. No system call. Returns the length in bytes. No byte is
 * copied if the length exceeds `capacity`, so buffer = NULL and capacity = 0 return the length. */
RP_API size_t rp_client_state(const struct rp_client *client, void *buffer, size_t capacity);

/** Copy the token before the last batch taken, for a caller interrupted while it took the batch.
 */
RP_API size_t rp_client_state_before(const struct rp_client *client, void *buffer, size_t capacity);

/** Copy the token after a batch that this client has lent, on lease or not. The client keeps the
 * tokens of its last 32 batches; for an older one the result is 0. */
RP_API size_t rp_client_state_after(const struct rp_client *client, const struct rp_batch *batch,
                                    void *buffer, size_t capacity);

/** Check the bytes of a state token: magic, version, length and hash. Needs no client. Returns the
 * version of its stream, 1 or 2; -RP_E_CORRUPT for other or damaged bytes, -RP_E_VERSION for a
 * token of a newer library. */
RP_API RP_MUST_CHECK int rp_client_check_state(const void *state, size_t bytes,
                                               struct rp_error *error);

/** Next global row of the state of rp_client_state. */
RP_API uint64_t rp_client_next_row(const struct rp_client *client);

/** First row of the step that has the batch after that state. */
RP_API uint64_t rp_client_step_row(const struct rp_client *client);

/** Identity of the stream, low and high u64: a hash of corpus, seed, packing and everything else
 * that decides the tokens of row g (engine/plan/STREAM.md section 9). Streams with equal identities
 * are equal. Equal streams have different identities if one node has indexed its corpus and another
 * has not; rp_contract_agree finds that they agree. */
RP_API void rp_client_identity(const struct rp_client *client, uint64_t identity[2]);

/** Copy the run's contract: the fields on which its engines and trainers agree, one a line. Valid
 * after attach. Returns the length in bytes, as rp_client_state does. */
RP_API size_t rp_client_contract(const struct rp_client *client, char *buffer, size_t capacity);

/** Compare the contracts of two processes of a job; messages use their names. The ranks of a job
 * should compare contracts, next_row and rp_client_step_row before the first step, because no
 * engine can: nodes share no memory. Returns 1 if they agree and the whole content of the corpus
 * was compared (it is indexed on both sides), 0 if they agree and samples of it were compared,
 * -RP_E_MISMATCH with every field that differs, -RP_E_CORRUPT for text that is not a contract. */
RP_API RP_MUST_CHECK int rp_contract_agree(const char *name, const char *text, size_t bytes,
                                           const char *other_name, const char *other_text,
                                           size_t other_bytes, struct rp_error *error);

/* Counts since attach. */
struct rp_client_counts {
    uint64_t struct_size;           /* sizeof(struct rp_client_counts), set by the caller */
    uint64_t batches, rows, tokens; /* delivered; tokens without padding */
    uint64_t waits;                 /* calls of rp_client_next that found no batch ready */
    uint64_t wait_ns;               /* time spent in these calls */
    uint64_t reattaches;            /* attaches to a successor */
    /* Batches with a finding of the monitor: rows are missing, a row is given twice, or they are of
     * another stream. */
    uint64_t gaps, repeats, foreign;
    uint64_t digest_failures; /* entries of digest_log that could not be written */
};
/** Fill in *counts. Returns 0, or -RP_E_USAGE if struct_size was not set. */
RP_API int rp_client_counts(const struct rp_client *client, struct rp_client_counts *counts);

/** Take no more batches: calls that would are -RP_E_USAGE, and one that waits ends within 0.1 s.
 * The engine is left when the last lease is released and no call is running. Questions about the
 * position are answered until rp_client_detach, which must follow. */
RP_API void rp_client_close(struct rp_client *client);

/** Detach. Held leases stay readable; only rp_client_release and rp_client_holds may be called for
 * them. The client is freed when the last one is released, at once if no lease is held. NULL is
 * fine. */
RP_API void rp_client_detach(struct rp_client *client);

/** Add the digest of a batch's rows (engine/plan/STREAM.md section 7) to sum (low, high u64) modulo
 * 2^128. The batch must be held. */
RP_API void rp_batch_digest(const struct rp_geometry *geometry, const struct rp_batch *batch,
                            uint64_t sum[2]);

/** Add the labelled digest of a batch's rows (section 7 as well). -RP_E_USAGE if the run has
 * neither labels nor a loss mask. */
RP_API RP_MUST_CHECK int rp_batch_labelled_digest(const struct rp_geometry *geometry,
                                                  const struct rp_batch *batch, uint64_t sum[2],
                                                  struct rp_error *error);

/* Requests to the engine of a run. run and run_dir are as in struct rp_client_options. The caller
 * frees a returned text with rp_text_free; it is NULL after a failure. Errors: -RP_E_GONE if there
 * is no such engine; -RP_E_TIMEOUT if it sends no answer for ten seconds, because it is stopped
 * (SIGSTOP), still starts, or is very busy; or the engine's own error. */

/** The status of the engine: a JSON object. */
RP_API RP_MUST_CHECK int rp_run_stat(const char *run_dir, const char *run, char **json_out,
                                     struct rp_error *error);

/** Save a checkpoint. Returns once it is durable; *path_out is its file. If the file lacks its
 * contents, because a token file has changed or its disk does not answer, the call still returns 0,
 * and error->message says so; otherwise the message is empty. */
RP_API RP_MUST_CHECK int rp_run_checkpoint(const char *run_dir, const char *run, char **path_out,
                                           struct rp_error *error);

/** Save a checkpoint, if the run has a checkpoint directory, and end the engine. While the position
 * of a rank is unknown (its trainer has not attached since others resumed from a state token), no
 * checkpoint is saved, 0 is returned, and the checkpoint before it remains the newest. */
RP_API RP_MUST_CHECK int rp_run_stop(const char *run_dir, const char *run, struct rp_error *error);

/** The files of documents. Only source and document of each of `documents` are used. *text_out has
 * a line for each: a row, a space, and its file's path, with `\n` for a newline and `\\` for a
 * backslash. The row is a table's row, or the document's number in the file. */
RP_API RP_MUST_CHECK int rp_run_locate(const char *run_dir, const char *run,
                                       const struct rp_provenance *documents, size_t count,
                                       char **text_out, struct rp_error *error);

RP_API void rp_text_free(char *text);

/** The version of the library that was loaded, such as "0.2.0". It belongs to the library. */
RP_API const char *rp_version(void);

/** A section of a batch; NULL if the run does not have it, or the library does not know it. */
static inline const void *rp_batch_section(const struct rp_batch *batch, enum rp_section section)
{
    return batch->sections[section];
}

/** A side column of a batch by its name, and its description; NULL: the run does not have it. */
static inline const void *rp_batch_side(const struct rp_geometry *geometry,
                                        const struct rp_batch *batch, const char *name,
                                        const struct rp_side **side)
{
    size_t known = geometry->struct_size >= sizeof *geometry ? RP_SIDES_MAX : 0;
    for (size_t c = 0; c < known && geometry->sides[c].of != RP_SIDE_NONE; c++) {
        if (strcmp(geometry->sides[c].name, name) != 0)
            continue;
        *side = &geometry->sides[c];
        return batch->sections[RP_SECTION_SIDES + c];
    }
    return NULL;
}

#ifdef __cplusplus
}
#endif
#endif
