/* SPDX-License-Identifier: Apache-2.0 */
/* texts.c — the checks of every text: whether it may become tokens, and where it begins. */
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
