/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/files.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mapped.h"
#include "base/mem.h"

/* Open files of a corpus with an index, which may have a million shards: more bring no speed. */
#define OPEN_MAX_OF_INDEX 4096u

int rp_files_open(struct rp_files *files, const struct rp_flow_options *options,
                  struct rp_error *error)
{
    uint32_t count = rp_corpus_data_count(options->corpus);
    *files = (struct rp_files){.corpus = options->corpus,
                               .method = options->method,
                               .cache = options->cache,
                               .files = rp_calloc(count, sizeof(struct rp_file)),
                               .to_revalidate = rp_calloc(count, sizeof(uint32_t)),
                               .has_objects = rp_corpus_first_object(options->corpus) != NULL,
                               .o_direct = options->o_direct,
                               .verify_blocks = options->verify_blocks};
    if (!files->files || !files->to_revalidate) {
        free(files->files);
        free(files->to_revalidate);
        files->files = NULL;
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a table of %u token files", count);
    }
    int code = rp_descriptors_open(&files->descriptors, count, options->other_descriptors, error);
    if (code >= 0 && rp_corpus_index_path(options->corpus))
        code = rp_descriptors_limit(&files->descriptors, OPEN_MAX_OF_INDEX, error);
    if (code >= 0 && options->descriptors_max)
        code = rp_descriptors_limit(&files->descriptors, options->descriptors_max, error);
    return code;
}

static void unmap_file(struct rp_files *files, uint32_t index)
{
    struct rp_file *file = &files->files[index];
    rp_mapped_remove(file->mapping);
    if (file->map)
        munmap((void *)(uintptr_t)file->map, rp_corpus_shard(files->corpus, index)->bytes);
    file->map = NULL;
    file->mapping = NULL;
}

static void unmap_all(struct rp_files *files)
{
    for (uint32_t i = 0; i < rp_corpus_data_count(files->corpus); i++)
        unmap_file(files, i);
}

static void close_object(struct rp_files *files, uint32_t shard)
{
    struct rp_file *file = &files->files[shard];
    if (file->is_open)
        files->method->close_object(&file->object);
    if (file->direct_alignment > 1)
        files->method->close_object(&file->direct_object);
    file->direct_alignment = 0;
    file->is_open = false;
}

void rp_files_close(struct rp_files *files)
{
    if (!files->files)
        return;
    rp_residency_close(&files->residency);
    if (files->state != RP_FILES_READ)
        unmap_all(files);
    uint32_t count = files->descriptors.list ? 0 : rp_corpus_data_count(files->corpus);
    for (uint32_t i = 0; i < count; i++)
        close_object(files, i);
    for (uint32_t at = files->descriptors.newest; at;
         at = files->descriptors.list[at - 1].older) /* no other is open */
        close_object(files, at - 1);
    rp_descriptors_close(&files->descriptors);
    free(files->files);
    free(files->to_revalidate);
    files->files = NULL;
    files->to_revalidate = NULL;
}

/* Check a file that was opened. A file whose blocks are compared is judged by content: only its
 * size must match and, if it is listed, its modification time. Other files, and side columns, which
 * have their hashes in themselves, must have the stamp that they had. */
static int check_opened(struct rp_file *file, const struct rp_shard *shard, struct rp_error *error)
{
    struct rp_stamp found;
    if (shard->url) /* each reply is compared with it */
        return 0;
    if (!file->is_known || (file->checked && shard->kind == RP_SHARD_LISTED))
        file->stamp = shard->stamp;
    file->is_known = true;
    if (file->checked && shard->kind == RP_SHARD_OPENED &&
        rp_stamp_of(file->object.fd, &found) == 0)
        file->stamp = (struct rp_stamp){.bytes = shard->bytes,
                                        .mtime_ns = found.mtime_ns,
                                        .ctime_ns = found.ctime_ns,
                                        .links = found.links};
    return rp_shard_check(shard, &file->stamp, file->object.fd, error);
}

static struct rp_io_place place_of(const struct rp_files *files, uint32_t shard, bool o_direct)
{
    const struct rp_shard *info = rp_corpus_shard(files->corpus, shard);
    return (struct rp_io_place){.path = info->url ? info->url : info->path,
                                .o_direct = o_direct,
                                .known_alignment = files->files[shard].known_alignment,
                                .bytes = info->bytes,
                                .identity = info->identity,
                                .cache = files->cache,
                                .number = shard};
}

static int map_file(struct rp_files *files, uint32_t index, struct rp_error *error)
{
    const struct rp_shard *shard = rp_corpus_shard(files->corpus, index);
    struct rp_file *file = &files->files[index];
    void *map = mmap(NULL, shard->bytes, PROT_READ, MAP_SHARED, file->object.fd, 0);
    if (map == MAP_FAILED)
        return rp_fail(error, -errno, NULL, "%s: cannot be mapped: %s", shard->path,
                       rp_strerror(-errno));
    file->map = map;
    file->mapping = rp_mapped_add(map, shard->bytes, shard->path);
    if (file->mapping)
        return 0;
    unmap_file(files, index);
    return rp_fail(error, -ENOMEM, NULL, "%s: out of memory for its name", shard->path);
}

static bool is_object(const struct rp_files *files, uint32_t shard)
{
    return rp_corpus_shard(files->corpus, shard)->url != NULL;
}

/* Map a file of an adapting flow, and have its stretches watched. If it cannot be mapped, or the
 * kernel does not report its cached pages, it is only read. */
static void watch_file(struct rp_files *files, uint32_t index)
{
    const struct rp_shard *shard = rp_corpus_shard(files->corpus, index);
    struct rp_file *file = &files->files[index];
    if (shard->url || file->map || shard->bytes == 0 || map_file(files, index, NULL) < 0)
        return;
    const struct rp_page_cache_file watched = {.fd = file->object.fd,
                                               .is_direct = file->o_direct,
                                               .map = file->map,
                                               .bytes = shard->bytes};
    file->stretches = rp_residency_add(&files->residency, index, &watched);
    if (!file->stretches)
        unmap_file(files, index);
}

static int open_file(struct rp_files *files, uint32_t shard, struct rp_error *error)
{
    struct rp_file *file = &files->files[shard];
    const struct rp_shard *info = rp_corpus_shard(files->corpus, shard);
    const struct rp_io_place place = place_of(files, shard, files->o_direct);
    int code = files->method->open_object(&file->object, &place, error);
    if (code < 0)
        return code;
    file->is_open = true;
    if (place.o_direct)
        file->known_alignment = file->object.alignment;
    file->checked = files->verify_blocks && info->block_hashes;
    code = check_opened(file, info, error);
    if (code < 0) {
        close_object(files, shard);
        return code;
    }
    file->o_direct = file->object.alignment > 1;
    file->alignment = file->checked ? RP_BLOCK_BYTES : file->object.alignment;
    RP_ASSERT(file->object.alignment <= RP_BLOCK_BYTES);
    rp_descriptors_add(&files->descriptors, shard);
    if (files->state == RP_FILES_ADAPT)
        watch_file(files, shard);
    return 0;
}

bool rp_files_need_direct(struct rp_files *files, uint32_t shard)
{
    struct rp_file *file = &files->files[shard];
    RP_DASSERT(file->is_open && !file->o_direct);
    if (file->direct_alignment)
        return file->direct_alignment > 1;
    const struct rp_io_place place = place_of(files, shard, true);
    struct rp_error ignored;
    file->direct_alignment = 1;
    if (file->known_alignment == 1) /* an earlier trial was refused */
        return false;
    if (files->method->open_object(&file->direct_object, &place, &ignored) < 0)
        return false;
    bool is_same = rp_shard_check(rp_corpus_shard(files->corpus, shard), &file->stamp,
                                  file->direct_object.fd, &ignored) == 0;
    file->known_alignment = file->direct_object.alignment;
    if (!is_same || file->direct_object.alignment == 1) {
        files->method->close_object(&file->direct_object);
        return false;
    }
    file->direct_alignment = file->checked ? RP_BLOCK_BYTES : file->direct_object.alignment;
    return true;
}

/* Check that a file is unchanged since it was opened. */
static int check_unchanged(struct rp_files *files, uint32_t shard, struct rp_error *error)
{
    struct rp_file *file = &files->files[shard];
    const struct rp_shard *info = rp_corpus_shard(files->corpus, shard);
    if (!file->is_open || info->url)
        return 0;
    return rp_shard_check(info, &file->stamp, file->object.fd, error);
}

int rp_files_get_open(struct rp_files *files, uint32_t shard, uint64_t retired, uint64_t *ticket,
                      struct rp_error *error)
{
    uint32_t other;
    if (rp_descriptors_are_used_up(&files->descriptors, &other, ticket)) {
        if (*ticket > retired)
            return RP_FILES_WAIT;
        int code = files->files[other].is_to_revalidate ? check_unchanged(files, other, error) : 0;
        if (code < 0)
            return code;
        rp_descriptors_remove(&files->descriptors, other);
        close_object(files, other);
    }
    int code = open_file(files, shard, error);
    return code < 0 ? code : RP_FILES_OPEN;
}

void rp_files_pin(struct rp_files *files, uint32_t shard, uint64_t ticket)
{
    rp_descriptors_use(&files->descriptors, shard, ticket);
}

static void add(struct rp_a64 *count, uint64_t bytes)
{
    rp_a64_store_relaxed(count, rp_a64_load_relaxed(count) + bytes);
}

void rp_files_count_read(struct rp_files *files, uint32_t shard, bool is_direct, uint64_t bytes)
{
    add(is_direct && !is_object(files, shard) ? &files->direct_bytes : &files->buffered_bytes,
        bytes);
}

void rp_files_note_taken(struct rp_files *files, uint32_t shard, uint64_t ticket, uint64_t bytes)
{
    struct rp_file *file = &files->files[shard];
    add(&files->taken_bytes, bytes);
    if (file->checked && rp_corpus_shard(files->corpus, shard)->kind != RP_SHARD_SIDE)
        return;
    if (!file->checked)
        add(&files->unverified_bytes, bytes);
    RP_DASSERT(file->is_to_revalidate ||
               files->to_revalidate_count < rp_corpus_data_count(files->corpus));
    if (!file->is_to_revalidate)
        files->to_revalidate[files->to_revalidate_count++] = shard;
    file->is_to_revalidate = true;
    file->last_ticket = ticket;
}

void rp_files_restart(struct rp_files *files)
{
    for (uint32_t i = 0; i < files->to_revalidate_count; i++)
        files->files[files->to_revalidate[i]].last_ticket = 0;
}

int rp_files_revalidate(struct rp_files *files, uint64_t retired, struct rp_error *error)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < files->to_revalidate_count; i++) {
        uint32_t shard = files->to_revalidate[i];
        struct rp_file *file = &files->files[shard];
        int code = check_unchanged(files, shard, error);
        if (code < 0)
            return code;
        file->is_to_revalidate = file->is_open && file->last_ticket >= retired;
        if (file->is_to_revalidate)
            files->to_revalidate[kept++] = shard;
    }
    files->to_revalidate_count = kept;
    return 0;
}

/* ---- mapped ---------------------------------------------------------------------------------- */

int rp_files_map(struct rp_files *files, struct rp_error *error)
{
    uint32_t count = rp_corpus_data_count(files->corpus);
    if (files->descriptors.open_max < count)
        return rp_fail(error, -RP_E_RESOURCE, "raise the limit of open files (`ulimit -n`)",
                       "the limit of open files leaves %" PRIu32 " for %" PRIu32 " shards",
                       files->descriptors.open_max, count);
    int code = rp_mapped_check_room(rp_corpus_local_count(files->corpus), error);
    for (uint32_t i = 0; i < count && code >= 0; i++) {
        code = files->files[i].is_open || is_object(files, i) ? 0 : open_file(files, i, error);
        if (code >= 0 && !is_object(files, i))
            code = map_file(files, i, error);
    }
    if (code < 0)
        unmap_all(files);
    else
        files->state = RP_FILES_MAPPED;
    return code;
}

/* Does the kernel report the cached pages of the corpus, to descriptors like the flow's? The first
 * file stands for all. */
static bool reports_cached_pages(const struct rp_files *files,
                                 const struct rp_flow_options *options)
{
    uint32_t first = 0;
    while (is_object(files, first))
        first++;
    const struct rp_shard *shard = rp_corpus_shard(files->corpus, first);
    struct rp_page_cache_file file = {.fd = rp_file_open_read(shard->path, NULL, NULL),
                                      .is_direct = !options->may_buffer,
                                      .bytes = shard->bytes};
    if (file.fd < 0)
        return false;
    void *map = mmap(NULL, 1, PROT_READ, MAP_SHARED, file.fd, 0);
    file.map = map == MAP_FAILED ? NULL : map;
    bool can = file.map && options->page_cache->find_way(&file) != RP_PAGE_CACHE_SILENT;
    if (file.map)
        munmap(map, 1);
    close(file.fd);
    return can;
}

static int check_adapt(const struct rp_files *files, const struct rp_flow_options *options,
                       struct rp_error *why)
{
    uint32_t shards = rp_corpus_data_count(files->corpus);
    if (files->descriptors.list)
        return rp_fail(why, -RP_E_RESOURCE, NULL,
                       "only some of %" PRIu32 " shards are open at a time", shards);
    uint32_t count = rp_corpus_local_count(files->corpus);
    if (count == 0)
        return rp_fail(why, -RP_E_RESOURCE, NULL, "the corpus has only objects");
    if (!rp_descriptors_allow((uint64_t)shards + count + options->other_descriptors))
        return rp_fail(why, -RP_E_RESOURCE, "raise the limit of open files (`ulimit -n`)",
                       "there are not two descriptors for each of %" PRIu32 " token files", count);
    if (options->packer_processes && rp_corpus_index_path(files->corpus) &&
        count > RP_FILES_AT_START)
        return rp_fail(
            why, -RP_E_RESOURCE, "leave packer_processes out",
            "packer processes use only files mapped before they are forked, and a corpus "
            "that is opened by its index has none");
    int code = rp_mapped_check_room(count, why);
    if (code >= 0 && !reports_cached_pages(files, options))
        code = rp_fail(why, -RP_E_RESOURCE, NULL, "the file system does not list the cached pages");
    return code;
}

/* Go back to one read mode for all: close the files, which are then opened for that mode. */
static void stop_adapting(struct rp_files *files, const struct rp_flow_options *options)
{
    unmap_all(files);
    files->o_direct = options->o_direct;
    for (uint32_t i = 0; i < rp_corpus_data_count(files->corpus); i++) {
        files->files[i].stretches = NULL;
        if (files->files[i].is_open)
            rp_descriptors_remove(&files->descriptors, i);
        close_object(files, i);
    }
    rp_residency_close(&files->residency);
    files->state = RP_FILES_READ;
}

static uint64_t count_stretches(const struct rp_files *files)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < rp_corpus_data_count(files->corpus); i++)
        if (!is_object(files, i))
            count += rp_div_up(rp_corpus_shard(files->corpus, i)->bytes, RP_STRETCH_BYTES);
    return count;
}

bool rp_files_adapt(struct rp_files *files, const struct rp_flow_options *options,
                    struct rp_error *why)
{
    if (check_adapt(files, options, why) < 0)
        return false;
    uint32_t count = rp_corpus_data_count(files->corpus);
    const struct rp_residency_options residency = {
        .page_cache = options->page_cache,
        .corpus_bytes = rp_corpus_file_bytes(files->corpus),
        .is_held = options->mapped,
        .may_buffer = options->may_buffer,
        .may_direct = options->may_direct,
        .shared_stretches = options->packer_processes ? count_stretches(files) : 0};
    int code = rp_residency_open(&files->residency, &residency, count, &files->taken_bytes, why);
    if (code < 0)
        return false;
    files->state = RP_FILES_ADAPT;
    files->o_direct = !options->may_buffer;
    /* packer processes have the mappings that there are when they are forked */
    for (uint32_t i = 0; i < count && code >= 0 && options->packer_processes; i++)
        code = is_object(files, i) ? 0 : open_file(files, i, why);
    if (code < 0)
        stop_adapting(files, options);
    return code >= 0;
}

struct rp_hashed_range rp_files_hashed_range(const struct rp_files *files,
                                             const struct rp_transfer *transfer)
{
    const struct rp_shard *shard = rp_corpus_shard(files->corpus, transfer->mapped_shard - 1);
    uint64_t end = transfer->data_offset + (uint64_t)rp_transfer_stored(transfer) * transfer->width;
    return (struct rp_hashed_range){
        .first = rp_align_down(transfer->data_offset, RP_BLOCK_BYTES),
        .end = rp_min_u64(rp_align_up(end, RP_BLOCK_BYTES), shard->bytes)};
}

void rp_files_read_ahead(const struct rp_files *files, const struct rp_transfer *transfer)
{
    struct rp_hashed_range blocks = rp_files_hashed_range(files, transfer);
    rp_residency_read_ahead(&files->residency, transfer->mapped_shard - 1, blocks.first,
                            blocks.end);
}

bool rp_files_have_hashes(const struct rp_files *files)
{
    bool any = files->state == RP_FILES_ADAPT && files->verify_blocks; /* they are opened later */
    for (uint32_t i = 0;
         files->state != RP_FILES_READ && !any && i < rp_corpus_data_count(files->corpus); i++)
        any = files->files[i].map && files->files[i].checked;
    return any;
}
