/* SPDX-License-Identifier: Apache-2.0 */
/* An append locks the file, reads its end, and writes one line with one call. So it keeps no state
 * that another process, or an earlier call, could have made stale. */
#include "base/chain.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/file.h"
#include "base/lock_holder.h"
#include "base/mem.h"
#include "base/out_dir.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/utc.h"

#define TAIL_BYTES (16u << 10)      /* end of the file, searched for the last entry first */
#define TAIL_BYTES_MAX (256u << 20) /* then up to here */
#define HASH_DIGITS (RP_CHAIN_HASH_BYTES - 1)

static const char first_after[] =
    "0000000000000000000000000000000000000000000000000000000000000000";
static const char begin_text[] = "{\"entry\":", after_text[] = ",\"after\":\"";
static const char hash_text[] = ",\"hash\":\"", end_text[] = "\"}";
static const char skipped_text[] = ",\"skipped\":", skipped_hash_text[] = ",\"skipped_hash\":\"";

static void hash_of(const char *text, size_t bytes, char hash[RP_CHAIN_HASH_BYTES])
{
    uint8_t digest[RP_SHA256_BYTES];
    rp_sha256(text, bytes, digest);
    rp_sha256_hex(digest, hash);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Move *at past `word`, if the text has it there. */
static bool take(const char *text, size_t bytes, size_t *at, const char *word)
{
    size_t length = strlen(word);
    if (*at > bytes || bytes - *at < length || memcmp(text + *at, word, length) != 0)
        return false;
    *at += length;
    return true;
}

static bool take_number(const char *text, size_t bytes, size_t *at, uint64_t *number)
{
    char digits[24] = {0};
    size_t count = 0;
    while (*at + count < bytes && count < sizeof digits - 1 && text[*at + count] >= '0' &&
           text[*at + count] <= '9') {
        digits[count] = text[*at + count];
        count++;
    }
    *at += count;
    return rp_text_u64(digits, number);
}

static bool take_hash(const char *text, size_t bytes, size_t *at, char hash[RP_CHAIN_HASH_BYTES])
{
    if (*at > bytes || bytes - *at <= HASH_DIGITS || text[*at + HASH_DIGITS] != '"')
        return false;
    memcpy(hash, text + *at, HASH_DIGITS);
    hash[HASH_DIGITS] = 0;
    *at += HASH_DIGITS + 1;
    return strspn(hash, "0123456789abcdef") == HASH_DIGITS;
}

/* The fields of an entry about the one before it. */
struct claim {
    char after[RP_CHAIN_HASH_BYTES];
    uint64_t skipped; /* bytes; 0 = none */
    char skipped_hash[RP_CHAIN_HASH_BYTES];
};

/* Whether a line is an entry: its hash matches its bytes. */
static bool parse_line(const char *text, size_t bytes, struct rp_chain_entry *entry,
                       struct claim *claim)
{
    const size_t suffix = strlen(hash_text) + HASH_DIGITS + strlen(end_text);
    size_t at = 0;
    char hash[RP_CHAIN_HASH_BYTES];
    *claim = (struct claim){.skipped = 0};
    if (bytes > RP_CHAIN_LINE_MAX || !take(text, bytes, &at, begin_text) ||
        !take_number(text, bytes, &at, &entry->number) || !take(text, bytes, &at, after_text) ||
        !take_hash(text, bytes, &at, claim->after) || bytes < at + suffix)
        return false;
    if (take(text, bytes, &at, skipped_text) && (!take_number(text, bytes, &at, &claim->skipped) ||
                                                 !take(text, bytes, &at, skipped_hash_text) ||
                                                 !take_hash(text, bytes, &at, claim->skipped_hash)))
        return false;
    size_t end = bytes - suffix;
    hash_of(text, end, hash);
    at = end;
    bool is_whole = take(text, bytes, &at, hash_text) && take_hash(text, bytes, &at, entry->hash) &&
                    bytes - at == 1 && text[at] == '}';
    return is_whole && strcmp(hash, entry->hash) == 0;
}

static enum rp_chain_link link_of(const struct rp_chain_reader *reader, const struct claim *claim,
                                  size_t skipped)
{
    char hash[RP_CHAIN_HASH_BYTES];
    if (strcmp(claim->after, reader->number ? reader->hash : first_after) != 0 ||
        claim->skipped != skipped)
        return RP_CHAIN_BROKEN;
    if (skipped == 0)
        return RP_CHAIN_LINKED;
    hash_of(reader->text + reader->end, skipped, hash);
    return strcmp(hash, claim->skipped_hash) == 0 ? RP_CHAIN_SKIPPED : RP_CHAIN_BROKEN;
}

bool rp_chain_next(struct rp_chain_reader *reader, struct rp_chain_entry *entry)
{
    while (reader->at < reader->bytes) {
        const char *line = reader->text + reader->at;
        size_t rest = reader->bytes - reader->at;
        const char *newline = memchr(line, '\n', rest);
        size_t bytes = newline ? (size_t)(newline - line) : rest, offset = reader->at;
        struct claim claim;
        reader->at += bytes + (newline != NULL);
        *entry = (struct rp_chain_entry){.text = line, .bytes = bytes, .offset = offset};
        if (!parse_line(line, bytes, entry, &claim))
            continue;
        entry->skipped = offset - reader->end;
        entry->link = link_of(reader, &claim, entry->skipped);
        if (entry->number != reader->number + 1)
            entry->link = RP_CHAIN_BROKEN;
        reader->end = reader->at;
        reader->number = entry->number;
        memcpy(reader->hash, entry->hash, sizeof reader->hash);
        return true;
    }
    return false;
}

/* ---- appending ------------------------------------------------------------------------------- */

/* The end of a file that is about to grow. */
struct tail {
    char *text; /* and a newline after it, which the next line may write */
    size_t bytes;
    struct rp_chain_reader reader; /* after the last entry */
    bool is_open;                  /* the last line has no newline */
};

/* Read the last `bytes` of the file and find its last entry. */
static int read_tail(struct tail *tail, int fd, const char *path, uint64_t size, size_t bytes,
                     struct rp_error *error)
{
    struct rp_chain_entry entry;
    free(tail->text);
    *tail = (struct tail){.text = rp_calloc(1, bytes + 1), .bytes = bytes};
    if (!tail->text)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory to read its end", path);
    int code = rp_file_read_at(fd, path, tail->text, bytes, size - bytes, error);
    if (code < 0)
        return code;
    tail->reader = (struct rp_chain_reader){.text = tail->text, .bytes = bytes};
    while (rp_chain_next(&tail->reader, &entry)) {
    }
    tail->is_open = bytes > 0 && tail->text[bytes - 1] != '\n';
    tail->text[bytes] = '\n';
    return 0;
}

/* Whether a file without an entry can be a chain whose first write a kill or a power cut ended: it
 * begins as a first entry does, with empty lines or unwritten bytes, which are zeros, before it. A
 * file of the user that got the name of a chain by mistake does not. */
static bool is_torn_first_write(const struct tail *tail)
{
    char first[sizeof begin_text + sizeof after_text + sizeof first_after];
    size_t length = (size_t)snprintf(first, sizeof first, "%s1%s%s", begin_text, after_text,
                                     first_after);
    size_t at = 0;
    while (at < tail->bytes && (tail->text[at] == 0 || tail->text[at] == '\n'))
        at++;
    return memcmp(tail->text + at, first, rp_min_u64(length, tail->bytes - at)) == 0;
}

/* Read more of the end until there is an entry, or all of the file was read. */
static int find_tail(struct tail *tail, int fd, const char *path, uint64_t size,
                     struct rp_error *error)
{
    for (uint64_t bytes = TAIL_BYTES;; bytes = rp_min_u64(8 * bytes, TAIL_BYTES_MAX)) {
        uint64_t all = rp_min_u64(size, bytes);
        int code = read_tail(tail, fd, path, size, (size_t)all, error);
        if (code < 0 || tail->reader.number > 0)
            return code;
        if (all == size && is_torn_first_write(tail))
            return 0;
        if (all == size)
            return rp_fail(error, -RP_E_FORMAT,
                           "move it away, or give the name of a file that is not there",
                           "%s: expected a chained log, found another file", path);
        if (bytes == TAIL_BYTES_MAX)
            return rp_fail(error, -RP_E_CORRUPT, "rename it: then a new file is begun",
                           "%s: no entry in its last %" PRIu64 " bytes", path, all);
    }
}

/* Compose the line that follows the tail, with the newline that a line before it lacks. NULL when
 * out of memory. */
static char *compose(const struct tail *tail, const char *members)
{
    const struct rp_chain_reader *reader = &tail->reader;
    char time[RP_UTC_BYTES], hash[RP_CHAIN_HASH_BYTES], skipped[160] = "";
    size_t left = reader->bytes - reader->end; /* an entry without a newline leaves none */
    if (left > 0) {
        left += tail->is_open;
        hash_of(tail->text + reader->end, left, hash);
        snprintf(skipped, sizeof skipped, "%s%zu%s%s\"", skipped_text, left, skipped_hash_text,
                 hash);
    }
    rp_utc_now(time);
    char *text = rp_asprintf("%s%" PRIu64 "%s%s\"%s,\"time\":\"%s\",%s", begin_text,
                             reader->number + 1, after_text,
                             reader->number ? reader->hash : first_after, skipped, time, members);
    if (!text)
        return NULL;
    hash_of(text, strlen(text), hash);
    char *line = rp_asprintf("%s%s%s%s%s\n", tail->is_open ? "\n" : "", text, hash_text, hash,
                             end_text);
    free(text);
    return line;
}

/* One call, so that a kill leaves all of the line or none; a full disk may leave a part, which is
 * taken back. */
static int write_line(int fd, const char *path, uint64_t size, const char *line, bool is_durable,
                      struct rp_error *error)
{
    size_t bytes = strlen(line);
    ssize_t written;
    do
        written = write(fd, line, bytes);
    while (written < 0 && errno == EINTR);
    if (written == (ssize_t)bytes)
        return is_durable && fdatasync(fd) < 0 ? rp_file_fail(error, path, "sync") : 0;
    if (written >= 0)
        errno = ENOSPC;
    int code = rp_file_fail(error, path, "append to");
    if (written > 0 && ftruncate(fd, (off_t)size) < 0)
        return code; /* a part of a line is left, which the next append skips */
    return code;
}

static int open_file(const char *path, uint64_t *size, struct rp_error *error)
{
    struct stat info;
    int fd = rp_out_file_open(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600,
                              error);
    if (fd < 0)
        return fd;
    char holder[RP_LOCK_HOLDER_BYTES];
    int code = rp_file_lock(fd);
    if (code == -EWOULDBLOCK)
        code = rp_fail(error, -RP_E_BUSY, NULL, "%s: another process writes to it: %s", path,
                       rp_lock_holder(fd, holder));
    else if (code < 0)
        code = rp_file_fail_lock(error, code, path);
    else if (fstat(fd, &info) < 0)
        code = rp_file_fail(error, path, "stat");
    else if (!S_ISREG(info.st_mode))
        code = rp_fail(error, -RP_E_FORMAT, "remove it, or move it away",
                       "%s: expected a regular file, found another kind", path);
    if (code < 0) {
        close(fd);
        return code;
    }
    *size = (uint64_t)info.st_size;
    return fd;
}

/* Closing it does not unlock it: a child that another thread has forked also has the descriptor. */
static void close_file(int fd)
{
    (void)flock(fd, LOCK_UN);
    close(fd);
}

/* Open the file, locked, and find its end. Returns the descriptor, which close_file closes; then
 * tail->text is the caller's. */
static int open_tail(struct tail *tail, const char *path, uint64_t *size, struct rp_error *error)
{
    *tail = (struct tail){.text = NULL};
    int fd = open_file(path, size, error);
    if (fd < 0)
        return fd;
    int code = find_tail(tail, fd, path, *size, error);
    if (code >= 0)
        return fd;
    free(tail->text);
    close_file(fd);
    return code;
}

int rp_chain_check(const char *path, struct rp_error *error)
{
    struct tail tail;
    uint64_t size;
    int fd = open_tail(&tail, path, &size, error);
    if (fd < 0)
        return fd;
    free(tail.text);
    close_file(fd);
    return 0;
}

int rp_chain_append(const char *path, const char *members, bool is_durable, struct rp_error *error)
{
    struct tail tail;
    uint64_t size;
    int fd = open_tail(&tail, path, &size, error);
    if (fd < 0)
        return fd;
    int code = 0;
    char *line = compose(&tail, members);
    if (!line)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a line", path);
    else if (strlen(line) > RP_CHAIN_LINE_MAX)
        code = rp_fail(error, -RP_E_USAGE, NULL, "%s: an entry of %zu bytes is too long", path,
                       strlen(line));
    else
        code = write_line(fd, path, size, line, is_durable, error);
    if (code == 0 && is_durable && size == 0)
        code = rp_dir_sync_parent(path, error);
    free(line);
    free(tail.text);
    close_file(fd);
    return code;
}

int rp_chain_last(const char *path, char hash[RP_CHAIN_HASH_BYTES], struct rp_error *error)
{
    struct tail tail = {.text = NULL};
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return rp_file_fail(error, path, "open");
    int code = fstat(fd, &info) < 0 ? rp_file_fail(error, path, "stat") : 0;
    if (code == 0 && !S_ISREG(info.st_mode))
        code = rp_fail(error, -RP_E_FORMAT, NULL, "%s: expected a regular file", path);
    if (code == 0)
        code = find_tail(&tail, fd, path, (uint64_t)info.st_size, error);
    if (code == 0 && tail.reader.number == 0)
        code = rp_fail(error, -RP_E_EMPTY, NULL, "%s: it has no entry", path);
    if (code == 0)
        memcpy(hash, tail.reader.hash, RP_CHAIN_HASH_BYTES);
    free(tail.text);
    close(fd);
    return code;
}
