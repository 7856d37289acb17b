/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.c — read an object in pieces. The first request brings the size, the identity and the first
 * 64 KiB; the other pieces follow, several at a time. */
#include "object/fetch.h"

#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "object/requests.h"

#define DEPTH 16u
#define HEAD_BYTES (64u << 10)
#define PIECE_BYTES (8u << 20)
#define PIECES_AT_ONCE 64u

struct fetching {
    struct rp_object *object;
    struct rp_object_request head;
    uint8_t first[HEAD_BYTES];
    const struct rp_progress *progress;
};

static int take_failure(const struct rp_object_request *request, struct rp_error *error)
{
    int code = request->error.code;
    if (code < 0 && error)
        *error = request->error;
    return code;
}

/* A store may answer 403 for a missing object. */
static bool is_missing(const struct rp_object_request *request)
{
    return request->error.code == -ENOENT || request->error.code == -EACCES;
}

/* At most PIECES_AT_ONCE URLs. */
static int stat_group(const char *const *urls, size_t count, bool may_be_missing,
                      struct rp_remote_stat *stats, struct rp_error *error)
{
    struct rp_object_request requests[PIECES_AT_ONCE];
    uint8_t buffer[PIECES_AT_ONCE];
    int code = 0;
    size_t opened = 0;
    for (; opened < count && code == 0; opened++) {
        struct rp_object *object;
        code = rp_object_open(&object, urls[opened], error);
        requests[opened] = (struct rp_object_request){
            .kind = RP_REQUEST_HEAD, .object = object, .bytes = 1, .buffer = buffer + opened};
    }
    if (code == 0)
        code = rp_requests_do(requests, count, DEPTH, error);
    for (size_t i = 0; i < count && code == 0; i++) {
        const char *identity = requests[i].identity;
        stats[i] = (struct rp_remote_stat){0};
        if (requests[i].error.code == -RP_E_EMPTY || (may_be_missing && is_missing(&requests[i])))
            continue;
        code = take_failure(&requests[i], error);
        stats[i] = (struct rp_remote_stat){requests[i].total,
                                           *identity ? rp_hash64(identity, strlen(identity)) : 0};
    }
    for (size_t i = 0; i < opened; i++)
        rp_object_close(requests[i].object);
    return code;
}

int rp_fetch_stats(const char *const *urls, size_t count, bool may_be_missing,
                   struct rp_remote_stat *stats, struct rp_error *error)
{
    int code = 0;
    for (size_t first = 0; first < count && code == 0; first += PIECES_AT_ONCE)
        code = stat_group(urls + first, (size_t)rp_min_u64(PIECES_AT_ONCE, count - first),
                          may_be_missing, stats + first, error);
    return code;
}

static int fetch_group(struct rp_fetch_part *parts, size_t count, enum rp_request_kind kind,
                       struct rp_error *error)
{
    struct rp_object_request requests[PIECES_AT_ONCE];
    int code = 0;
    size_t opened = 0;
    for (; opened < count && code == 0; opened++) {
        const struct rp_fetch_part *part = &parts[opened];
        struct rp_object *object;
        code = rp_object_open(&object, part->url, error);
        requests[opened] = (struct rp_object_request){.kind = kind,
                                                      .object = object,
                                                      .offset = part->offset,
                                                      .bytes = part->bytes,
                                                      .buffer = part->to,
                                                      .total = part->total,
                                                      .expected = part->identity};
    }
    if (code == 0)
        code = rp_requests_do(requests, count, DEPTH, error);
    for (size_t i = 0; i < count && code == 0; i++) {
        parts[i].error = requests[i].error;
        if (kind == RP_REQUEST_RANGE) {
            code = take_failure(&requests[i], error);
            continue;
        }
        parts[i].total = requests[i].total;
        memcpy(parts[i].identity, requests[i].identity, sizeof parts[i].identity);
    }
    for (size_t i = 0; i < opened; i++)
        rp_object_close(requests[i].object);
    return code;
}

static int fetch_groups(struct rp_fetch_part *parts, size_t count, enum rp_request_kind kind,
                        struct rp_error *error)
{
    int code = 0;
    for (size_t first = 0; first < count && code == 0; first += PIECES_AT_ONCE)
        code = fetch_group(parts + first, (size_t)rp_min_u64(PIECES_AT_ONCE, count - first), kind,
                           error);
    return code;
}

int rp_fetch_heads(struct rp_fetch_part *parts, size_t count, struct rp_error *error)
{
    return fetch_groups(parts, count, RP_REQUEST_HEAD, error);
}

int rp_fetch_parts(struct rp_fetch_part *parts, size_t count, struct rp_error *error)
{
    return fetch_groups(parts, count, RP_REQUEST_RANGE, error);
}

/* The caller ends it with end(), whatever is returned. */
static int begin(struct fetching **fetching_out, const char *url, struct rp_error *error)
{
    struct fetching *f = *fetching_out = rp_calloc(1, sizeof *f);
    if (!f)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a URL");
    int code = rp_object_open(&f->object, url, error);
    f->head = (struct rp_object_request){
        .kind = RP_REQUEST_HEAD, .object = f->object, .bytes = HEAD_BYTES, .buffer = f->first};
    if (code == 0)
        code = rp_requests_do(&f->head, 1, 1, error);
    if (code == 0)
        code = take_failure(&f->head, error);
    return code == -EACCES ? -ENOENT : code; /* some stores do not disclose which objects exist */
}

static void end(struct fetching *fetching)
{
    if (fetching)
        rp_object_close(fetching->object);
    free(fetching);
}

/* Read several pieces from *at on; the new *at is after them. */
static int read_some(const struct fetching *f, uint8_t *to, uint64_t *at, struct rp_error *error)
{
    struct rp_object_request requests[PIECES_AT_ONCE];
    size_t count = 0;
    for (; count < PIECES_AT_ONCE && *at < f->head.total; count++) {
        uint32_t bytes = (uint32_t)rp_min_u64(PIECE_BYTES, f->head.total - *at);
        requests[count] = (struct rp_object_request){.kind = RP_REQUEST_RANGE,
                                                     .object = f->object,
                                                     .offset = *at,
                                                     .bytes = bytes,
                                                     .buffer = to + *at,
                                                     .total = f->head.total,
                                                     .expected = f->head.identity};
        *at += bytes;
    }
    int code = rp_requests_do(requests, count, DEPTH, error);
    for (size_t i = 0; i < count && code == 0; i++)
        code = take_failure(&requests[i], error);
    return code;
}

static int read_all(const struct fetching *f, uint8_t *to, struct rp_error *error)
{
    int code = 0;
    memcpy(to, f->first, f->head.arrived);
    for (uint64_t at = f->head.arrived; code == 0 && at < f->head.total;) {
        code = read_some(f, to, &at, error);
        rp_progress_report(f->progress, at, f->head.total);
    }
    return code;
}

int rp_fetch_text(const char *url, uint64_t bytes_max, char **text_out, size_t *bytes_out,
                  struct rp_error *error)
{
    struct fetching *f;
    int code = begin(&f, url, error);
    char *text = NULL;
    if (code == 0 && f->head.total > bytes_max)
        code = rp_fail(error, -RP_E_FORMAT, "does its format match its name?",
                       "%s: expected at most %" PRIu64 " bytes, found %" PRIu64,
                       rp_object_name(f->object), bytes_max, f->head.total);
    if (code == 0) {
        text = rp_calloc(1, (size_t)f->head.total + 1);
        code = text ? read_all(f, (uint8_t *)text, error)
                    : rp_fail(error, -ENOMEM, NULL, "%s: no memory to read it",
                              rp_object_name(f->object));
    }
    *bytes_out = code == 0 ? (size_t)f->head.total : 0;
    *text_out = code == 0 ? text : NULL;
    if (code < 0)
        free(text);
    end(f);
    return code;
}

static int fill_file(const struct fetching *f, const struct rp_new_file *file,
                     struct rp_error *error)
{
    size_t bytes = (size_t)f->head.total;
    int failed = posix_fallocate(file->fd, 0, (off_t)bytes);
    void *map = failed ? MAP_FAILED
                       : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    if (map == MAP_FAILED)
        return rp_fail(error, failed ? -failed : -errno, "make room there, or name another place",
                       "%s: no room for the %zu bytes of %s", file->path, bytes,
                       rp_object_name(f->object));
    int code = read_all(f, map, error);
    munmap(map, bytes);
    return code;
}

int rp_fetch_file(const char *url, const char *path, const char *identity,
                  const struct rp_progress *progress, struct rp_error *error)
{
    struct fetching *f;
    struct rp_new_file file;
    int code = begin(&f, url, error);
    if (code == 0 && f->head.total == 0)
        code = rp_fail(error, -RP_E_EMPTY, "write it again", "%s: found an empty object",
                       rp_object_name(f->object));
    if (code == 0 && identity && strcmp(f->head.identity, identity) != 0)
        code = rp_fail(error, -RP_E_CHANGED, "run the command again when no process writes to it",
                       "%s: changed while it was read: its ETag: expected %s, found %s",
                       rp_object_name(f->object), identity, f->head.identity);
    if (code == 0) {
        f->progress = progress;
        code = rp_new_file_open(&file, path, error);
        if (code == 0) {
            code = fill_file(f, &file, error);
            if (code == 0)
                code = rp_new_file_publish(&file, error);
            else
                rp_new_file_discard(&file);
        }
    }
    end(f);
    return code;
}
