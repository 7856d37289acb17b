/* SPDX-License-Identifier: Apache-2.0 */
/* remote.c — open the shards of a corpus that are objects, in groups.
 *
 * Of each shard the tokens, the index, the sidecar and the file of spans are requested. The first
 * request of each brings size, identity and the first 64 KiB, which is all of a small one; the rest
 * of a larger one is read into a new file in pieces. Because shards are opened in groups, a large
 * corpus needs no more memory and descriptors than one group. */
#include "object/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/own_dir.h"
#include "object/requests.h"
#include "object/url.h"

#define GROUP 128u
#define DEPTH 32u
#define HEAD_BYTES (64u << 10)
#define PIECE_BYTES (8u << 20)
#define HASH_SUFFIX ".xxh3"

enum part { TOKENS, INDEX, SIDECAR, SPANS, PARTS };

/* One of the objects of a shard while its group is being opened. */
struct member {
    struct rp_object *object; /* NULL = the shard has no object of this kind */
    struct rp_object_request request;
    uint8_t *bytes; /* [HEAD_BYTES] */
    char *path;     /* in the directory */
    bool is_new;    /* the file is being written */
    struct rp_new_file file;
    uint8_t *map;
};

/* The other parts are not fetched: it is enough to know that they exist. */
static bool is_fetched(enum part part)
{
    return part == INDEX || part == SIDECAR;
}

/* ---- sizes and identities ----------------------------------------------------------------- */

/* The URL of a part of a shard; the caller frees it. NULL with *none: it has no such part. */
static char *part_url(const char *url, enum part part, bool *none)
{
    bool is_index = rp_url_has_suffix(url, ".idx"), is_sidecar = rp_url_has_suffix(url, ".rpi");
    char *tokens = is_index     ? rp_url_companion(url, 4, ".bin")
                   : is_sidecar ? rp_url_companion(url, 4, "")
                                : strdup(url);
    char *made = NULL;
    bool is_of_megatron = part == INDEX || part == SPANS;
    *none = tokens && is_of_megatron && !rp_url_has_suffix(tokens, ".bin");
    if (part == TOKENS || !tokens)
        return tokens;
    if (!*none)
        made = part == INDEX   ? rp_url_companion(tokens, 4, ".idx")
               : part == SPANS ? rp_url_companion(tokens, 4, ".spans")
                               : rp_url_companion(tokens, 0, ".rpi");
    free(tokens);
    return made;
}

static int open_member(struct member *member, const char *shard, enum part part,
                       struct rp_error *error)
{
    bool none;
    char *url = part_url(shard, part, &none);
    if (none)
        return 0;
    member->bytes = rp_calloc(1, HEAD_BYTES);
    int code = url && member->bytes ? rp_object_open(&member->object, url, error)
                                    : rp_fail(error, -ENOMEM, NULL, "out of memory for a URL");
    free(url);
    member->request = (struct rp_object_request){.kind = RP_REQUEST_HEAD,
                                                 .object = member->object,
                                                 .bytes = is_fetched(part) ? HEAD_BYTES : 1,
                                                 .buffer = member->bytes};
    return code;
}

static void close_member(struct member *member)
{
    if (member->map)
        munmap(member->map, member->request.total);
    if (member->is_new)
        rp_new_file_discard(&member->file);
    rp_object_close(member->object);
    free(member->bytes);
    free(member->path);
}

/* Do all requests of a list of members at once, contiguous in an array of their own. */
static int request_members(struct member *members, size_t count, struct rp_error *error)
{
    struct rp_object_request *requests = rp_calloc(count, sizeof *requests);
    size_t used = 0;
    if (!requests)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for requests");
    for (size_t i = 0; i < count; i++)
        if (members[i].object)
            requests[used++] = members[i].request;
    int code = rp_requests_do(requests, used, DEPTH, error);
    for (size_t i = 0, at = 0; i < count && code == 0; i++)
        if (members[i].object)
            members[i].request = requests[at++];
    free(requests);
    return code;
}

/* A store may answer 403 for a missing object, to hide which objects exist. */
static bool is_missing(const struct member *member)
{
    int code = member->request.error.code;
    return !member->object || code == -ENOENT || code == -EACCES;
}

static int check_member(const struct member *member, enum part part, struct rp_error *error)
{
    if (part != TOKENS && is_missing(member))
        return 0;
    if (member->request.error.code < 0) {
        if (error)
            *error = member->request.error;
        return member->request.error.code;
    }
    if (member->request.total == 0)
        return rp_fail(error, -RP_E_EMPTY, "write it again", "%s: found an empty object",
                       rp_object_name(member->object));
    return 0;
}

/* ---- fetching -------------------------------------------------------------------------------- */

/* The path of the hash file of a fetched file; the caller frees it. */
static char *hash_path(const struct member *member)
{
    return rp_asprintf("%s" HASH_SUFFIX, member->path);
}

static bool read_hash(const struct member *member, char text[RP_HASH_HEX_BYTES])
{
    char *path = hash_path(member), *kept = NULL;
    size_t bytes = 0;
    bool is_read = path && rp_file_read_all(path, RP_HASH_HEX_BYTES, &kept, &bytes, NULL) == 0 &&
                   bytes == RP_HASH_HEX_BYTES - 1;
    if (is_read)
        memcpy(text, kept, RP_HASH_HEX_BYTES);
    free(kept);
    free(path);
    return is_read;
}

/* Is the fetched content still complete and unchanged? An unchanged size does not reveal a file
 * that was overwritten, or one with wrong bytes after a power cut or a disk failure. */
static bool is_there(const struct member *member)
{
    struct rp_map map;
    struct rp_hash128 hash;
    char kept[RP_HASH_HEX_BYTES], found[RP_HASH_HEX_BYTES];
    if (!member->request.identity[0] || rp_map_open(&map, member->path, NULL) < 0)
        return false;
    bool is_same = map.bytes == member->request.total;
    if (is_same)
        is_same = read_hash(member, kept) && rp_map_hash(&map, &hash, NULL) == 0 &&
                  !strcmp(kept, rp_hash128_hex(hash, found));
    rp_map_close(&map);
    return is_same;
}

/* Begin the file of an object that is not fetched yet, with its first bytes. */
static int begin_file(struct member *member, const char *directory, struct rp_error *error)
{
    const struct rp_object_request *r = &member->request;
    char *key = rp_asprintf("%s\n%s\n%" PRIu64, rp_object_id(member->object), r->identity,
                            r->total);
    struct rp_hash128 hash = rp_hash128(key ? key : "", key ? strlen(key) : 0);
    if (key)
        member->path = rp_asprintf("%s/%016" PRIx64 "%016" PRIx64, directory, hash.high, hash.low);
    free(key);
    if (!member->path)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a name");
    if (is_there(member))
        return 0;
    int code = rp_new_file_open(&member->file, member->path, error);
    if (code < 0)
        return code;
    member->is_new = true;
    int failed = posix_fallocate(member->file.fd, 0, (off_t)r->total);
    void *map = failed
                    ? MAP_FAILED
                    : mmap(NULL, r->total, PROT_READ | PROT_WRITE, MAP_SHARED, member->file.fd, 0);
    if (map == MAP_FAILED)
        return rp_fail(error, failed ? -failed : -errno,
                       "make room there, or name another directory with `cache_dir`",
                       "%s: no room for the %" PRIu64 " bytes of %s", directory, r->total,
                       rp_object_name(member->object));
    member->map = map;
    memcpy(member->map, member->bytes, r->arrived);
    return 0;
}

static size_t count_pieces(const struct member *member)
{
    return member->is_new ? rp_div_up(member->request.total - member->request.arrived, PIECE_BYTES)
                          : 0;
}

/* Fetch the rest of all begun files, in pieces. */
static int fetch_rest(struct member *members, size_t count, struct rp_error *error)
{
    size_t pieces = 0, used = 0;
    for (size_t i = 0; i < count; i++)
        pieces += count_pieces(&members[i]);
    struct rp_object_request *requests = rp_calloc(pieces, sizeof *requests);
    if (!requests)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for requests");
    for (size_t i = 0; i < count; i++) {
        const struct rp_object_request *r = &members[i].request;
        size_t own = count_pieces(&members[i]);
        for (size_t p = 0; p < own; p++) {
            uint64_t at = r->arrived + p * PIECE_BYTES;
            requests[used++] = (struct rp_object_request){
                .kind = RP_REQUEST_RANGE,
                .object = members[i].object,
                .offset = at,
                .bytes = (uint32_t)rp_min_u64(PIECE_BYTES, r->total - at),
                .buffer = members[i].map + at,
                .total = r->total,
                .expected = r->identity};
        }
    }
    int code = rp_requests_do(requests, used, DEPTH, error);
    for (size_t i = 0; i < used && code == 0; i++)
        if (requests[i].error.code < 0) {
            code = requests[i].error.code;
            if (error)
                *error = requests[i].error;
        }
    free(requests);
    return code;
}

/* A kill between the two leaves a file without its hash, or with the hash of an older content; it
 * is fetched again. */
static int finish_file(struct member *member, struct rp_error *error)
{
    if (!member->is_new)
        return 0;
    char hash[RP_HASH_HEX_BYTES];
    rp_hash128_hex(rp_hash128(member->map, member->request.total), hash);
    munmap(member->map, member->request.total);
    member->map = NULL;
    member->is_new = false;
    int code = rp_new_file_publish(&member->file, error);
    char *path = code == 0 ? hash_path(member) : NULL;
    if (code == 0)
        code = path ? rp_file_replace(path, hash, sizeof hash - 1, error)
                    : rp_fail(error, -ENOMEM, NULL, "out of memory for a name");
    free(path);
    return code;
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* Hash the identity of an object; 0 stands for a missing object. */
static uint64_t hash_identity(const struct member *member)
{
    const struct rp_object_request *r = &member->request;
    uint64_t hash = rp_hash64(r->identity, strlen(r->identity)) + r->total;
    return is_missing(member) ? 0 : hash | 1;
}

static bool is_identified(const struct member *member)
{
    return is_missing(member) || member->request.identity[0];
}

static int take_shard(struct rp_remote *remote, const char *url, struct member parts[PARTS],
                      struct rp_error *error)
{
    bool none;
    remote->url = part_url(url, TOKENS, &none);
    remote->name = strdup(rp_object_name(parts[TOKENS].object));
    remote->id = strdup(rp_object_id(parts[TOKENS].object));
    remote->identity = strdup(parts[TOKENS].request.identity);
    remote->bytes = parts[TOKENS].request.total;
    remote->is_identified = is_identified(&parts[TOKENS]) && is_identified(&parts[INDEX]) &&
                            is_identified(&parts[SPANS]);
    remote->has_spans = !is_missing(&parts[SPANS]);
    remote->index_hash = hash_identity(&parts[INDEX]);
    remote->sidecar_hash = hash_identity(&parts[SIDECAR]);
    remote->spans_hash = hash_identity(&parts[SPANS]);
    remote->index_path = parts[INDEX].path;
    remote->sidecar_path = parts[SIDECAR].path;
    parts[INDEX].path = parts[SIDECAR].path = NULL;
    return remote->url && remote->name && remote->id && remote->identity
               ? 0
               : rp_fail(error, -ENOMEM, NULL, "out of memory for a URL");
}

static int open_group(struct rp_remote *remotes, const char *const *urls, size_t count,
                      struct member *members, const char *directory, struct rp_error *error)
{
    int code = 0;
    for (size_t i = 0; i < count * PARTS && code == 0; i++)
        code = open_member(&members[i], urls[i / PARTS], (enum part)(i % PARTS), error);
    if (code == 0)
        code = request_members(members, count * PARTS, error);
    for (size_t i = 0; i < count * PARTS && code == 0; i++) {
        enum part part = (enum part)(i % PARTS);
        code = check_member(&members[i], part, error);
        if (code == 0 && is_fetched(part) && !is_missing(&members[i]))
            code = begin_file(&members[i], directory, error);
    }
    if (code == 0)
        code = fetch_rest(members, count * PARTS, error);
    for (size_t i = 0; i < count * PARTS && code == 0; i++)
        code = finish_file(&members[i], error);
    for (size_t i = 0; i < count && code == 0; i++)
        code = take_shard(&remotes[i], urls[i], &members[i * PARTS], error);
    return code;
}

int rp_remotes_open(struct rp_remote **remotes_out, const char *const *urls, size_t count,
                    const char *directory, struct rp_error *error)
{
    struct rp_remote *remotes = rp_calloc(count, sizeof *remotes);
    struct member *members = rp_calloc((size_t)GROUP * PARTS, sizeof *members);
    char *chosen = rp_dir_of_caches(directory);
    size_t denied = 0;
    int code = remotes && members && chosen
                   ? rp_dir_make_caches(chosen, error)
                   : rp_fail(error, -ENOMEM, NULL, "out of memory for %zu shards", count);
    for (size_t first = 0; first < count && code == 0; first += GROUP) {
        size_t here = rp_min_u64(GROUP, count - first);
        code = open_group(remotes + first, urls + first, here, members, chosen, error);
        for (size_t i = 0; i < here && code == 0; i++)
            denied += members[i * PARTS + SPANS].request.error.code == -EACCES;
        for (size_t i = 0; i < here * PARTS; i++)
            close_member(&members[i]);
        memset(members, 0, (size_t)GROUP * PARTS * sizeof *members);
    }
    free(members);
    free(chosen);
    if (denied) /* to a client that may list the bucket, a store answers 404 for a missing object */
        rp_log(RP_LOG_WARNING,
               "%zu of %zu shards: access to their .spans was denied (status 403): taken as not "
               "there, so that all of their tokens are trained; the right to list the bucket tells "
               "the two apart",
               denied, count);
    if (code == 0)
        code = rp_remotes_check(remotes, count, error);
    if (code < 0) {
        rp_remotes_close(remotes, count);
        remotes = NULL;
    }
    *remotes_out = remotes;
    return code;
}

/* ---- one object ------------------------------------------------------------------------------ */

static int fetch_one(struct member *member, const char *url, const char *directory, bool *is_new,
                     struct rp_error *error)
{
    int code = rp_object_open(&member->object, url, error);
    member->request = (struct rp_object_request){.kind = RP_REQUEST_HEAD,
                                                 .object = member->object,
                                                 .bytes = HEAD_BYTES,
                                                 .buffer = member->bytes};
    if (code == 0)
        code = request_members(member, 1, error);
    if (code == 0)
        code = check_member(member, TOKENS, error);
    if (code == 0)
        code = begin_file(member, directory, error);
    *is_new = member->is_new;
    if (code == 0)
        code = fetch_rest(member, 1, error);
    return code == 0 ? finish_file(member, error) : code;
}

int rp_remote_fetch(const char *url, const char *directory, char **path_out, bool *is_new,
                    struct rp_error *error)
{
    struct member member = {.bytes = rp_calloc(1, HEAD_BYTES)};
    char *chosen = rp_dir_of_caches(directory);
    *path_out = NULL;
    int code = member.bytes && chosen
                   ? rp_dir_make_caches(chosen, error)
                   : rp_fail(error, -ENOMEM, NULL, "out of memory for an object");
    if (code == 0)
        code = fetch_one(&member, url, chosen, is_new, error);
    if (code == 0) {
        *path_out = member.path;
        member.path = NULL;
    }
    close_member(&member);
    free(chosen);
    return code;
}

void rp_remotes_close(struct rp_remote *remotes, size_t count)
{
    for (size_t i = 0; remotes && i < count; i++) {
        free(remotes[i].url);
        free(remotes[i].name);
        free(remotes[i].id);
        free(remotes[i].identity);
        free(remotes[i].index_path);
        free(remotes[i].sidecar_path);
    }
    free(remotes);
}
