/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h — every byte that two processes share, and every message between them.
 *
 * The memory is transient: each engine start (a *generation*) and each attach makes fresh memory,
 * which is never repaired. So native byte order and alignment are used; state that must survive is
 * in a checkpoint.
 *
 * A batch ring is one *data* segment, which only the engine writes and its trainers map read-only
 * (sealed SHRINK | GROW | FUTURE_WRITE): header page, engine page, slots; and a *control* page for
 * each trainer, fresh for each attach and private to that trainer. A ring has as many trainers as
 * the run has replicas: processes that need the same batches. No page has two writers. Offsets
 * only, no pointers.
 *
 * Every shared word says its one writer and, under "PAIRS name", the barrier at the other end.
 * ABI.md describes the protocol in prose. A change here is a new RP_ABI_VERSION. */
#ifndef RP_SHM_LAYOUT_H
#define RP_SHM_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/contract.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "ringpack/batch.h"

#ifdef __cplusplus
#define RP_LAYOUT_ASSERT(e, text) static_assert(e, text)
#define RP_LINE_ALIGNED alignas(128)
#else
#define RP_LAYOUT_ASSERT(e, text) _Static_assert(e, text)
#define RP_LINE_ALIGNED _Alignas(128)
#endif

#define RP_ABI_VERSION 8u
#define RP_RING_MAGIC 0x31474e4952505231ull
#define RP_PAGE_BYTES 4096u
#define RP_RING_SLOTS_OFFSET 8192u /* header page, engine page, slots */
#define RP_SLOT_STATE_OFFSET 192u  /* a slot: header, state token, sections */
#define RP_RING_SLOTS_MAX 4096u    /* the bound of the key `prefetch_factor` */
#define RP_REPLICAS_MAX 32u        /* bits of `quarantined`; the bound of `consumers_per_rank` */
#define RP_RUN_NAME_BYTES 65u
#define RP_WAIT_BUCKETS 32u

/* Data segment, offset 0. Immutable once `ready` is 1 (PAIRS ring-ready: release store / acquire
 * load). */
struct rp_ring_header {
    uint64_t magic;
    uint32_t abi_version, header_bytes;
    uint64_t total_bytes;       /* the data segment's */
    uint64_t slots_offset;      /* where slot 0 is; slot of batch k is k mod geometry.slots */
    uint64_t generation;        /* random, one per engine start */
    struct rp_hash128 contract; /* rp_contract_hash of the run's */
    struct rp_geometry geometry;
    struct rp_hash128 header_hash; /* XXH3-128 of all bytes before this field */
    struct rp_a32 ready;
    uint32_t reserved;
};

enum rp_ring_status {
    RP_RING_RUNNING, /* more batches will come */
    /* batches end before number `end`; all of them have been or will be published. `message` is
     * empty at the end of the stream; otherwise it names the stage at which the next engine begins
     */
    RP_RING_END,
    RP_RING_STOPPED, /* the engine is stopping: no more batches in this generation */
    RP_RING_FAILED,  /* the engine met an error: text in `message`, its negative code in `end` */
    RP_RING_QUARANTINED, /* this trainer broke the protocol. Never in `status`: see `quarantined` */
};

/* Data segment, offset RP_PAGE_BYTES. Writer of every word: the engine. */
struct rp_ring_engine {
    /* Batches below tail are published. Monotonic within an attach. The low half is the futex word
     * the trainers sleep on. PAIRS ring-publish: release store here, acquire load by the trainer
     * before it reads a slot. */
    RP_LINE_ALIGNED struct rp_a64 tail;
    /* 1 while the engine waits for space in this ring: a trainer then rings the doorbell after a
     * release. PAIRS ring-space: store 1, fence, re-read release / store release, fence, read
     * want_space. */
    RP_LINE_ALIGNED struct rp_a32 want_space;
    /* PAIRS ring-status: `end` and `message` are written before the release store of `status`. */
    RP_LINE_ALIGNED struct rp_a32 status; /* enum rp_ring_status */
    struct rp_a32 quarantined; /* bit r: replica r gets no batches until another trainer attaches */
    struct rp_a64 end;
    char message[1024];
};

/* Control page, offset 0. Writer of every word: the trainer. The engine reads each word once and
 * trusts it only after a range check. */
struct rp_ring_control {
    /* Batches below the release words of all replicas may be overwritten. PAIRS ring-release:
     * release store here after the last read of the slot, acquire load by the engine before it
     * writes the slot again. */
    RP_LINE_ALIGNED struct rp_a64 release;
    /* 1 while the trainer sleeps, or is about to. PAIRS ring-data: store 1, fence, re-read tail /
     * store tail, fence, read want_data. Garbage costs a needless wake-up. */
    RP_LINE_ALIGNED struct rp_a32 want_data;
    /* CLOCK_MONOTONIC ns of the trainer's last call; only shown by `ringpack stat`. */
    RP_LINE_ALIGNED struct rp_a64 heartbeat_ns;
    /* The trainer's waits for batches since it attached; shown by `ringpack stat`. A
     * library that does not know these words leaves them 0, so they are no part of RP_ABI_VERSION.
     */
    RP_LINE_ALIGNED struct rp_a64 wait_begin_ns;  /* CLOCK_MONOTONIC; 0: it does not wait now */
    struct rp_a64 wait_total_ns, wait_longest_ns; /* over waits that ended with a batch */
    struct rp_a64 wait_counts[RP_WAIT_BUCKETS];   /* the same waits, by length: shm/waits.h */
};

/* First bytes of every slot. */
struct rp_slot_header {
    uint64_t batch; /* k: must equal the number the trainer expects */
    uint64_t generation;
    uint64_t first_row; /* this rank's in this batch: the batch's first row + rank * rows */
    uint64_t next_row;  /* the state token's: the first row of the next batch, or the end of the
                           stream */
    uint64_t sum_len_squared; /* over all fragments: cost of masked attention */
    uint32_t rows_real;       /* rows with a fragment */
    uint32_t tokens_real;     /* tokens that are not padding */
    uint32_t tokens_loss;     /* labels that are not -100 (shifted) */
    uint32_t max_seqlen;      /* longest segment of cu_seqlens, pad tails included */
    uint32_t segments;        /* segments in cu_seqlens, pad tails included */
    uint32_t state_bytes;     /* length of the state token, which follows the header */
    uint64_t state_offset;    /* from the start of the slot */
    /* 1: all rows of the batch's step are skipped (STREAM2.md section 10.3): the trainer's library
     * passes over the batch, and gives it back at once */
    uint32_t skips_step;
    uint32_t known; /* enum rp_known_sums: the sums below that are known; others are 0 */
    /* Over all rows of the step, of all ranks and micro-batches (STREAM2.md section 10.4) */
    uint64_t step_rows, step_tokens, step_tokens_loss;
    uint64_t cost;          /* the batch's */
    uint64_t step;          /* number of the step, counted as batches are */
    uint32_t rows;          /* this rank's in the batch: at most the geometry's rows */
    uint32_t micro_batch;   /* the batch's place in its step, from 0 */
    uint32_t micro_batches; /* the step's */
    uint32_t reserved;
};

RP_LAYOUT_ASSERT(sizeof(struct rp_slot_header) == 136, "slot header is packed by hand");
RP_LAYOUT_ASSERT(sizeof(struct rp_slot_header) <= RP_SLOT_STATE_OFFSET, "the state follows it");
RP_LAYOUT_ASSERT(sizeof(struct rp_ring_header) <= RP_PAGE_BYTES, "header fits its page");
RP_LAYOUT_ASSERT(sizeof(struct rp_ring_engine) <= RP_PAGE_BYTES, "engine words fit their page");
RP_LAYOUT_ASSERT(sizeof(struct rp_ring_control) <= RP_PAGE_BYTES, "control words fit their page");
RP_LAYOUT_ASSERT(offsetof(struct rp_ring_engine, tail) == 0, "ABI");
RP_LAYOUT_ASSERT(offsetof(struct rp_ring_engine, want_space) == 128, "ABI");
RP_LAYOUT_ASSERT(offsetof(struct rp_ring_engine, status) == 256, "ABI");
RP_LAYOUT_ASSERT(offsetof(struct rp_ring_control, want_data) == 128, "ABI");
RP_LAYOUT_ASSERT(offsetof(struct rp_ring_control, heartbeat_ns) == 256, "ABI");
RP_LAYOUT_ASSERT(offsetof(struct rp_ring_control, wait_begin_ns) == 384, "ABI");

/* ---- messages over the UNIX SEQPACKET socket ------------------------------------------------- */

#define RP_MESSAGE_MAGIC 0x314b4c41544b5052ull
#define RP_NEXT_ROW_ANY UINT64_MAX
#define RP_MESSAGE_BYTES_MAX (16u << 20) /* a request with its body, or a reply with its text */
/* Bound of a state token, so that a request has room for it. */
#define RP_STATE_BYTES_MAX                                                                         \
    (RP_MESSAGE_BYTES_MAX - RP_CONTRACT_BYTES_MAX - sizeof(struct rp_request))

enum rp_request_kind {
    RP_REQUEST_ATTACH = 1, /* reply WELCOME with two fds (data, control), or REFUSED */
    RP_REQUEST_STAT,       /* reply TEXT: one JSON object */
    RP_REQUEST_CHECKPOINT, /* reply TEXT (path) once it is durable, or REFUSED */
    RP_REQUEST_STOP,       /* checkpoint, then exit 0; reply TEXT, or REFUSED */
    RP_REQUEST_LOCATE,     /* reply TEXT: file and row of documents, or REFUSED */
    RP_REQUEST_WEIGHTS,    /* reply TEXT once they are durable, or REFUSED */
};

/* First bytes of a connection, trainer to engine; state_bytes bytes of a state token follow, then
 * contract_bytes bytes of a contract. After WELCOME the trainer sends single bytes only: the
 * doorbell (any value). Closing the socket detaches. */
struct rp_request {
    uint64_t magic;
    uint32_t abi_version;
    uint32_t kind;
    char run[RP_RUN_NAME_BYTES + 7]; /* NUL-terminated */
    uint32_t rank;                   /* ATTACH */
    uint32_t world;                  /* ATTACH: dp_world_size the trainer believes in, 0 = any */
    uint32_t rows;                   /* ATTACH: batch_size, 0 = any */
    uint32_t seq_len;                /* ATTACH: 0 = any */
    uint32_t replica;                /* ATTACH: which of the trainers of this rank, from 0 */
    uint32_t replicas;               /* ATTACH: the number that the trainer believes in, 0 = any */
    /* ATTACH: the first row that the trainer wants, a batch boundary. RP_NEXT_ROW_ANY: the row of
     * the state token or, without one, the row after the last batch that the replica's last trainer
     * released. */
    uint64_t next_row;
    /* ATTACH, with next_row: the first row of a step, as the trainer counts steps;
     * RP_NEXT_ROW_ANY = no step counted yet. */
    uint64_t step_row;
    /* ATTACH: length of the state token at next_row, 0 = no token. LOCATE: length of the structs
     * rp_provenance, one for each document, that follow in place of the token. WEIGHTS: of a JSON
     * object there, with the number "step" and the object "weights" or "documents" of texts. */
    uint32_t state_bytes;
    uint32_t contract_bytes; /* ATTACH: of a contract, 0 = none */
    int32_t pid;             /* for listings only */
    /* ATTACH: 0 = the contract of the engines that the trainer has met; 1 = expectations of the
     * first engine: only the fields that it has are compared. */
    uint32_t expects;
};

enum rp_reply_kind { RP_REPLY_WELCOME = 1, RP_REPLY_REFUSED, RP_REPLY_TEXT };

/* text_bytes bytes follow. WELCOME: the state token before first_batch, then the contract in the
 * last contract_bytes of them. REFUSED: an error message and, after a newline, its hint. TEXT: JSON
 * or a path; with RP_REPLY_CODE_NOTE a newline and a note about that file follow. */
#define RP_REPLY_CODE_NOTE 1
struct rp_reply {
    uint64_t magic;
    uint32_t abi_version;
    uint32_t kind;
    int32_t code; /* REFUSED: negative code. TEXT: 0 or RP_REPLY_CODE_NOTE */
    uint32_t text_bytes;
    uint32_t contract_bytes; /* WELCOME */
    uint32_t reserved;       /* zero */
    uint64_t first_batch;    /* WELCOME: number of the first batch the trainer will get */
    uint64_t first_row;      /* WELCOME: its first row, over all ranks */
    uint64_t step_row;       /* WELCOME: the first row of its step */
    uint64_t generation;     /* WELCOME */
};

#endif
