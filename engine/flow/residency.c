/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/residency.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

/* The share of the available memory that the page cache may hold of the corpus: three quarters. */
#define ROOM_SHARE(bytes) ((bytes) / 4 * 3)
#define ROOM_NS 250000000u /* from one check of memory to the next */
#define HALVINGS_MAX 4u
#define HALVED_NS 10000000000u /* until the room is doubled again */
#define SOON_SECONDS 10u       /* a stretch that was read in is lost "soon" */
/* A stretch becomes mapped when at most this share of it is missing. It stays so until more than
 * the share RP_MISSING_TO_KEEP is, and more than one page. */
#define MISSING_TO_MAP 256u
/* Limit of bytes read in: this many times the bytes taken, plus READ_IN_BYTES. */
#define READ_IN_TIMES 16u
#define READ_IN_BYTES (64u << 20)
#define READ_IN_STRETCHES 16u /* at a time: a disk is busy with them */
/* The watcher takes at most a hundredth of a processor, or a tenth after a change. */
#define SLICE_NS 200000u
#define CALM_SHARE 100u
#define BUSY_SHARE 10u
#define CALM_NS 100000000u

/* A stretch: `bytes` from `first` on in its file. */
struct place {
    const struct rp_page_cache_file *file;
    struct rp_stretch *stretch;
    uint64_t first, bytes;
};

static struct place place_of(const struct rp_resident_file *file, uint32_t index)
{
    uint64_t first = (uint64_t)index * RP_STRETCH_BYTES;
    return (struct place){&file->file, &file->stretches[index], first,
                          rp_min_u64(RP_STRETCH_BYTES, file->file.bytes - first)};
}

static uint32_t seconds(const struct rp_residency *r)
{
    return 1 + (uint32_t)((rp_now_ns() - r->began_ns) / 1000000000u);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void check_memory(struct rp_residency *r)
{
    uint64_t now = rp_now_ns();
    if (r->room_ns && now - r->room_ns < ROOM_NS)
        return;
    r->room_ns = now;
    if (r->halvings && now - r->halved_ns >= HALVED_NS) {
        r->halvings--;
        r->halved_ns = now;
    }
    r->room = ROOM_SHARE(r->options.page_cache->available()) >> r->halvings;
    rp_a64_store_relaxed(&r->room_bytes, r->room);
}

/* If much of what was read in was lost soon, the room is less than memory says: halve it. */
static void judge_losses(struct rp_residency *r)
{
    if (r->lost_soon > r->room / 16 && r->halvings < HALVINGS_MAX) {
        r->halvings++;
        r->halved_ns = rp_now_ns();
        r->room_ns = 0;
    }
    r->lost_soon = 0;
}

/* Has memory room for a stretch? A stretch that has room keeps it until the room is an eighth too
 * small. If every read fills the page cache, only the whole corpus has room, or no stretch: mapped
 * stretches would lose their pages to reads, and packers would wait for one page at a time. */
static bool has_room(const struct rp_residency *r, const struct rp_stretch *stretch, uint64_t bytes)
{
    uint32_t mode = rp_a32_load_relaxed(&stretch->mode);
    bool had_room = r->options.may_direct ? mode != RP_READ_DIRECT : mode == RP_READ_MAPPED;
    uint64_t others = r->claimed_bytes - stretch->claimed;
    uint64_t room = had_room ? r->room + r->room / 8 : r->room;
    if (rp_residency_watched_bytes(r) <= room)
        return true;
    if (!r->options.may_direct)
        return r->holds_all;
    return (had_room || rp_a32_load_relaxed(&stretch->wanted)) && others + bytes <= room;
}

/* ---- stretches ------------------------------------------------------------------------------- */

static enum rp_read_mode choose_mode(const struct rp_residency *r, const struct rp_stretch *stretch,
                                     uint64_t bytes, uint64_t missing, bool fits)
{
    if (!r->options.may_direct && !fits)
        return RP_READ_BUFFERED;
    bool was_mapped = rp_a32_load_relaxed(&stretch->mode) == RP_READ_MAPPED;
    uint64_t most = was_mapped ? rp_max_u64(bytes / RP_MISSING_TO_KEEP, r->page_bytes)
                               : bytes / MISSING_TO_MAP;
    if (missing <= most && missing < bytes)
        return RP_READ_MAPPED;
    if (!r->options.may_buffer)
        return RP_READ_DIRECT;
    return fits ? RP_READ_BUFFERED : RP_READ_DIRECT;
}

/* A mapped stretch is lost: count it if it was read in shortly before. */
static void note_loss(struct rp_residency *r, struct rp_stretch *stretch, uint64_t bytes)
{
    if (stretch->read_in_at && seconds(r) - stretch->read_in_at <= SOON_SECONDS)
        r->lost_soon += bytes;
    stretch->read_in_at = 0; /* it is lost once */
}

static void set_mode(struct rp_residency *r, struct rp_stretch *stretch, uint64_t bytes,
                     enum rp_read_mode mode)
{
    uint32_t was = rp_a32_load_relaxed(&stretch->mode);
    if (was == (uint32_t)mode)
        return;
    if (was == RP_READ_MAPPED)
        note_loss(r, stretch, bytes);
    r->watcher_state = RP_WATCHER_CHANGING;
    rp_a32_store_relaxed(&stretch->mode, mode);
}

static void set_held(struct rp_residency *r, struct rp_stretch *stretch, uint64_t bytes)
{
    r->held_bytes += bytes - stretch->held;
    stretch->held = (uint32_t)bytes;
}

/* Set the memory that the stretch has or is to have. A stretch that is read past the page cache
 * claims its cached bytes. */
static void set_claim(struct rp_residency *r, struct rp_stretch *stretch, uint64_t bytes)
{
    r->claimed_bytes += bytes - stretch->claimed;
    stretch->claimed = (uint32_t)bytes;
}

/* Set the read mode of a stretch by its cached pages. The kernel counts whole pages, and a file's
 * last page mostly extends past its end. Returns whether memory has room for the stretch. */
static bool set_stretch(struct rp_residency *r, const struct place *place)
{
    uint64_t bytes = place->bytes;
    uint64_t missing = rp_min_u64(r->options.page_cache->missing(place->file, place->first, bytes),
                                  bytes);
    bool fits = has_room(r, place->stretch, bytes);
    enum rp_read_mode mode = choose_mode(r, place->stretch, bytes, missing, fits);
    set_mode(r, place->stretch, bytes, mode);
    set_held(r, place->stretch, bytes - missing);
    set_claim(r, place->stretch, mode == RP_READ_DIRECT ? bytes - missing : bytes);
    return fits;
}

static bool may_read_in(const struct rp_residency *r)
{
    return r->options.may_buffer &&
           r->read_in <= READ_IN_BYTES + READ_IN_TIMES * rp_a64_load_relaxed(r->taken_bytes);
}

struct batch {
    struct place places[READ_IN_STRETCHES];
    uint32_t count;
};

static void check_stretch(struct rp_residency *r, const struct place *place, struct batch *batch)
{
    struct rp_stretch *stretch = place->stretch;
    bool fits = set_stretch(r, place);
    bool is_wanted = rp_a32_exchange_acquire(&stretch->wanted, 0);
    if (is_wanted && fits && rp_a32_load_relaxed(&stretch->mode) == RP_READ_BUFFERED &&
        may_read_in(r)) {
        batch->places[batch->count++] = *place;
        r->read_in += place->bytes - stretch->held;
    }
}

static bool is_stopping(const struct rp_residency *r)
{
    return rp_a32_load_acquire(&r->stop);
}

/* Read the stretches of a batch into the page cache, all at a time. */
static void read_in(struct rp_residency *r, struct batch *batch)
{
    const struct rp_page_cache *cache = r->options.page_cache;
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct place *place = &batch->places[i];
        cache->read_ahead(place->file, place->first, place->bytes);
    }
    for (uint32_t i = 0; i < batch->count && !is_stopping(r); i++) {
        const struct place *place = &batch->places[i];
        cache->settle(place->file, place->first, place->bytes);
        place->stretch->read_in_at = seconds(r);
        (void)set_stretch(r, place);
    }
    batch->count = 0;
}

static void end_pass(struct rp_residency *r)
{
    judge_losses(r);
    bool has_changed = r->watcher_state == RP_WATCHER_CHANGING;
    r->watcher_state = has_changed ? RP_WATCHER_SETTLING : RP_WATCHER_CALM;
    rp_a64_store_relaxed(&r->cached_bytes, r->held_bytes);
    r->holds_all = rp_residency_holds_all(r);
}

/* Check the next stretch of an open file. False at the end of a pass. */
static bool check_next(struct rp_residency *r, struct batch *batch)
{
    while (r->at_file < r->file_count) {
        struct rp_resident_file *file = &r->files[r->at_file];
        bool is_open = rp_a32_load_acquire(&file->is_open); /* PAIRS resident-file */
        if (is_open && r->at_stretch < file->stretch_count) {
            const struct place place = place_of(file, r->at_stretch++);
            check_stretch(r, &place, batch);
            return true;
        }
        r->at_file++;
        r->at_stretch = 0;
    }
    r->at_file = 0;
    end_pass(r);
    return false;
}

/* ---- the watcher ----------------------------------------------------------------------------- */

void rp_residency_poll(struct rp_residency *r)
{
    struct batch batch = {.count = 0};
    check_memory(r);
    while (check_next(r, &batch))
        if (batch.count == READ_IN_STRETCHES)
            read_in(r, &batch);
    read_in(r, &batch);
}

/* Check stretches for a slice of time, or to the end of a pass. Returns the time to sleep after it.
 */
static uint64_t check_for_a_slice(struct rp_residency *r)
{
    struct batch batch = {.count = 0};
    uint64_t begin = rp_now_ns(), spent = 0;
    bool has_more = true;
    check_memory(r);
    while (has_more && spent < SLICE_NS && batch.count < READ_IN_STRETCHES) {
        has_more = check_next(r, &batch);
        spent = rp_now_ns() - begin;
    }
    if (batch.count) {
        read_in(r, &batch);
        return 0;
    }
    bool is_calm = r->watcher_state == RP_WATCHER_CALM;
    uint64_t pause = spent * (is_calm ? CALM_SHARE : BUSY_SHARE);
    return has_more ? pause : rp_max_u64(pause, is_calm ? CALM_NS : CALM_NS / 10);
}

/* Many files may be new at once: only a calm watcher is woken for them, so that it takes no more of
 * a processor than its share. */
static bool must_wake(const struct rp_residency *r)
{
    return is_stopping(r) || (r->watcher_state == RP_WATCHER_CALM &&
                              rp_a32_load_acquire(&r->has_new_file)); /* PAIRS new-file */
}

static void sleep_for(struct rp_residency *r, uint64_t ns)
{
    uint64_t now = rp_now_ns(), end = now + ns;
    for (; now < end && !must_wake(r); now = rp_now_ns()) {
        uint32_t epoch = rp_event_prepare(&r->wake);
        if (must_wake(r))
            rp_event_cancel(&r->wake);
        else
            rp_event_sleep(&r->wake, epoch, end - now);
    }
}

/* Earlier passes found the new file not yet open, and saw no change. The pass under way may be past
 * the file already: so that pass does not end in calm, either. */
static void notice_new_files(struct rp_residency *r)
{
    bool has_new_file = rp_a32_exchange_acquire(&r->has_new_file, 0); /* PAIRS new-file */
    if (has_new_file)
        r->watcher_state = RP_WATCHER_CHANGING;
}

static void *watch(void *argument)
{
    prctl(PR_SET_NAME, "watch");
    struct rp_residency *r = argument;
    while (!is_stopping(r)) {
        notice_new_files(r);
        uint64_t taken = rp_a64_load_relaxed(r->taken_bytes);
        bool is_idle = r->watcher_state == RP_WATCHER_CALM && taken == r->taken;
        r->taken = taken;
        sleep_for(r, is_idle ? CALM_NS : check_for_a_slice(r));
    }
    return NULL;
}

void rp_residency_start(struct rp_residency *r)
{
    if (!r->files)
        return;
    rp_a32_store_relaxed(&r->stop, 0);
    r->started = rp_thread_start(&r->thread, watch, r) == 0;
}

void rp_residency_stop(struct rp_residency *r)
{
    if (!r->started)
        return;
    rp_a32_store_release(&r->stop, 1);
    rp_event_signal(&r->wake);
    pthread_join(r->thread, NULL);
    r->started = false;
}

/* ---- files ----------------------------------------------------------------------------------- */

static struct rp_stretch *make_stretches(struct rp_residency *r, uint64_t count)
{
    if (!r->shared)
        return rp_calloc(count, sizeof(struct rp_stretch));
    struct rp_stretch *stretches = r->shared + r->shared_count;
    r->shared_count += count;
    RP_ASSERT(r->shared_count <= r->options.shared_stretches);
    return stretches;
}

int rp_residency_open(struct rp_residency *r, const struct rp_residency_options *options,
                      uint32_t file_count, const struct rp_a64 *taken_bytes, struct rp_error *error)
{
    RP_ASSERT(options->may_buffer || options->may_direct);
    *r = (struct rp_residency){.options = *options,
                               .files = rp_calloc(file_count, sizeof *r->files),
                               .file_count = file_count,
                               .page_bytes = (uint64_t)sysconf(_SC_PAGESIZE),
                               .holds_all = options->is_held,
                               .taken_bytes = taken_bytes,
                               .began_ns = rp_now_ns()};
    uint64_t shared = options->shared_stretches;
    if (shared)
        r->shared = rp_take_shared_pages(shared * sizeof *r->shared);
    if (!r->files || (shared && !r->shared)) {
        rp_residency_close(r);
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a table of token files");
    }
    check_memory(r);
    return 0;
}

void rp_residency_close(struct rp_residency *r)
{
    RP_ASSERT(!r->started);
    for (uint32_t i = 0; r->files && !r->shared && i < r->file_count; i++)
        free(r->files[i].stretches);
    rp_give_pages(r->shared, r->options.shared_stretches * sizeof *r->shared);
    free(r->files);
    r->files = NULL;
    r->shared = NULL;
}

static enum rp_read_mode first_mode(const struct rp_residency *r)
{
    const struct rp_residency_options *o = &r->options;
    if (o->is_held)
        return RP_READ_MAPPED;
    bool has_room = rp_residency_watched_bytes(r) <= rp_a64_load_relaxed(&r->room_bytes);
    return o->may_buffer && (has_room || !o->may_direct) ? RP_READ_BUFFERED : RP_READ_DIRECT;
}

struct rp_stretch *rp_residency_add(struct rp_residency *r, uint32_t shard,
                                    const struct rp_page_cache_file *opened)
{
    struct rp_resident_file *file = &r->files[shard];
    RP_ASSERT(shard < r->file_count && !file->stretches && opened->map);
    uint64_t count = rp_div_up(opened->bytes, RP_STRETCH_BYTES);
    file->file = *opened;
    file->file.way = r->options.page_cache->find_way(opened);
    if (file->file.way == RP_PAGE_CACHE_SILENT || count > UINT32_MAX)
        return NULL;
    struct rp_stretch *stretches = make_stretches(r, count);
    bool is_memory = file->file.way == RP_PAGE_CACHE_WHOLE;
    enum rp_read_mode mode = is_memory ? RP_READ_MAPPED : first_mode(r);
    for (uint64_t i = 0; stretches && i < count; i++)
        rp_a32_store_relaxed(&stretches[i].mode, mode);
    file->stretches = stretches;
    file->stretch_count = stretches ? (uint32_t)count : 0;
    bool is_watched = stretches && !is_memory;
    if (stretches && is_memory)
        rp_a64_add_relaxed(&r->memory_bytes, opened->bytes);
    r->has_unannounced_file = r->has_unannounced_file || is_watched;
    rp_a32_store_release(&file->is_open, is_watched); /* PAIRS resident-file */
    return stretches;
}

void rp_residency_read_ahead(const struct rp_residency *r, uint32_t shard, uint64_t first,
                             uint64_t last)
{
    r->options.page_cache->read_ahead(&r->files[shard].file, first, last - first);
}

void rp_residency_announce(struct rp_residency *r)
{
    if (!r->has_unannounced_file)
        return;
    r->has_unannounced_file = false;
    rp_a32_store_release(&r->has_new_file, 1); /* PAIRS new-file */
    rp_event_signal(&r->wake);
}
