/* SPDX-License-Identifier: Apache-2.0 */
/* jsonl.c — one JSON object a line, with `tokens`, `input_ids` or `text`. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/bits.h"
#include "convert/convert.h"
#include "interrupt.h"

#ifndef READ_BYTES /* tests make it small, so that lines span pieces */
#define READ_BYTES (1u << 20)
#endif

static int fail_line(const struct rp_convert *convert, int code, const char *expected,
                     const char *found, struct rp_error *error)
{
    return rp_fail(error, code, RP_CONVERT_MEND, "%s:%" PRIu64 ": expected %s, found %.200s",
                   convert->path, convert->line, expected, found);
}

/* Does a list beside the ids say that every token is trained on? Labels do where they are the ids,
 * masks where they are ones. */
static bool says_nothing(json_t *beside, json_t *ids, bool is_mask)
{
    if (!is_mask || !json_is_array(beside))
        return json_equal(beside, ids) || json_is_null(beside);
    size_t count = json_array_size(beside), ones = 0;
    for (size_t i = 0; i < count; i++) {
        json_t *item = json_array_get(beside, i);
        ones += json_is_true(item) || json_number_value(item) == 1;
    }
    return ones == count;
}

/* What is written has ids alone: labels that leave tokens out of the loss would be lost. */
static int check_labels(const struct rp_convert *convert, json_t *object, json_t *ids,
                        struct rp_error *error)
{
    static const struct {
        const char *key;
        bool is_mask;
    } columns[] = {{"labels", false},
                   {"loss_mask", true},
                   {"completion_mask", true},
                   {"assistant_masks", true}};
    for (size_t i = 0; !convert->drop_labels && i < RP_ARRAY_COUNT(columns); i++) {
        json_t *beside = json_object_get(object, columns[i].key);
        if (beside && !says_nothing(beside, ids, columns[i].is_mask))
            return rp_fail(
                error, -RP_E_FORMAT, "give --drop-labels if every token is to be trained on",
                "%s:%" PRIu64 ": `%s` leaves tokens out of the loss: expected ids alone, "
                "for nothing else is kept",
                convert->path, convert->line, columns[i].key);
    }
    return 0;
}

static int add_tokens(struct rp_convert *convert, json_t *list, const char *key,
                      struct rp_error *error)
{
    if (!json_is_array(list))
        return fail_line(convert, -RP_E_FORMAT, "an array of token ids", key, error);
    if (convert->append_eos && !convert->eos_declared)
        return rp_fail(error, -RP_E_USAGE, "give --eos N, or --no-append-eos",
                       "%s:%" PRIu64 ": `%s`: which token ends a document is not known",
                       convert->path, convert->line, key);
    size_t count = json_array_size(list);
    uint32_t *tokens = reallocarray(NULL, count ? count : 1, sizeof *tokens);
    if (!tokens)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a document of %zu tokens", count);
    int code = 0;
    for (size_t i = 0; code == 0 && i < count; i++) {
        json_t *item = json_array_get(list, i);
        json_int_t value = json_integer_value(item);
        if (!json_is_integer(item) || value < 0 || value > INT32_MAX)
            code = fail_line(convert, -RP_E_FORMAT, "token ids from 0 to 2147483647",
                             "something else", error);
        tokens[i] = (uint32_t)value;
    }
    /* Texts before this line may still be with the tokenizer: order first. */
    if (code == 0)
        code = rp_tokenizer_flush(&convert->tokenizer, error);
    struct rp_ids ids = {tokens, sizeof *tokens, count};
    if (code == 0 && count > 0)
        code = rp_convert_sink(convert, &ids, error);
    convert->counts.too_small += count == 0;
    free(tokens);
    return code;
}

static int add_text(struct rp_convert *convert, json_t *text, struct rp_error *error)
{
    if (!json_is_string(text))
        return fail_line(convert, -RP_E_FORMAT, "a string in `text`", "another type", error);
    size_t bytes = json_string_length(text);
    if (bytes == 0 || bytes < convert->min_bytes) {
        convert->counts.too_small++;
        return 0;
    }
    return rp_tokenizer_add(&convert->tokenizer, json_string_value(text), bytes, error);
}

static int add_line(struct rp_convert *convert, const char *line, size_t bytes,
                    struct rp_error *error)
{
    convert->line++;
    int code = rp_interrupt_check(RP_CONVERT_IS_SAFE, error);
    if (code < 0)
        return code;
    size_t blank = 0;
    while (blank < bytes && strchr(" \t\r\n", line[blank]) && line[blank])
        blank++;
    if (blank == bytes)
        return 0;
    json_error_t reason;
    json_t *object = json_loadb(line, bytes, JSON_ALLOW_NUL, &reason);
    if (!object)
        return fail_line(convert, -RP_E_FORMAT, "a JSON object on one line", reason.text, error);
    const char *key = json_object_get(object, "tokens") ? "tokens" : "input_ids";
    json_t *ids = json_object_get(object, key), *text = json_object_get(object, "text");
    if (ids) {
        code = check_labels(convert, object, ids, error);
        code = code < 0 ? code : add_tokens(convert, ids, key, error);
    } else if (text)
        code = add_text(convert, text, error);
    else
        code = fail_line(convert, -RP_E_FORMAT, "an object with `text`, `tokens` or `input_ids`",
                         json_is_object(object) ? "none of them" : "no object", error);
    json_decref(object);
    return code;
}

/* Lines of any length: what is left of the last piece moves to the front of the buffer. */
static int add_lines(struct rp_convert *convert, gzFile file, struct rp_plain *plain,
                     struct rp_error *error)
{
    char *buffer = NULL;
    size_t used = 0, capacity = 0;
    int code = 0, got = 1;
    while (code == 0 && got > 0) {
        if (capacity - used < READ_BYTES) {
            capacity = 2 * capacity + READ_BYTES;
            char *larger = realloc(buffer, capacity);
            if (!larger) {
                code = rp_fail(error, -ENOMEM, NULL,
                               "%s:%" PRIu64 ": no memory for a line of %zu bytes", convert->path,
                               convert->line + 1, capacity);
                break;
            }
            buffer = larger;
        }
        got = gzread(file, buffer + used, READ_BYTES);
        if (gzoffset(file) > 0) /* -1 for a pipe */
            rp_convert_tell(convert, (uint64_t)gzoffset(file));
        if (got < 0) {
            int number;
            code = rp_fail(error, -RP_E_CORRUPT, NULL, "%s: cannot read: %s", convert->path,
                           gzerror(file, &number));
            break;
        }
        size_t begin = 0, scanned = used;
        used += (size_t)got;
        for (char *end;
             code == 0 && (end = memchr(buffer + scanned, '\n', used - scanned)) != NULL;) {
            size_t length = (size_t)(end - buffer) - begin;
            code = add_line(convert, buffer + begin, length, error);
            begin = scanned = begin + length + 1;
        }
        memmove(buffer, buffer + begin, used - begin);
        used -= begin;
    }
    if (code == 0) /* what a damaged archive gave last is no line, but half of one */
        code = rp_plain_end(plain, convert->path, 0, error);
    if (code == 0 && used > 0) /* a last line without an end */
        code = add_line(convert, buffer, used, error);
    free(buffer);
    return code;
}

int rp_convert_jsonl(struct rp_convert *convert, const struct rp_input *input,
                     struct rp_error *error)
{
    struct rp_plain plain;
    convert->path = input->path;
    convert->line = 0;
    int code = rp_plain_open(&plain, input->path, error);
    if (code < 0)
        return code;
    gzFile file = gzdopen(plain.fd, "rb");
    if (!file) {
        close(plain.fd);
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory to read it", input->path);
        return rp_plain_end(&plain, input->path, code, error);
    }
    gzbuffer(file, READ_BYTES);
    convert->counts.files++;
    code = add_lines(convert, file, &plain, error);
    if (gzclose(file) != Z_OK && code == 0)
        code = rp_fail(error, -RP_E_CORRUPT, NULL, "%s: the gzip archive ends early", input->path);
    return rp_plain_end(&plain, input->path, code, error);
}
