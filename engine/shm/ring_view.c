/* SPDX-License-Identifier: Apache-2.0 */
/* ring_view.c — the trainer's end of a batch ring.
 *
 * The engine is trusted more than a trainer is, but a damaged header must not make a trainer read
 * wild memory: the header is copied once, checked as a whole, and only the copy is used. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "shm/ring.h"
#include "shm/wait.h"
#include "shm/waits.h"

#define RP_HINT_ENGINE_MEMORY                                                                      \
    "the engine's memory is damaged: restart it; a state token taken so far stays valid"

static struct rp_ring_engine *engine_words(const struct rp_ring_view *view)
{
    return (struct rp_ring_engine *)(void *)(view->data.data +
                                             RP_PAGE_BYTES); /* read-only memory */
}

static struct rp_ring_control *control_words(const struct rp_ring_view *view)
{
    return (struct rp_ring_control *)(void *)view->control.data;
}

static int check_header(const struct rp_ring_header *header, uint64_t bytes, struct rp_error *error)
{
    if (header->magic != RP_RING_MAGIC)
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_ENGINE_MEMORY,
                       "batch ring: magic %016" PRIx64 " expected, %016" PRIx64 " found",
                       (uint64_t)RP_RING_MAGIC, header->magic);
    if (header->abi_version != RP_ABI_VERSION || header->header_bytes != sizeof *header)
        return rp_fail(error, -RP_E_VERSION,
                       "use the engine and the trainer library of one ringpack version",
                       "batch ring: memory layout %u expected, %" PRIu32 " found", RP_ABI_VERSION,
                       header->abi_version);
    struct rp_hash128 hash = rp_hash128(header, offsetof(struct rp_ring_header, header_hash));
    if (!rp_hash128_equal(hash, header->header_hash))
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_ENGINE_MEMORY,
                       "batch ring: the header's hash differs");
    uint64_t total = rp_geometry_total(&header->geometry);
    if (total == 0 || total != header->total_bytes || total > bytes ||
        header->slots_offset != RP_RING_SLOTS_OFFSET)
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_ENGINE_MEMORY,
                       "batch ring: geometry needs %" PRIu64 " bytes, header says %" PRIu64
                       ", segment has "
                       "%" PRIu64,
                       total, header->total_bytes, bytes);
    return 0;
}

static int open_header(struct rp_ring_view *view, struct rp_error *error)
{
    const struct rp_ring_header *shared =
        (const struct rp_ring_header *)(const void *)view->data.data;
    if (rp_a32_load_acquire(&shared->ready) != 1) /* PAIRS ring-ready */
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_ENGINE_MEMORY, "batch ring: it is not ready");
    struct rp_ring_header header;
    memcpy(&header, shared, sizeof header);
    int code = check_header(&header, view->data.bytes, error);
    if (code < 0)
        return code;
    view->geometry = header.geometry;
    view->contract = header.contract;
    view->generation = header.generation;
    return 0;
}

int rp_ring_view_open(struct rp_ring_view *view, int data_fd, int control_fd, uint64_t first_batch,
                      struct rp_error *error)
{
    *view = (struct rp_ring_view){
        .control.fd = control_fd, .next = first_batch, .release = first_batch};
    int code = rp_segment_attach(&view->data, data_fd, false, RP_RING_SLOTS_OFFSET, error);
    if (code == 0)
        code = rp_segment_attach(&view->control, control_fd, true, RP_PAGE_BYTES, error);
    if (code == 0)
        code = open_header(view, error);
    view->next_row = view->geometry.base_row +
                     first_batch * view->geometry.rows * view->geometry.world;
    if (code == 0) /* tail may still be below first_batch: the ring waits for other trainers */
        view->tail = rp_min_u64(first_batch, rp_a64_load_relaxed(&engine_words(view)->tail));
    else
        rp_ring_view_close(view);
    return code;
}

/* Read tail once and keep it if it is in its range. */
static int load_tail(struct rp_ring_view *view, struct rp_error *error)
{
    uint64_t tail = rp_a64_load_acquire(&engine_words(view)->tail); /* PAIRS ring-publish */
    if (tail - view->tail > view->release + view->geometry.slots - view->tail)
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_ENGINE_MEMORY,
                       "batch ring: tail %" PRIu64 " to %" PRIu64 " expected, %" PRIu64 " found",
                       view->tail, view->release + view->geometry.slots, tail);
    view->tail = tail;
    return 0;
}

static int check_slot(const struct rp_ring_view *view, const struct rp_slot_header *header,
                      struct rp_error *error)
{
    const struct rp_geometry *g = &view->geometry;
    uint64_t rows = header->rows, first_row = view->next_row + g->rank * rows;
    uint64_t next_row = view->next_row + g->world * rows;
    if (header->batch != view->next || header->generation != view->generation ||
        header->first_row != first_row || header->next_row > next_row)
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_ENGINE_MEMORY,
                       "batch ring: batch %" PRIu64 " at row %" PRIu64 " expected, batch %" PRIu64
                       " at row %" PRIu64 " found",
                       view->next, first_row, header->batch, header->first_row);
    if (rows == 0 || rows > g->rows || header->rows_real > rows ||
        header->tokens_real > rows * g->seq_len || header->micro_batch >= header->micro_batches ||
        header->state_bytes > g->state_bytes || header->state_offset != RP_SLOT_STATE_OFFSET)
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_ENGINE_MEMORY,
                       "batch ring: the header of batch %" PRIu64 " is out of range", view->next);
    uint64_t rows_max = rows * g->world * header->micro_batches;
    if (header->step_rows > rows_max || header->step_tokens > rows_max * g->seq_len ||
        header->step_tokens_loss > header->step_tokens)
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_ENGINE_MEMORY,
                       "batch ring: the sums of the step of batch %" PRIu64 " are out of range",
                       view->next);
    return 0;
}

static int take_slot(struct rp_ring_view *view, const uint8_t **slot, struct rp_slot_header *header,
                     struct rp_error *error)
{
    RP_ASSERT(view->next < view->tail && view->next - view->release < view->geometry.slots);
    uint64_t index = view->next & (view->geometry.slots - 1);
    *slot = view->data.data + RP_RING_SLOTS_OFFSET + index * view->geometry.slot_bytes;
    memcpy(header, *slot, sizeof *header);
    int code = check_slot(view, header, error);
    if (code < 0)
        return code;
    view->next++;
    view->taken_rows = (uint64_t)header->rows * view->geometry.world;
    view->next_row += view->taken_rows;
    return RP_RING_TAKEN;
}

void rp_ring_view_put_back(struct rp_ring_view *view)
{
    RP_ASSERT(view->next > view->release);
    view->next--;
    view->next_row -= view->taken_rows;
}

static bool is_quarantined(const struct rp_ring_view *view)
{
    return rp_a32_load_relaxed(&engine_words(view)->quarantined) >> view->replica & 1;
}

int rp_ring_view_take(struct rp_ring_view *view, const uint8_t **slot,
                      struct rp_slot_header *header, struct rp_error *error)
{
    if (view->tail > view->next)
        return take_slot(view, slot, header, error);
    /* The status first: the load of tail then sees every batch that was published before the
     * status. */
    const struct rp_ring_engine *words = engine_words(view);
    uint32_t status = rp_a32_load_acquire(&words->status); /* PAIRS ring-status */
    uint64_t end = rp_a64_load_relaxed(&words->end);
    int code = load_tail(view, error);
    if (code < 0)
        return code;
    if (view->tail > view->next)
        return take_slot(view, slot, header, error);
    if (status >= RP_RING_QUARANTINED)
        return rp_fail(error, -RP_E_PROTOCOL, RP_HINT_ENGINE_MEMORY,
                       "batch ring: status %" PRIu32 " found, at most %d expected", status,
                       RP_RING_FAILED);
    view->status = is_quarantined(view) ? RP_RING_QUARANTINED : (enum rp_ring_status)status;
    view->end = end;
    if (view->status == RP_RING_RUNNING || (view->status == RP_RING_END && view->next < end))
        return RP_RING_EMPTY;
    return RP_RING_CLOSED;
}

bool rp_ring_view_ends_stage(const struct rp_ring_view *view)
{
    return engine_words(view)->message[0] != '\0';
}

void rp_ring_view_message(const struct rp_ring_view *view, char *text, size_t capacity)
{
    RP_ASSERT(text && capacity > 0);
    if (view->status == RP_RING_QUARANTINED) /* the trainer itself knows the expected value */
        snprintf(text, capacity,
                 "rank %" PRIu32
                 ": this trainer's control page was overwritten, so it gets no more batches "
                 "(release word: %" PRIu64 " expected, %" PRIu64 " found)",
                 view->geometry.rank, view->release,
                 rp_a64_load_relaxed(&control_words(view)->release));
    else
        snprintf(text, capacity, "%.*s", (int)sizeof engine_words(view)->message,
                 engine_words(view)->message);
}

/* A hint without ordering: rp_ring_view_take reads the same words again, with acquire. */
static bool nothing_new(const struct rp_ring_view *view)
{
    const struct rp_ring_engine *words = engine_words(view);
    return rp_a64_load_relaxed(&words->tail) == view->tail &&
           rp_a32_load_relaxed(&words->status) == view->status && !is_quarantined(view);
}

/* A batch takes tens of microseconds to pack, so a trainer that takes batches without a pause spins
 * for that long: a wake-up would cost the packer more. A spin in vain costs as much as a sleep, and
 * takes the CPU from the packer if trainers outnumber CPUs. So after a long spin in vain the next
 * ones are short, and after WAITS_A_TRY waits in vain the trainer sleeps at once. Every
 * WAITS_A_TRY-th wait in vain is followed by a long spin again; one that finds something makes all
 * of them long. */
#define LONG_SPIN_NS 50000u
#define WAITS_A_TRY 8u

static uint32_t spin_limit(const struct rp_ring_view *view)
{
    if (view->waits_in_vain % WAITS_A_TRY == 0)
        return LONG_SPIN_NS;
    return view->waits_in_vain < WAITS_A_TRY ? RP_SPIN_NS : 0;
}

void rp_ring_view_wait(struct rp_ring_view *view, uint64_t timeout_ns)
{
    struct rp_ring_control *control = control_words(view);
    uint32_t limit_ns = spin_limit(view);
    for (uint32_t spins = 0; nothing_new(view);) {
        if (limit_ns > 0 && rp_spin(&spins, limit_ns))
            continue;
        view->waits_in_vain++;
        rp_a32_store_relaxed(&control->want_data, 1);
        rp_fence_seq_cst(); /* PAIRS ring-data */
        if (nothing_new(view))
            rp_futex_wait(rp_a64_low(&engine_words(view)->tail), (uint32_t)view->tail, timeout_ns);
        rp_a32_store_relaxed(&control->want_data, 0);
        return;
    }
    if (limit_ns == LONG_SPIN_NS)
        view->waits_in_vain = 0;
}

bool rp_ring_view_release(struct rp_ring_view *view, uint64_t release)
{
    RP_ASSERT(release - view->release <= view->next - view->release);
    view->release = release;
    rp_a64_store_release(&control_words(view)->release, release); /* PAIRS ring-release */
    rp_fence_seq_cst();                                           /* PAIRS ring-space */
    return rp_a32_load_relaxed(&engine_words(view)->want_space) != 0;
}

void rp_ring_view_beat(struct rp_ring_view *view, uint64_t now_ns)
{
    rp_a64_store_relaxed(&control_words(view)->heartbeat_ns, now_ns);
}

void rp_ring_view_waits_since(struct rp_ring_view *view, uint64_t begin_ns)
{
    rp_a64_store_relaxed(&control_words(view)->wait_begin_ns, begin_ns);
}

void rp_ring_view_waited(struct rp_ring_view *view, uint64_t ns)
{
    rp_waits_note(control_words(view), ns);
}

void rp_ring_view_close(struct rp_ring_view *view)
{
    rp_segment_close(&view->control);
    rp_segment_close(&view->data);
}
