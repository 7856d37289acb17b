/* SPDX-License-Identifier: Apache-2.0 */
/* journal.h — the record of every batch that a trainer writes before it releases it, so that runs
 * can be compared row by row although all of their processes were killed.
 *
 * A journal is a file of records, each appended with one write(2). Only the last record can be
 * incomplete, after a kill, and then counts as not written: its batch was not released either, so
 * it is delivered again. Each trainer process has a journal of its own.
 * tools/python/ringpack/trainer.py writes the same records. */
#ifndef RP_TOOLS_JOURNAL_H
#define RP_TOOLS_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"
#include "base/fail.h"
#include "ringpack/client.h"

#define RP_JOURNAL_MAGIC 0x314a5052u /* "RPJ1" */

/* rows 0: the trainer has attached, at row first_row. The state token follows, then the details,
 * both padded with zeros to a multiple of 8. */
struct rp_journal_record {
    uint32_t magic, bytes; /* bytes: the whole record's */
    uint64_t first_row, next_row;
    uint32_t rows, tokens;
    uint64_t digest[2]; /* these rows': STREAM.md section 7 */
    uint32_t state_bytes, detail_bytes;
};
RP_STATIC_ASSERT(sizeof(struct rp_journal_record) == 56, "trainer.py writes the same");

/* Details: one of these for every row of the batch, each followed by its fragments. */
struct rp_journal_row {
    uint64_t row, planned, hash_low, hash_high; /* planned: the number that digests use */
    uint32_t fragments, tokens;
    uint64_t sides; /* XXH3-64 of its side columns; 0: there are none */
};
struct rp_journal_fragment {
    uint64_t hash; /* XXH3-64 of its tokens as u32 */
    uint32_t length;
    uint32_t labels; /* half the XXH3-64 of its labels (rp_fragment_labels); 0: no such section */
};

static inline const uint8_t *rp_journal_state(const struct rp_journal_record *record)
{
    return (const uint8_t *)(record + 1);
}
static inline const uint8_t *rp_journal_details(const struct rp_journal_record *record)
{
    return rp_journal_state(record) + rp_align_up(record->state_bytes, 8);
}

/* ---- writing: the trainer -------------------------------------------------------------------- */

struct rp_journal_writer {
    int fd;
    bool states, details; /* follow a record */
    uint8_t *buffer;
    size_t used, capacity;
    uint32_t *ids; /* a row's tokens, widened, and then a fragment's labels */
};
RP_MUST_CHECK int rp_journal_create(struct rp_journal_writer *writer, const char *path, bool states,
                                    bool details, struct rp_error *error);
/** Record that the trainer has attached. */
RP_MUST_CHECK int rp_journal_attached(struct rp_journal_writer *writer,
                                      const struct rp_client *client, struct rp_error *error);
/** Record `batch`. Call it before the release of its lease. */
RP_MUST_CHECK int rp_journal_batch(struct rp_journal_writer *writer, const struct rp_client *client,
                                   const struct rp_batch *batch, struct rp_error *error);
void rp_journal_close(struct rp_journal_writer *writer);

/* ---- reading: the process that compares ------------------------------------------------------ */

struct rp_journal_reader {
    char *path;
    int fd; /* -1 until the file exists */
    uint8_t *buffer;
    size_t begin, end, capacity; /* [begin, end) was read and not returned yet */
};
/** Open a journal, which need not exist yet. Error: -ENOMEM. */
RP_MUST_CHECK int rp_journal_open(struct rp_journal_reader *reader, const char *path,
                                  struct rp_error *error);
/** Returns 1 with the next complete record, which is valid until the next call, 0 if no more is
 * complete, or -RP_E_CORRUPT. */
RP_MUST_CHECK int rp_journal_next(struct rp_journal_reader *reader,
                                  const struct rp_journal_record **record_out,
                                  struct rp_error *error);
void rp_journal_release(struct rp_journal_reader *reader);

#endif
