/* SPDX-License-Identifier: Apache-2.0 */
/* page.c — rows as a page: one file without a script, which loads no other file (its policy forbids
 * it), dark or light as the reader's system is. A row is a bar as long as seq_len, with a piece for
 * each fragment in the colour of its source; the list below has the provenance of each fragment. */
#include <inttypes.h>

#include "explain/explain.h"
#include "page_file.h"

static const char head_text[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
    "'unsafe-inline'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n<style>\n"
    ":root{--bg:#fff;--fg:#1c1c1c;--dim:#5c5c5c;--line:#ddd;--l:78%;--s:70%;--pad:#e4e4e4}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#16181b;--fg:#e6e6e6;--dim:#a0a0a0;--line:#333;"
    "--l:34%;--s:50%;--pad:#2a2c30}}\n"
    "body{background:var(--bg);color:var(--fg);font:14px/1.45 system-ui,sans-serif;margin:1.5rem "
    "auto;max-width:1100px;padding:0 1rem}\n"
    "h1{font-size:1.3rem;margin:0}p.meta,small{color:var(--dim)}\n"
    ".legend{position:sticky;top:0;background:var(--bg);padding:.5rem 0;border-bottom:1px solid "
    "var(--line);z-index:1}\n"
    ".legend span{display:inline-block;margin-right:1rem}\n"
    ".legend i{display:inline-block;width:.9em;height:.9em;border-radius:2px;margin-right:.35em;"
    "vertical-align:-1px}\n"
    ".f,.legend i{background:hsl(var(--h) var(--s) var(--l))}\n"
    "body{overflow-wrap:anywhere}.wide{overflow-x:auto}.wide table{min-width:50rem}\n"
    ".row{margin:.9rem 0}.bar{display:flex;height:28px;border-radius:3px;overflow:hidden;"
    "background:var(--pad)}\n"
    ".bar .f{flex:none;border-right:1px solid var(--bg);box-sizing:border-box;overflow:hidden;"
    "white-space:nowrap;font-size:11px;line-height:28px;padding-left:3px;color:var(--fg);"
    "text-decoration:none}\n"
    ".bar .f:hover,.bar .f:focus{outline:2px solid var(--fg);outline-offset:-2px}\n"
    ".bar .off{opacity:.25}summary{cursor:pointer;color:var(--dim);font-size:12px}\n"
    "table{border-collapse:collapse;width:100%;font-size:12px;margin:.4rem 0;table-layout:fixed}"
    "th:nth-child(1){width:5em}th:nth-child(2){width:5em}th:nth-child(3){width:14em}"
    "th:nth-child(4){width:18em}"
    "td,th{text-align:left;vertical-align:top;padding:.2rem .5rem .2rem 0;border-bottom:1px solid "
    "var(--line);overflow-wrap:anywhere}\n"
    "td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
    "tr:target{outline:2px solid var(--fg)}\n"
    "pre{margin:0;white-space:pre-wrap;font:12px/1.4 ui-monospace,monospace;max-height:12em;"
    "overflow:auto}\n</style>\n<title>";

static void page_begin(struct rp_printer *printer)
{
    const struct rp_explain_head *head = printer->head;
    FILE *out = printer->out;
    char hex[RP_HASH_HEX_BYTES];
    fputs(head_text, out);
    rp_words_html(out, head->title);
    fputs(" - ringpack</title>\n</head>\n<body>\n<h1>", out);
    rp_words_html(out, head->title);
    fprintf(out, "</h1>\n<p class=\"meta\">stream %s, rows of %" PRIu32,
            rp_hash128_hex(head->identity, hex), head->seq_len);
    if (head->most_seq_len > head->seq_len)
        fprintf(out, " to %" PRIu32, head->most_seq_len);
    fputs(" tokens", out);
    if (head->text) {
        fputs(", fragments with the text <q>", out);
        rp_words_html(out, head->text);
        fputs("</q>", out);
    }
    fputs("</p>\n<div class=\"legend\">", out);
    for (uint32_t s = 0; s < head->config->source_count; s++) {
        fprintf(out, "<span><i style=\"--h:%" PRIu64 "\"></i>", RP_PAGE_HUE(s));
        rp_words_html(out, head->config->sources[s].name);
        fputs("</span>", out);
    }
    fputs("<span><i style=\"background:var(--pad)\"></i>padding</span></div>\n", out);
}

/* A piece of the bar; its provenance appears under the pointer. */
static void page_piece(const struct rp_printer *printer, const struct rp_explained_row *row,
                       const struct rp_explained *part)
{
    const struct rp_fragment *fragment = &part->fragment;
    FILE *out = printer->out;
    double percent = 100.0 * fragment->length / row->seq_len;
    fprintf(out,
            "<a class=\"f%s\" href=\"#r%" PRIu64 "f%" PRIu32 "\" style=\"--h:%" PRIu64
            ";width:%.4f%%\" title=\"",
            part->matches ? "" : " off", row->row, part->number, RP_PAGE_HUE(fragment->source),
            percent);
    rp_words_html(out, part->source);
    fprintf(out,
            ":%" PRIu64 ", tokens %" PRIu64 " to %" PRIu64 ", epoch %" PRIu64
            "&#10;in the row from token %" PRIu32 " on&#10;",
            fragment->document, fragment->offset, fragment->offset + fragment->length - 1,
            part->epoch, part->place);
    rp_words_html(out, part->file);
    fprintf(out, "&#10;byte %" PRIu64 ", row %" PRIu64 "\">", part->byte_offset, part->file_row);
    if (percent > 4)
        rp_words_html(out, part->source);
    fputs("</a>", out);
}

static void page_words(FILE *out, const struct rp_explained *part)
{
    fputs("<pre>", out);
    if (part->text) {
        rp_words_html(out, part->text);
        fputs(part->is_cut ? "…" : "", out);
    } else if (part->ids) {
        for (uint32_t i = 0; i < part->id_count; i++)
            fprintf(out, "%s%" PRIu32, i ? " " : "", part->ids[i]);
        fputs(part->id_count < part->fragment.length ? " …" : "", out);
    }
    fputs("</pre>", out);
}

static void page_line(const struct rp_printer *printer, const struct rp_explained_row *row,
                      const struct rp_explained *part)
{
    const struct rp_fragment *fragment = &part->fragment;
    FILE *out = printer->out;
    fprintf(out,
            "<tr id=\"r%" PRIu64 "f%" PRIu32 "\"><td class=\"n\">%" PRIu32
            "</td><td class=\"n\">%" PRIu32 "</td><td>",
            row->row, part->number, part->place, fragment->length);
    rp_words_html(out, part->source);
    fprintf(out,
            ":%" PRIu64 "<br><small>from token %" PRIu64 ", epoch %" PRIu64 "</small></td><td>",
            fragment->document, fragment->offset, part->epoch);
    rp_words_html(out, part->file);
    fprintf(out, "<br><small>byte %" PRIu64 ", row %" PRIu64, part->byte_offset, part->file_row);
    for (uint32_t c = 0; c < part->column_count; c++) {
        char words[RP_COLUMN_WORDS_BYTES];
        rp_words_column(&part->columns[c], 360, words);
        fputs("<br>", out);
        rp_words_html(out, words);
    }
    fputs("</small></td><td>", out);
    page_words(out, part);
    fputs("</td></tr>\n", out);
}

static void page_row(struct rp_printer *printer, const struct rp_explained_row *row)
{
    FILE *out = printer->out;
    fprintf(out, "<section class=\"row\"><small>row %" PRIu64, row->row);
    if (row->has_stage)
        fprintf(out, " · stage %" PRIu32, row->stage);
    if (row->place.is_known)
        fprintf(out, " · step %" PRIu64 " · micro-batch %" PRIu64 " · rank %" PRIu32,
                row->place.step, row->place.micro_batch, row->place.rank);
    fprintf(out, " · %" PRIu32 " tokens, %" PRIu32 " of padding%s</small>\n<div class=\"bar\">",
            row->tokens, row->seq_len - row->tokens,
            row->is_dropped     ? " · " RP_DROPPED_TEXT
            : row->is_withheld  ? " · " RP_WITHHELD_TEXT
            : row->is_past      ? " · past"
            : row->has_position ? " · to come"
                                : "");
    for (uint32_t i = 0; i < row->count; i++)
        page_piece(printer, row, &row->parts[i]);
    fputs("</div>\n<details><summary>fragments</summary>\n<div class=\"wide\" tabindex=\"0\">"
          "<table><tr><th class=\"n\">at</th>"
          "<th class=\"n\">tokens</th><th>document</th><th>file</th><th>content</th></tr>\n",
          out);
    for (uint32_t i = 0; i < row->count; i++)
        if (row->parts[i].matches)
            page_line(printer, row, &row->parts[i]);
    fputs("</table></div></details></section>\n", out);
}

static void page_document(struct rp_printer *printer, const struct rp_explained_document *document)
{
    FILE *out = printer->out;
    fputs("<p>", out);
    rp_words_html(out, document->name);
    fprintf(out, ":%" PRIu64 ", %" PRIu64 " tokens, epoch %" PRIu64 ": in %" PRIu64 " row%s",
            document->document, document->tokens, document->epoch, document->rows,
            document->rows == 1 ? "" : "s");
    fprintf(out, "%s%s<br><small>", document->why ? ": " : "", document->why ? document->why : "");
    rp_words_html(out, document->file);
    fprintf(out, ", byte %" PRIu64 ", row %" PRIu64 "</small></p>\n", document->byte_offset,
            document->file_row);
}

static void page_end(struct rp_printer *printer)
{
    if (printer->rows == 0 && printer->documents == 0)
        fputs("<p>nothing was found</p>\n", printer->out);
    fputs("</body>\n</html>\n", printer->out);
}

const struct rp_printer rp_page_printer = {
    .begin = page_begin, .row = page_row, .document = page_document, .end = page_end};
