/* SPDX-License-Identifier: Apache-2.0 */
/* queue — see queue.h. */
#include "flow/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/defect.h"

#define STATES_BYTES_MAX (16ull << 20)
#define TRIES 200u
#define PAUSE_NS 50000000u /* 10 s in all */

/* ---- states ---------------------------------------------------------------------------------- */

/* A checkpoint needs the state at the end of the last step that every ring has consumed, so the
 * states of one whole step are kept, as far as STATES_BYTES_MAX allows. */
uint64_t rp_queue_states(const struct rp_flow_options *o)
{
    return rp_min_u64(o->step_batches, STATES_BYTES_MAX / rp_max_u64(o->state_bytes, 1) + 1);
}

int rp_queue_save(const struct rp_arena *arena, const struct rp_plan *plan, uint64_t position,
                  struct rp_error *error)
{
    struct rp_state_slot *slot = rp_arena_state(arena, position);
    if (rp_a64_load_relaxed(&slot->position) == position + 1)
        return 0;
    /* No barrier is needed between this store and the writes below it: no reader wants the old
     * entry any more, because enough of them are kept (choose_sizes in flow_open.c,
     * may_be_overwritten in flow_view.c). */
    rp_a64_store_relaxed(&slot->position, 0);
    int code = rp_plan_try_save(plan, slot + 1, &slot->bytes, error);
    slot->next_row = rp_plan_row(plan);
    RP_ASSERT(slot->bytes <= arena->state_bytes);
    if (code >= 0)
        rp_a64_store_release(&slot->position, position + 1); /* PAIRS state-slot */
    return code;
}

/* Move the plan to the first row of `batch`, whose state was saved. */
static int go_back(struct rp_queue *own)
{
    size_t bytes;
    uint64_t next_row;
    const void *state = rp_arena_state_at(own->arena, own->batch, &bytes, &next_row);
    RP_ASSERT(state);
    return rp_plan_load(own->plan, state, bytes, false, &own->error);
}

/* ---- the queue ------------------------------------------------------------------------------- */

/* Room for `count` items in an array that begins at `items`, or NULL. A moment without memory is
 * waited out: the engine has no other way on than to plan this step. */
static void *make_room(const struct rp_queue *own, void *items, uint64_t count, uint64_t *capacity,
                       size_t bytes)
{
    if (count <= *capacity)
        return items;
    uint64_t wanted = rp_max_u64(count + count / 2, 64);
    void *larger = realloc(items, wanted * bytes);
    for (unsigned i = 0; !larger && i < TRIES && !rp_arena_stopping(own->arena); i++) {
        rp_sleep_ns(PAUSE_NS);
        larger = realloc(items, wanted * bytes);
    }
    if (larger)
        *capacity = wanted;
    return larger;
}

static int no_memory(struct rp_queue *own)
{
    return rp_fail(&own->error, -ENOMEM, NULL, "out of memory for the rows of a step");
}

static int keep_row(struct rp_queue *own, const struct rp_row *row, bool is_local)
{
    uint32_t count = is_local ? row->count : 0;
    struct rp_row *rows = make_room(own, own->rows, own->row_count + 1, &own->row_capacity,
                                    sizeof *rows);
    own->rows = rows ? rows : own->rows;
    struct rp_fragment *fragments = make_room(own, own->fragments, own->fragment_count + count,
                                              &own->fragment_capacity, sizeof *fragments);
    own->fragments = fragments ? fragments : own->fragments;
    if (!rows || (!fragments && count > 0))
        return no_memory(own);
    if (count > 0)
        memcpy(own->fragments + own->fragment_count, row->fragments, count * sizeof *fragments);
    struct rp_row *kept = &own->rows[own->row_count++];
    *kept = *row;
    kept->count = count;
    own->fragment_count += count;
    return 0;
}

/* Block reads follow the rows that are dispatched, not the plan. */
static int keep_blocks(struct rp_queue *own, bool is_end)
{
    uint64_t pairs = own->block_reads->pair_count, first = own->block_count;
    struct rp_block_at *at = make_room(own, own->block_at, first + pairs, &own->block_capacity,
                                       sizeof *at);
    if (!at)
        return no_memory(own);
    own->block_at = at;
    rp_block_reads_locate(own->block_reads, own->plan, at + first, is_end);
    own->block_count += is_end ? pairs : 0;
    return 0;
}

/* ---- planning -------------------------------------------------------------------------------- */

static bool is_local(const struct rp_flow_options *o, uint64_t rank)
{
    return rank >= o->rank_first && rank - o->rank_first < o->rank_count;
}

static void add_row(struct rp_queue *own, const struct rp_row *row)
{
    uint32_t labels = 0;
    struct rp_error ignored; /* dispatch meets it in its place, if the row is this node's */
    if (!own->counts)
        return;
    own->counts = rp_masks_row_labels(own->masks, row, &labels, &ignored) >= 0;
    own->sums.rows += row->count > 0;
    own->sums.tokens += row->tokens;
    own->sums.labels += labels;
}

/* Plan the rows of a micro-batch, or the first `count` of them. Rows after the end are empty. */
static int plan_rows(struct rp_queue *own, uint64_t batch_rows, uint64_t count, bool keeps)
{
    const struct rp_flow_options *o = own->options;
    uint64_t rows = batch_rows / o->world;
    struct rp_row row;
    for (uint64_t i = 0; i < count && !own->has_ended; i++) {
        uint64_t rank = i / rows;
        if (rp_arena_stopping(own->arena))
            return -RP_E_STOPPED;
        int code = rp_plan_next(own->plan, &row, &own->error);
        own->has_ended = code == 0;
        if (code > 0 && !(RP_DEFECT(count_steps_without_a_rank) && rank == o->world - 1))
            add_row(own, &row);
        if (code > 0 && keeps)
            code = keep_row(own, &row, is_local(o, rank));
        if (code < 0)
            return code;
    }
    return 0;
}

static int queue_batch(struct rp_queue *own, uint64_t batch_rows)
{
    bool has_blocks = own->block_reads->pair_count > 0;
    int code = has_blocks ? keep_blocks(own, false) : 0;
    if (code >= 0)
        code = plan_rows(own, batch_rows, batch_rows, true);
    if (code >= 0 && has_blocks)
        code = keep_blocks(own, true);
    return code < 0 ? code : rp_queue_save(own->arena, own->plan, own->batch + 1, &own->error);
}

static uint64_t bytes_of(const struct rp_queue *own)
{
    return own->row_count * sizeof *own->rows + own->fragment_count * sizeof *own->fragments +
           own->block_count * sizeof *own->block_at;
}

/* Queue whole micro-batches of the step, as many as the bounds allow, and at least one. */
static void fill(struct rp_queue *own)
{
    const struct rp_flow_options *o = own->options;
    const struct rp_numbering_part *part = rp_numbering_of_batch(own->numbering, own->batch);
    uint64_t bytes_max = o->step_bytes ? o->step_bytes : RP_QUEUE_BYTES_STANDARD;
    uint64_t end = rp_min_u64(own->end, own->batch + rp_queue_states(o));
    own->row_count = own->fragment_count = own->block_count = 0;
    own->next_row = own->next_fragment = own->next_block = 0;
    do {
        own->code = queue_batch(own, part->batch_rows);
        own->batch += own->code >= 0;
    } while (own->code >= 0 && own->batch < end && bytes_of(own) < bytes_max);
}

/* Count the micro-batches that the queue has no room for. */
static int count_rest(struct rp_queue *own, bool decides)
{
    const struct rp_numbering_part *part = rp_numbering_of_batch(own->numbering, own->batch);
    int code = 0;
    for (uint64_t batch = own->batch; batch < own->end && !own->has_ended && code >= 0; batch++)
        code = plan_rows(own, part->batch_rows, part->batch_rows, false);
    own->sums.is_whole = !own->has_ended;
    own->counts &= code >= 0;
    if (code == -RP_E_STOPPED || (code < 0 && decides))
        return code;
    own->has_ended = false;
    own->code = go_back(own); /* an error of the plan is met again, in its place */
    return 0;
}

/* Count the rows of the step before the flow's first micro-batch. Clears `counts` if the state
 * before the step is not known, or the rows cannot be planned. */
static int count_before(struct rp_queue *own, uint64_t first)
{
    const struct rp_numbering_part *part = rp_numbering_of_batch(own->numbering, first);
    uint64_t row = rp_numbering_row(own->numbering, first);
    struct rp_error ignored;
    own->counts = false;
    if (!own->before || rp_plan_load(own->plan, own->before, own->before_bytes, false, NULL) < 0)
        return 0;
    int code = rp_plan_row(own->plan) <= row ? rp_plan_seek(own->plan, row, &ignored) : -RP_E_USAGE;
    own->counts = code >= 0;
    for (uint64_t batch = first; batch < own->batch && code >= 0; batch++)
        code = plan_rows(own, part->batch_rows, part->batch_rows, false);
    own->counts &= code >= 0;
    own->has_ended = false;
    return code == -RP_E_STOPPED ? code : own->counts ? 0 : go_back(own);
}

static void begin(struct rp_queue *own, uint64_t batch, uint64_t first)
{
    const struct rp_numbering_part *part = rp_numbering_of_batch(own->numbering, batch);
    RP_ASSERT(own->next_row == own->row_count);
    own->batch = batch;
    own->end = first + rp_numbering_step_batches(part);
    own->sums = (struct rp_step_sums){.is_whole = 1};
    own->row_count = own->next_row = 0;
    own->has_ended = false;
    own->code = 0;
}

int rp_queue_begin(struct rp_queue *own, uint64_t batch, struct rp_error *error)
{
    uint64_t first = batch - rp_numbering_micro_batch(own->numbering, batch);
    uint64_t row = rp_numbering_row(own->numbering, first);
    uint64_t rows = rp_numbering_of_batch(own->numbering, batch)->step_rows;
    struct rp_step_sums kept;
    begin(own, batch, first);
    bool is_kept = rp_sums_find(own->options->steps, row, rows, &kept);
    bool decides = own->options->drop_last && !is_kept && batch == first;
    own->counts = !is_kept;
    if (!is_kept && batch > first)
        own->code = count_before(own, first);
    if (own->code >= 0)
        fill(own);
    int code = own->code;
    if (code >= 0 && own->has_ended)
        own->sums.is_whole = 0;
    else if (code >= 0 && own->batch < own->end && (own->counts || decides))
        code = count_rest(own, decides);
    own->sums.is_known = own->counts && code >= 0;
    own->counts = false;
    if (is_kept)
        own->sums = kept;
    rp_sums_add(own->options->steps, row, rows, &own->sums);
    if (code != -RP_E_STOPPED && !(code < 0 && decides))
        return 0;
    *error = own->error;
    return code;
}

/* ---- giving out ------------------------------------------------------------------------------ */

bool rp_queue_has_next(const struct rp_queue *own)
{
    return own->next_row < own->row_count || own->code < 0;
}

void rp_queue_begin_batch(struct rp_queue *own, uint64_t batch, struct rp_block_reads *block_reads)
{
    if (batch == own->batch && own->code >= 0)
        fill(own);
    if (own->next_block == own->block_count)
        return;
    rp_block_reads_move(block_reads, own->block_at + own->next_block);
    own->next_block += block_reads->pair_count;
}

int rp_queue_next(struct rp_queue *own, struct rp_row *row, struct rp_error *error)
{
    if (own->next_row == own->row_count) {
        if (own->code < 0)
            *error = own->error;
        return own->code;
    }
    *row = own->rows[own->next_row++];
    row->fragments = own->fragments + own->next_fragment;
    own->next_fragment += row->count;
    return 1;
}

int rp_queue_end_batch(const struct rp_queue *own, uint64_t batch, struct rp_error *error)
{
    size_t bytes;
    uint64_t next_row;
    if (rp_arena_state_at(own->arena, batch + 1, &bytes, &next_row))
        return 0;
    RP_ASSERT(own->code < 0);
    *error = own->error;
    return own->code;
}

/* ---- start and end --------------------------------------------------------------------------- */

int rp_queue_start(struct rp_queue *own, const struct rp_queue *parts,
                   const struct rp_flow_state *before, struct rp_error *error)
{
    struct rp_queue old = *own;
    *own = *parts;
    own->rows = old.rows, own->row_capacity = old.row_capacity;
    own->fragments = old.fragments, own->fragment_capacity = old.fragment_capacity;
    own->block_at = old.block_at, own->block_capacity = old.block_capacity;
    free(old.before);
    if (!before || before->bytes == 0)
        return 0;
    own->before = malloc(before->bytes);
    if (!own->before)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a state token");
    memcpy(own->before, before->token, before->bytes);
    own->before_bytes = before->bytes;
    return 0;
}

void rp_queue_free(struct rp_queue *own)
{
    free(own->rows);
    free(own->fragments);
    free(own->block_at);
    free(own->before);
    *own = (struct rp_queue){.rows = NULL};
}
