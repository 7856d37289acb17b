/* SPDX-License-Identifier: Apache-2.0 */
/* stream_token_records.c — records that are begun, as text and as chain B (STREAM2.md sections 9.5
 * and 12.2): of a checkpoint's contract, or of a token's history. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "plan/v2/stream_token_format.h"

#define PREFIX "record["
enum { PREFIX_BYTES = sizeof PREFIX - 1, NUMBERED_BYTES = PREFIX_BYTES + sizeof "0000]." - 1 };

/* Lines of one text, one after the other. */
struct line {
    const char *text;
    size_t bytes; /* with its newline */
};
static bool next_line(const char **at, size_t *left, struct line *line)
{
    const char *end = *left > 0 ? memchr(*at, '\n', *left) : NULL;
    if (!end)
        return false;
    *line = (struct line){*at, (size_t)(end - *at) + 1};
    *at += line->bytes;
    *left -= line->bytes;
    return true;
}

static bool begins(const struct line *line, const char *with)
{
    size_t bytes = strlen(with);
    return line->bytes > bytes && memcmp(line->text, with, bytes) == 0;
}

/* Decimal digits up to the end of the line; false if there is anything else, or too much. */
static bool read_number(const char *text, size_t bytes, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < bytes; i++) {
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (digit > 9 || !rp_mul_u64(*value, 10, value) || !rp_add_u64(*value, digit, value))
            return false;
    }
    return bytes > 0;
}

/* Records are collected as lines of a contract, with the chain of their texts. */
struct collecting {
    struct rp_token_records *records;
    size_t bytes;
    struct rp_hasher hasher;
    uint32_t count;
};

static void begin_record(struct collecting *collecting)
{
    uint8_t link[sizeof(struct rp_hash128)];
    rp_hash128_store(link, collecting->records->chain);
    rp_hasher_begin(&collecting->hasher);
    rp_hasher_add(&collecting->hasher, link, sizeof link);
}
static void add_line(struct collecting *collecting, const char *text, size_t bytes)
{
    char *out = collecting->records->text + collecting->bytes;
    int head = sprintf(out, PREFIX "%04" PRIu32 "].", collecting->count);
    memcpy(out + head, text, bytes);
    collecting->bytes += (size_t)head + bytes;
    out[(size_t)head + bytes] = 0;
    rp_hasher_add(&collecting->hasher, text, bytes);
}
static void end_record(struct collecting *collecting)
{
    collecting->records->chain = rp_hasher_finish(&collecting->hasher);
    collecting->count++;
}

/* Room for the lines of `bytes` of text, with a prefix each. */
static int start(struct collecting *collecting, struct rp_token_records *records, const char *text,
                 size_t bytes, struct rp_error *error)
{
    size_t lines = 1;
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    *records = (struct rp_token_records){.chain = rp_hash128("", 0)};
    *collecting = (struct collecting){.records = records};
    records->text = rp_calloc(bytes + lines * (NUMBERED_BYTES + 8), 1);
    return records->text ? 0
                         : rp_fail(error, -ENOMEM, NULL, "no memory for the records of a stream");
}

/* The lines with the prefix of `first`, which was read; *from is their row. The next line after
 * them is left. */
static int measure_record(const struct line *first, const char *at, size_t left, size_t *lines,
                          uint64_t *from, struct rp_error *error)
{
    struct line line = *first;
    bool has_row = false;
    *lines = 0;
    do {
        if (line.bytes <= NUMBERED_BYTES || memcmp(line.text, first->text, NUMBERED_BYTES) != 0)
            break;
        struct line rest = {line.text + NUMBERED_BYTES, line.bytes - NUMBERED_BYTES};
        if (begins(&rest, "from="))
            has_row = read_number(rest.text + 5, rest.bytes - 6, from);
        ++*lines;
    } while (next_line(&at, &left, &line));
    if (has_row)
        return 0;
    return rp_fail(error, -RP_E_CORRUPT, "take an older checkpoint",
                   "the stream contract: its record %.*s has no row", 4,
                   first->text + PREFIX_BYTES);
}

int rp_token_records_of_contract(struct rp_token_records *records, const char *text, size_t bytes,
                                 uint64_t next_row, struct rp_error *error)
{
    struct collecting collecting;
    struct line line;
    int code = start(&collecting, records, text, bytes, error);
    while (code == 0 && next_line(&text, &bytes, &line)) {
        size_t lines;
        uint64_t from;
        if (!begins(&line, PREFIX) || line.bytes <= NUMBERED_BYTES)
            continue;
        code = measure_record(&line, text, bytes, &lines, &from, error);
        bool is_begun = code == 0 && (from == 0 || from < next_row);
        if (is_begun)
            begin_record(&collecting);
        for (size_t i = 0; i < lines && code == 0; i++) {
            if (is_begun)
                add_line(&collecting, line.text + NUMBERED_BYTES, line.bytes - NUMBERED_BYTES);
            if (i + 1 < lines && !next_line(&text, &bytes, &line))
                break;
        }
        if (is_begun)
            end_record(&collecting);
    }
    if (code < 0) {
        free(records->text);
        records->text = NULL;
    }
    return code;
}

int rp_token_records_of_history(struct rp_token_records *records, const char *history,
                                struct rp_error *error)
{
    struct collecting collecting;
    struct line line;
    size_t left = strlen(history);
    int code = start(&collecting, records, history, left, error);
    bool is_record = false;
    while (code == 0 && next_line(&history, &left, &line)) {
        bool is_head = begins(&line, "record ") || begins(&line, "stage ");
        if (is_head && is_record)
            end_record(&collecting);
        if (is_head) {
            is_record = begins(&line, "record ");
            if (is_record)
                begin_record(&collecting);
        } else if (is_record) {
            add_line(&collecting, line.text, line.bytes);
        }
    }
    if (code == 0 && is_record)
        end_record(&collecting);
    return code;
}
