/* SPDX-License-Identifier: Apache-2.0 */
/* drawing.c — the picture as a whole. Every text of a config is written by rp_words_html, which
 * escapes it. */
#include <inttypes.h>

#include "cmd.h"
#include "explain/explain.h"
#include "page_file.h"
#include "plan/axes.h"
#include "plan/mixture.h"
#include "plan/panels.h"

#define HEADER_HEIGHT 72.0

static const char light[] = ".bg{fill:#fff}text{fill:#1c1c1c}.d{fill:#5c5c5c}.g{stroke:#ddd}"
                            ".a{fill:#2c7fb8}.b{fill:#e0a13a}.l{stroke:#1c1c1c}";
static const char dark[] = ".bg{fill:#16181b}text{fill:#e6e6e6}.d{fill:#a0a0a0}.g{stroke:#3a3d42}"
                           ".a{fill:#4aa3df}.b{fill:#c98a2b}.l{stroke:#e6e6e6}";

static void colours(FILE *out, const struct rp_bands *bands, const char *rules,
                    const char *saturation_and_lightness)
{
    fputs(rules, out);
    for (uint32_t i = 0; i < bands->count; i++)
        if (rp_band_is_rest(bands, i))
            fprintf(out, ".s%" PRIu32 "{fill:#8a8a8a}", i);
        else
            fprintf(out, ".s%" PRIu32 "{fill:hsl(%" PRIu64 ",%s)}", i,
                    RP_PAGE_HUE(bands->bands[i].source), saturation_and_lightness);
}

static void begin(FILE *out, const struct rp_bands *bands, double height)
{
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg "
            "xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
            "height=\"%.0f\" role=\"img\">\n<style>\n"
            "text{font:12px system-ui,sans-serif}.t{font-size:14px;font-weight:600}"
            ".h{font-size:19px;font-weight:600}.e{text-anchor:end}.m{text-anchor:middle}"
            ".g,.l{fill:none}.l{stroke-dasharray:4 3}path,rect{shape-rendering:crispEdges}"
            ".o{fill:#808080;fill-opacity:0}.o:hover{fill-opacity:.3}\n",
            RP_PICTURE_WIDTH, height, RP_PICTURE_WIDTH, height);
    colours(out, bands, light, "62%,68%");
    fputs("\n@media(prefers-color-scheme:dark){", out);
    colours(out, bands, dark, "42%,42%");
    fputs("}\n</style>\n", out);
}

static void header(FILE *out, const struct rp_picture *picture, const struct rp_plan_counts *counts,
                   bool is_complete)
{
    char rows[RP_CMD_TEXT_BYTES], seq_len[RP_CMD_TEXT_BYTES], tokens[RP_CMD_TEXT_BYTES];
    char first[RP_CMD_TEXT_BYTES], most[RP_CMD_TEXT_BYTES];
    bool is_one = picture->least_seq_len == picture->most_seq_len;
    fputs("<title>ringpack plan: ", out);
    rp_words_html(out, picture->config->run);
    fputs("</title>\n<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n"
          "<text class=\"h\" x=\"24\" y=\"36\">The plan of run ",
          out);
    rp_words_html(out, picture->config->run);
    fprintf(
        out,
        "</text>\n<text class=\"d\" x=\"24\" y=\"58\">%s rows of %s%s%s tokens%s%s%s: %s tokens of "
        "documents</text>\n<text class=\"d e\" x=\"976\" y=\"58\">ringpack "
        "%s</text>\n",
        rp_cmd_count_text(picture->rows, rows), rp_cmd_count_text(picture->least_seq_len, seq_len),
        is_one ? "" : " to ", is_one ? "" : rp_cmd_count_text(picture->most_seq_len, most),
        picture->first_row ? " from row " : "",
        picture->first_row ? rp_cmd_count_text(picture->first_row, first) : "",
        is_complete ? "" : " (the stream is longer)", rp_cmd_count_text(counts->emitted, tokens),
        RP_VERSION);
}

int rp_picture_draw(FILE *out, const struct rp_picture *picture,
                    const struct rp_plan_counts *counts, bool is_complete, struct rp_error *error)
{
    struct rp_bands bands;
    int code = rp_bands_choose(&bands, picture, error);
    if (code < 0)
        return code;
    double padding_top = HEADER_HEIGHT + rp_mixture_height(&bands);
    double lengths_top = padding_top + RP_PADDING_HEIGHT;
    double layout_top = lengths_top + RP_LENGTHS_HEIGHT;
    bool is_empty = picture->rows == 0, has_layout = picture->layout->choice_count > 0;
    begin(out, &bands, is_empty ? HEADER_HEIGHT : layout_top + (has_layout ? RP_LAYOUT_HEIGHT : 0));
    header(out, picture, counts, is_complete);
    if (!is_empty) {
        rp_draw_mixture(out, picture, &bands, HEADER_HEIGHT);
        rp_draw_padding(out, picture, counts, padding_top);
        rp_draw_lengths(out, picture, lengths_top);
        rp_draw_ranks(out, picture, lengths_top);
        if (has_layout)
            rp_draw_layout(out, picture->layout, layout_top);
    }
    fputs("</svg>\n", out);
    return 0;
}
