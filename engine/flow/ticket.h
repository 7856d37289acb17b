/* SPDX-License-Identifier: Apache-2.0 */
/* ticket.h — the prefetch ring: a reorder ring of tickets in shared memory.
 *
 * A ticket is a unit of work in plan order: some rows of one micro-batch, the reads that bring
 * their tokens, and the transfers, which have a source and a target for each run of tokens; or only
 * the reads of a block read (block_reads.h), which transfers of later tickets use. Ticket t is in
 * slot t mod slot_count; its bytes are stored in the data ring (data_ring.h). Readers finish
 * tickets in any order and packers take them in any order; dispatch and deliver go in order. There
 * is no queue and no CAS:
 *
 *     dispatch ──PLANNED──► fetch ──READY──► pack ──PACKED──► deliver
 *         ▲     (reader t mod readers)  (packer t mod packers)     │
 *         └───────── retired: slots below may be reused ◄──────────┘
 *
 * Invariants
 *
 *   I1  A slot's state word is 4 t + phase and only grows; its one writer is the stage that owns
 *       the ticket then.
 *
 *   I2  Before PLANNED dispatch owns the slot, then fetch (and the kernel, while reads are in
 *       flight). From READY until deliver retires the ticket the slot does not change, except for
 *       the packer's report: `bad_transfer`, and `error` with its text. The data that the ticket
 *       read does not change until the last ticket that uses it is retired.
 *
 *   I3  Packing a ticket twice writes the same bytes to the same places: a killed packer's ticket
 *       is done again.
 *
 *   I4  dispatch reuses the slot of ticket t only when t < retired.
 *
 *   I5  A transfer may be packed when the ticket whose reads bring its tokens (`loaded_by`: its
 *       own ticket or an earlier one) is READY.
 *
 * Packers may be processes, so everything here is offsets and indices, no pointers. */
#ifndef RP_FLOW_TICKET_H
#define RP_FLOW_TICKET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/cost.h"
#include "plan/plan.h"
#include "shm/layout.h"
#include "shm/segment.h"
#include "shm/wait.h"

#ifdef RP_SIMULATION /* so few that short stories meet the limits */
#define RP_TICKET_TRANSFERS_MAX 6u
#define RP_TICKET_ROWS_MAX 2u
#else
#define RP_TICKET_TRANSFERS_MAX 128u
#define RP_TICKET_ROWS_MAX 64u
#endif

enum rp_ticket_phase { RP_TICKET_PLANNED = 1, RP_TICKET_READY = 2, RP_TICKET_PACKED = 3 };

static inline uint64_t rp_ticket_word(uint64_t ticket, enum rp_ticket_phase phase)
{
    return 4 * ticket + (uint64_t)phase;
}

/* One read of a token file, or (shard = RP_READ_CONTENTS) a copy out of a checkpoint's contents. */
#define RP_READ_CONTENTS UINT32_MAX
struct rp_read {
    uint64_t offset;       /* in the file, or in the contents */
    uint64_t data_offset;  /* offset of its buffer in the data */
    uint32_t bytes;        /* bytes to request: rounded to the alignment */
    uint32_t bytes_needed; /* `bytes` without those after the file's end */
    uint32_t shard;
    uint16_t past_cache; /* 1: a direct read, by the file's second descriptor (files.h) */
    uint16_t is_second;  /* 1: an object's bytes were wrong, and are read again from its server */
    uint64_t expected;   /* rp_files_expected of the needed bytes, for a file with hashes */
};

/* Bits of `extra`: tokens of the fragment that are not stored in its document, and the label of its
 * end (STREAM2.md sections 2.1, 11). None in stream version 1. */
#define RP_EXTRA_BOS 1u      /* it begins with the inserted BOS */
#define RP_EXTRA_EOS 2u      /* it ends with the inserted EOS */
#define RP_EXTRA_NEXT 4u     /* its end has a label: the token stored after its own ones */
#define RP_EXTRA_NEXT_EOS 8u /* its end has a label: the inserted EOS, which another row has */

/* The tokens of a fragment, for a place in a row. Its own tokens, those that are stored in the
 * document, are copied from the data or from a mapped token file. */
struct rp_transfer {
    struct rp_fragment fragment; /* provenance; counts inserted tokens */
    uint64_t data_offset;        /* offset of its first own token in the data, or in the file */
    uint64_t expected;     /* mapped file with hashes: expected hash of the blocks around it */
    uint64_t loaded_by;    /* ticket whose reads bring it: this one or an earlier one. I5 */
    uint32_t mapped_shard; /* 0: in the data; else 1 + the shard whose mapping holds it */
    uint16_t width;        /* bytes a token there */
    uint8_t id_bits;       /* bits of a token id, without the sign: a longer id is negative */
    uint8_t extra;         /* RP_EXTRA_ bits */
    uint32_t ring;         /* local rank: index of the batch ring */
    uint32_t row;          /* in the batch */
    uint32_t offset;       /* place in the row of its first token */
    uint32_t index;        /* number of the fragment in its row */
};

/** Its own tokens: all but inserted ones. */
static inline uint32_t rp_transfer_own(const struct rp_transfer *transfer)
{
    uint32_t extra = transfer->extra;
    return transfer->fragment.length - !!(extra & RP_EXTRA_BOS) - !!(extra & RP_EXTRA_EOS);
}

/** The tokens at data_offset: its own ones and, with RP_EXTRA_NEXT, one more. */
static inline uint32_t rp_transfer_stored(const struct rp_transfer *transfer)
{
    return rp_transfer_own(transfer) + !!(transfer->extra & RP_EXTRA_NEXT);
}

/** Has its end a label: the document's token after it? */
static inline bool rp_transfer_has_end_label(const struct rp_transfer *transfer)
{
    return transfer->extra & (RP_EXTRA_NEXT | RP_EXTRA_NEXT_EOS);
}

/** The number of the fragment's first own token in its document, if it has one. */
static inline uint64_t rp_fragment_first_own(const struct rp_fragment *fragment, bool has_bos)
{
    return fragment->offset - (has_bos && fragment->offset > 0);
}

/** Places of a row that `tokens` tokens of a fragment occupy. */
static inline uint32_t rp_places(uint32_t tokens, uint32_t align)
{
    return align > 1 ? (tokens + align - 1) / align * align : tokens;
}

/** The limit of its token ids, if the run's limit is `token_limit`. */
static inline uint64_t rp_transfer_token_limit(const struct rp_transfer *transfer,
                                               uint64_t token_limit)
{
    RP_DASSERT(transfer->id_bits < 64);
    return rp_min_u64(token_limit, 1ull << transfer->id_bits);
}

/* The entries of a side column of a transfer. The fields are those of struct rp_transfer, for the
 * entries in place of the tokens. For a column of documents data_offset is the number itself. */
struct rp_side_place {
    uint64_t data_offset, expected, loaded_by;
    uint32_t mapped_shard, reserved;
};

/* The trained tokens of transfer number `transfer` of the ticket, if not all are: `count` spans at
 * `data_offset` of the data. Transfers without a mask have labels throughout. */
struct rp_mask {
    uint64_t data_offset;
    uint32_t transfer, count;
    uint32_t ring;       /* the transfer's ring */
    uint32_t unlabelled; /* labels that it would have without the mask */
};

/* A row whose last transfer is in this ticket: the packer writes its padding and its rp_row_info.
 */
struct rp_row_end {
    uint64_t row, planned; /* global number, and that in the order of packing */
    uint32_t ring, row_in_batch;
    uint32_t fragments, tokens;
    uint32_t places;     /* that its fragments occupy: tokens, and padding inside the row */
    uint32_t align;      /* places of a fragment are a multiple; at least 1 */
    uint32_t end_labels; /* fragments whose end has a label */
    uint32_t is_skipped;
    uint32_t lacks_cost; /* 1: it has a fragment, and no cost model gives its cost */
    uint64_t cost;
};

/** The cost of a planned row by a model, or without one by its deal. 0: no fragments, or no cost.
 */
static inline uint64_t rp_row_cost(const struct rp_row *row, const struct rp_cost *model)
{
    uint64_t cost = model ? 0 : row->cost;
    for (uint32_t i = 0; model && i < row->count; i++)
        cost += rp_cost_of(model, rp_places(row->fragments[i].length, row->align));
    return cost;
}

/** The end of a planned row, before rp_row_end_add of its transfers. */
static inline struct rp_row_end rp_row_end_of(const struct rp_row *row, const struct rp_cost *model,
                                              uint32_t ring, uint32_t row_in_batch)
{
    uint64_t cost = rp_row_cost(row, model);
    return (struct rp_row_end){.row = row->row,
                               .planned = row->planned,
                               .ring = ring,
                               .row_in_batch = row_in_batch,
                               .fragments = row->count,
                               .align = row->align > 1 ? row->align : 1,
                               .is_skipped = row->skipped,
                               .lacks_cost = row->count > 0 && cost == 0,
                               .cost = cost};
}

/** Add the next transfer of the row, which has been placed. */
static inline void rp_row_end_add(struct rp_row_end *end, const struct rp_transfer *transfer)
{
    end->tokens += transfer->fragment.length;
    end->places += rp_places(transfer->fragment.length, end->align);
    end->end_labels += rp_transfer_has_end_label(transfer);
}

/* Sums over all rows of a step, of all ranks (queue.h). */
struct rp_step_sums {
    uint64_t rows, tokens, labels; /* rows with a fragment, their tokens, and labels in them */
    uint32_t is_known;
    uint32_t is_whole; /* 0: the stream ends in the step */
};

enum rp_ticket_kind {
    RP_TICKET_ROWS,       /* rows of a micro-batch; later tickets have more of it */
    RP_TICKET_BATCH_END,  /* the last rows of a micro-batch */
    RP_TICKET_STREAM_END, /* no micro-batch follows, no transfers; `message` is RP_RING_END's */
    RP_TICKET_BLOCK_READ  /* reads a block for later tickets, no transfers */
};

struct rp_ticket {
    RP_LINE_ALIGNED struct rp_a64 state; /* I1. PAIRS ticket-state: release store / acquire load */
    uint64_t batch;
    uint32_t transfer_count, read_count, row_count, mask_count;
    uint32_t kind;         /* enum rp_ticket_kind, by dispatch */
    int32_t error;         /* negative code: reads, plan or packing failed, as message says */
    uint32_t bad_transfer; /* 1 + the first transfer with a forbidden token id; 0: none */
    uint32_t align;        /* places of a transfer are a multiple; at least 1 */
    uint32_t skips_step; /* 1: all rows of the step are skipped, so trainers pass over its batch */
    struct rp_step_sums step;
    struct rp_read reads[RP_TICKET_TRANSFERS_MAX];
    struct rp_transfer transfers[RP_TICKET_TRANSFERS_MAX];
    struct rp_row_end rows[RP_TICKET_ROWS_MAX];
    struct rp_mask masks[RP_TICKET_TRANSFERS_MAX]; /* in the order of their transfers */
    char message[768], hint[384];
};

/** Has the ticket room for a transfer of this alignment? All of its transfers have one. */
static inline bool rp_ticket_has_room(const struct rp_ticket *ticket, uint32_t align)
{
    return ticket->transfer_count < RP_TICKET_TRANSFERS_MAX &&
           (ticket->transfer_count == 0 || ticket->align == align);
}

/** Mark a ticket as failed; the first failure is the one that is reported. By the stage that owns
 * it. */
void rp_ticket_fail(struct rp_ticket *ticket, int code, const struct rp_error *error);

/* The stages that are to end. A packer that ends may leave its ticket to its successor. */
enum rp_arena_stop { RP_ARENA_RUNS, RP_ARENA_STOPS_PACKERS, RP_ARENA_STOPS };

/* The words that the stages share, apart from the slots. */
struct rp_arena_words {
    RP_LINE_ALIGNED struct rp_event planned;       /* readers sleep here; dispatch signals */
    RP_LINE_ALIGNED struct rp_event ready;         /* packers sleep here; readers signal */
    RP_LINE_ALIGNED struct rp_event retired_event; /* dispatch sleeps here; deliver signals */
    RP_LINE_ALIGNED struct rp_event space; /* packers sleep here for a slot; deliver signals */
    RP_LINE_ALIGNED struct rp_a64 retired; /* writer: deliver. I4 */
    /* writer: dispatch, which sleeps until `retired` reaches this. It waits for a quarter of the
     * ring and not for one slot, so that dispatch and deliver do not wake each other for every
     * ticket. A hint; PAIRS retired-wanted */
    RP_LINE_ALIGNED struct rp_a64 retired_wanted;
    /* writer: dispatch. The number of batches of the stream plus 1, once all of them are planned:
     * from then on dispatch joins no ring (catch_up.h). 0 before that. PAIRS planned-all */
    RP_LINE_ALIGNED struct rp_a64 planned_all;
    RP_LINE_ALIGNED struct rp_a32 stop;   /* writer: deliver. enum rp_arena_stop */
    RP_LINE_ALIGNED struct rp_a32 parked; /* writer: deliver. 1: wake it after PACKED */
};

/* The state token of a row, from which the plan continues with that row. */
struct rp_row_state {
    const void *token; /* NULL: the state is not known */
    size_t bytes;
    uint64_t row;
};

/* The state token at a micro-batch boundary: position k is the state before micro-batch k. */
struct rp_state_slot {
    struct rp_a64 position; /* k + 1 when it holds k, 0 = empty. PAIRS state-slot */
    uint64_t next_row;
    uint64_t bytes;
};

/* Values of pack_from while a catch-up flow delivers to the ring (catch_up.h): no batch is packed;
 * or dispatch is to replace the word by the first batch that it plans and that is not below X. */
#define RP_PACK_NONE UINT64_MAX
#define RP_PACK_JOIN(x) (1ull << 63 | (x))
static inline int rp_pack_is_joined(uint64_t from)
{
    return from >> 63 == 0;
}

/* The prefetch ring: one segment [words | free_until per ring | pack_from per ring | tickets |
 * state slots | places of side columns | data], which is private if packers are threads. */
struct rp_arena {
    struct rp_segment segment;
    uint32_t slot_count;  /* tickets in the ring; a power of two */
    uint32_t state_count; /* positions whose tokens are kept; a power of two */
    uint64_t data_bytes;  /* a multiple of 4096 */
    uint64_t state_bytes; /* capacity of one token */
    struct rp_arena_words *words;
    struct rp_a64 *free_until; /* [ring]: batches below it may be written. Writer: deliver */
    /* [ring]: batches below it are not packed. Writers: the engine's thread, and dispatch where it
     * is RP_PACK_JOIN. All accesses are relaxed: RP_PACK_NONE is stored while packers are paused,
     * and they get a ticket that was planned after dispatch's store through its state word. */
    struct rp_a64 *pack_from;
    struct rp_ticket *tickets;
    uint8_t *states;
    struct rp_side_place *side_places; /* [ticket][transfer][column] */
    uint32_t side_count;               /* columns */
    uint8_t *data;
    struct rp_a32 prefaulted; /* 1: all of its pages are in memory. PAIRS arena-prefaulted */
};

struct rp_arena_sizes {
    uint32_t ring_count, slot_count, state_count, side_count;
    uint64_t data_bytes, state_bytes;
};
/** Bytes of an arena with these sizes, and its creation. A shared arena is touched in full, on huge
 * pages where possible; a private one serves threads only, is usable at once, and should be
 * prefaulted while it is used (prefault.h). */
uint64_t rp_arena_bytes(const struct rp_arena_sizes *sizes);
RP_MUST_CHECK int rp_arena_create(struct rp_arena *arena, bool is_private,
                                  const struct rp_arena_sizes *sizes, struct rp_error *error);
RP_MUST_CHECK int rp_arena_prefault(struct rp_arena *arena, struct rp_error *error);
/** Forget all tickets: the next one is number 0. No stage may run. State slots are kept. */
void rp_arena_reset(struct rp_arena *arena);
void rp_arena_close(struct rp_arena *arena);

static inline struct rp_ticket *rp_arena_ticket(const struct rp_arena *arena, uint64_t ticket)
{
    return &arena->tickets[ticket & (arena->slot_count - 1)];
}
/** The places of the columns of a transfer of a ticket. */
static inline struct rp_side_place *rp_arena_side_places(const struct rp_arena *arena,
                                                         uint64_t ticket, uint32_t transfer)
{
    uint64_t slot = ticket & (arena->slot_count - 1);
    return arena->side_places + (slot * RP_TICKET_TRANSFERS_MAX + transfer) * arena->side_count;
}
/** Are all reads of the ticket done? True also of a ticket that was retired and whose slot a later
 * one has taken: the state word only grows. */
static inline int rp_arena_is_loaded(const struct rp_arena *arena, uint64_t ticket)
{
    return rp_a64_load_acquire(&rp_arena_ticket(arena, ticket)->state) >=
           rp_ticket_word(ticket, RP_TICKET_READY); /* PAIRS ticket-state */
}
/** Are the tokens of a transfer loaded without an error? `first` is the oldest ticket that is not
 * retired: tickets below it had no error, or the stream would have stopped there. */
static inline int rp_arena_has_tokens(const struct rp_arena *arena, uint64_t first,
                                      const struct rp_transfer *transfer)
{
    return transfer->loaded_by < first || (rp_arena_is_loaded(arena, transfer->loaded_by) &&
                                           rp_arena_ticket(arena, transfer->loaded_by)->error == 0);
}
static inline struct rp_state_slot *rp_arena_state(const struct rp_arena *arena, uint64_t position)
{
    uint64_t stride = sizeof(struct rp_state_slot) + arena->state_bytes;
    return (struct rp_state_slot *)(void *)(arena->states +
                                            (position & (arena->state_count - 1)) * stride);
}
/** The state that is kept for a position, if it is. Valid until its slot is used again. */
struct rp_row_state rp_arena_state_at(const struct rp_arena *arena, uint64_t position);

/** True if the stages should end; packers call the other one. */
static inline int rp_arena_stopping(const struct rp_arena *arena)
{
    return rp_a32_load_acquire(&arena->words->stop) == RP_ARENA_STOPS;
}
static inline int rp_arena_stopping_packers(const struct rp_arena *arena)
{
    return rp_a32_load_acquire(&arena->words->stop) != RP_ARENA_RUNS;
}

#endif
