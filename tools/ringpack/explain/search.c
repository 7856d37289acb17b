/* SPDX-License-Identifier: Apache-2.0 */
/* search.c — finds the rows of a document.
 *
 * A document is found by the inverse of the order of its source: its lane, and its position in an
 * epoch. The rows around that position are planned, from the nearest state before it; so the search
 * is bounded by the documents and epochs of the query. */
#include "explain/search.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/text.h"
#include "interrupt.h"
#include "plan/stages.h"

struct search {
    const struct rp_search *asked;
    struct rp_walk *walk;
    struct rp_row_maker *maker;
    struct rp_printer *printer;
};

/* Printing begins with the first row that is found, so that a failure prints only its message. */
static void begin(struct rp_printer *printer)
{
    if (!printer->has_begun)
        printer->begin(printer);
    printer->has_begun = true;
}

/* Print the row that was planned, if something in it matches. Returns 1 if something does. */
static int show(const struct search *search, const struct rp_row *row, struct rp_error *error)
{
    struct rp_explained_row explained;
    int matches = rp_explain_row(search->maker, row, &explained, error);
    bool is_wanted = matches > 0 || (!search->asked->text && !search->asked->documents.is_given);
    if (matches < 0 || !is_wanted)
        return matches;
    begin(search->printer);
    search->printer->row(search->printer, &explained);
    search->printer->rows++;
    return matches > 0;
}

/* Rows from where the walk is up to `end`, or to the end of the stream. */
static int show_rows(const struct search *search, uint64_t end, struct rp_error *error)
{
    const struct rp_search *asked = search->asked;
    struct rp_row row;
    int code = 0;
    while (code >= 0 && rp_plan_row(search->walk->plan) < end) {
        code = rp_walk_next(search->walk, &row, error);
        if (code <= 0)
            return code;
        struct rp_step_place place = rp_steps_place(search->maker->steps, row.row);
        if (!asked->rank_given || place.rank == asked->rank)
            code = show(search, &row, error);
    }
    return code < 0 ? code : 0;
}

/* ---- documents ------------------------------------------------------------------------------- */

static int fail_source(const struct search *search, struct rp_error *error)
{
    const struct rp_corpus *corpus = search->walk->corpus;
    const char *name = search->asked->source;
    char names[200] = "";
    size_t used = 0;
    struct rp_text_near near = {.word = name};
    for (uint32_t i = 0; i < rp_corpus_source_count(corpus); i++) {
        const char *one = rp_source_name(rp_corpus_source(corpus, i));
        rp_text_offer(&near, one);
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", one);
    }
    return near.best
               ? rp_fail(error, -RP_E_USAGE, NULL, "no source `%s`; did you mean `%s`?", name,
                         near.best)
               : rp_fail(error, -RP_E_USAGE, NULL, "no source `%s`; there are: %s", name, names);
}

/* By its name, else by its number. */
static int find_source(const struct search *search, uint32_t *source, struct rp_error *error)
{
    const struct rp_corpus *corpus = search->walk->corpus;
    uint32_t count = rp_corpus_source_count(corpus);
    uint64_t number;
    for (uint32_t i = 0; i < count; i++) {
        *source = i;
        if (!strcmp(rp_source_name(rp_corpus_source(corpus, i)), search->asked->source))
            return 0;
    }
    if (!rp_text_u64(search->asked->source, &number) || number >= count)
        return fail_source(search, error);
    *source = (uint32_t)number;
    return 0;
}

/* Plan from before the document is read until no part of it follows, in the last pass that may take
 * it. Returns how many rows have it. */
static int show_document_rows(const struct search *search, const struct rp_draw *draw,
                              const struct rp_draw *last, struct rp_error *error)
{
    const struct rp_plan *plan = search->walk->plan;
    struct rp_row row;
    int rows = 0;
    int code = rp_walk_before(search->walk, draw, error);
    rp_cmd_progress_begin(&search->walk->progress, "planning rows", false);
    while (code >= 0 && !rp_plan_is_past(plan, last)) {
        code = rp_walk_next(search->walk, &row, error);
        if (code <= 0)
            break;
        if (rp_plan_row(plan) % 4096 == 0)
            rp_cmd_progress(&search->walk->progress, rp_plan_row(plan), 0);
        bool has_it = false;
        for (uint32_t i = 0; i < row.count && !has_it; i++)
            has_it = row.fragments[i].source == draw->source &&
                     row.fragments[i].document == draw->document;
        int shown = has_it && rp_plan_has_drawn(plan, draw) ? show(search, &row, error) : 0;
        code = shown < 0 ? shown : code;
        rows += shown > 0;
    }
    rp_cmd_progress_end(&search->walk->progress);
    return code < 0 ? code : rows;
}

/* Why no row has a document. */
static const char *why_nowhere(const struct rp_config *config, uint32_t version, uint64_t tokens)
{
    if (tokens == 0)
        return "it is empty, or nothing of it is trained (drop_untrained)";
    if (version == 2)
        return "it is not selected, is left out by its length, or the stream ends before";
    return tokens > config->seq_len && config->long_doc == RP_LONG_DOC_DROP
               ? "it is longer than a row (long_doc: drop)"
               : "the stream ends before";
}

/* 1 if a row has it. */
static int show_document(const struct search *search, uint32_t source, uint64_t document,
                         uint64_t epoch, struct rp_error *error)
{
    const struct rp_source *of = rp_corpus_source(search->walk->corpus, source);
    const struct rp_plan *plan = search->walk->plan;
    struct rp_draw draw = {.document = document, .epoch = epoch, .source = source}, last = draw;
    struct rp_extent extent;
    struct rp_explained_document shown = {.source = source,
                                          .name = rp_source_name(of),
                                          .document = document,
                                          .epoch = epoch,
                                          .tokens = rp_source_length(of, document)};
    shown.file = rp_source_provenance(of, document, &shown.file_row);
    int code = rp_source_extent(of, document, &extent, error);
    if (code == 0)
        code = rp_plan_find_draw(plan, &draw, error);
    last.pass = rp_plan_passes(plan, source) - 1;
    if (code == 0)
        code = rp_plan_find_draw(plan, &last, error);
    if (code < 0)
        return code;
    shown.byte_offset = extent.byte_offset;
    search->maker->draw = &draw;
    int rows = show_document_rows(search, &draw, &last, error);
    search->maker->draw = NULL;
    if (rows < 0)
        return rows;
    shown.rows = (uint64_t)rows;
    shown.why = rows ? NULL
                     : why_nowhere(search->walk->config, rp_plan_version(plan), shown.tokens);
    begin(search->printer);
    search->printer->document(search->printer, &shown);
    search->printer->documents++;
    return rows > 0;
}

/* Whether all of a document has the text that is wanted. */
static int has_text(const struct search *search, uint32_t source, uint64_t document,
                    struct rp_error *error)
{
    const struct rp_source *of = rp_corpus_source(search->walk->corpus, source);
    struct rp_fragment whole = {
        .document = document, .source = source, .length = (uint32_t)rp_source_length(of, document)};
    char *text = NULL;
    if (!search->asked->text)
        return 1;
    int code = rp_texts_read(search->maker->texts, &whole, error);
    if (code > 0)
        code = rp_texts_text(search->maker->texts, whole.length, &text, error);
    if (code == 0)
        code = rp_fail(error, -RP_E_USAGE, "give --tokenizer FILE, or `bytes`",
                       "source `%s`, document %" PRIu64
                       ": its tokens or its tokenizer are not known, so it cannot be searched",
                       rp_source_name(of), document);
    bool found = code > 0 && strstr(text, search->asked->text);
    free(text);
    return code < 0 ? code : found;
}

/* The epochs of the query; by default the present one, and the next. */
static int find_epochs(const struct search *search, uint32_t source, struct rp_range *epochs,
                       struct rp_error *error)
{
    /* a source of version 2 has limits of its own */
    bool is_version_1 = rp_plan_version(search->walk->plan) == 1;
    uint64_t num_epochs = is_version_1 ? search->walk->config->num_epochs : 0;
    *epochs = search->asked->epochs;
    if (epochs->is_given && num_epochs && epochs->last >= num_epochs)
        return rp_fail(error, -RP_E_USAGE, "the first epoch is 0",
                       "--epoch %" PRIu64 ": the stream has %" PRIu64 " epochs", epochs->last,
                       num_epochs);
    if (epochs->is_given)
        return 0;
    if (!search->maker->origin->has_position)
        return 0; /* the first */
    int code = rp_walk_to(search->walk, search->maker->origin->position, error);
    if (code < 0)
        return code;
    epochs->first = rp_plan_source_epoch(search->walk->plan, source);
    epochs->last = epochs->first + 1;
    if (num_epochs && epochs->last >= num_epochs)
        epochs->last = num_epochs - 1;
    epochs->first = rp_min_u64(epochs->first, epochs->last);
    return 0;
}

/* If no epoch has the document, because the source or the stream has ended, the last epoch that was
 * delivered may have it. The epochs that a query names are the only ones. */
static int show_epochs(const struct search *search, uint32_t source, uint64_t document,
                       const struct rp_range *epochs, struct rp_error *error)
{
    bool is_found = false;
    for (uint64_t e = epochs->first; e <= epochs->last; e++) {
        int shown = show_document(search, source, document, e, error);
        if (shown < 0)
            return shown;
        is_found |= shown > 0;
    }
    if (is_found || epochs->is_given || epochs->first == 0 || search->walk->is_reweighted)
        return 0;
    int shown = show_document(search, source, document, epochs->first - 1, error);
    return shown < 0 ? shown : 0;
}

/* Search documents of a source, and show the rows of those that have the text. */
static int show_among(const struct search *search, uint32_t source, uint64_t first, uint64_t last,
                      struct rp_error *error)
{
    struct rp_range epochs;
    struct rp_cmd_progress progress;
    int code = find_epochs(search, source, &epochs, error);
    rp_cmd_progress_begin(&progress, "searching documents", false);
    for (uint64_t d = first; code >= 0 && d <= last; d++) {
        code = rp_interrupt_check("the run is unchanged", error);
        code = code < 0 ? code : has_text(search, source, d, error);
        rp_cmd_progress(&progress, d - first, last - first + 1);
        if (code > 0)
            code = show_epochs(search, source, d, &epochs, error);
    }
    rp_cmd_progress_end(&progress);
    return code < 0 ? code : 0;
}

static int show_documents(const struct search *search, struct rp_error *error)
{
    const struct rp_range *asked = &search->asked->documents;
    uint32_t source;
    int code = find_source(search, &source, error);
    if (code < 0)
        return code;
    const struct rp_source *of = rp_corpus_source(search->walk->corpus, source);
    if (asked->last >= rp_source_documents(of))
        return rp_fail(error, -RP_E_USAGE, "the first document is 0",
                       "source `%s` has no document %" PRIu64 ": it has %" PRIu64,
                       rp_source_name(of), asked->last, rp_source_documents(of));
    return show_among(search, source, asked->first, asked->last, error);
}

static int show_everywhere(const struct search *search, struct rp_error *error)
{
    const struct rp_corpus *corpus = search->walk->corpus;
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < rp_corpus_source_count(corpus); i++)
        code = show_among(search, i, 0, rp_source_documents(rp_corpus_source(corpus, i)) - 1,
                          error);
    return code;
}

/* --------------------------------------------------------------------------------------------- */

static int show_step(const struct search *search, struct rp_error *error)
{
    const struct rp_search *asked = search->asked;
    const struct rp_steps *steps = search->maker->steps;
    if (asked->rank_given && asked->rank >= steps->ranks)
        return rp_fail(error, -RP_E_USAGE, "the first rank is 0",
                       "no rank %" PRIu64 ": there are %u", asked->rank, steps->ranks);
    int code = rp_walk_to_step(search->walk, steps, asked->step, error);
    return code < 0 ? code : show_rows(search, rp_steps_end(steps, search->walk->near.row), error);
}

static int show_row_range(const struct search *search, struct rp_error *error)
{
    const struct rp_range *rows = &search->asked->rows;
    int code = rp_walk_to_row(search->walk, search->maker->steps, rows->first, 1, error);
    return code < 0 ? code : show_rows(search, rows->last + 1, error);
}

static void make_title(const struct rp_search *asked, char *title, size_t bytes)
{
    const struct rp_range *rows = &asked->rows, *documents = &asked->documents;
    int used = 0;
    if (asked->step_given)
        used = snprintf(title, bytes, "step %" PRIu64, asked->step);
    else if (rows->is_given && rows->first == rows->last)
        used = snprintf(title, bytes, "row %" PRIu64, rows->first);
    else if (rows->is_given)
        used = snprintf(title, bytes, "rows %" PRIu64 " to %" PRIu64, rows->first, rows->last);
    else if (!documents->is_given)
        used = snprintf(title, bytes, "all documents");
    else
        used = snprintf(title, bytes, "document %.100s:%" PRIu64, asked->source, documents->first);
    if (asked->rank_given && used > 0 && (size_t)used < bytes)
        used += snprintf(title + used, bytes - (size_t)used, ", rank %" PRIu64, asked->rank);
    if (documents->last > documents->first && used > 0 && (size_t)used < bytes)
        snprintf(title + used, bytes - (size_t)used, " to %" PRIu64, documents->last);
}

int rp_search_run(const struct rp_search *asked, struct rp_walk *walk, struct rp_row_maker *maker,
                  struct rp_printer *printer, struct rp_error *error)
{
    const struct search search = {asked, walk, maker, printer};
    char title[200];
    uint32_t least, most;
    make_title(asked, title, sizeof title);
    rp_plan_places_range(walk->plan, &least, &most);
    const struct rp_explain_head head = {.config = walk->config,
                                         .steps = maker->steps,
                                         .title = title,
                                         .text = asked->text,
                                         .identity = walk->identity,
                                         .seq_len = least,
                                         .most_seq_len = most};
    printer->head = &head;
    const char *wanted = maker->wanted;
    bool by_row = asked->step_given || asked->rows.is_given;
    maker->wanted = by_row ? wanted : NULL; /* NULL: documents are read whole */
    int code = asked->step_given           ? show_step(&search, error)
               : asked->rows.is_given      ? show_row_range(&search, error)
               : asked->documents.is_given ? show_documents(&search, error)
                                           : show_everywhere(&search, error);
    maker->wanted = wanted;
    if (code >= 0) {
        begin(printer);
        printer->end(printer);
    }
    printer->head = NULL;
    return code < 0 ? code : 0;
}
