/* SPDX-License-Identifier: Apache-2.0 */
/* io_http — reads of objects in stores (object/requests.h), and of files beside them.
 *
 * The reader's own thread drives libcurl, and bodies are written straight to where the packer takes
 * the tokens from. What can be tried again is tried again in there, so a result is either all of
 * the bytes or final; why it failed is kept with the object, for `explain`.
 *
 * A source on a local disk may stand beside sources in stores. Its reads are done one at a time
 * when they are submitted: a disk is quick beside a network, and the requests that are under way go
 * on in the kernel's buffers meanwhile.
 *
 * A request can be dropped, unlike the read of a file: when the engine stops, nobody waits for a
 * server. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "io/io.h"
#include "object/curl.h"
#include "object/requests.h"

/* AWS advises ranges of 8 to 16 MiB; 16 of them in flight are 1 GB/s at 50 ms. */
#define RANGE_BYTES (8u << 20)
#define TAKE_MAX 64u
#define LOOK_MS 2u

struct http_object {
    struct rp_object *object; /* NULL = a file */
    struct rp_io_object file;
    uint64_t bytes;
    char *identity;
};

struct slot {
    struct rp_object_request request;
    uint64_t tag;
    bool is_used;
};

struct http {
    struct rp_requests *requests; /* NULL: they were dropped */
    struct slot *slots;           /* [depth] */
    uint32_t depth;
    struct {
        uint64_t tag;
        int64_t value;
    } * results; /* [depth], of files */
    uint32_t result_count;
    uint64_t retries;
    bool (*is_stopping)(void *context);
    void *context;
};

/* ---- objects --------------------------------------------------------------------------------- */

static void http_close_object(const struct rp_io_object *object)
{
    struct http_object *it = (struct http_object *)object->handle;
    if (it->object)
        rp_object_close(it->object);
    else
        rp_io_close_file(&it->file);
    free(it->identity);
    free(it);
}

static int open_remote(struct http_object *it, const struct rp_io_place *place,
                       struct rp_error *error)
{
    it->bytes = place->bytes;
    it->identity = strdup(place->identity);
    if (!it->identity)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for an object");
    return rp_object_open(&it->object, place->path, error);
}

static int open_local(struct http_object *it, const struct rp_io_place *place,
                      struct rp_error *error)
{
    struct rp_io_place buffered = *place;
    buffered.direct = false;
    return rp_io_open_file(&it->file, &buffered, error);
}

static int http_open_object(struct rp_io_object *object_out, const struct rp_io_place *place,
                            struct rp_error *error)
{
    struct http_object *it = rp_calloc(1, sizeof *it);
    if (!it)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for an object");
    int code = place->identity ? open_remote(it, place, error) : open_local(it, place, error);
    if (code < 0) {
        free(it->identity);
        free(it);
        return code;
    }
    *object_out = place->identity
                      ? (struct rp_io_object){.fd = -1, .alignment = 1, .read_bytes = RANGE_BYTES}
                      : it->file;
    object_out->handle = (intptr_t)it;
    return 0;
}

static int http_explain(const struct rp_io_object *object, struct rp_error *error)
{
    const struct http_object *it = (const struct http_object *)object->handle;
    return it->object ? rp_object_failure(it->object, error) : 0;
}

/* ---- reads ----------------------------------------------------------------------------------- */

static void http_close(void *self)
{
    struct http *http = self;
    rp_requests_close(http->requests);
    free(http->slots);
    free(http->results);
    free(http);
}

static int http_open(void **self, const struct rp_io_options *options, struct rp_error *error)
{
    struct rp_patience patience = rp_patience_standard(false);
    struct http *http = rp_calloc(1, sizeof *http);
    if (!http)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a reader");
    http->depth = options->depth;
    http->is_stopping = options->is_stopping;
    http->context = options->context;
    http->slots = rp_calloc(http->depth, sizeof *http->slots);
    http->results = rp_calloc(http->depth, sizeof *http->results);
    int code = http->slots && http->results
                   ? rp_requests_open(&http->requests, http->depth, &patience, error)
                   : rp_fail(error, -ENOMEM, NULL, "out of memory for a reader");
    if (code < 0)
        http_close(http);
    else
        *self = http;
    return code;
}

static void add_result(struct http *http, uint64_t tag, int64_t value)
{
    RP_ASSERT(http->result_count < http->depth);
    http->results[http->result_count].tag = tag;
    http->results[http->result_count++].value = value;
}

static void read_local(struct http *http, const struct rp_io_read *read, int fd)
{
    ssize_t count;
    do
        count = pread(fd, read->buffer, read->bytes, (off_t)read->offset);
    while (count < 0 && errno == EINTR);
    add_result(http, read->tag, count < 0 ? -errno : count);
}

static void request(struct http *http, const struct rp_io_read *read, const struct http_object *it)
{
    struct slot *slot = http->slots;
    while (slot->is_used)
        slot++;
    *slot = (struct slot){.request = {.kind = RP_REQUEST_RANGE,
                                      .object = it->object,
                                      .offset = read->offset,
                                      .bytes = read->bytes,
                                      .buffer = read->buffer,
                                      .total = it->bytes,
                                      .expected = it->identity},
                          .tag = read->tag,
                          .is_used = true};
    rp_requests_start(http->requests, &slot->request);
}

static int http_submit(void *self, const struct rp_io_read *reads, unsigned count)
{
    struct http *http = self;
    if (!http->requests)
        return -ECANCELED;
    for (unsigned i = 0; i < count; i++) {
        const struct http_object *it = (const struct http_object *)reads[i].object;
        if (it->object)
            request(http, &reads[i], it);
        else
            read_local(http, &reads[i], it->file.fd);
    }
    return (int)count;
}

/* A failure is final in here, so it must not look like one that io.c tries again. */
static int64_t result_of(const struct rp_object_request *request)
{
    if (request->error.code == 0)
        return request->arrived;
    rp_object_fail(request->object, &request->error);
    return -EREMOTEIO;
}

static unsigned take_finished(struct http *http, uint64_t *tags, int64_t *results, unsigned max,
                              unsigned wait_min)
{
    struct rp_object_request *done[TAKE_MAX];
    /* A look that finds nothing lasts for a moment: whoever looks has something else to do, but not
     * all the time. */
    const struct rp_requests_wait wait = {.wait_min = wait_min ? wait_min : 1,
                                          .most_ms = wait_min ? 0 : LOOK_MS,
                                          .is_stopping = http->is_stopping,
                                          .context = http->context};
    unsigned count = rp_requests_wait(http->requests, done, (unsigned)rp_min_u64(max, TAKE_MAX),
                                      &wait);
    for (unsigned i = 0; i < count; i++) {
        struct slot *slot = (struct slot *)(void *)done[i];
        RP_STATIC_ASSERT(offsetof(struct slot, request) == 0, "a request is the head of its slot");
        tags[i] = slot->tag;
        results[i] = result_of(&slot->request);
        slot->is_used = false;
    }
    http->retries = rp_requests_retries(http->requests);
    return count;
}

/* Nobody will look at the results: only their memory must be given back. */
static void drop_all(struct http *http)
{
    rp_requests_close(http->requests);
    http->requests = NULL;
    for (uint32_t i = 0; i < http->depth; i++) {
        if (http->slots[i].is_used)
            add_result(http, http->slots[i].tag, -ECANCELED);
        http->slots[i].is_used = false;
    }
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

static int http_reap(void *self, uint64_t *tags, int64_t *results, unsigned max, unsigned wait_min)
{
    struct http *http = self;
    unsigned taken = take_results(http, tags, results, max);
    if (http->requests && taken < max)
        taken += take_finished(http, tags + taken, results + taken, max - taken,
                               wait_min > taken ? wait_min - taken : 0);
    if (taken < wait_min) { /* the wait ended because the engine stops */
        drop_all(http);
        taken += take_results(http, tags + taken, results + taken, max - taken);
    }
    return (int)taken;
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
    .open_object = http_open_object,
    .close_object = http_close_object,
    .explain = http_explain,
    .open = http_open,
    .close = http_close,
    .submit = http_submit,
    .reap = http_reap,
    .retries = http_retries,
    .describe = http_describe,
};
