/* SPDX-License-Identifier: Apache-2.0 */
/* io_http.c — reads of remote objects (object/requests.h), of their cached bytes (cache/cache.h),
 * and of local files of the same corpus.
 *
 *     read of a remote object ──► head and tail: its cached ends ──► files
 *                             └─► gap between them ────────────────► server
 *     read of a local file    ─────────────────────────────────────► files
 *
 * options->file_method opens and reads files, through the page cache or past it, as in a corpus
 * without remote objects. Cached bytes are compared with their hashes; if one page is damaged, the
 * whole read is requested from the server. The same happens if the reader finds that bytes differ
 * from their sidecar: they were damaged before they were cached.
 *
 * The reader's own thread drives libcurl, which writes bodies directly into the buffer of the read.
 * object/requests.h retries requests, so the result of a remote read is either complete or final.
 * The object keeps the reason of a failure, for `explain`.
 *
 * Unlike the read of a file, a request can be dropped: an engine that stops does not wait for a
 * server.
 *
 * Invariant: at most one part of a read is a request. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cache/cache.h"
#include "io/http_object.h"
#include "object/curl.h"
#include "object/requests.h"

#define TAKE_MAX 64u
#define POLL_MS 2u
#define POLL_FILES_MS 1u
#define LOCAL_DEPTH_MAX 4096u
/* Limit of a reader's wait for a prefill: longer than most replies take. */
#define PREFILL_WAIT_NS 5000000000u

/* Parts of a read. A tag of the files' method contains the part and the number of the slot. */
enum part { WHOLE_FILE, HEAD, TAIL, PARTS };

/* The state of a slot. Each change is made by one function:
 *
 *   FREE       no read. start: FILES
 *   FILES      nothing was requested; parts may be at the files' method.
 *              waits_for_prefill: FILLING; request: AT_SERVER; finish: FREE
 *   FILLING    no part is in flight: the read waits for a prefill, until prefill_until_ns.
 *              waits_for_prefill: FILES; finish, if requests are dropped: FREE
 *   AT_SERVER  its request is in flight, and other parts may be. leave_server: REPLIED or DROPPED
 *   REPLIED    its request is done; other parts may be at the files' method.
 *              request, if a cached page was damaged: AT_SERVER; finish: FREE
 *   DROPPED    as REPLIED, but the engine stops: the read fails. finish: FREE */
enum slot_state { FREE, FILES, FILLING, AT_SERVER, REPLIED, DROPPED };

struct slot {
    struct rp_object_request request;
    const struct rp_http_object *of;
    struct rp_io_read read; /* as submitted */
    uint32_t bytes;         /* bytes of the read, up to the end of the object */
    struct rp_cache_held held;
    uint32_t parts_left;
    enum slot_state state;
    bool is_damaged;           /* a cached page does not match its hash */
    uint64_t prefill_until_ns; /* FILLING: waits at most so long */
};

struct http {
    struct rp_requests *requests; /* NULL: dropped */
    const struct rp_io_method *files;
    void *files_self;
    struct rp_io_read *queue; /* [PARTS * depth], for `files`; tag = slot * PARTS + part */
    uint32_t queued, at_files, at_server, at_prefills;
    struct slot *slots; /* [depth] */
    uint32_t depth;
    struct {
        uint64_t tag;
        int64_t value;
    } * results; /* [depth], finished reads */
    uint32_t result_count;
    uint64_t retries;
    struct rp_io_options options;
};

/* ---- opening --------------------------------------------------------------------------------- */

static void http_close(void *self)
{
    struct http *http = self;
    if (http->files_self)
        http->files->close(http->files_self);
    rp_requests_close(http->requests);
    free(http->slots);
    free(http->results);
    free(http->queue);
    free(http);
}

static int open_files(struct http *http, struct rp_error *error)
{
    struct rp_io_options options = http->options;
    options.depth = (uint32_t)rp_min_u64(2ull * http->depth, LOCAL_DEPTH_MAX);
    http->files = options.file_method;
    RP_ASSERT(http->files && http->files != &rp_io_method_http);
    return rp_io_open_method(&http->files, &http->files_self, &options, error);
}

static int http_open(void **self, const struct rp_io_options *options, struct rp_error *error)
{
    struct rp_patience patience = rp_patience_standard(false);
    patience.stopper = (struct rp_stopper){options->is_stopping, options->context};
    struct http *http = rp_calloc(1, sizeof *http);
    if (!http)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a reader");
    http->depth = options->depth;
    http->options = *options;
    http->slots = rp_calloc(http->depth, sizeof *http->slots);
    http->results = rp_calloc(http->depth, sizeof *http->results);
    http->queue = rp_calloc((size_t)http->depth * PARTS, sizeof *http->queue);
    int code = http->slots && http->results && http->queue
                   ? rp_requests_open(&http->requests, http->depth, &patience, error)
                   : rp_fail(error, -ENOMEM, NULL, "out of memory for a reader");
    if (code == 0)
        code = open_files(http, error);
    if (code < 0)
        http_close(http);
    else
        *self = http;
    return code;
}

static void http_use_region(void *self, void *region, size_t bytes)
{
    struct http *http = self;
    if (http->files->use_region)
        http->files->use_region(http->files_self, region, bytes);
}

/* ---- a read ---------------------------------------------------------------------------------- */

static void finish(struct http *http, struct slot *slot, int64_t value)
{
    RP_ASSERT(http->result_count < http->depth);
    RP_ASSERT(slot->state != FREE && slot->state != AT_SERVER);
    http->results[http->result_count].tag = slot->read.tag;
    http->results[http->result_count++].value = value;
    slot->state = FREE;
}

static void request(struct http *http, struct slot *slot, uint32_t first, uint32_t last)
{
    RP_ASSERT(slot->state == FILES || slot->state == REPLIED);
    slot->request = (struct rp_object_request){.kind = RP_REQUEST_RANGE,
                                               .object = slot->of->object,
                                               .offset = slot->read.offset + first,
                                               .bytes = last - first,
                                               .buffer = (uint8_t *)slot->read.buffer + first,
                                               .total = slot->of->bytes,
                                               .expected = slot->of->identity};
    slot->state = AT_SERVER;
    slot->parts_left++;
    http->at_server++;
    if (slot->of->kept && !http->options.is_prefill)
        rp_entry_request_begins(slot->of->kept);
    rp_requests_start(http->requests, &slot->request);
}

static void leave_server(struct http *http, struct slot *slot, enum slot_state state)
{
    RP_ASSERT(slot->state == AT_SERVER && (state == REPLIED || state == DROPPED));
    slot->state = state;
    if (slot->of->kept && !http->options.is_prefill)
        rp_entry_request_ends(slot->of->kept);
}

/* Queue a part of a read. `offset` is the file offset of the read's first byte. */
static void read_file(struct http *http, struct slot *slot, enum part part, int fd, uint64_t offset)
{
    uint32_t first = part == TAIL ? slot->bytes - slot->held.tail : 0;
    uint32_t last = part == HEAD ? slot->held.head : slot->bytes;
    RP_ASSERT(http->queued < http->depth * PARTS);
    http->queue[http->queued++] = (struct rp_io_read){
        .object = fd,
        .bytes = last - first,
        .bytes_needed = last - first,
        .alignment = part == WHOLE_FILE ? slot->read.alignment : 1,
        .offset = offset + first,
        .buffer = (uint8_t *)slot->read.buffer + first,
        .tag = (uint64_t)(slot - http->slots) * PARTS + part};
    slot->parts_left++;
}

/* Look up the cached ends of a read. Returns true if the gap is being filled: then the read waits.
 * The prefill is checked first: if it ends before the lookup, the lookup finds its bytes. */
static bool waits_for_prefill(struct http *http, struct slot *slot)
{
    const struct rp_entry *kept = slot->of->kept;
    bool is_prefilling = !http->options.is_prefill &&
                         rp_entry_is_prefilling(kept, slot->read.offset, slot->bytes);
    slot->held = rp_entry_view(kept, slot->read.offset, slot->bytes);
    bool has_waited = slot->state == FILLING;
    uint64_t until_ns = has_waited ? slot->prefill_until_ns : rp_now_ns() + PREFILL_WAIT_NS;
    bool waits = is_prefilling && slot->held.head + slot->held.tail < slot->bytes &&
                 rp_now_ns() < until_ns;
    http->at_prefills += waits;
    http->at_prefills -= has_waited;
    slot->state = waits ? FILLING : FILES;
    slot->prefill_until_ns = until_ns;
    return waits;
}

/* Read head and tail from the cache, and request the gap. */
static void read_object(struct http *http, struct slot *slot)
{
    const struct rp_entry *kept = slot->of->kept;
    if (kept && slot->read.is_second)
        rp_entry_forget(slot->of->kept, slot->read.offset, slot->bytes);
    else if (kept && waits_for_prefill(http, slot))
        return;
    uint32_t bytes = slot->bytes, head = slot->held.head, tail = slot->held.tail;
    uint64_t offset = head + tail ? rp_entry_data_offset(kept) + slot->read.offset : 0;
    if (head)
        read_file(http, slot, HEAD, rp_entry_fd(kept), offset);
    if (tail)
        read_file(http, slot, TAIL, rp_entry_fd(kept), offset);
    if (head + tail < bytes)
        request(http, slot, head, bytes - tail);
}

static void start(struct http *http, const struct rp_io_read *read)
{
    const struct rp_http_object *it = (const struct rp_http_object *)read->object;
    struct slot *slot = http->slots;
    while (slot->state != FREE)
        slot++;
    *slot = (struct slot){.of = it, .read = *read, .state = FILES};
    if (!it->object) {
        slot->bytes = read->bytes;
        read_file(http, slot, WHOLE_FILE, it->file.fd, read->offset);
        return;
    }
    RP_ASSERT(read->offset < it->bytes);
    slot->bytes = (uint32_t)rp_min_u64(read->bytes, it->bytes - read->offset);
    read_object(http, slot);
}

static int http_submit(void *self, const struct rp_io_read *reads, unsigned count)
{
    struct http *http = self;
    if (!http->requests)
        return -ECANCELED;
    for (unsigned i = 0; i < count; i++)
        start(http, &reads[i]);
    return (int)count;
}

/* A failed request is final, so its code must not be one that io.c retries. */
static int64_t result_of(const struct slot *slot)
{
    if (slot->state == DROPPED)
        return -ECANCELED;
    if (slot->state == FILES || slot->request.error.code == 0)
        return slot->bytes;
    rp_object_fail(slot->request.object, &slot->request.error);
    return -EREMOTEIO;
}

/* One part of a remote read is done. */
static void finish_part(struct http *http, struct slot *slot)
{
    if (--slot->parts_left > 0)
        return;
    int64_t result = result_of(slot);
    uint32_t held = slot->held.head + slot->held.tail;
    if (slot->is_damaged && result >= 0 && http->requests) {
        slot->is_damaged = false;
        slot->held = (struct rp_cache_held){0, 0};
        request(http, slot, 0, slot->bytes);
        return;
    }
    if (slot->is_damaged && result >= 0)
        result = -ECANCELED; /* requests were dropped */
    if (slot->of->kept && result >= 0 && !http->options.is_prefill)
        rp_entry_note(slot->of->kept, held, slot->bytes - held);
    finish(http, slot, result);
}

/* ---- completions ----------------------------------------------------------------------------- */

static void take_part(struct http *http, uint64_t tag, int64_t result)
{
    struct slot *slot = &http->slots[tag / PARTS];
    enum part part = (enum part)(tag % PARTS);
    if (part == WHOLE_FILE) {
        finish(http, slot, result);
        return;
    }
    uint32_t bytes = part == HEAD ? slot->held.head : slot->held.tail;
    uint32_t first = part == HEAD ? 0 : slot->bytes - bytes;
    uint64_t offset = slot->read.offset + first;
    if (result != bytes) {
        rp_entry_doubt(slot->of->kept, offset, bytes);
        slot->is_damaged = true;
    } else if (!rp_entry_check(slot->of->kept, offset, (uint8_t *)slot->read.buffer + first,
                               bytes)) {
        slot->is_damaged = true;
    }
    finish_part(http, slot);
}

static void push_files(struct http *http)
{
    while (http->queued) {
        int taken = http->files->submit(http->files_self, http->queue, http->queued);
        if (taken <= 0 && http->at_files)
            return; /* retried at the next call */
        uint64_t tag = http->queue[0].tag;
        uint32_t count = taken <= 0 ? 1 : (uint32_t)taken;
        http->at_files += taken <= 0 ? 0 : count;
        http->queued -= count;
        memmove(http->queue, http->queue + count, http->queued * sizeof *http->queue);
        if (taken <= 0)
            take_part(http, tag, taken < 0 ? taken : -EAGAIN);
    }
}

static void take_files(struct http *http, unsigned wait_min)
{
    uint64_t tags[TAKE_MAX];
    int64_t results[TAKE_MAX];
    push_files(http);
    if (http->at_files == 0)
        return;
    wait_min = (unsigned)rp_min_u64(wait_min, http->at_files);
    int count = http->files->reap(http->files_self, tags, results, TAKE_MAX, wait_min);
    RP_ASSERT(count >= 0 && (uint32_t)count <= http->at_files);
    http->at_files -= (uint32_t)count;
    for (int i = 0; i < count; i++)
        take_part(http, tags[i], results[i]);
}

/* With `wait`, wait until a request is done or the engine stops; at most POLL_FILES_MS while file
 * reads are in flight. Without `wait`, the poll still lasts up to POLL_MS, so that its caller does
 * not spin. */
static void take_requests(struct http *http, bool wait)
{
    struct rp_object_request *done[TAKE_MAX];
    const struct rp_requests_wait until = {.wait_min = http->result_count == 0,
                                           .most_ms = http->at_files ? POLL_FILES_MS
                                                      : wait         ? 0
                                                                     : POLL_MS,
                                           .is_stopping = http->options.is_stopping,
                                           .context = http->options.context};
    unsigned count = rp_requests_wait(http->requests, done, TAKE_MAX, &until);
    http->at_server -= count;
    for (unsigned i = 0; i < count; i++) {
        struct slot *slot = (struct slot *)(void *)done[i];
        RP_STATIC_ASSERT(offsetof(struct slot, request) == 0, "a request is the head of its slot");
        leave_server(http, slot, REPLIED);
        finish_part(http, slot);
    }
    http->retries = rp_requests_retries(http->requests);
}

/* Give the memory of all requests back; their results are discarded. */
static void drop_requests(struct http *http)
{
    rp_requests_close(http->requests);
    http->requests = NULL;
    http->at_server = 0;
    for (uint32_t i = 0; i < http->depth; i++) {
        struct slot *slot = &http->slots[i];
        if (slot->state == FILLING) {
            http->at_prefills--;
            finish(http, slot, -ECANCELED);
        } else if (slot->state == AT_SERVER) {
            leave_server(http, slot, DROPPED);
            finish_part(http, slot);
        }
    }
}

/* Look again for reads that wait for a prefill; pause if no other part is in flight. */
static void poll_prefills(struct http *http)
{
    for (uint32_t i = 0; i < http->depth && http->requests; i++)
        if (http->slots[i].state == FILLING)
            read_object(http, &http->slots[i]);
    if (http->at_prefills && !http->at_server && !http->at_files && !http->queued)
        rp_sleep_ns(POLL_MS * 1000000u / 2);
}

static unsigned take_results(struct http *http, uint64_t *tags, int64_t *results, unsigned max)
{
    unsigned taken = 0;
    for (; taken < max && http->result_count; taken++) {
        http->result_count--;
        tags[taken] = http->results[http->result_count].tag;
        results[taken] = http->results[http->result_count].value;
    }
    return taken;
}

static bool is_stopping(const struct http *http)
{
    return http->options.is_stopping && http->options.is_stopping(http->options.context);
}

static int http_reap(void *self, uint64_t *tags, int64_t *results, unsigned max, unsigned wait_min)
{
    struct http *http = self;
    unsigned taken = take_results(http, tags, results, max);
    do {
        if (http->at_prefills)
            poll_prefills(http);
        take_files(http, http->at_server == 0 && taken == 0);
        if (http->at_server)
            take_requests(http, taken < wait_min);
        taken += take_results(http, tags + taken, results + taken, max - taken);
        if (taken < wait_min && http->at_server + http->at_prefills > 0 && is_stopping(http))
            drop_requests(http);
    } while (taken < wait_min);
    return (int)taken;
}

static uint32_t http_at_server(const void *self)
{
    return ((const struct http *)self)->at_server;
}

static uint64_t http_retries(const void *self)
{
    return ((const struct http *)self)->retries;
}

static void http_describe(const void *self, char *text, size_t text_bytes)
{
    const struct http *http = self;
    const struct rp_curl *curl = rp_curl_load(NULL);
    snprintf(text, text_bytes, "libcurl %s, up to %u connections",
             curl ? curl->version_info(CURLVERSION_NOW)->version : "", http->depth);
}

const struct rp_io_method rp_io_method_http = {
    .name = "http",
    .open_object = rp_http_open_object,
    .close_object = rp_http_close_object,
    .keep = rp_http_keep,
    .can_ask_again = rp_http_can_ask_again,
    .explain = rp_http_explain,
    .open = http_open,
    .close = http_close,
    .use_region = http_use_region,
    .submit = http_submit,
    .reap = http_reap,
    .retries = http_retries,
    .at_server = http_at_server,
    .describe = http_describe,
};
