/* SPDX-License-Identifier: Apache-2.0 */
/* saver.c — the threads of one save.
 *
 * A thread, the collector, copies the contents out of shared memory while the stream runs: a hold
 * keeps them unchanged. The saver's thread writes the copied part to disk, as a section that grows
 * (checkpoint.h). So the hold ends with the copy and never waits for the disk; and the save is
 * reported by the thread that wrote it, without a wake-up.
 *
 * Invariants:
 *
 *   - The collector never uses the disk.
 *   - While the collector runs, no other thread touches the sources, `bytes`, `count` and
 *     `added_bytes`.
 *   - The copy may end early, since contents may be incomplete, or be dropped because token files
 *     have changed. The write then fails with -RP_E_STOPPED, and the saver's thread joins the
 *     collector and writes the checkpoint again, with the sources that were copied.
 *   - The write cannot finish before it is known whether token files have changed: only then is the
 *     last source added to the section. */
#include "server/saver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "flow/widen.h"

/* A tenth of the share of another thread that wants the same CPU. A write during the copy keeps the
 * normal share: it needs little time, and would wait for the collector to give way while the disk
 * is idle. */
#define SAVER_NICE 10
#define GROWTH_BYTES (256u << 10) /* step by which the section grows */

/* How the checkpoint is written: the best way that memory and threads allow.
 *
 *                      data   section   collector  the checkpoint is written
 *   WHILE_COPIED       set    set       runs       while contents are copied
 *   ONCE_COPIED        set    NULL      none       once the saver's thread has copied them
 *   WITHOUT_CONTENTS   NULL   NULL      none       at once */
enum way { WITHOUT_CONTENTS, ONCE_COPIED, WHILE_COPIED };

/* The contents that are copied out of shared memory. */
struct contents_copy {
    struct rp_saver *saver;
    enum way way;
    pthread_t collector;
    uint8_t *data;
    size_t bytes_wanted, bytes; /* sums over all sources, and over the copied ones */
    uint64_t end_row_wanted;    /* after the last row of all sources */
    size_t count;               /* copied sources */
    size_t added_bytes;         /* the first bytes of the copy, which are added to the section */
    struct rp_growing_section *section;
};

static int compare_sources(const void *a, const void *b)
{
    const struct rp_content_source *x = a, *y = b;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void announce(struct rp_saver *saver, enum rp_saver_state state)
{
    rp_a32_store_release(&saver->reached, state); /* PAIRS saver-state */
    rp_fd_wake(saver->done_fd);
}

/* Lower the priority of this thread, once, if the save is to. */
static void lower_priority(struct rp_saver *saver)
{
    if (saver->lower_priority)
        (void)nice(SAVER_NICE);
    saver->lower_priority = false;
}

/* ---- copying --------------------------------------------------------------------------------- */

static uint64_t record_bytes(const struct rp_content_source *source)
{
    return sizeof(struct rp_content_record) +
           rp_align_up((uint64_t)source->count * source->kept, 8);
}

/* Append the record of a source. False if a token does not fit into `kept` bytes. */
static bool copy_source(struct contents_copy *copy, const struct rp_content_source *source)
{
    uint8_t *at = copy->data + copy->bytes;
    uint32_t width = source->kept;
    struct rp_content_record record = {
        .row = source->row, .offset = source->offset, .count = source->count, .width = width};
    memcpy(at, &record, sizeof record);
    enum rp_dtype dtype = width == 2 ? RP_DTYPE_U16 : RP_DTYPE_I32;
    uint64_t largest = rp_widen(at + sizeof record, dtype, source->tokens, source->width,
                                source->count);
    if (largest >> 8 * width)
        return false;
    size_t used = sizeof record + (size_t)source->count * width;
    memset(at + used, 0, record_bytes(source) - used);
    copy->bytes += record_bytes(source);
    RP_ASSERT(copy->bytes <= copy->bytes_wanted);
    return true;
}

/* Copy one source after the other, up to the first with a token that does not fit: the contents end
 * before that source, and a run that resumes reads its tokens from the corpus. The last source is
 * not added to the section yet. */
static void copy_sources(struct contents_copy *copy)
{
    const struct rp_saver *saver = copy->saver;
    while (copy->count < saver->source_count && copy_source(copy, &saver->sources[copy->count])) {
        copy->count++;
        bool is_last = copy->count == saver->source_count;
        if (copy->section && !is_last && copy->bytes - copy->added_bytes >= GROWTH_BYTES) {
            rp_growing_section_add(copy->section, copy->bytes - copy->added_bytes);
            copy->added_bytes = copy->bytes;
        }
    }
}

/* Wait until it is known whether token files have changed. If one has, or the check gave no answer,
 * the copy is dropped. */
static void judge_copy(struct contents_copy *copy)
{
    struct rp_saver *saver = copy->saver;
    while (rp_a32_load_acquire(&saver->validity) ==
           RP_VALIDITY_REQUESTED) { /* PAIRS saver-validity */
        uint32_t epoch = rp_event_prepare(&saver->validity_settled);
        if (rp_a32_load_acquire(&saver->validity) == RP_VALIDITY_REQUESTED)
            rp_event_sleep(&saver->validity_settled, epoch, 100000000);
        else
            rp_event_cancel(&saver->validity_settled);
    }
    enum rp_validity validity = (enum rp_validity)rp_a32_load_relaxed(&saver->validity);
    if (validity != RP_VALIDITY_UNCHANGED) {
        saver->drop_reason = validity;
        copy->count = copy->bytes = 0;
    }
}

/* Sources come in order from one ring that was packed in order: a check is quicker than a sort. */
static void put_in_order(struct rp_saver *saver)
{
    for (size_t i = 1; i < saver->source_count; i++)
        if (compare_sources(&saver->sources[i - 1], &saver->sources[i]) > 0) {
            qsort(saver->sources, saver->source_count, sizeof *saver->sources, compare_sources);
            return;
        }
}

/* The work of the collector, or of the saver's thread if no collector runs. */
static void copy_contents(struct contents_copy *copy)
{
    struct rp_saver *saver = copy->saver;
    if (copy->data) {
        put_in_order(saver);
        copy_sources(copy);
    }
    saver->copied_ns = copy->data ? rp_now_ns() : 0;
    announce(saver, RP_SAVER_COPIED);
    if (copy->count)
        judge_copy(copy);
    if (!copy->section)
        return;
    if (copy->bytes > copy->added_bytes)
        rp_growing_section_add(copy->section, copy->bytes - copy->added_bytes);
    rp_growing_section_end(copy->section);
}

static void *collector_main(void *copy)
{
    copy_contents(copy);
    return NULL;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Write the checkpoint, unless the newest one is of this very state. Its contents are the first
 * `bytes` of the copy, up to row `end_row`. They are copied already, or, with `section`, are being
 * copied. */
static void write_checkpoint(const struct contents_copy *copy, struct rp_growing_section *section,
                             size_t bytes, uint64_t end_row)
{
    struct rp_saver *saver = copy->saver;
    RP_ASSERT(!saver->path);
    saver->code = 0;
    saver->already_saved = rp_checkpoint_is_saved(saver->directory, &saver->info, saver->token,
                                                  saver->token_bytes, &saver->path);
    if (saver->already_saved)
        return;
    saver->info.contents_end_row = bytes ? end_row : saver->info.next_row;
    struct rp_checkpoint_piece pieces[] = {
        {saver->token, saver->token_bytes},
        {saver->config_text, strlen(saver->config_text)},
        {copy->data, bytes},
        {rp_contract_text(saver->contract), rp_contract_bytes(saver->contract)}};
    struct rp_checkpoint_part parts[4] = {{RP_CHECKPOINT_STATE, &pieces[0], 1, NULL},
                                          {RP_CHECKPOINT_CONFIG, &pieces[1], 1, NULL}};
    size_t part_count = 2;
    if (bytes)
        parts[part_count++] = (struct rp_checkpoint_part){RP_CHECKPOINT_CONTENTS, &pieces[2], 1,
                                                          section};
    parts[part_count++] = (struct rp_checkpoint_part){RP_CHECKPOINT_CONTRACT, &pieces[3], 1, NULL};
    saver->code = rp_checkpoint_save(saver->directory, &saver->info, parts, part_count,
                                     &saver->path, &saver->error);
    struct stat file;
    saver->bytes = saver->code == 0 && stat(saver->path, &file) == 0 ? (uint64_t)file.st_size : 0;
}

/* Room for the contents, in whole pages, so that the disk can read from it directly. The next save
 * may have slightly more; untouched pages take no memory. */
static uint8_t *take_room(struct rp_saver *saver, size_t bytes)
{
    if (bytes > saver->page_bytes) {
        rp_give_pages(saver->pages, saver->page_bytes);
        saver->page_bytes = bytes + bytes / 8;
        saver->pages = rp_take_pages(saver->page_bytes);
        rp_withhold_pages(saver->pages, saver->page_bytes); /* packer processes are forked later */
        if (!saver->pages)
            saver->page_bytes = 0;
    }
    return saver->pages;
}

static bool start_collector(struct contents_copy *copy)
{
    copy->section = rp_growing_section_open(copy->data, copy->bytes_wanted);
    if (copy->section && rp_thread_try(&copy->collector, collector_main, copy) == 0)
        return true;
    rp_growing_section_close(copy->section);
    copy->section = NULL;
    return false;
}

/* Make room for the contents, and start the collector. */
static void open_copy(struct contents_copy *copy)
{
    struct rp_saver *saver = copy->saver;
    for (size_t i = 0; i < saver->source_count; i++) {
        const struct rp_content_source *source = &saver->sources[i];
        copy->bytes_wanted += record_bytes(source);
        copy->end_row_wanted = rp_max_u64(copy->end_row_wanted, source->row + 1);
    }
    if (copy->bytes_wanted)
        copy->data = take_room(saver, copy->bytes_wanted);
    copy->way = !copy->data ? WITHOUT_CONTENTS : start_collector(copy) ? WHILE_COPIED : ONCE_COPIED;
}

/* False if the copy ended early: the checkpoint has to be written again. */
static bool write_while_copied(const struct contents_copy *copy)
{
    write_checkpoint(copy, copy->section, copy->bytes_wanted, copy->end_row_wanted);
    pthread_join(copy->collector, NULL);
    return copy->saver->code != -RP_E_STOPPED;
}

static void write_once_copied(const struct contents_copy *copy)
{
    const struct rp_content_source *sources = copy->saver->sources;
    uint64_t end_row = copy->count ? sources[copy->count - 1].row + 1 : 0;
    write_checkpoint(copy, NULL, copy->bytes, end_row);
}

/* Copy and write. */
static void save(struct rp_saver *saver)
{
    struct contents_copy copy = {.saver = saver};
    saver->drop_reason = RP_VALIDITY_NONE;
    open_copy(&copy);
    if (copy.way != WHILE_COPIED)
        copy_contents(&copy);
    bool is_written = copy.way == WHILE_COPIED && write_while_copied(&copy);
    if (!is_written) {
        lower_priority(saver);
        write_once_copied(&copy);
    }
    rp_growing_section_close(copy.section);
}

void *rp_saver_main(void *argument)
{
    struct rp_saver *saver = argument;
    save(saver);
    bool is_saved = saver->code == 0;
    saver->read_back = 0;
    announce(saver, RP_SAVER_SAVED);
    rp_spare_pages(saver->pages, saver->page_bytes); /* reading back needs no memory of it */
    if (is_saved) {
        lower_priority(saver);
        saver->read_back = rp_checkpoint_read_back_save(saver->directory, &saver->read_back_error);
        saver->times = rp_checkpoint_dir_times(saver->directory);
        rp_checkpoint_prune(saver->directory);
    }
    announce(saver, RP_SAVER_DONE);
    return NULL;
}
