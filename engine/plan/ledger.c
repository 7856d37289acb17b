/* SPDX-License-Identifier: Apache-2.0 */
/* The documents of an epoch are dealt to the lanes. So each epoch that every lane has finished took
 * each document once; only the epochs that some lanes are ahead are counted by lane. */
#include "plan/ledger.h"

#include <stdlib.h>

#include "plan/token_records.h"

/* No real run has lanes further apart; their lead is then not exact. */
#define EPOCHS_APART_MAX 64u

struct ledger {
    const struct rp_plan *plan; /* NULL = only the token is known */
    uint32_t lanes, source_count;
    struct rp_ledger_source *sources;
};

/* A visit of a lane's cursor in a source. */
typedef void visitor(struct ledger *ledger, uint32_t lane, uint32_t source,
                     const struct rp_state_cursor *cursor);

static void find_epochs(struct ledger *ledger, uint32_t lane, uint32_t source,
                        const struct rp_state_cursor *cursor)
{
    struct rp_ledger_source *entry = &ledger->sources[source];
    entry->begun_epoch = rp_max_u64(entry->begun_epoch, cursor->epoch);
    entry->finished_epochs = lane == 0 ? cursor->epoch
                                       : rp_min_u64(entry->finished_epochs, cursor->epoch);
}

static void add_cursor(struct ledger *ledger, uint32_t lane, uint32_t source,
                       const struct rp_state_cursor *cursor)
{
    struct rp_ledger_source *entry = &ledger->sources[source];
    struct rp_order order = ledger->plan->lanes[lane].piece_source.cursors[source].order;
    uint64_t epoch = entry->finished_epochs;
    if (cursor->epoch - epoch > EPOCHS_APART_MAX)
        epoch = cursor->epoch - EPOCHS_APART_MAX;
    for (; epoch < cursor->epoch; epoch++) {
        rp_order_enter(&order, epoch);
        entry->documents += order.documents;
    }
    entry->documents += cursor->position;
    entry->tokens += cursor->mixed;
}

/* False if the token ends before its last record. */
static bool visit_cursors(struct ledger *ledger, struct rp_state_reader reader, visitor *visit)
{
    for (uint32_t l = 0; l < ledger->lanes; l++) {
        struct rp_state_lane lane;
        if (!rp_state_read(&reader, &lane, sizeof lane))
            return false;
        for (uint32_t s = 0; s < ledger->source_count; s++) {
            struct rp_state_cursor cursor;
            if (!rp_state_read(&reader, &cursor, sizeof cursor))
                return false;
            visit(ledger, l, s, &cursor);
        }
        if (!rp_state_skip_held(&reader, &lane))
            return false;
    }
    return true;
}

static void add_tokens(struct ledger *ledger, uint32_t lane, uint32_t source,
                       const struct rp_state_cursor *cursor)
{
    find_epochs(ledger, lane, source, cursor);
    ledger->sources[source].tokens += cursor->mixed;
}

/* Open a token, which must have `sources` sources and `lanes` lanes (0: any number). */
static int open_token(struct rp_state_reader *reader, struct ledger *ledger, const void *token,
                      size_t bytes, struct rp_error *error)
{
    struct rp_state_header header;
    int code = rp_state_open(reader, &header, token, bytes, error);
    if (code < 0)
        return code;
    if (header.source_count != ledger->source_count || ledger->source_count == 0 ||
        (ledger->lanes > 0 && header.lanes != ledger->lanes))
        return rp_fail(error, -RP_E_MISMATCH, RP_TOKEN_DAMAGED_HINT,
                       "state token: it is of another stream");
    ledger->lanes = header.lanes;
    memset(ledger->sources, 0, ledger->source_count * sizeof *ledger->sources);
    return 0;
}

static int end(bool is_whole, struct rp_error *error)
{
    return is_whole ? 0 : RP_TOKEN_DAMAGED(error, ": it ends in the middle of a record");
}

/* ---- version 2 ------------------------------------------------------------------------------- */

/* In the order of the config if there is a plan. Sources that have not joined have only zeros. */
static int read_v2(const struct rp_plan_v2 *v2, const void *token, size_t bytes,
                   struct rp_ledger_source *sources, uint32_t count, struct rp_error *error)
{
    struct rp_planner_token_source *found;
    uint32_t found_count, known = v2 ? v2->number_count : count;
    int code = rp_planner_token_sources(token, bytes, &found, &found_count, error);
    if (code == 0 && (v2 ? found_count > known : found_count != known))
        code = rp_fail(error, -RP_E_MISMATCH, RP_TOKEN_DAMAGED_HINT,
                       "state token: it is of another stream");
    memset(sources, 0, count * sizeof *sources);
    for (uint32_t j = 0; code == 0 && j < found_count; j++) {
        const struct rp_source_state *state = &found[j].state;
        uint32_t place = v2 ? v2->now.places[j] : j;
        if (place != RP_NO_NUMBER)
            sources[place] = (struct rp_ledger_source){.weight = found[j].weight,
                                                       .documents = state->taken,
                                                       .tokens = state->tokens,
                                                       .of_epoch = state->documents,
                                                       .finished_epochs = state->epoch,
                                                       .begun_epoch = state->epoch,
                                                       .waiting = found[j].waiting,
                                                       .withheld = state->withheld,
                                                       .pass = state->pass};
    }
    free(found);
    return code;
}

/* ---- both ------------------------------------------------------------------------------------ */

int rp_state_ledger(const void *token, size_t bytes, struct rp_ledger_source *sources,
                    uint32_t count, struct rp_error *error)
{
    struct rp_state_reader reader;
    struct ledger ledger = {NULL, 0, count, sources};
    if (rp_v2_is_token(token, bytes))
        return read_v2(NULL, token, bytes, sources, count, error);
    int code = open_token(&reader, &ledger, token, bytes, error);
    if (code < 0)
        return code;
    bool whole = true;
    for (uint32_t s = 0; s < count && whole; s++) {
        struct rp_state_source source;
        whole = rp_state_read(&reader, &source, sizeof source);
        sources[s].weight = whole ? source.weight : 0;
        sources[s].of_epoch = whole ? source.documents : 0;
    }
    return end(whole && visit_cursors(&ledger, reader, add_tokens), error);
}

int rp_plan_ledger(const struct rp_plan *plan, const void *token, size_t bytes,
                   struct rp_ledger_source *sources, struct rp_error *error)
{
    struct rp_state_reader reader;
    struct ledger ledger = {plan, plan->config.lanes, plan->source_count, sources};
    if (plan->v2 && rp_v2_is_token(token, bytes))
        return read_v2(plan->v2, token, bytes, sources, plan->v2->spec.source_count, error);
    int code = open_token(&reader, &ledger, token, bytes, error);
    if (code < 0)
        return code;
    bool whole = rp_state_skip(&reader, plan->source_count, sizeof(struct rp_state_source)) &&
                 visit_cursors(&ledger, reader, find_epochs);
    for (uint32_t s = 0; s < plan->source_count && whole; s++) {
        sources[s].weight = plan->weights[s];
        sources[s].of_epoch = plan->sources[s].documents;
        sources[s].documents = sources[s].finished_epochs * sources[s].of_epoch;
    }
    return end(whole && visit_cursors(&ledger, reader, add_cursor), error);
}
