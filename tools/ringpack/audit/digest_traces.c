/* SPDX-License-Identifier: Apache-2.0 */
/* digest_traces.c — traces of deliveries without a digest:
 *
 *   an attach has seen an entry that is in no file   a file is lost, or its end
 *   a rank was given rows from a row on in more
 *   lives than another rank has attached there       a file of the other rank is lost
 *   an attach is the last entry of a file            its rank was killed before its first digest,
 *                                                    after or before the deliveries in other files
 *
 * The rows of such deliveries may be others than the digests that are there say. */
#include <errno.h>
#include <stdlib.h>

#include "audit/digest_entries.h"
#include "base/bits.h"
#include "base/mem.h"

static bool is_there(const struct rp_digest_entries *entries, uint64_t id)
{
    size_t place = rp_digest_entries_find(entries, id);
    return place < entries->count && entries->places[place].id == id;
}

/* ---- lost files ------------------------------------------------------------------------------ */

/* Entries that an attach has seen came before it, so they are about rows that the attach does not
 * take back: those before its own. */
static int trace_unseen(const struct rp_digest_entries *entries, struct rp_audit_digests *digests,
                        struct rp_error *error)
{
    int code = 0;
    for (size_t i = 0; code == 0 && i < entries->count; i++) {
        const struct rp_digest_entry *attach = &entries->list[i];
        bool is_lost = false;
        for (size_t s = 0; s < attach->seen_count && !is_lost; s++)
            is_lost = !is_there(entries, attach->seen[s]);
        if (is_lost && attach->of.first_row > 0)
            code = rp_audit_doubt_add(&digests->doubts, RP_AUDIT_LOST, 0, attach->of.first_row,
                                      error);
    }
    return code;
}

/* Whether digests of this attach follow it. */
static bool has_delivered(const struct rp_digest_entries *entries, size_t attach)
{
    const struct rp_digest_entry *by = &entries->list[attach];
    for (size_t i = attach + 1; i < entries->count; i++) {
        const struct rp_digest_entry *entry = &entries->list[i];
        if (entry->file != by->file)
            return false;
        if (entry->world == by->world && entry->rank == by->rank)
            return !entry->is_attach && entry->of.first_row == by->of.first_row;
    }
    return false;
}

/* The attaches of one rank at one row. */
struct tally {
    uint32_t world, rank;
    uint64_t row;
    uint32_t attached, delivered;
};

static int compare_tallies(const void *a, const void *b)
{
    const struct tally *x = a, *y = b;
    if (x->world != y->world)
        return x->world < y->world ? -1 : 1;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* [first, end): all ranks of a job at one row. */
static bool lacks_attach(const struct tally *first, const struct tally *end)
{
    uint32_t delivered = 0, attached = 0, least = UINT32_MAX, most = 0, ranks = 0;
    for (const struct tally *tally = first; tally < end; tally++) {
        bool is_last = tally + 1 == end || tally[1].rank != tally->rank;
        attached += tally->attached;
        delivered += tally->delivered;
        if (!is_last)
            continue;
        most = delivered > most ? delivered : most;
        least = attached < least ? attached : least;
        attached = delivered = 0;
        ranks++;
    }
    return most > (ranks == first->world ? least : 0);
}

static int trace_attaches(const struct rp_digest_entries *entries, struct rp_audit_digests *digests,
                          struct rp_error *error)
{
    struct tally *tallies = rp_calloc(entries->count + 1, sizeof *tallies);
    size_t count = 0;
    int code = 0;
    if (!tallies)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its attaches", digests->path);
    for (size_t i = 0; i < entries->count; i++) {
        const struct rp_digest_entry *entry = &entries->list[i];
        if (entry->is_attach && !entry->is_superseded)
            tallies[count++] = (struct tally){.world = entry->world,
                                              .rank = entry->rank,
                                              .row = entry->of.first_row,
                                              .attached = 1,
                                              .delivered = has_delivered(entries, i)};
    }
    qsort(tallies, count, sizeof *tallies, compare_tallies);
    for (size_t i = 0, end; code == 0 && i < count; i = end) {
        for (end = i; end < count && tallies[end].world == tallies[i].world &&
                      tallies[end].row == tallies[i].row;)
            end++;
        if (tallies[i].row < digests->end_row && lacks_attach(&tallies[i], &tallies[end]))
            code = rp_audit_doubt_add(&digests->doubts, RP_AUDIT_LOST, tallies[i].row,
                                      digests->end_row, error);
    }
    free(tallies);
    return code;
}

/* ---- lives without a digest ------------------------------------------------------------------ */

static bool has_seen(const struct rp_digest_entries *entries, const struct rp_digest_entry *attach,
                     size_t file, size_t at)
{
    for (size_t s = 0; s < attach->seen_count; s++) {
        size_t i = rp_digest_entries_find(entries, attach->seen[s]);
        for (; i < entries->count && entries->places[i].id == attach->seen[s]; i++)
            if (entries->places[i].at >= at && entries->list[entries->places[i].at].file == file)
                return true;
    }
    return false;
}

/* Entries of other files that may be older than the attach `at`, the last entry of its file. */
static int trace_last(const struct rp_digest_entries *entries, size_t at,
                      struct rp_audit_digests *digests, struct rp_error *error)
{
    const struct rp_digest_entry *last = &entries->list[at];
    uint64_t row = last->of.first_row, end = 0;
    bool is_later = false; /* the later entry, in the file */
    for (size_t i = 0; i < entries->count; i++) {
        const struct rp_digest_entry *entry = &entries->list[i];
        if (i == 0 || entry->file != entries->list[i - 1].file)
            is_later = false;
        if (entry->is_attach)
            is_later = is_later || has_seen(entries, entry, last->file, at);
        else if (!is_later && entry->file != last->file && !entry->is_superseded &&
                 rp_digest_takes_back(last, entry) && entry->of.row > row)
            end = rp_max_u64(end, entry->of.row);
    }
    return end > row ? rp_audit_doubt_add(&digests->doubts, RP_AUDIT_NO_ORDER, row, end, error) : 0;
}

int rp_digest_entries_trace(const struct rp_digest_entries *entries,
                            struct rp_audit_digests *digests, struct rp_error *error)
{
    int code = trace_unseen(entries, digests, error);
    if (code == 0)
        code = trace_attaches(entries, digests, error);
    for (size_t i = 0; code == 0 && i < entries->count; i++) {
        bool is_last = i + 1 == entries->count ||
                       entries->list[i + 1].file != entries->list[i].file;
        if (is_last && entries->list[i].is_attach && !entries->list[i].is_superseded)
            code = trace_last(entries, i, digests, error);
    }
    return code;
}
