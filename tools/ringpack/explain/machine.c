/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c — rows for programs: JSON and CSV. Paths and names that are no UTF-8 have U+FFFD. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "explain/explain.h"
#include "inspection.h"

static json_t *json_words(const char *text)
{
    char *words = text ? rp_words_utf8(text, strlen(text)) : NULL;
    json_t *value = words ? json_string(words) : NULL;
    free(words);
    return value ? value : json_null();
}

static json_t *json_number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *ids_of(const struct rp_explained *part)
{
    if (!part->ids)
        return json_null();
    json_t *ids = json_array();
    for (uint32_t i = 0; i < part->id_count; i++)
        json_array_append_new(ids, json_number(part->ids[i]));
    return ids;
}

/* Where the entries of each column are, or the number of the document. */
static json_t *columns_of(const struct rp_explained *part)
{
    json_t *columns = json_object();
    for (uint32_t c = 0; c < part->column_count; c++) {
        const struct rp_explained_entries *column = &part->columns[c];
        json_t *value = column->file
                            ? json_pack("{s:o, s:o, s:o}", "file", json_words(column->file),
                                        "byte_offset", json_number(column->byte_offset), "bytes",
                                        json_number(column->bytes))
                        : column->is_real ? json_real(column->real)
                                          : json_integer(column->integer);
        if (column->tokenizer)
            json_object_set_new(value, "tokenizer", rp_inspection_tokenizer(column->tokenizer));
        json_object_set_new(columns, column->name, value ? value : json_null());
    }
    return columns;
}

static json_t *part_object(const struct rp_explained *part)
{
    const struct rp_fragment *fragment = &part->fragment;
    json_t *value = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "fragment",
        json_number(part->number), "place", json_number(part->place), "tokens",
        json_number(fragment->length), "source", json_words(part->source), "source_number",
        json_number(fragment->source), "document", json_number(fragment->document), "offset",
        json_number(fragment->offset), "epoch", json_number(part->epoch), "file",
        json_words(part->file), "byte_offset", json_number(part->byte_offset), "file_row",
        json_number(part->file_row), "text", json_words(part->text), "ids", ids_of(part),
        "text_cut", part->is_cut);
    if (part->column_count)
        json_object_set_new(value, "columns", columns_of(part));
    return value;
}

static json_t *row_object(const struct rp_explained_row *row)
{
    const struct rp_step_place *place = &row->place;
    json_t *parts = json_array();
    for (uint32_t i = 0; i < row->count; i++)
        if (row->parts[i].matches)
            json_array_append_new(parts, part_object(&row->parts[i]));
    json_t *value = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o}", "row", json_number(row->row), "step",
        place->is_known ? json_number(place->step) : json_null(), "micro_batch",
        place->is_known ? json_number(place->micro_batch) : json_null(), "rank",
        place->is_known ? json_number(place->rank) : json_null(), "past",
        row->has_position ? json_boolean(row->is_past) : json_null(), "dropped", row->is_dropped,
        "tokens", json_number(row->tokens), "padding", json_number(row->seq_len - row->tokens),
        "fragments", parts);
    if (row->has_stage) {
        json_object_set_new(value, "stage", json_number(row->stage));
        json_object_set_new(value, "seq_len", json_number(row->seq_len));
        json_object_set_new(value, "withheld", json_boolean(row->is_withheld));
    }
    return value;
}

static void dump(struct rp_printer *printer, json_t *value)
{
    json_dumpf(value, printer->out, JSON_COMPACT);
    json_decref(value);
}

static void json_begin(struct rp_printer *printer)
{
    const struct rp_explain_head *head = printer->head;
    char hex[RP_HASH_HEX_BYTES];
    printer->kept = json_array();
    fputs("{\"title\": ", printer->out);
    char *title = rp_words_utf8(head->title, strlen(head->title));
    json_t *value = json_string(title ? title : "");
    json_dumpf(value, printer->out, JSON_ENCODE_ANY);
    json_decref(value);
    free(title);
    fprintf(printer->out, ",\n\"stream\": \"%s\", \"seq_len\": %" PRIu32 ",\n\"rows\": [",
            rp_hash128_hex(head->identity, hex), head->seq_len);
}

static void json_row(struct rp_printer *printer, const struct rp_explained_row *row)
{
    fputs(printer->rows ? ",\n" : "\n", printer->out);
    dump(printer, row_object(row));
}

static void json_document(struct rp_printer *printer, const struct rp_explained_document *document)
{
    json_array_append_new(
        printer->kept,
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "source",
                  json_words(document->name), "source_number", json_number(document->source),
                  "document", json_number(document->document), "epoch",
                  json_number(document->epoch), "tokens", json_number(document->tokens), "file",
                  json_words(document->file), "byte_offset", json_number(document->byte_offset),
                  "file_row", json_number(document->file_row), "rows", json_number(document->rows),
                  "why", document->why ? json_string(document->why) : json_null()));
}

static void json_end(struct rp_printer *printer)
{
    fputs("\n],\n\"documents\": ", printer->out);
    dump(printer, printer->kept);
    fputs("}\n", printer->out);
    printer->kept = NULL;
}

const struct rp_printer rp_json_printer = {
    .begin = json_begin, .row = json_row, .document = json_document, .end = json_end};

/* ---- CSV ------------------------------------------------------------------------------------- */

static void csv_begin(struct rp_printer *printer)
{
    fputs("row,step,micro_batch,rank,past,fragment,place,tokens,source,document,offset,epoch,file,"
          "byte_offset,file_row,text,ids\r\n",
          printer->out);
}

/* A field in quotes. */
static void csv_words(FILE *out, const char *text)
{
    char *words = rp_words_utf8(text ? text : "", text ? strlen(text) : 0);
    fputc('"', out);
    for (const char *c = words; c && *c; c++) {
        if (*c == '"')
            fputc('"', out);
        fputc(*c, out);
    }
    fputc('"', out);
    free(words);
}

static void csv_part(FILE *out, const struct rp_explained_row *row, const struct rp_explained *part)
{
    const struct rp_fragment *fragment = &part->fragment;
    fprintf(out, "%" PRIu64 ",", row->row);
    if (row->place.is_known)
        fprintf(out, "%" PRIu64 ",%" PRIu64 ",%" PRIu32 ",", row->place.step,
                row->place.micro_batch, row->place.rank);
    else
        fputs(",,,", out);
    fprintf(out, "%s,%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",",
            !row->has_position ? ""
            : row->is_past     ? "true"
                               : "false",
            part->number, part->place, fragment->length);
    csv_words(out, part->source);
    fprintf(out, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",", fragment->document, fragment->offset,
            part->epoch);
    csv_words(out, part->file);
    fprintf(out, ",%" PRIu64 ",%" PRIu64 ",", part->byte_offset, part->file_row);
    csv_words(out, part->text);
    fputs(",\"", out);
    for (uint32_t i = 0; part->ids && i < part->id_count; i++)
        fprintf(out, "%s%" PRIu32, i ? " " : "", part->ids[i]);
    fputs("\"\r\n", out);
}

static void csv_row(struct rp_printer *printer, const struct rp_explained_row *row)
{
    for (uint32_t i = 0; i < row->count; i++)
        if (row->parts[i].matches)
            csv_part(printer->out, row, &row->parts[i]);
}

/* A table has rows of one kind: a document that is in no row has none. */
static void csv_document(struct rp_printer *printer, const struct rp_explained_document *document)
{
    (void)printer;
    (void)document;
}

static void csv_end(struct rp_printer *printer)
{
    (void)printer;
}

const struct rp_printer rp_csv_printer = {
    .begin = csv_begin, .row = csv_row, .document = csv_document, .end = csv_end};
