/* SPDX-License-Identifier: Apache-2.0 */
#include "job/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/row_digest.h"

#define READ_BYTES (256u << 10)

/* Make room for `bytes` bytes after `used`. */
static int reserve(uint8_t **buffer, size_t *capacity, size_t used, size_t bytes,
                   struct rp_error *error)
{
    if (!RP_GROW(*buffer, *capacity, used + bytes))
        return rp_fail(error, -ENOMEM, NULL, "a journal of %zu bytes: out of memory", used + bytes);
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

int rp_journal_create(struct rp_journal_writer *writer, const char *path, bool states, bool details,
                      struct rp_error *error)
{
    *writer = (struct rp_journal_writer){.fd = -1, .states = states, .details = details};
    writer->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (writer->fd < 0)
        return rp_fail(error, -errno, NULL, "%s: cannot make the journal: %s", path,
                       rp_strerror(-errno));
    return 0;
}

void rp_journal_close(struct rp_journal_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    free(writer->buffer);
    free(writer->ids);
    *writer = (struct rp_journal_writer){.fd = -1};
}

/* Append `bytes` bytes, which the caller fills in, to the record. NULL when out of memory. */
static void *extend(struct rp_journal_writer *writer, size_t bytes, struct rp_error *error)
{
    if (reserve(&writer->buffer, &writer->capacity, writer->used, bytes, error) < 0)
        return NULL;
    void *room = writer->buffer + writer->used;
    writer->used += bytes;
    return room;
}

static int begin_record(struct rp_journal_writer *writer, const struct rp_client *client,
                        struct rp_journal_record record, bool with_state, struct rp_error *error)
{
    size_t state_bytes = with_state ? rp_client_state(client, NULL, 0) : 0;
    size_t padded = rp_align_up(state_bytes, 8);
    writer->used = 0;
    uint8_t *room = extend(writer, sizeof record + padded, error);
    if (!room)
        return -ENOMEM;
    memset(room, 0, sizeof record + padded);
    record.magic = RP_JOURNAL_MAGIC;
    record.state_bytes = (uint32_t)state_bytes;
    memcpy(room, &record, sizeof record);
    if (state_bytes)
        (void)rp_client_state(client, room + sizeof record, state_bytes);
    return 0;
}

static int finish_record(struct rp_journal_writer *writer, struct rp_error *error)
{
    struct rp_journal_record record;
    memcpy(&record, writer->buffer, sizeof record);
    record.bytes = (uint32_t)writer->used;
    record.detail_bytes = (uint32_t)(writer->used - sizeof record -
                                     rp_align_up(record.state_bytes, 8));
    memcpy(writer->buffer, &record, sizeof record);
    ssize_t written = write(writer->fd, writer->buffer, writer->used);
    if (written == (ssize_t)writer->used)
        return 0;
    return rp_fail(error, written < 0 ? -errno : -ENOSPC, "make room on the disk of TMPDIR",
                   "the journal was not written: %s", rp_strerror(written < 0 ? -errno : -ENOSPC));
}

int rp_journal_attached(struct rp_journal_writer *writer, const struct rp_client *client,
                        struct rp_error *error)
{
    uint64_t row = rp_client_next_row(client);
    struct rp_journal_record record = {.first_row = row, .next_row = row};
    int code = begin_record(writer, client, record, true, error);
    return code < 0 ? code : finish_record(writer, error);
}

/* The places of a whole row as u32. */
static const uint32_t *widen(struct rp_journal_writer *writer, const struct rp_geometry *geometry,
                             const struct rp_batch *batch, uint32_t row, uint32_t places)
{
    if (!writer->ids) /* a row, and the labels of a fragment and of its end */
        writer->ids = rp_calloc(2ul * geometry->seq_len + 1, sizeof *writer->ids);
    size_t first = (size_t)row * geometry->seq_len;
    const void *section = batch->sections[RP_SECTION_INPUT_IDS];
    for (uint32_t i = 0; writer->ids && i < places; i++) {
        switch (geometry->sections[RP_SECTION_INPUT_IDS].dtype) {
        case RP_DTYPE_U16:
            writer->ids[i] = ((const uint16_t *)section)[first + i];
            break;
        case RP_DTYPE_I64:
            writer->ids[i] = (uint32_t)((const int64_t *)section)[first + i];
            break;
        default:
            writer->ids[i] = (uint32_t)((const int32_t *)section)[first + i];
        }
    }
    return writer->ids;
}

/* The low half of a hash of the labels of `length` tokens from token `at` of a row. */
static uint32_t hash_labels(struct rp_journal_writer *writer, const struct rp_geometry *geometry,
                            const struct rp_batch *batch, uint32_t row, uint32_t at,
                            uint32_t length)
{
    const struct rp_section_layout *layouts = geometry->sections;
    const uint8_t *labels = batch->sections[RP_SECTION_LABELS];
    const float *mask = batch->sections[RP_SECTION_LOSS_MASK];
    uint32_t *out = writer->ids + geometry->seq_len;
    if (!labels && (!mask || geometry->label_mode == RP_LABELS_ACROSS_CUTS))
        return 0;
    const struct rp_row_labels from = {
        .labels = labels ? labels + row * (layouts[RP_SECTION_LABELS].bytes / geometry->rows)
                         : NULL,
        .dtype = (enum rp_dtype)layouts[RP_SECTION_LABELS].dtype,
        .mode = (enum rp_label_mode)geometry->label_mode,
        .loss_mask = mask ? mask + (size_t)row * geometry->seq_len : NULL};
    const struct rp_row_tokens ids = {.tokens = writer->ids, .dtype = RP_DTYPE_I32};
    uint32_t count = rp_fragment_labels(&ids, &from, at, length, out);
    return (uint32_t)rp_hash64(out, count * sizeof *out);
}

/* The row of each side column, with its padding. */
static uint64_t hash_sides(const struct rp_geometry *geometry, const struct rp_batch *batch,
                           uint32_t index)
{
    uint64_t all = 0;
    for (uint32_t c = 0; c < RP_SIDES_MAX && geometry->sides[c].of; c++) {
        uint32_t section = RP_SECTION_SIDES + c;
        size_t bytes = geometry->sections[section].bytes / geometry->rows;
        const uint8_t *row = (const uint8_t *)batch->sections[section] + index * bytes;
        all = (all + rp_hash64(row, bytes)) *
              0x9e3779b97f4a7c15u; /* odd: the product loses no bit */
    }
    return all;
}

static int add_row(struct rp_journal_writer *writer, const struct rp_geometry *geometry,
                   const struct rp_batch *batch, uint32_t index, struct rp_error *error)
{
    const struct rp_row_info *info = (const struct rp_row_info *)batch->sections[RP_SECTION_ROWS] +
                                     index;
    const int32_t *lengths = (const int32_t *)batch->sections[RP_SECTION_DOC_LENS] +
                             (size_t)index * geometry->max_docs_per_row;
    const struct rp_row_plan *plans = batch->sections[RP_SECTION_ROW_PLANS];
    uint32_t align = plans ? plans[index].align : 1;
    const uint32_t *ids = widen(writer, geometry, batch, index,
                                align > 1 ? geometry->seq_len : info->tokens);
    uint8_t *room = extend(writer,
                           sizeof(struct rp_journal_row) +
                               info->fragments * sizeof(struct rp_journal_fragment),
                           error);
    if (!ids || !room)
        return rp_fail(error, -ENOMEM, NULL, "a journal's record: out of memory");
    struct rp_hash128 hash = rp_row_hash(
        &(struct rp_row_tokens){lengths, info->fragments, align, ids, RP_DTYPE_I32});
    struct rp_journal_row row = {.row = info->row,
                                 .planned = plans ? plans[index].planned : info->row,
                                 .hash_low = hash.low,
                                 .hash_high = hash.high,
                                 .fragments = info->fragments,
                                 .tokens = info->tokens,
                                 .sides = hash_sides(geometry, batch, index)};
    memcpy(room, &row, sizeof row);
    room += sizeof row;
    for (uint32_t i = 0, at = 0; i < info->fragments; i++) {
        uint32_t length = (uint32_t)lengths[i];
        struct rp_journal_fragment fragment = {
            .hash = rp_hash64(ids + at, length * sizeof *ids),
            .length = length,
            .labels = hash_labels(writer, geometry, batch, index, at, length)};
        memcpy(room + i * sizeof fragment, &fragment, sizeof fragment);
        at += (length + align - 1) / align * align;
    }
    return 0;
}

int rp_journal_batch(struct rp_journal_writer *writer, const struct rp_client *client,
                     const struct rp_batch *batch, struct rp_error *error)
{
    const struct rp_geometry *geometry = rp_client_geometry(client);
    struct rp_journal_record record = {.first_row = batch->first_row,
                                       .next_row = batch->next_row,
                                       .rows = batch->rows,
                                       .tokens = batch->tokens_real};
    rp_batch_digest(geometry, batch, record.digest);
    int code = begin_record(writer, client, record, writer->states, error);
    for (uint32_t i = 0; writer->details && i < batch->rows && code >= 0; i++)
        code = add_row(writer, geometry, batch, i, error);
    return code < 0 ? code : finish_record(writer, error);
}

/* ---- reading --------------------------------------------------------------------------------- */

int rp_journal_open(struct rp_journal_reader *reader, const char *path, struct rp_error *error)
{
    *reader = (struct rp_journal_reader){.fd = -1, .path = rp_asprintf("%s", path)};
    return reader->path ? 0 : rp_fail(error, -ENOMEM, NULL, "a journal's path: out of memory");
}

void rp_journal_release(struct rp_journal_reader *reader)
{
    if (reader->fd >= 0)
        close(reader->fd);
    free(reader->path);
    free(reader->buffer);
    *reader = (struct rp_journal_reader){.fd = -1};
}

/* Returns 1 if the buffer begins with a complete record, otherwise 0 with the bytes that are known
 * to be missing. */
static int check_front(const struct rp_journal_reader *reader, size_t *missing,
                       struct rp_error *error)
{
    struct rp_journal_record record;
    size_t held = reader->end - reader->begin;
    *missing = sizeof record;
    if (held < sizeof record)
        return 0;
    memcpy(&record, reader->buffer + reader->begin, sizeof record);
    uint64_t bytes = sizeof record + rp_align_up((uint64_t)record.state_bytes, 8) +
                     record.detail_bytes;
    if (record.magic != RP_JOURNAL_MAGIC || record.bytes != bytes || bytes % 8 != 0)
        return rp_fail(error, -RP_E_CORRUPT, NULL, "%s: this is no record of a journal",
                       reader->path);
    *missing = bytes > held ? (size_t)bytes - held : 0;
    return bytes <= held;
}

/* Read more of the file. Returns the number of bytes. */
static int read_more(struct rp_journal_reader *reader, size_t wanted, struct rp_error *error)
{
    if (reader->fd < 0)
        reader->fd = open(reader->path, O_RDONLY | O_CLOEXEC);
    if (reader->fd < 0)
        return errno == ENOENT ? 0
                               : rp_fail(error, -errno, NULL, "%s: cannot read the journal: %s",
                                         reader->path, rp_strerror(-errno));
    if (reader->begin > 0 && reader->end > reader->begin)
        memmove(reader->buffer, reader->buffer + reader->begin, reader->end - reader->begin);
    reader->end -= reader->begin;
    reader->begin = 0;
    size_t bytes = wanted > READ_BYTES ? wanted : READ_BYTES;
    int code = reserve(&reader->buffer, &reader->capacity, reader->end, bytes, error);
    if (code < 0)
        return code;
    ssize_t got = read(reader->fd, reader->buffer + reader->end, bytes);
    if (got < 0)
        return rp_fail(error, -errno, NULL, "%s: cannot read the journal: %s", reader->path,
                       rp_strerror(-errno));
    reader->end += (size_t)got;
    return (int)got;
}

int rp_journal_next(struct rp_journal_reader *reader, const struct rp_journal_record **record_out,
                    struct rp_error *error)
{
    size_t missing;
    int code;
    while ((code = check_front(reader, &missing, error)) == 0) {
        int got = read_more(reader, missing, error);
        if (got <= 0)
            return got;
    }
    if (code < 0)
        return code;
    const struct rp_journal_record *record = (const void *)(reader->buffer + reader->begin);
    reader->begin += record->bytes;
    *record_out = record;
    return 1;
}
