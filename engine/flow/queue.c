/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "flow/sums.h"

#define STATES_BYTES_MAX (16ull << 20)
/* Without memory: 10 s in all. */
#define TRIES 200u
#define PAUSE_NS 50000000u

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
static int go_back(struct rp_queue *queue)
{
    const struct rp_row_state state = rp_arena_state_at(queue->arena, queue->batch);
    RP_ASSERT(state.token);
    return rp_plan_load(queue->plan, state.token, state.bytes, false, &queue->error);
}

/* ---- the queue ------------------------------------------------------------------------------- */

/* Make room for `count` items in the array `items`, which may move. NULL: out of memory. The engine
 * cannot continue without this step, so a moment without memory is waited out. */
static void *make_room(const struct rp_queue *queue, void *items, uint64_t count,
                       uint64_t *capacity, size_t bytes)
{
    void *larger = rp_grow(items, capacity, count, bytes);
    for (unsigned i = 0; !larger && i < TRIES && !rp_arena_stopping(queue->arena); i++) {
        rp_sleep_ns(PAUSE_NS);
        larger = rp_grow(items, capacity, count, bytes);
    }
    return larger;
}

static int no_memory(struct rp_queue *queue)
{
    return rp_fail(&queue->error, -ENOMEM, NULL, "out of memory for the rows of a step");
}

static int keep_row(struct rp_queue *queue, const struct rp_row *row, bool is_local)
{
    uint32_t count = is_local ? row->count : 0;
    struct rp_row *rows = make_room(queue, queue->rows, queue->row_count + 1, &queue->row_capacity,
                                    sizeof *rows);
    queue->rows = rows ? rows : queue->rows;
    struct rp_fragment *fragments = make_room(queue, queue->fragments,
                                              queue->fragment_count + count,
                                              &queue->fragment_capacity, sizeof *fragments);
    queue->fragments = fragments ? fragments : queue->fragments;
    if (!rows || (!fragments && count > 0))
        return no_memory(queue);
    if (count > 0)
        memcpy(queue->fragments + queue->fragment_count, row->fragments, count * sizeof *fragments);
    struct rp_row *kept = &queue->rows[queue->row_count++];
    *kept = *row;
    kept->count = count;
    queue->fragment_count += count;
    return 0;
}

/* Queue the positions of block reads, which follow the rows that are dispatched, not the plan. */
static int keep_blocks(struct rp_queue *queue, bool is_end)
{
    uint64_t pairs = queue->block_reads->pair_count, first = queue->block_count;
    struct rp_block_at *at = make_room(queue, queue->block_at, first + pairs,
                                       &queue->block_capacity, sizeof *at);
    if (!at)
        return no_memory(queue);
    queue->block_at = at;
    rp_block_reads_locate(queue->block_reads, queue->plan, at + first, is_end);
    queue->block_count += is_end ? pairs : 0;
    return 0;
}

/* ---- planning -------------------------------------------------------------------------------- */

static bool is_local(const struct rp_flow_options *o, uint64_t rank)
{
    return rank >= o->rank_first && rank - o->rank_first < o->rank_count;
}

static void add_row(struct rp_queue *queue, const struct rp_row *row)
{
    uint32_t labels = 0;
    struct rp_error ignored; /* dispatch meets it in its place, if the row is this node's */
    if (!queue->counts)
        return;
    queue->counts = rp_masks_row_labels(queue->masks, row, &labels, &ignored) >= 0;
    queue->sums.rows += row->count > 0;
    queue->sums.tokens += row->tokens;
    queue->sums.labels += labels;
}

/* Plan the rows of a micro-batch, up to the end of the stream, and count them; queue them if
 * `keeps`. */
static int plan_rows(struct rp_queue *queue, uint64_t batch_rows, bool keeps)
{
    const struct rp_flow_options *o = queue->options;
    uint64_t rows = batch_rows / o->dp_world_size;
    struct rp_row row;
    for (uint64_t i = 0; i < batch_rows && !queue->has_ended; i++) {
        uint64_t rank = i / rows;
        if (rp_arena_stopping(queue->arena))
            return -RP_E_STOPPED;
        int code = rp_plan_next(queue->plan, &row, &queue->error);
        queue->has_ended = code == 0;
        if (code > 0)
            add_row(queue, &row);
        if (code > 0 && keeps)
            code = keep_row(queue, &row, is_local(o, rank));
        if (code < 0)
            return code;
    }
    return 0;
}

static int queue_batch(struct rp_queue *queue, uint64_t batch_rows)
{
    bool has_blocks = queue->block_reads->pair_count > 0;
    int code = has_blocks ? keep_blocks(queue, false) : 0;
    if (code >= 0)
        code = plan_rows(queue, batch_rows, true);
    if (code >= 0 && has_blocks)
        code = keep_blocks(queue, true);
    return code < 0 ? code
                    : rp_queue_save(queue->arena, queue->plan, queue->batch + 1, &queue->error);
}

static uint64_t bytes_of(const struct rp_queue *queue)
{
    return queue->row_count * sizeof *queue->rows +
           queue->fragment_count * sizeof *queue->fragments +
           queue->block_count * sizeof *queue->block_at;
}

/* Queue whole micro-batches of the step, as many as the bounds allow, and at least one. */
static void queue_batches(struct rp_queue *queue)
{
    const struct rp_flow_options *o = queue->options;
    const struct rp_numbering_part *part = rp_numbering_of_batch(queue->numbering, queue->batch);
    uint64_t bytes_max = o->step_bytes ? o->step_bytes : RP_QUEUE_BYTES_STANDARD;
    uint64_t end = rp_min_u64(queue->end, queue->batch + rp_queue_states(o));
    queue->row_count = queue->fragment_count = queue->block_count = 0;
    queue->next_row = queue->next_fragment = queue->next_block = 0;
    do {
        queue->code = queue_batch(queue, part->batch_rows);
        queue->batch += queue->code >= 0;
    } while (queue->code >= 0 && queue->batch < end && bytes_of(queue) < bytes_max);
}

/* Count the micro-batches that the queue has no room for, and go back. `decides`: errors are
 * returned, because whether the step exists depends on its rows. */
static int count_rest(struct rp_queue *queue, bool decides)
{
    const struct rp_numbering_part *part = rp_numbering_of_batch(queue->numbering, queue->batch);
    int code = 0;
    for (uint64_t batch = queue->batch; batch < queue->end && !queue->has_ended && code >= 0;
         batch++)
        code = plan_rows(queue, part->batch_rows, false);
    queue->sums.is_whole = !queue->has_ended;
    queue->counts &= code >= 0;
    if (code == -RP_E_STOPPED || (code < 0 && decides))
        return code;
    queue->has_ended = false;
    queue->code = go_back(queue); /* an error of the plan is met again, in its place */
    return 0;
}

/* Count the rows of the step before the flow's first micro-batch. Clears `counts` if the state
 * before the step is not known, or the rows cannot be planned. */
static int count_before(struct rp_queue *queue, uint64_t first)
{
    const struct rp_numbering_part *part = rp_numbering_of_batch(queue->numbering, first);
    uint64_t row = rp_numbering_row(queue->numbering, first);
    struct rp_error ignored;
    queue->counts = false;
    if (!queue->before ||
        rp_plan_load(queue->plan, queue->before, queue->before_bytes, false, NULL) < 0)
        return 0;
    int code = rp_plan_row(queue->plan) <= row ? rp_plan_seek(queue->plan, row, &ignored)
                                               : -RP_E_USAGE;
    queue->counts = code >= 0;
    for (uint64_t batch = first; batch < queue->batch && code >= 0; batch++)
        code = plan_rows(queue, part->batch_rows, false);
    queue->counts &= code >= 0;
    queue->has_ended = false;
    return code == -RP_E_STOPPED ? code : queue->counts ? 0 : go_back(queue);
}

static void reset_for_step(struct rp_queue *queue, uint64_t batch, uint64_t first)
{
    const struct rp_numbering_part *part = rp_numbering_of_batch(queue->numbering, batch);
    RP_ASSERT(queue->next_row == queue->row_count);
    queue->batch = batch;
    queue->end = first + rp_numbering_step_batches(part);
    queue->sums = (struct rp_step_sums){.is_whole = 1};
    queue->row_count = queue->next_row = 0;
    queue->has_ended = false;
    queue->code = 0;
}

int rp_queue_begin(struct rp_queue *queue, uint64_t batch, struct rp_error *error)
{
    uint64_t first = batch - rp_numbering_micro_batch(queue->numbering, batch);
    uint64_t row = rp_numbering_row(queue->numbering, first);
    uint64_t rows = rp_numbering_of_batch(queue->numbering, batch)->step_rows;
    struct rp_step_sums kept;
    reset_for_step(queue, batch, first);
    bool is_kept = rp_sums_find(queue->options->steps, row, rows, &kept);
    bool decides = queue->options->drop_last && !is_kept && batch == first;
    queue->counts = !is_kept;
    if (!is_kept && batch > first)
        queue->code = count_before(queue, first);
    if (queue->code >= 0)
        queue_batches(queue);
    int code = queue->code;
    if (code >= 0 && queue->has_ended)
        queue->sums.is_whole = 0;
    else if (code >= 0 && queue->batch < queue->end && (queue->counts || decides))
        code = count_rest(queue, decides);
    queue->sums.is_known = queue->counts && code >= 0;
    queue->counts = false;
    if (is_kept)
        queue->sums = kept;
    rp_sums_add(queue->options->steps, row, rows, &queue->sums);
    if (code != -RP_E_STOPPED && !(code < 0 && decides))
        return 0;
    *error = queue->error;
    return code;
}

/* ---- giving out ------------------------------------------------------------------------------ */

bool rp_queue_has_next(const struct rp_queue *queue)
{
    return queue->next_row < queue->row_count || queue->code < 0;
}

void rp_queue_begin_batch(struct rp_queue *queue, uint64_t batch,
                          struct rp_block_reads *block_reads)
{
    if (batch == queue->batch && queue->code >= 0)
        queue_batches(queue);
    if (queue->next_block == queue->block_count)
        return;
    rp_block_reads_move(block_reads, queue->block_at + queue->next_block);
    queue->next_block += block_reads->pair_count;
}

int rp_queue_next(struct rp_queue *queue, struct rp_row *row, struct rp_error *error)
{
    if (queue->next_row == queue->row_count) {
        if (queue->code < 0)
            *error = queue->error;
        return queue->code;
    }
    *row = queue->rows[queue->next_row++];
    row->fragments = queue->fragments + queue->next_fragment;
    queue->next_fragment += row->count;
    return 1;
}

int rp_queue_end_batch(const struct rp_queue *queue, uint64_t batch, struct rp_error *error)
{
    if (rp_arena_state_at(queue->arena, batch + 1).token)
        return 0;
    RP_ASSERT(queue->code < 0);
    *error = queue->error;
    return queue->code;
}

/* ---- start and end --------------------------------------------------------------------------- */

int rp_queue_start(struct rp_queue *queue, const struct rp_queue *parts,
                   const struct rp_row_state *before, struct rp_error *error)
{
    struct rp_queue old = *queue;
    *queue = *parts;
    queue->rows = old.rows;
    queue->row_capacity = old.row_capacity;
    queue->fragments = old.fragments;
    queue->fragment_capacity = old.fragment_capacity;
    queue->block_at = old.block_at;
    queue->block_capacity = old.block_capacity;
    free(old.before);
    if (!before || before->bytes == 0)
        return 0;
    queue->before = malloc(before->bytes);
    if (!queue->before)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a state token");
    memcpy(queue->before, before->token, before->bytes);
    queue->before_bytes = before->bytes;
    return 0;
}

void rp_queue_free(struct rp_queue *queue)
{
    free(queue->rows);
    free(queue->fragments);
    free(queue->block_at);
    free(queue->before);
    *queue = (struct rp_queue){.rows = NULL};
}
