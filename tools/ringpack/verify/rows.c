/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c — the rows of the continuous run, and the comparison with them. */
#include <errno.h>
#include <inttypes.h>

#include "base/mem.h"
#include "base/row_digest.h"
#include "verify/verify.h"

static int append_row(struct rp_reference *reference, const struct rp_reference_row *row,
                      struct rp_error *error)
{
    if (!RP_GROW(reference->rows, reference->row_capacity, reference->row_count + 1))
        return rp_fail(error, -ENOMEM, "give --rows", "out of memory for the rows");
    bool is_skipped = rp_plan_skips(reference->plan, reference->row_count, 1);
    reference->rows[reference->row_count] = *row;
    reference->rows[reference->row_count].is_skipped = is_skipped;
    /* One without fragments that is not skipped: its lane, or the stream, has ended. */
    if (row->fragments > 0 || (is_skipped && reference->row_count == reference->last_row))
        reference->last_row = reference->row_count + 1;
    reference->row_count++;
    return 0;
}

/* The rows of a step that is not delivered, because all of them are skipped. */
static int append_skipped(struct rp_reference *reference, uint64_t until, struct rp_error *error)
{
    const struct rp_reference_row none = {.first_fragment = reference->fragment_count};
    uint64_t first = reference->row_count;
    int code = 0;
    if (until < first || (until > first && !rp_plan_skips(reference->plan, first, until - first)))
        return rp_fail(error, -RP_E_DIFFERS, "report this: no process was killed yet",
                       "the continuous run gave row %" PRIu64 " where row %" PRIu64 " was due",
                       until, first);
    while (code >= 0 && reference->row_count < until)
        code = append_row(reference, &none, error);
    return code;
}

static int add_row(struct rp_reference *reference, const struct rp_journal_row *row,
                   const struct rp_journal_fragment *fragments, struct rp_error *error)
{
    int code = append_skipped(reference, row->row, error);
    const struct rp_reference_row added = {.hash = {row->hash_low, row->hash_high},
                                           .first_fragment = reference->fragment_count,
                                           .sides = row->sides,
                                           .fragments = row->fragments,
                                           .tokens = row->tokens};
    code = code < 0 ? code : append_row(reference, &added, error);
    if (code < 0)
        return code;
    for (uint32_t i = 0; i < row->fragments; i++) {
        if (!RP_GROW(reference->fragments, reference->fragment_capacity,
                     reference->fragment_count + 1))
            return rp_fail(error, -ENOMEM, "give --rows", "out of memory for the fragments");
        reference->fragments[reference->fragment_count++] = fragments[i];
    }
    struct rp_hash128 hash = {row->hash_low, row->hash_high};
    if (row->fragments > 0)
        reference->digest = rp_hash128_sum(reference->digest, rp_row_digest(row->planned, hash));
    return 0;
}

int rp_reference_add(struct rp_reference *reference, const struct rp_journal_record *record,
                     uint64_t until, struct rp_error *error)
{
    const uint8_t *at = rp_journal_details(record);
    int code = 0;
    for (uint32_t i = 0; i < record->rows && code >= 0; i++) {
        const struct rp_journal_row *row = (const void *)at;
        const struct rp_journal_fragment *fragments = (const void *)(row + 1);
        if (row->row < until)
            code = add_row(reference, row, fragments, error);
        at = (const uint8_t *)(fragments + row->fragments);
    }
    return code;
}

void rp_reference_free(struct rp_reference *reference)
{
    free(reference->rows);
    free(reference->fragments);
}

bool rp_reference_equals(const struct rp_reference *reference, const struct rp_journal_row *row,
                         const struct rp_journal_fragment *fragments,
                         struct rp_difference *difference)
{
    *difference = (struct rp_difference){.row = row->row};
    struct rp_reference_row none = {.fragments = 0};
    const struct rp_reference_row *expected = row->row < reference->row_count
                                                  ? &reference->rows[row->row]
                                                  : &none;
    if (expected->is_skipped)
        return row->fragments == 0;
    const struct rp_journal_fragment *wanted = reference->fragments + expected->first_fragment;
    uint32_t i = 0;
    while (i < expected->fragments && i < row->fragments && wanted[i].hash == fragments[i].hash &&
           wanted[i].length == fragments[i].length && wanted[i].labels == fragments[i].labels)
        i++;
    if (i == expected->fragments && i == row->fragments && expected->hash.low == row->hash_low &&
        expected->hash.high == row->hash_high && expected->sides == row->sides)
        return true;
    difference->sides_alone = i == expected->fragments && i == row->fragments &&
                              expected->sides != row->sides;
    difference->labels_alone = i < expected->fragments && i < row->fragments &&
                               wanted[i].hash == fragments[i].hash;
    difference->fragment = i;
    difference->expected_length = i < expected->fragments ? wanted[i].length : 0;
    difference->found_length = i < row->fragments ? fragments[i].length : 0;
    return false;
}
