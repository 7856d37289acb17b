/* SPDX-License-Identifier: Apache-2.0 */
/* core.h — the state that the two halves of the trainer's library share: client.c takes and
 * releases batches, connect.c finds engines.
 *
 * Invariants:
 *
 *   - A mapping exists while it is the current one or a lease on it is held. A lease stays valid
 *     after its engine has died, after another mapping has become the current one, and after
 *     rp_client_detach.
 *   - The newest token and `next_row` are the position after the last batch that was taken. An
 *     attach to a successor begins there.
 *   - Threads: one thread at a time takes batches (`in_call`). Any thread may release a lease,
 *     at any time (garbage collectors do), read the client's position, or close it. `lock` guards
 *     the mappings, their leases, the socket, the tokens and the counts. */
#ifndef RP_CLIENT_CORE_H
#define RP_CLIENT_CORE_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "ringpack/client.h"
#include "shm/ring.h"

#define RP_SECOND_NS 1000000000u

/* One attach: the ring that it mapped, and the leases on it. */
struct rp_mapping {
    struct rp_ring_view view;
    uint64_t number; /* this attach's, from 1: rp_batch.lease */
    uint64_t leases;
    uint64_t *held;  /* [slots]: 1 + the batch that is on lease in this slot, or 0 */
    uint64_t passed; /* 1 + the newest batch that was passed over (STREAM2.md section 10.3), or 0 */
    struct rp_mapping *older;
};

/* The token after a batch that was lent; kept[newest] may also be the one given to attach. */
#define RP_TOKENS_KEPT 32u
struct rp_kept_token {
    uint8_t *token;
    size_t bytes;
    uint64_t lease, number; /* the batch's; lease 0: no batch */
};

/* The next entry of a file of digests (digest_log.c): the batches since the last entry. */
struct rp_digest_log {
    char *path;                  /* NULL: no file is written */
    bool is_begun;               /* it has at least one batch: */
    uint64_t first_row, end_row; /* global rows of those batches, padding of the end included */
    uint64_t rows, tokens, sum[2];
};

/* The sums of the newest step whose sums an engine knew. */
struct rp_client_step {
    bool is_known;
    uint64_t first_row, rows, tokens, tokens_loss;
};

/* The life of a client. Written by close.c, with `lock` held.
 *
 *   OPEN      calls may take batches. rp_client_close: CLOSED; rp_client_detach: DETACHED
 *   CLOSED    no call takes another batch. The client leaves the engine once no call runs and no
 *             lease is held. rp_client_detach: DETACHED
 *   DETACHED  the client is freed with its last lease */
enum rp_client_life { RP_CLIENT_OPEN, RP_CLIENT_CLOSED, RP_CLIENT_DETACHED };

struct rp_client {
    pid_t pid;   /* the process that attached */
    bool forked; /* in a forked child of it. getpid would be a system call for each batch */
    char *run, *run_dir;
    struct rp_client_options options; /* run, run_dir, state and expected are not used */
    char *expected;                   /* a copy: options.expected_bytes of it */

    pthread_mutex_t lock;
    int socket;                  /* -1: no engine */
    struct rp_mapping *mappings; /* newest first */
    struct rp_mapping *current;  /* NULL: no engine */
    uint64_t attaches, leases;
    bool in_call; /* a call of take, step or next runs: it uses `current` without `lock` */
    enum rp_client_life life;

    struct rp_geometry geometry;               /* as of the last attach */
    struct rp_contract contract;               /* with the run: a view of contract_text */
    char *contract_text;                       /* NULL before the first attach */
    struct rp_kept_token kept[RP_TOKENS_KEPT]; /* a ring: each has room for token_capacity */
    size_t token_capacity;
    unsigned newest;   /* index in kept: the state, the token after the last batch that was lent */
    uint64_t next_row; /* the state's; RP_NEXT_ROW_ANY before the first attach */
    uint64_t attach_row; /* to attach at: next_row, or farther in the padding after the stream */
    uint64_t step_row;   /* the first row of its step */
    uint64_t lost_ns;    /* when the engine was found dead; 0: a batch was taken since */
    struct rp_client_counts counts;
    struct rp_client_step step;
    struct rp_digest_log digest;
    bool stage_ended;   /* the last RP_NEXT_END was the end of a stage */
    bool has_refused;   /* the monitor has refused a batch, and refuses it again at each call */
    uint64_t waited_ns; /* in calls that waited since the last batch */

    struct rp_client *next; /* in the list of connect.c */
};

/** The state; it has 0 bytes before the first one. */
static inline const struct rp_kept_token *rp_client_newest(const struct rp_client *client)
{
    return &client->kept[client->newest];
}
/** The lock, for a call that only reads. */
static inline pthread_mutex_t *rp_client_lock(const struct rp_client *client)
{
    return (pthread_mutex_t *)(uintptr_t)&client->lock;
}
/** Attach to the run's engine. Tries at least once, and again until deadline_ns while
 * rp_client_may_retry. Returns 0 or the failure of the last try; but if the deadline ended that
 * try too soon for an engine to reply, the failure of the try before it. */
RP_MUST_CHECK int rp_client_join(struct rp_client *client, uint64_t deadline_ns,
                                 struct rp_error *error);
/** Whether a later try may succeed after this failure: there was no engine, or it was about to end,
 * or it could not take this trainer yet, because another one has the seat. */
bool rp_client_may_retry(int code);
/** Leave the engine: close the socket, and unmap the current mapping unless it has leases. */
void rp_client_leave(struct rp_client *client);
/** The same with `lock` held, if the client is CLOSED and no call or lease uses the mapping. */
void rp_client_leave_if_closed(struct rp_client *client);
/** Begin and end the call that uses the current mapping. -RP_E_USAGE if the client is closed,
 * -RP_E_CONCURRENT if another thread's call runs. */
RP_MUST_CHECK int rp_client_begin_call(struct rp_client *client, struct rp_error *error);
void rp_client_end_call(struct rp_client *client);
bool rp_client_is_closed(struct rp_client *client);
/** Leave the engine, and free a client that has no lease. */
void rp_client_free(struct rp_client *client);
/** Check the options of an attach, and copy them into a client that is zeroed but for its lock. */
RP_MUST_CHECK int rp_client_copy_options(struct rp_client *client,
                                         const struct rp_client_options *given,
                                         struct rp_error *error);
/** Keep a token as the newest one: of a batch, or of none (lease 0). With `lock` held; there is
 * room for it. */
void rp_client_keep_token(struct rp_client *client, const uint8_t *token, size_t bytes,
                          uint64_t lease, uint64_t number);
/** Advance the client's state past a batch of the current mapping; `lease` 0: it was passed over.
 * With `lock` held. */
void rp_client_advance(struct rp_client *client, const uint8_t *slot,
                       const struct rp_slot_header *header, uint64_t lease);
/** Give every entry of the token ring room for that many bytes. With `lock` held. */
RP_MUST_CHECK int rp_client_reserve_tokens(struct rp_client *client, size_t bytes,
                                           struct rp_error *error);
/** The struct that describes a batch of the current mapping. With `lock` held. */
struct rp_batch rp_client_batch_of(struct rp_client *client, const uint8_t *slot,
                                   const struct rp_slot_header *header);
/** Unmap a mapping that is neither current nor under a lease. With `lock` held. */
void rp_client_drop_unused(struct rp_client *client, struct rp_mapping *mapping);
/** Add to or remove from the list of clients. A forked child closes the sockets of all of them;
 * otherwise the engine would not see a connection's end while the child lives. */
RP_MUST_CHECK int rp_client_enlist(struct rp_client *client, struct rp_error *error);
void rp_client_delist(struct rp_client *client);
/** Check the contract of a WELCOME against the ring that came with it and, at a re-attachment,
 * against the one that the trainer has; keep it. -RP_E_MISMATCH by the name of the field,
 * -RP_E_PROTOCOL, -ENOMEM. */
RP_MUST_CHECK int rp_client_take_contract(struct rp_client *client, const struct rp_ring_view *view,
                                          const char *text, size_t bytes, struct rp_error *error);
/** Whether the batch in a slot continues the one before it: 0, or -RP_E_PROTOCOL if the client's
 * monitor is set to fail and not only to count. With `lock` held, before the batch is lent. */
RP_MUST_CHECK int rp_client_monitor(struct rp_client *client, const struct rp_geometry *g,
                                    const uint8_t *slot, const struct rp_slot_header *header,
                                    struct rp_error *error);
/** The next row of a state token; false if it is none, and *row stays. */
bool rp_client_token_row(const uint8_t *token, size_t bytes, uint64_t *row);
/** The plan digest of a state token; false if the token has no digest. */
bool rp_client_token_digest(const uint8_t *token, size_t bytes, struct rp_hash128 *digest);
/** If options name a file of digests, check that it can be written. Called before the first request
 * to the engine, so that a refused attach leaves the run unchanged. */
RP_MUST_CHECK int rp_client_digest_check(const struct rp_client *client, struct rp_error *error);
/** Begin that file. */
RP_MUST_CHECK int rp_client_digest_begin(struct rp_client *client, struct rp_error *error);
/** Add a batch that is lent now, and write an entry where an interval ends with it. */
void rp_client_digest_add(struct rp_client *client, const struct rp_batch *batch);
/** Write an entry for the rows added since the last one. */
void rp_client_digest_end(struct rp_client *client);
/** Fail with a text of the engine: "message", or "message\nhint". */
int rp_client_fail_text(struct rp_error *error, int code, const char *prefix, const char *text);

#endif
