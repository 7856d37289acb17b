/* SPDX-License-Identifier: Apache-2.0 */
/* table.c — rows for people, in as many columns as the terminal has. */
#include <inttypes.h>
#include <stdarg.h>

#include "explain/explain.h"

#define INDENT 8u
#define LINE_BYTES 4600

/* One line, cut to the columns. */
static void __attribute__((format(printf, 3, 4)))
print_line(const struct rp_printer *printer, uint32_t indent, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(printer->out, "%*s", (int)indent, "");
    rp_words_terminal(printer->out, line, printer->columns - indent);
    fputc('\n', printer->out);
}

static void table_begin(struct rp_printer *printer)
{
    const struct rp_explain_head *head = printer->head;
    char hex[RP_HASH_HEX_BYTES];
    char most[24] = "";
    if (head->most_seq_len > head->seq_len)
        snprintf(most, sizeof most, " to %" PRIu32, head->most_seq_len);
    print_line(printer, 0, "%s, stream %s, rows of %" PRIu32 "%s tokens", head->title,
               rp_hash128_hex(head->identity, hex), head->seq_len, most);
}

static void print_row_head(struct rp_printer *printer, const struct rp_explained_row *row)
{
    char place[120] = "", stage[32] = "", tokens[RP_CMD_TEXT_BYTES];
    if (row->has_stage)
        snprintf(stage, sizeof stage, "  stage %" PRIu32, row->stage);
    if (row->place.is_known)
        snprintf(place, sizeof place, "  step %" PRIu64 ", micro-batch %" PRIu64 ", rank %" PRIu32,
                 row->place.step, row->place.micro_batch, row->place.rank);
    const char *when = row->is_dropped     ? ", " RP_DROPPED_TEXT
                       : row->is_withheld  ? ", " RP_WITHHELD_TEXT
                       : row->is_past      ? ", past"
                       : row->has_position ? ", to come"
                                           : "";
    fputc('\n', printer->out);
    print_line(printer, 0, "row %" PRIu64 "%s%s  %s tokens in %" PRIu32 "%s", row->row, stage,
               place, rp_cmd_count_text(row->tokens, tokens), row->count, when);
}

static void print_ids(const struct rp_printer *printer, const struct rp_explained *part)
{
    char line[LINE_BYTES];
    int used = snprintf(line, sizeof line, "ids");
    for (uint32_t i = 0; i < part->id_count && used < 1000; i++)
        used += snprintf(line + used, sizeof line - (size_t)used, " %" PRIu32, part->ids[i]);
    print_line(printer, INDENT, "%s", line);
}

static void print_part(const struct rp_printer *printer, const struct rp_explained *part)
{
    const struct rp_fragment *fragment = &part->fragment;
    char tokens[RP_CMD_TEXT_BYTES], byte[RP_CMD_TEXT_BYTES];
    uint32_t room = printer->columns - INDENT;
    print_line(printer, 0,
               "%6" PRIu32 "  %.80s:%" PRIu64 " +%" PRIu64 ", %s tokens, epoch %" PRIu64,
               part->place, part->source, fragment->document, fragment->offset,
               rp_cmd_count_text(fragment->length, tokens), part->epoch);
    const char *file = rp_words_tail(part->file, room > 48 ? room - 40 : room);
    print_line(printer, INDENT, "%s%s, byte %s, row %" PRIu64, file == part->file ? "" : "…", file,
               rp_cmd_count_text(part->byte_offset, byte), part->file_row);
    for (uint32_t c = 0; c < part->column_count; c++) {
        char words[RP_COLUMN_WORDS_BYTES];
        rp_words_column(&part->columns[c], room, words);
        print_line(printer, INDENT, "%s", words);
    }
    if (part->text)
        print_line(printer, INDENT, "%.4000s", part->text);
    else if (part->ids)
        print_ids(printer, part);
}

static void table_row(struct rp_printer *printer, const struct rp_explained_row *row)
{
    print_row_head(printer, row);
    for (uint32_t i = 0; i < row->count; i++)
        if (row->parts[i].matches)
            print_part(printer, &row->parts[i]);
}

static void table_document(struct rp_printer *printer, const struct rp_explained_document *document)
{
    char tokens[RP_CMD_TEXT_BYTES], byte[RP_CMD_TEXT_BYTES];
    fputc('\n', printer->out);
    print_line(printer, 0, "%.80s:%" PRIu64 ", %s tokens, epoch %" PRIu64 ": in %" PRIu64 " row%s",
               document->name, document->document, rp_cmd_count_text(document->tokens, tokens),
               document->epoch, document->rows, document->rows == 1 ? "" : "s");
    if (document->why)
        print_line(printer, INDENT, "%s", document->why);
    print_line(printer, INDENT, "%s, byte %s, row %" PRIu64, document->file,
               rp_cmd_count_text(document->byte_offset, byte), document->file_row);
}

static void table_end(struct rp_printer *printer)
{
    if (printer->rows == 0 && printer->documents == 0)
        print_line(printer, 0, "nothing was found");
}

const struct rp_printer rp_table_printer = {
    .begin = table_begin, .row = table_row, .document = table_document, .end = table_end};
