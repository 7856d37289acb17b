/* SPDX-License-Identifier: Apache-2.0 */
/* text.c — files of text, plain or compressed. A file is held in memory
 * whole: whether all of it is text must be known before its first document is written. */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "convert/convert.h"
#include "interrupt.h"

#define PIECE_BYTES (256u << 10)

/* Whether `text` is UTF-8. Eight ASCII bytes at a time, then one character at a time, in two thirds
 * of the time that rp_text_character takes for text that is not ASCII. */
static bool is_utf8(const char *text, size_t bytes)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + bytes;
    while (p < end) {
        if (end - p >= 8 && !(rp_load_u64(p) & UINT64_C(0x8080808080808080))) {
            p += 8;
            continue;
        }
        uint8_t lead = *p++;
        if (lead < 0x80)
            continue;
        unsigned more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
        if (lead < 0xc2 || lead > 0xf4 || (size_t)(end - p) < more)
            return false;
        /* The second byte has narrower limits where the character would be overlong, a surrogate or
         * too large. */
        uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
        uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
        if (*p < low || *p > high)
            return false;
        for (unsigned i = 1; i < more; i++)
            if ((p[i] & 0xc0) != 0x80)
                return false;
        p += more;
    }
    return true;
}

static int read_all(struct rp_plain *plain, char **text_out, size_t *bytes_out,
                    struct rp_error *error)
{
    char *text = NULL;
    size_t bytes = 0, capacity = 0, got = 1;
    int code = 0;
    for (; code == 0 && got > 0; bytes += got) {
        if (!RP_GROW(text, capacity, bytes + PIECE_BYTES)) {
            code = rp_fail(error, -ENOMEM, "cut the file, or write its text as JSONL",
                           "%s: no memory for %zu bytes of text", plain->path, bytes + PIECE_BYTES);
            break;
        }
        code = rp_plain_read(plain, text + bytes, PIECE_BYTES, &got, error);
    }
    *text_out = text;
    *bytes_out = bytes;
    return code;
}

static int read_text(const char *path, char **text, size_t *bytes, struct rp_error *error)
{
    struct rp_plain plain;
    int code = rp_plain_open(&plain, path, 0, error);
    if (code == 0)
        code = read_all(&plain, text, bytes, error);
    rp_plain_close(&plain);
    return code;
}

/* The end of the document that begins at `text`: after the first line end past split_bytes; where
 * lines are longer than twice that, between two characters. */
static size_t document_bytes(const char *text, size_t bytes, uint64_t split_bytes)
{
    if (split_bytes == 0 || bytes <= split_bytes)
        return bytes;
    size_t length = (size_t)split_bytes;
    const char *end = memchr(text + length - 1, '\n',
                             (size_t)rp_min_u64(bytes - length + 1, length + 1));
    if (end)
        return (size_t)(end - text) + 1;
    while (length > 1 && ((uint8_t)text[length] & 0xc0) == 0x80)
        length--;
    return length;
}

static int add_documents(struct rp_convert *convert, const struct rp_input *input, const char *text,
                         size_t bytes, struct rp_error *error)
{
    size_t all = bytes;
    int code = rp_convert_take_text(convert, error);
    while (bytes > 0 && code == 0) {
        size_t length = document_bytes(text, bytes, convert->split_bytes);
        code = rp_tokenizer_add(&convert->tokenizer, text, length, error);
        text += length;
        bytes -= length;
        rp_convert_tell(convert,
                        (uint64_t)((double)input->bytes * (double)(all - bytes) / (double)all));
        if (code == 0)
            code = rp_interrupt_check(RP_CONVERT_IS_SAFE, error);
    }
    return code;
}

/* The reason why a file is no text: counted in a directory, an error for a named file. */
static int refuse(struct rp_convert *convert, const struct rp_input *input, uint64_t *counter,
                  const char *reason, struct rp_error *error)
{
    if (input->named)
        return rp_fail(error, -RP_E_FORMAT, "files like it are skipped when a directory is given",
                       "%s: expected UTF-8 text, found %s", input->path, reason);
    (*counter)++;
    convert->counts.files--;
    return 0;
}

int rp_convert_text(struct rp_convert *convert, const struct rp_input *input,
                    struct rp_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    convert->path = input->path;
    convert->line = 0;
    int code = read_text(input->path, &text, &bytes, error);
    if (code < 0) {
        bool is_skipped = code != -ENOMEM && code != -RP_E_RESOURCE && !input->named;
        convert->counts.unreadable += is_skipped;
        free(text);
        return is_skipped ? 0 : code;
    }
    convert->counts.files++;
    size_t mark = rp_convert_mark_bytes(text, bytes);
    if (memchr(text, 0, bytes))
        code = refuse(convert, input, &convert->counts.binary, "a NUL byte, so binary data", error);
    else if (!is_utf8(text, bytes))
        code = refuse(convert, input, &convert->counts.not_utf8, "bytes that are no UTF-8", error);
    else if (bytes - mark < convert->min_bytes || bytes == mark)
        convert->counts.too_small++, convert->counts.files--;
    else
        code = add_documents(convert, input, text + mark, bytes - mark, error);
    free(text);
    return code;
}
