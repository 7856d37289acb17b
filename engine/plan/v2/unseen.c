/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/v2/unseen.h"

#include <errno.h>
#include <inttypes.h>

#include "base/mem.h"
#include "plan/order.h"
#include "plan/token_records.h"
#include "plan/v2/planner_token_format.h"

struct rp_unseen {
    struct rp_unseen_facts facts;
    struct rp_order order; /* order of pass 0 of the token's epoch */
    uint64_t before, position;
    uint32_t group;
    bool passed;       /* all of pass 0 was read */
    uint64_t *waiting; /* items that wait whole, ascending */
    size_t waiting_count;
};

void rp_unseen_close(struct rp_unseen *unseen)
{
    if (!unseen)
        return;
    free(unseen->waiting);
    free(unseen);
}

const struct rp_unseen_facts *rp_unseen_facts(const struct rp_unseen *unseen)
{
    return &unseen->facts;
}

static int compare_items(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

void rp_planner_token_used(const struct rp_unseen *unseen, const uint64_t *documents,
                           uint32_t count, bool *used)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t document = documents[i], item = document / unseen->group;
        used[i] = document < unseen->facts.documents &&
                  (unseen->passed || document < unseen->before ||
                   rp_order_position_of(&unseen->order, item) < unseen->position) &&
                  !bsearch(&item, unseen->waiting, unseen->waiting_count, sizeof item,
                           compare_items);
    }
}

/* ---- open ------------------------------------------------------------------------------------ */

struct opening {
    struct rp_unseen *unseen;
    const struct rp_unseen_source *source;
    uint64_t inserted; /* tokens of a document that are not its own */
    struct rp_error *error;
};

/* Note that the beginning of an item waits, in a piece of `length` tokens. */
static int add_waiting(struct opening *opening, uint64_t item, uint64_t length)
{
    struct rp_unseen *unseen = opening->unseen;
    const struct rp_source_view *view = opening->source->view;
    if (unseen->group == 1) {
        uint64_t own;
        view->lengths(view->context, &item, 1, &own);
        if (own == RP_LENGTH_BAD)
            return rp_fail(opening->error, -RP_E_CORRUPT, "repair or rebuild this source's index",
                           "the index entry of document %" PRIu64 " is damaged", item);
        if (own + opening->inserted != length)
            return 0;
    }
    unseen->waiting[unseen->waiting_count++] = item;
    return 0;
}

static int allocate_waiting(struct opening *opening, uint64_t pieces)
{
    opening->unseen->waiting = rp_calloc(pieces, sizeof(uint64_t));
    return opening->unseen->waiting
               ? 0
               : rp_fail(opening->error, -ENOMEM, NULL,
                         "no memory for the waiting documents of a state token");
}

static int check_documents(const struct opening *opening)
{
    uint64_t had = opening->unseen->facts.documents, has = opening->source->documents;
    if (had <= has)
        return 0;
    return rp_fail(opening->error, -RP_E_MISMATCH,
                   "name the source that has the documents of the state, or bring them back",
                   "unseen_of: the state has %" PRIu64 " documents of the source, this run has "
                   "%" PRIu64,
                   had, has);
}

/* ---- version 2 ------------------------------------------------------------------------------- */

#define SAME_DOCUMENTS "name the source that has the documents of the state, in the same range"

static int check_prints(const struct opening *opening, const struct rp_planner_token_source *had)
{
    const struct rp_source_view *view = opening->source->view;
    struct rp_source_prints has;
    struct rp_error found = {0};
    int code = view->prints(view->context, had->state.documents, &has, &found);
    if (code < 0)
        return rp_fail(opening->error, code == -RP_E_CHANGED ? -RP_E_MISMATCH : code,
                       SAME_DOCUMENTS, "unseen_of: the documents of source %s differ: %s",
                       had->name, found.message);
    bool full_differs = had->prints.full != 0 && has.full != 0 && had->prints.full != has.full;
    if (had->prints.sampled == has.sampled && !full_differs)
        return 0;
    return rp_fail(opening->error, -RP_E_MISMATCH, SAME_DOCUMENTS,
                   "unseen_of: the documents of source %s differ: its %s fingerprint at %" PRIu64
                   " documents is %016" PRIx64 " in the state, %016" PRIx64 " in this run",
                   had->name, full_differs ? "full" : "sampled", had->state.documents,
                   full_differs ? had->prints.full : had->prints.sampled,
                   full_differs ? has.full : has.sampled);
}

static int add_pieces(struct opening *opening, const struct rp_snapshot *snapshot, uint32_t source)
{
    uint64_t pieces = rp_snapshot_pieces(snapshot);
    int code = allocate_waiting(opening, pieces);
    for (uint64_t i = 0; i < pieces && code == 0; i++) {
        const struct rp_item_piece *piece = rp_snapshot_piece(snapshot, i);
        if (piece->source == source && piece->offset == 0)
            code = add_waiting(opening, piece->item, piece->length);
    }
    return code;
}

static int read_token(struct opening *opening, const struct rp_token2 *token)
{
    struct rp_unseen *unseen = opening->unseen;
    const struct rp_token2_header *header = &token->header;
    const char *name = opening->source->name;
    uint32_t j = 0;
    if (header->next_row != header->window_first) /* its cursors are those before the window */
        return rp_fail(opening->error, -RP_E_MISMATCH,
                       "take a state at the beginning or the end of the deal window",
                       "unseen_of: expected a state between two deal windows, found row %" PRIu64
                       " of the window %" PRIu64 "-%" PRIu64,
                       header->next_row, header->window_first, header->window_end);
    while (j < header->source_count && strcmp(token->sources[j].name, name) != 0)
        j++;
    if (j == header->source_count)
        return rp_fail(opening->error, -RP_E_MISMATCH,
                       "name one of its sources; `ringpack inspect` lists them",
                       "unseen_of: the state has no source %s", name);
    const struct rp_planner_token_source *had = &token->sources[j];
    *unseen = (struct rp_unseen){
        .facts = {.documents = had->state.documents, .selection = had->prints.selection},
        .before = had->state.before,
        .position = had->state.position,
        .group = header->group,
        .passed = had->state.pass > 0,
    };
    opening->inserted = header->bos_id != RP_NO_TOKEN_ID ? 1 : 0;
    opening->inserted += header->eos_id != RP_NO_TOKEN_ID;
    int code = check_documents(opening);
    if (code == 0)
        code = check_prints(opening, had);
    if (code < 0)
        return code;
    rp_order_init_items(&unseen->order, (enum rp_shuffle)header->shuffle,
                        unseen->facts.documents / header->group,
                        header->block_documents / header->group, header->window_blocks);
    rp_order_enter_key(
        &unseen->order, had->state.epoch,
        rp_pass_key_make(header->seed, rp_hash64(name, strlen(name)), had->state.epoch, 0));
    return add_pieces(opening, &token->snapshot, j);
}

/* ---- version 1 ------------------------------------------------------------------------------- */

#define CUT_SHORT(opening) RP_TOKEN_DAMAGED((opening)->error, ": its records do not fill its bytes")

static int check_first(const struct opening *opening, const struct rp_state_header *header)
{
    bool blocks = header->shuffle == RP_SHUFFLE_BLOCK;
    if (header->lanes != 1)
        return rp_fail(opening->error, -RP_E_VERSION,
                       "begin with all documents, or with a state of a stream without lanes",
                       "unseen_of: the state has %" PRIu32 " lanes; it must have one",
                       header->lanes);
    if (opening->source->number >= header->source_count)
        return rp_fail(opening->error, -RP_E_MISMATCH,
                       "name one of its sources; `ringpack inspect` lists them",
                       "unseen_of: the state has no source number %" PRIu32,
                       opening->source->number);
    if (header->shuffle > RP_SHUFFLE_BLOCK || header->source_count > RP_SOURCES_MAX ||
        (blocks && (header->block_documents == 0 || header->window_blocks == 0)))
        return RP_TOKEN_DAMAGED(opening->error, ": shuffle %u of %" PRIu32 " sources",
                                header->shuffle, header->source_count);
    return 0;
}

static int read_cursor(struct opening *opening, const struct rp_state_header *header,
                       const struct rp_state_source *source, const struct rp_state_cursor *cursor)
{
    struct rp_unseen *unseen = opening->unseen;
    if (source->documents == 0 || source->documents >> 63 || cursor->position >= source->documents)
        return RP_TOKEN_DAMAGED(opening->error, ": position %" PRIu64 " of %" PRIu64 " documents",
                                cursor->position, source->documents);
    *unseen = (struct rp_unseen){
        .facts = {.documents = source->documents},
        .before = cursor->epoch > 0 ? source->documents : 0,
        .position = cursor->position,
        .group = 1,
    };
    const struct rp_plan_config config = {
        .seed = header->seed,
        .shuffle = (enum rp_shuffle)header->shuffle,
        .block_documents = header->block_documents,
        .window_blocks = header->window_blocks,
        .lanes = 1,
    };
    rp_order_init(&unseen->order, &config, source->documents, opening->source->number, 0);
    rp_order_enter(&unseen->order, cursor->epoch);
    return check_documents(opening);
}

static int add_first_piece(struct opening *opening, uint32_t source, uint64_t document,
                           uint64_t offset, uint64_t length)
{
    if (source != opening->source->number || offset > 0)
        return 0;
    if (document >= opening->unseen->facts.documents)
        return RP_TOKEN_DAMAGED(opening->error, ": document %" PRIu64 " waits, of %" PRIu64,
                                document, opening->unseen->facts.documents);
    return add_waiting(opening, document, length);
}

/* What a lane holds back: pieces, then open rows with their fragments. */
static int add_first_pieces(struct opening *opening, struct rp_state_reader reader,
                            const struct rp_state_lane *lane)
{
    uint64_t pieces = (uint64_t)lane->fifo + lane->pending;
    int code = allocate_waiting(opening, reader.left / sizeof(struct rp_fragment));
    for (uint64_t i = 0; i < pieces && code == 0; i++) {
        struct rp_state_piece piece;
        code = rp_state_read(&reader, &piece, sizeof piece)
                   ? add_first_piece(opening, piece.source, piece.document, piece.offset,
                                     piece.length)
                   : CUT_SHORT(opening);
    }
    for (uint32_t i = 0; i < lane->open_rows && code == 0; i++) {
        struct rp_state_open_row row;
        if (!rp_state_read(&reader, &row, sizeof row))
            return CUT_SHORT(opening);
        for (uint32_t f = 0; f < row.fragments && code == 0; f++) {
            struct rp_fragment fragment;
            code = rp_state_read(&reader, &fragment, sizeof fragment)
                       ? add_first_piece(opening, fragment.source, fragment.document,
                                         fragment.offset, fragment.length)
                       : CUT_SHORT(opening);
        }
    }
    return code;
}

static int read_first(struct opening *opening, const void *token, size_t bytes)
{
    struct rp_state_reader reader = {0};
    struct rp_state_header header;
    struct rp_state_source source = {0};
    struct rp_state_cursor cursor = {0};
    struct rp_state_lane lane;
    uint32_t number = opening->source->number;
    int code = rp_state_open(&reader, &header, token, bytes, opening->error);
    if (code == 0)
        code = check_first(opening, &header);
    if (code < 0)
        return code;
    uint32_t after = header.source_count - number - 1;
    if (!rp_state_skip(&reader, number, sizeof source) ||
        !rp_state_read(&reader, &source, sizeof source) ||
        !rp_state_skip(&reader, after, sizeof source) ||
        !rp_state_read(&reader, &lane, sizeof lane) ||
        !rp_state_skip(&reader, number, sizeof cursor) ||
        !rp_state_read(&reader, &cursor, sizeof cursor) ||
        !rp_state_skip(&reader, after, sizeof cursor))
        return CUT_SHORT(opening);
    code = read_cursor(opening, &header, &source, &cursor);
    return code < 0 ? code : add_first_pieces(opening, reader, &lane);
}

int rp_unseen_open(struct rp_unseen **unseen_out, const void *token, size_t bytes,
                   const struct rp_unseen_source *source, struct rp_error *error)
{
    struct opening opening = {.source = source, .error = error};
    enum { VERSION_AT = offsetof(struct rp_state_header, version) };
    *unseen_out = NULL;
    opening.unseen = rp_calloc(1, sizeof *opening.unseen);
    if (!opening.unseen)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the documents of a state token");
    int code;
    if (bytes >= VERSION_AT + 4 &&
        rp_load_u32((const uint8_t *)token + VERSION_AT) < RP_TOKEN_VERSION_CALENDAR) {
        code = read_first(&opening, token, bytes);
    } else {
        struct rp_token2 decoded;
        code = rp_token2_decode(&decoded, token, bytes, error);
        if (code == 0) {
            code = read_token(&opening, &decoded);
            rp_token2_free(&decoded);
        }
    }
    if (code < 0) {
        rp_unseen_close(opening.unseen);
        return code;
    }
    qsort(opening.unseen->waiting, opening.unseen->waiting_count, sizeof(uint64_t), compare_items);
    opening.unseen->facts.hash = rp_hash128_load((const uint8_t *)token + bytes - 16);
    *unseen_out = opening.unseen;
    return 0;
}
