/* SPDX-License-Identifier: Apache-2.0 */
/* texts.c — the checks of every text: whether it may become tokens, and where it begins; and bad
 * lines. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "convert/convert.h"

#define SKIPPED_NAMED_MAX 3u /* in a part */

int rp_convert_take_text(struct rp_convert *convert, struct rp_error *error)
{
    char line[32] = "";
    convert->counts.as_bytes += convert->text == RP_TEXT_BYTES;
    if (convert->text != RP_TEXT_REFUSED)
        return 0;
    if (convert->line > 0)
        snprintf(line, sizeof line, ":%" PRIu64, convert->line);
    return rp_fail(error, -RP_E_USAGE, "give --tokenizer FOLDER of the model, or --tokenizer bytes",
                   "%s%s: it is text, and no tokenizer is given", convert->path, line);
}

size_t rp_convert_mark_bytes(const char *text, size_t bytes)
{
    static const char mark[] = "\xef\xbb\xbf";
    return bytes >= 3 && !memcmp(text, mark, 3) ? 3 : 0;
}

int rp_convert_skip(struct rp_convert *convert, const struct rp_error *error)
{
    if (++convert->counts.bad <= SKIPPED_NAMED_MAX)
        fprintf(stderr, "ringpack: skipped: %s\n", error->message);
    return 0;
}

int rp_convert_fail_line(struct rp_convert *convert, int code, const char *expected,
                         const char *found, struct rp_error *error)
{
    convert->bad_line = true;
    return rp_fail(error, code, convert->may_be_value ? RP_CONVERT_IS_VALUE : RP_CONVERT_MEND,
                   "%s:%" PRIu64 ": expected %s, found %.200s", convert->path, convert->line,
                   expected, found);
}

const char *rp_convert_json_kind(const json_t *value)
{
    static const char *const names[] = {"an object",     "a list", "text",  "an integer",
                                        "a real number", "true",   "false", "null"};
    return names[json_typeof(value)];
}
