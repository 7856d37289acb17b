/* SPDX-License-Identifier: Apache-2.0 */
/* save_contents.c — lists the addresses of a checkpoint's contents: every row that was read and not
 * consumed, in batches of the rings and in tickets that are READY or PACKED.
 *
 * Invariants: the flow holds a row before the row is listed (save.c), so it is immutable until the
 * saver has copied it. A row that is listed twice, from a batch and from a ticket, has the same
 * tokens in both. Contents may be incomplete: rows that they lack are read from the corpus. */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "server/saver.h"

struct source_list {
    struct rp_content_source *sources;
    size_t count, capacity;
    bool narrow; /* every token fits into two bytes, though batches and files may have wider ones */
};

/* Append a copy of `source`, and set its `kept`. */
static int add_source(struct source_list *list, const struct rp_content_source *source)
{
    if (!RP_GROW(list->sources, list->capacity, list->count + 1))
        return -ENOMEM;
    RP_ASSERT(source->count > 0 && source->width > 0 && source->width <= 8 && source->tokens);
    struct rp_content_source *added = &list->sources[list->count++];
    *added = *source;
    added->kept = list->narrow || source->width <= 2 ? 2 : 4;
    return 0;
}

static bool is_narrow(const struct rp_stream *stream)
{
    if (stream->config->vocab_size && stream->config->vocab_size <= 1u << 16)
        return true;
    return rp_corpus_widest(stream->corpus) <= 2;
}

/* Places of row i that its fragments occupy. */
static uint32_t places_of(const struct rp_geometry *g, const uint8_t *slot, uint32_t i)
{
    const struct rp_section_layout *of_plans = &g->sections[RP_SECTION_ROW_PLANS];
    const struct rp_row_info *row =
        (const struct rp_row_info *)(const void *)(slot + g->sections[RP_SECTION_ROWS].offset) + i;
    const int32_t *lengths =
        (const int32_t *)(const void *)(slot + g->sections[RP_SECTION_DOC_LENS].offset) +
        (uint64_t)i * g->max_docs_per_row;
    const struct rp_row_plan *plans = (const void *)(slot + of_plans->offset);
    uint32_t places = 0;
    if (!of_plans->offset || plans[i].align == 1)
        return row->tokens;
    for (uint32_t f = 0; f < row->fragments; f++)
        places += rp_places((uint32_t)lengths[f], plans[i].align);
    return places;
}

static int add_batches(const struct rp_ring *ring, struct source_list *list)
{
    const struct rp_geometry *g = &ring->geometry;
    const struct rp_section_layout *ids = &g->sections[RP_SECTION_INPUT_IDS];
    uint32_t width = (uint32_t)rp_dtype_bytes((enum rp_dtype)ids->dtype);
    int code = 0;
    for (uint64_t batch = ring->release; batch < ring->tail; batch++) {
        const uint8_t *slot = rp_ring_slot(ring, batch);
        const struct rp_row_info *rows =
            (const struct rp_row_info *)(const void *)(slot + g->sections[RP_SECTION_ROWS].offset);
        uint32_t count = ((const struct rp_slot_header *)(const void *)slot)->rows;
        for (uint32_t i = 0; i < count && code >= 0; i++) {
            struct rp_content_source source = {.row = rows[i].row,
                                               .count = places_of(g, slot, i),
                                               .width = width,
                                               .tokens = slot + ids->offset +
                                                         (uint64_t)i * g->seq_len * width};
            if (source.count > 0)
                code = add_source(list, &source);
        }
    }
    return code;
}

/* Are all tokens of a ticket in the engine's own memory, and read without an error?
 *
 *   - Tokens of a mapped file are not: the file may have changed since it was checked. The contents
 *     leave them out, and they are read again after a restart.
 *   - Tokens of a block read may not be: an earlier ticket has read them, and may have failed. */
static bool is_whole(const struct rp_arena *arena, uint64_t first, const struct rp_ticket *ticket)
{
    for (uint32_t i = 0; i < ticket->transfer_count; i++) {
        const struct rp_transfer *transfer = &ticket->transfers[i];
        if (transfer->mapped_shard || !rp_arena_has_tokens(arena, first, transfer))
            return false;
    }
    return true;
}

static int add_tickets(struct rp_delivery *delivery, struct source_list *list)
{
    const struct rp_arena *arena = rp_flow_arena(delivery->flow);
    uint64_t first, last;
    int code = 0;
    rp_flow_tickets(delivery->flow, &first, &last);
    for (uint64_t t = first; t < last && code >= 0; t++) {
        const struct rp_ticket *ticket = rp_arena_ticket(arena, t);
        uint64_t word = rp_a64_load_acquire(&ticket->state); /* PAIRS ticket-state */
        bool is_packed = word == rp_ticket_word(t, RP_TICKET_PACKED);
        bool is_ready = word == rp_ticket_word(t, RP_TICKET_READY);
        if ((!is_packed && !is_ready) || !is_whole(arena, first, ticket))
            continue;
        if (ticket->error)
            break;
        for (uint32_t i = 0; i < ticket->transfer_count && code >= 0; i++) {
            const struct rp_transfer *transfer = &ticket->transfers[i];
            const struct rp_config *c = delivery->config;
            uint64_t rank = c->rank_first + transfer->ring;
            uint64_t rows = rp_numbering_of_batch(&delivery->numbering, ticket->batch)->batch_rows /
                            c->dp_world_size;
            struct rp_content_source source = {
                .row = rp_delivery_row(delivery, ticket->batch) + rank * rows + transfer->row,
                .offset = transfer->offset + (transfer->extra & RP_EXTRA_BOS),
                .count = rp_transfer_own(transfer),
                .width = transfer->width,
                .tokens = rp_flow_transfer_tokens(delivery->flow, transfer)};
            if (source.count > 0) /* else it has only inserted tokens */
                code = add_source(list, &source);
        }
    }
    return code;
}

void rp_engine_list_contents(struct rp_engine *engine)
{
    RP_ASSERT(engine->saving.saver.state == RP_SAVER_COPYING && !engine->saving.saver.sources);
    struct source_list list = {.narrow = is_narrow(&engine->stream)};
    int code = 0;
    for (uint32_t r = 0; r < engine->delivery.ring_count && code >= 0; r++)
        code = add_batches(&engine->delivery.rings[r], &list);
    if (code >= 0 && rp_delivery_runs(&engine->delivery))
        code = add_tickets(&engine->delivery, &list);
    if (code < 0) { /* a checkpoint may have no contents */
        rp_log(RP_LOG_WARNING, "checkpoint without contents: out of memory for their list");
        list.count = 0;
    }
    engine->saving.saver.sources = list.sources;
    engine->saving.saver.source_count = list.count;
}
