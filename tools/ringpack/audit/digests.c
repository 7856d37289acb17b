/* SPDX-License-Identifier: Apache-2.0 */
/* digests.c — the sum of the digests of all ranks, and the rows that they leave in doubt. */
#include "audit/digests.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "audit/digest_entries.h"
#include "base/bits.h"
#include "base/mem.h"
#include "plan/plan.h"

static bool overlap(const struct rp_audit_interval *a, const struct rp_audit_interval *b)
{
    return a->first_row < b->row && b->first_row < a->row;
}

static int doubt(struct rp_audit_digests *digests, enum rp_audit_reason reason,
                 const struct rp_audit_interval *of, struct rp_error *error)
{
    digests->twice += reason == RP_AUDIT_TWO_CONTENTS;
    return rp_audit_doubt_add(&digests->doubts, reason, of->first_row, of->row, error);
}

/* ---- sums ------------------------------------------------------------------------------------ */

void rp_audit_extend(struct rp_audit_interval *sum, const struct rp_audit_interval *next)
{
    sum->row = next->row;
    sum->rows += next->rows;
    sum->tokens += next->tokens;
    sum->content = rp_hash128_sum(sum->content, next->content);
    sum->plan = next->plan;
    sum->other = next->other;
    sum->lacks_plan = next->lacks_plan;
}

/* The same rows, given to another rank. */
static void join(struct rp_audit_interval *all, const struct rp_audit_interval *rank)
{
    all->rows += rank->rows;
    all->tokens += rank->tokens;
    all->content = rp_hash128_sum(all->content, rank->content);
    if (rank->lacks_plan)
        all->lacks_plan = true;
    else if (!rp_hash128_is_known(all->plan))
        all->plan = rank->plan;
    else if (!rp_hash128_equal(all->plan, rank->plan))
        all->other = rank->plan;
}

/* Rows that were given twice: are the two the same? */
static int compare_twice(struct rp_audit_digests *digests, const struct rp_audit_interval *a,
                         const struct rp_audit_interval *b, struct rp_error *error)
{
    if (!a->lacks_plan && !b->lacks_plan && !rp_hash128_equal(a->plan, b->plan))
        return doubt(digests, RP_AUDIT_TWO_PLANS, a, error);
    if (!rp_hash128_equal(a->content, b->content) || a->rows != b->rows)
        return doubt(digests, RP_AUDIT_TWO_CONTENTS, a, error);
    return 0;
}

/* ---- all ranks of one size of the job -------------------------------------------------------- */

static int compare_entries(const void *a, const void *b)
{
    const struct rp_digest_entry *x = *(struct rp_digest_entry *const *)a;
    const struct rp_digest_entry *y = *(struct rp_digest_entry *const *)b;
    if (x->world != y->world)
        return x->world < y->world ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->of.first_row != y->of.first_row)
        return x->of.first_row < y->of.first_row ? -1 : 1;
    return x->of.row > y->of.row ? -1 : x->of.row < y->of.row;
}

static bool are_one_lane(const struct rp_digest_entry *a, const struct rp_digest_entry *b)
{
    return a->world == b->world && a->rank == b->rank;
}

/* The digests that count, sorted by world, rank and row; `gone`: those that are superseded. */
struct sorted {
    struct rp_digest_entry **list;
    size_t count;
    struct rp_digest_entry **gone;
    size_t gone_count;
};

/* Two files say that a rank was given the same rows, in an order that is not known: keep one, and
 * note whether it matters. */
static int keep_one_each(struct rp_audit_digests *digests, struct sorted *sorted,
                         struct rp_error *error)
{
    size_t kept = 0;
    int code = 0;
    for (size_t i = 0; code == 0 && i < sorted->count; i++) {
        struct rp_digest_entry *entry = sorted->list[i];
        struct rp_digest_entry *last = kept > 0 ? sorted->list[kept - 1] : NULL;
        if (!last || !are_one_lane(last, entry) || !overlap(&last->of, &entry->of)) {
            sorted->list[kept++] = entry;
            continue;
        }
        entry->is_used = true;
        bool are_same_rows = last->of.first_row == entry->of.first_row &&
                             last->of.row == entry->of.row;
        code = are_same_rows ? compare_twice(digests, &last->of, &entry->of, error)
                             : doubt(digests, RP_AUDIT_NO_ORDER, &entry->of, error);
    }
    sorted->count = kept;
    return code;
}

static int sort_entries(struct rp_audit_digests *digests, struct sorted *sorted,
                        const struct rp_digest_entries *entries, struct rp_error *error)
{
    sorted->list = rp_calloc(entries->count + 1, sizeof(struct rp_digest_entry *));
    sorted->gone = rp_calloc(entries->count + 1, sizeof(struct rp_digest_entry *));
    if (!sorted->list || !sorted->gone)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its entries", digests->path);
    for (size_t i = 0; i < entries->count; i++) {
        struct rp_digest_entry *entry = &entries->list[i];
        if (entry->is_attach)
            continue;
        if (entry->is_superseded) {
            sorted->gone[sorted->gone_count++] = entry;
            continue;
        }
        if (sorted->count == 0 || entry->of.first_row < digests->first_row)
            digests->first_row = entry->of.first_row;
        digests->end_row = rp_max_u64(digests->end_row, entry->of.row);
        sorted->list[sorted->count++] = entry;
    }
    if (sorted->count > 0)
        qsort(sorted->list, sorted->count, sizeof(struct rp_digest_entry *), compare_entries);
    if (sorted->gone_count > 0)
        qsort(sorted->gone, sorted->gone_count, sizeof(struct rp_digest_entry *), compare_entries);
    return keep_one_each(digests, sorted, error);
}

/* The entries of one rank, ascending. */
struct lane {
    struct rp_digest_entry **at, **end;
    struct rp_digest_entry **first; /* the entries that are added up */
    struct rp_audit_interval sum;
};

/* Move every lane to a common row, where each of them has an entry. False without such a row. */
static bool align(struct lane *lanes, uint32_t world)
{
    for (uint64_t row = 0;;) {
        bool is_aligned = true;
        for (uint32_t r = 0; r < world; r++) {
            while (lanes[r].at < lanes[r].end && (*lanes[r].at)->of.first_row < row)
                lanes[r].at++;
            if (lanes[r].at == lanes[r].end)
                return false;
            is_aligned = is_aligned && (*lanes[r].at)->of.first_row == row;
            row = (*lanes[r].at)->of.first_row;
        }
        if (is_aligned)
            return true;
    }
}

/* Add entries to each lane until all end at one row. False where one of them has a gap before. */
static bool add_up(struct lane *lanes, uint32_t world, struct rp_audit_interval *all)
{
    uint64_t end = 0;
    for (uint32_t r = 0; r < world; r++) {
        lanes[r].first = lanes[r].at;
        lanes[r].sum = (*lanes[r].at++)->of;
        end = rp_max_u64(end, lanes[r].sum.row);
    }
    for (uint32_t r = 0; r < world;) {
        struct lane *lane = &lanes[r];
        if (lane->sum.row == end) {
            r++;
            continue;
        }
        if (lane->sum.row > end) { /* it passed the end of the others: they have to follow */
            end = lane->sum.row;
            r = 0;
            continue;
        }
        if (lane->at == lane->end || (*lane->at)->of.first_row != lane->sum.row)
            return false;
        rp_audit_extend(&lane->sum, &(*lane->at++)->of);
    }
    *all = lanes[0].sum;
    for (uint32_t r = 1; r < world; r++)
        join(all, &lanes[r].sum);
    for (uint32_t r = 0; r < world; r++)
        for (struct rp_digest_entry **entry = lanes[r].first; entry < lanes[r].at; entry++)
            (*entry)->is_used = true;
    return true;
}

static int add_interval(struct rp_audit_digests *digests, size_t *room,
                        const struct rp_audit_interval *interval, struct rp_error *error)
{
    if (!RP_GROW(digests->intervals, *room, digests->count + 1))
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its rows", digests->path);
    digests->intervals[digests->count++] = *interval;
    if (rp_hash128_is_known(interval->other))
        return doubt(digests, RP_AUDIT_TWO_PLANS, interval, error);
    if (interval->lacks_plan)
        return doubt(digests, RP_AUDIT_LACKS_PLAN, interval, error);
    if (interval->rows != interval->row - interval->first_row)
        return doubt(digests, RP_AUDIT_LACKS_ROWS, interval, error);
    return 0;
}

/* The entries of all ranks of one size of the job: [first, end) of the sorted list. */
static int add_world(struct rp_audit_digests *digests, size_t *room, struct rp_digest_entry **first,
                     struct rp_digest_entry **end, struct rp_error *error)
{
    uint32_t world = (*first)->world, ranks = 0;
    struct rp_audit_interval all;
    struct lane *lanes = rp_calloc((size_t)(end - first), sizeof *lanes);
    if (!lanes)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its ranks", digests->path);
    for (struct rp_digest_entry **entry = first; entry < end; entry++) {
        if (entry == first || !are_one_lane(entry[0], entry[-1]))
            lanes[ranks++] = (struct lane){.at = entry};
        lanes[ranks - 1].end = entry + 1;
    }
    int code = 0;
    while (ranks == world && code == 0 && align(lanes, world))
        if (add_up(lanes, world, &all))
            code = add_interval(digests, room, &all, error);
    free(lanes);
    for (struct rp_digest_entry **entry = first; code == 0 && entry < end; entry++)
        if (!(*entry)->is_used)
            code = doubt(digests, RP_AUDIT_LACKS_RANK, &(*entry)->of, error);
    return code;
}

/* ---- all sizes of the job -------------------------------------------------------------------- */

static int compare_intervals(const void *a, const void *b)
{
    const struct rp_audit_interval *x = a, *y = b;
    if (x->first_row != y->first_row)
        return x->first_row < y->first_row ? -1 : 1;
    return x->row > y->row ? -1 : x->row < y->row;
}

/* The sum of the intervals that make up rows [first_row, row). False where none do. */
static bool sum_up(const struct rp_audit_digests *digests, uint64_t first_row, uint64_t row,
                   struct rp_audit_interval *sum)
{
    size_t low = 0;
    RP_ASSERT(digests->count <= UINT32_MAX);
    if (first_row > 0)
        low = RP_COUNT_UP_TO(digests->intervals, (uint32_t)digests->count, first_row,
                             first_row - 1);
    if (low == digests->count || digests->intervals[low].first_row != first_row)
        return false;
    *sum = digests->intervals[low];
    while (sum->row < row && ++low < digests->count &&
           digests->intervals[low].first_row == sum->row)
        rp_audit_extend(sum, &digests->intervals[low]);
    return sum->row == row;
}

/* Keep one of several intervals that overlap, in unknown order. */
static int keep_one_of_all(struct rp_audit_digests *digests, struct rp_error *error)
{
    struct rp_audit_interval *list = digests->intervals, sum;
    size_t count = digests->count;
    int code = 0;
    digests->count = 0;
    for (size_t i = 0; code == 0 && i < count; i++) {
        struct rp_audit_interval next = list[i];
        if (digests->count == 0 || !overlap(&list[digests->count - 1], &next))
            list[digests->count++] = next;
        else if (sum_up(digests, next.first_row, next.row, &sum))
            code = compare_twice(digests, &sum, &next, error);
        else
            code = doubt(digests, RP_AUDIT_NO_ORDER, &next, error);
    }
    return code;
}

/* Deliveries that are superseded do not count. But if one can be compared with those that do, and
 * differs, rows were given with two contents. */
static int compare_gone(struct rp_audit_digests *digests, const struct sorted *sorted,
                        struct rp_error *error)
{
    int code = 0;
    size_t lane = 0;
    for (size_t i = 0; code == 0 && i < sorted->gone_count; i++) {
        struct rp_digest_entry *entry = sorted->gone[i];
        while (lane < sorted->count && compare_entries(&sorted->list[lane], &sorted->gone[i]) < 0 &&
               !(are_one_lane(sorted->list[lane], entry) &&
                 sorted->list[lane]->of.first_row == entry->of.first_row))
            lane++;
        if (lane == sorted->count || !are_one_lane(sorted->list[lane], entry) ||
            sorted->list[lane]->of.first_row != entry->of.first_row)
            continue;
        struct rp_audit_interval sum = sorted->list[lane]->of;
        for (size_t next = lane + 1;
             sum.row < entry->of.row && next < sorted->count &&
             are_one_lane(sorted->list[next], entry) && sorted->list[next]->of.first_row == sum.row;
             next++)
            rp_audit_extend(&sum, &sorted->list[next]->of);
        entry->is_used = sum.row == entry->of.row;
        if (entry->is_used)
            code = compare_twice(digests, &sum, &entry->of, error);
    }
    return code;
}

static int compare_rows(const void *a, const void *b)
{
    const struct rp_digest_entry *x = *(struct rp_digest_entry *const *)a;
    const struct rp_digest_entry *y = *(struct rp_digest_entry *const *)b;
    if (x->world != y->world)
        return x->world < y->world ? -1 : 1;
    int order = compare_intervals(&x->of, &y->of);
    return order != 0 ? order : x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* The same for all ranks of a job together, if later deliveries are to a job of another size. */
static int compare_gone_jobs(struct rp_audit_digests *digests, struct sorted *sorted,
                             struct rp_error *error)
{
    struct rp_audit_interval sum, all;
    int code = 0;
    if (sorted->gone_count > 0)
        qsort(sorted->gone, sorted->gone_count, sizeof(struct rp_digest_entry *), compare_rows);
    for (size_t i = 0, end; code == 0 && i < sorted->gone_count; i = end) {
        const struct rp_digest_entry *first = sorted->gone[i];
        uint32_t ranks = 0;
        bool is_compared = false;
        for (end = i; end < sorted->gone_count; end++) {
            const struct rp_digest_entry *entry = sorted->gone[end];
            if (entry->world != first->world || compare_intervals(&entry->of, &first->of) != 0)
                break;
            is_compared = is_compared || entry->is_used;
            if (end == i)
                all = entry->of;
            else if (entry->rank != sorted->gone[end - 1]->rank)
                join(&all, &entry->of);
            ranks += end == i || entry->rank != sorted->gone[end - 1]->rank;
        }
        if (!is_compared && ranks == first->world && sum_up(digests, all.first_row, all.row, &sum))
            code = compare_twice(digests, &sum, &all, error);
    }
    return code;
}

static int add_all(struct rp_audit_digests *digests, struct sorted *sorted, struct rp_error *error)
{
    size_t room = 0;
    int code = 0;
    for (size_t i = 0, next; code == 0 && i < sorted->count; i = next) {
        for (next = i; next < sorted->count && sorted->list[next]->world == sorted->list[i]->world;)
            next++;
        code = add_world(digests, &room, &sorted->list[i], &sorted->list[next], error);
    }
    if (digests->count > 0)
        qsort(digests->intervals, digests->count, sizeof *digests->intervals, compare_intervals);
    if (code == 0)
        code = keep_one_of_all(digests, error);
    if (code == 0)
        code = compare_gone(digests, sorted, error);
    if (code == 0)
        code = compare_gone_jobs(digests, sorted, error);
    if (code == 0 && digests->damaged > 0)
        code = rp_audit_doubt_add(&digests->doubts, RP_AUDIT_DAMAGED, digests->first_row,
                                  digests->end_row, error);
    return code;
}

int rp_audit_digests_open(struct rp_audit_digests *digests, const char *path,
                          struct rp_error *error)
{
    *digests = (struct rp_audit_digests){.path = path};
    struct rp_digest_entries entries;
    struct sorted sorted = {.list = NULL};
    int code = rp_digest_entries_read(&entries, digests, error);
    if (code == 0)
        code = rp_digest_entries_order(&entries, error);
    if (code == 0)
        code = sort_entries(digests, &sorted, &entries, error);
    if (code == 0 && sorted.count + sorted.gone_count == 0)
        code = rp_fail(error, -RP_E_FORMAT,
                       "give a file that trainers wrote with digest_log; `ringpack journal` shows "
                       "a chained file",
                       "%s: none of its entries is a digest", path);
    if (code == 0)
        code = add_all(digests, &sorted, error);
    if (code == 0)
        code = rp_digest_entries_trace(&entries, digests, error);
    free(sorted.list);
    free(sorted.gone);
    rp_digest_entries_free(&entries);
    digests->is_unproven = code == 0 && digests->count == 0;
    if (digests->is_unproven)
        return rp_fail(error, -RP_E_EMPTY, "put the files of all ranks into one folder",
                       "not proven: %s: no rows of which every rank has a digest", path);
    return code;
}

void rp_audit_digests_close(struct rp_audit_digests *digests)
{
    free(digests->intervals);
    free(digests->doubts.list);
}
