/* SPDX-License-Identifier: Apache-2.0 */
/* jsonl.c — one JSON object a line, with `tokens`, `input_ids`, `text`, `messages`, `prompt` and
 * `completion`, or `chosen` and `rejected`. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "convert/convert.h"
#include "interrupt.h"

#ifndef READ_BYTES /* tests make it small, so that lines span pieces */
#define READ_BYTES (1u << 20)
#endif

/* A null is as if it were not there. */
static json_t *field(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static int fail_id(struct rp_convert *convert, const char *key, const json_t *item,
                   struct rp_error *error)
{
    char expected[128], found[64];
    snprintf(expected, sizeof expected, "token ids from 0 to 2147483647 in `%.60s`", key);
    if (json_is_integer(item))
        snprintf(found, sizeof found, "%" JSON_INTEGER_FORMAT, json_integer_value(item));
    else
        snprintf(found, sizeof found, "%s", rp_convert_json_kind(item));
    return rp_convert_fail_line(convert, -RP_E_FORMAT, expected, found, error);
}

/* Excludes the ids at the end whose attention mask is 0, as columns.py does. */
static int take_padding(struct rp_convert *convert, json_t *object, const char *key,
                        struct rp_ids *ids, struct rp_error *error)
{
    json_t *mask = field(object, "attention_mask");
    size_t whole = ids->count, ones = 0, i = 0;
    if (!mask || !strcmp(key, "attention_mask"))
        return 0;
    if (json_array_size(mask) != whole)
        return rp_convert_fail_line(
            convert, -RP_E_FORMAT, "a list `attention_mask` of as many numbers as there are ids",
            json_is_array(mask) ? "another number" : rp_convert_json_kind(mask), error);
    for (; i < whole; i++) {
        json_t *entry = json_array_get(mask, i);
        bool is_number = json_is_number(entry) || json_is_boolean(entry);
        bool is_one = json_is_true(entry) || json_number_value(entry) != 0;
        if (!is_number || (is_one && ones < i))
            break;
        ones += is_one;
    }
    if (i < whole)
        return rp_convert_fail_line(convert, -RP_E_FORMAT,
                                    "ones and then zeros in `attention_mask`", "something else",
                                    error);
    ids->count = ones;
    ids->padding = whole - ones;
    return 0;
}

static int add_tokens(struct rp_convert *convert, json_t *object, const char *key,
                      struct rp_error *error)
{
    json_t *list = json_object_get(object, key);
    char expected[128];
    snprintf(expected, sizeof expected, "a list of token ids in `%.80s`", key);
    if (!json_is_array(list))
        return rp_convert_fail_line(convert, -RP_E_FORMAT, expected, rp_convert_json_kind(list),
                                    error);
    convert->counts.as_ids += convert->text == RP_TEXT_BYTES;
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
            code = fail_id(convert, key, item, error);
        tokens[i] = (uint32_t)value;
    }
    /* Texts before this line may still be with the tokenizer: order first. */
    if (code == 0)
        code = rp_tokenizer_flush(&convert->tokenizer, error);
    struct rp_ids ids = {.at = tokens, .width = sizeof *tokens, .count = count};
    if (code == 0)
        code = take_padding(convert, object, key, &ids, error);
    if (code == 0)
        code = rp_trained_line(convert, object, &ids, error);
    if (code == 0 && ids.count > 0)
        code = rp_convert_sides_queue(convert, object, 1, error);
    if (code == 0 && ids.count > 0)
        code = rp_convert_sink(convert, &ids, error);
    convert->counts.too_small += code == 0 && ids.count == 0;
    free(tokens);
    return code;
}

static int add_text(struct rp_convert *convert, json_t *object, const char *key,
                    struct rp_error *error)
{
    json_t *text = field(object, key);
    char expected[128];
    snprintf(expected, sizeof expected, "a string in `%.80s`", key);
    if (!json_is_string(text))
        return rp_convert_fail_line(convert, -RP_E_FORMAT, expected, rp_convert_json_kind(text),
                                    error);
    size_t bytes = json_string_length(text);
    if (bytes == 0 || bytes < convert->min_bytes) {
        convert->counts.too_small++;
        return 0;
    }
    int code = rp_convert_take_text(convert, error);
    if (code == 0)
        code = rp_convert_sides_queue(convert, object, 1, error);
    if (code < 0)
        return code;
    return rp_tokenizer_add(&convert->tokenizer, json_string_value(text), bytes, error);
}

/* The worker makes the mask of these lines, so options may only restate it, or say "none". */
static int check_mask(const struct rp_convert *convert, enum rp_ask ask, struct rp_error *error)
{
    const struct rp_mask_choice *mask = &convert->mask;
    bool is_preference = ask == RP_ASK_PREFERENCES || ask == RP_ASK_CHAT_PREFERENCES;
    const char *made = is_preference         ? RP_MASK_OF_PAIRS
                       : ask == RP_ASK_CHATS ? "assistant_masks"
                                             : "completion_mask";
    const char *option = NULL, *given = NULL;
    if (rp_mask_is_none(mask))
        return 0;
    if (!rp_mask_is_auto(mask) && strcmp(mask->name, made) != 0)
        option = "--mask", given = mask->name;
    else if (mask->value && strcmp(mask->value, "train") != 0)
        option = "--mask-value", given = mask->value;
    else if (mask->of && strcmp(mask->of, "token") != 0)
        option = "--mask-of", given = mask->of;
    if (!option)
        return 0;
    return rp_fail(error, -RP_E_USAGE,
                   "leave it out, or train every token with --mask none; convert lines with masks "
                   "of their own one by one",
                   "%s:%" PRIu64 ": %s %s: `%s` lines have only the mask `%s`", convert->path,
                   convert->line, option, given,
                   is_preference         ? "chosen"
                   : ask == RP_ASK_CHATS ? "messages"
                                         : "prompt",
                   made);
}

static bool is_text_or_null(const json_t *value)
{
    return json_is_string(value) || json_is_null(value);
}

/* Hand a line to the worker, which makes documents of it. */
static int send_line(struct rp_convert *convert, json_t *object, struct rp_chat chat, bool is_text,
                     struct rp_error *error)
{
    bool is_pair = chat.ask == RP_ASK_PREFERENCES || chat.ask == RP_ASK_CHAT_PREFERENCES;
    int code = check_mask(convert, chat.ask, error);
    if (code == 0 && convert->sides->count > 0 && convert->skip_bad) /* which ones is not told */
        code = rp_fail(error, -RP_E_USAGE, "leave --skip-bad out, or write the lines as Parquet",
                       "%s:%" PRIu64 ": --skip-bad leaves out lines of prompts, messages or "
                       "answers, and --side-column has values for each of them",
                       convert->path, convert->line);
    if (code == 0 && is_text)
        code = rp_convert_take_text(convert, error);
    if (code == 0)
        code = rp_convert_sides_queue(convert, object, 1 + is_pair, error);
    if (code < 0)
        return code;
    chat.path = convert->path;
    chat.line = convert->line;
    return rp_tokenizer_add_chat(&convert->tokenizer, &chat, error);
}

/* A prompt and its completion, or the messages of a chat: the worker makes ids and a mask of them.
 * The texts of a chat's template have all ends that they want. A null is an empty text. */
static int add_chat(struct rp_convert *convert, json_t *object, const char *line, size_t bytes,
                    struct rp_error *error)
{
    json_t *completion = json_object_get(object, "completion");
    json_t *prompt = completion ? json_object_get(object, "prompt") : NULL; /* else it is a note */
    bool is_text = prompt && is_text_or_null(prompt) && is_text_or_null(completion);
    if (is_text && json_string_length(prompt) + json_string_length(completion) == 0) {
        convert->counts.too_small++;
        return 0;
    }
    bool are_lists = (json_is_array(prompt) || json_is_null(prompt)) &&
                     (json_is_array(completion) || json_is_null(completion));
    if (!is_text && prompt && !are_lists)
        return rp_convert_fail_line(
            convert, -RP_E_FORMAT,
            "`prompt` and `completion` that are both text or both lists of messages",
            "something else", error);
    enum rp_ask ask = is_text ? RP_ASK_PAIRS : prompt ? RP_ASK_CHAT_PAIRS : RP_ASK_CHATS;
    const struct rp_chat chat = {.text = line, .bytes = bytes, .ask = ask};
    return send_line(convert, object, chat, is_text, error);
}

/* The worker finds the prompt of a pair, which is a field, or the common beginning. */
static int add_preference(struct rp_convert *convert, json_t *object, const char *line,
                          size_t bytes, struct rp_error *error)
{
    json_t *chosen = json_object_get(object, "chosen");
    json_t *rejected = json_object_get(object, "rejected"), *prompt = field(object, "prompt");
    bool is_text = json_is_string(chosen) && json_is_string(rejected);
    bool is_chat = json_is_array(chosen) && json_is_array(rejected);
    if ((!is_text && !is_chat) || (is_text && prompt && !json_is_string(prompt)))
        return rp_convert_fail_line(
            convert, -RP_E_FORMAT,
            "`chosen` and `rejected` that are both text or both lists of messages, "
            "and a `prompt` of their kind",
            "something else", error);
    const struct rp_chat chat = {
        .text = line,
        .bytes = bytes,
        .ask = is_text ? RP_ASK_PREFERENCES : RP_ASK_CHAT_PREFERENCES,
    };
    return send_line(convert, object, chat, is_text, error);
}

/* The field that --column names: ids, a text, or `messages`. */
static int add_named(struct rp_convert *convert, json_t *object, const char *line, size_t bytes,
                     struct rp_error *error)
{
    const char *key = convert->column;
    json_t *value = json_object_get(object, key);
    char expected[128];
    if (json_is_null(value)) {
        convert->counts.too_small++;
        return 0;
    }
    if (json_is_array(value) && !strcmp(key, "messages")) {
        const struct rp_chat chat = {.text = line, .bytes = bytes, .ask = RP_ASK_CHATS};
        return send_line(convert, object, chat, false, error);
    }
    if (json_is_array(value))
        return add_tokens(convert, object, key, error);
    if (value)
        return add_text(convert, object, key, error);
    snprintf(expected, sizeof expected, "an object with `%.80s`, as --column says", key);
    return rp_convert_fail_line(convert, -RP_E_FORMAT, expected,
                                json_is_object(object) ? "none of that name" : "no object", error);
}

/* Fields are taken in the order of columns.py. */
static int add_object(struct rp_convert *convert, json_t *object, const char *line, size_t bytes,
                      struct rp_error *error)
{
    static const char *const empty[] = {"tokens", "input_ids", "text", "messages"};
    const char *key = field(object, "input_ids") ? "input_ids" : "tokens";
    if (convert->column)
        return add_named(convert, object, line, bytes, error);
    if (field(object, key))
        return add_tokens(convert, object, key, error);
    if (field(object, "text"))
        return add_text(convert, object, "text", error);
    if (field(object, "messages") ||
        (json_object_get(object, "prompt") && json_object_get(object, "completion")))
        return add_chat(convert, object, line, bytes, error);
    if (field(object, "chosen") && field(object, "rejected"))
        return add_preference(convert, object, line, bytes, error);
    for (size_t i = 0; i < RP_ARRAY_COUNT(empty); i++)
        if (json_object_get(object, empty[i])) { /* it is null */
            convert->counts.too_small++;
            return 0;
        }
    return rp_convert_fail_line(
        convert, -RP_E_FORMAT,
        "an object with `text`, `tokens`, `input_ids`, `messages`, `prompt` and "
        "`completion`, or `chosen` and `rejected`",
        json_is_object(object) ? "none of them" : "no object", error);
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
    json_t *object = json_loadb(line, bytes, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &reason);
    convert->bad_line = false;
    code = object ? add_object(convert, object, line, bytes, error)
                  : rp_convert_fail_line(convert, -RP_E_FORMAT, "a JSON object on one line",
                                         reason.text, error);
    json_decref(object);
    if (code < 0 && convert->bad_line && convert->skip_bad)
        return rp_convert_skip(convert, error);
    return code;
}

/* Where lines are read from: `at` of the file is the first byte of the buffer. */
struct place {
    uint64_t begin, at, end; /* a piece's; end 0: the whole file */
    bool skips;              /* the line of this byte belongs to the piece before */
};

static bool is_past(const struct place *place, size_t begin)
{
    return place->end > 0 && !place->skips && place->at + begin >= place->end;
}

static int take_line(struct rp_convert *convert, struct place *place, const char *line,
                     size_t bytes, struct rp_error *error)
{
    if (!place->skips)
        return add_line(convert, line, bytes, error);
    place->skips = false;
    return 0;
}

/* Lines of any length: the rest of the last piece moves to the front of the buffer. */
static int add_lines(struct rp_convert *convert, struct rp_plain *plain, struct place place,
                     struct rp_error *error)
{
    char *buffer = NULL;
    size_t used = 0, capacity = 0, got = 1;
    int code = 0;
    while (code == 0 && got > 0 && !is_past(&place, 0)) {
        if (!RP_GROW(buffer, capacity, used + READ_BYTES)) {
            code = rp_fail(error, -ENOMEM, NULL,
                           "%s:%" PRIu64 ": no memory for a line of %zu bytes", convert->path,
                           convert->line + 1, used + READ_BYTES);
            break;
        }
        code = rp_plain_read(plain, buffer + used, READ_BYTES, &got, error);
        if (code < 0)
            break;
        rp_convert_tell(convert, rp_plain_done(plain));
        size_t begin = 0, scanned = used;
        used += got;
        if (place.at == 0 && convert->line == 0 && scanned < 3 && used >= 3)
            begin = scanned = rp_convert_mark_bytes(buffer, used);
        for (char *end; code == 0 && !is_past(&place, begin) &&
                        (end = memchr(buffer + scanned, '\n', used - scanned)) != NULL;) {
            size_t length = (size_t)(end - buffer) - begin;
            code = take_line(convert, &place, buffer + begin, length, error);
            begin = scanned = begin + length + 1;
        }
        memmove(buffer, buffer + begin, used - begin);
        used -= begin;
        place.at += begin;
    }
    bool more = place.end > 0 && is_past(&place, 0);
    if (code == 0 && used > 0 && !more) /* a last line without an end */
        code = take_line(convert, &place, buffer, used, error);
    free(buffer);
    return code;
}

int rp_convert_jsonl(struct rp_convert *convert, const struct rp_input *input,
                     struct rp_error *error)
{
    struct rp_plain plain;
    convert->path = input->path;
    convert->line = input->begin > 0 ? convert->line_base : 0;
    struct place place = {.begin = input->begin, .at = input->begin, .end = input->end};
    convert->may_be_value = input->form->reading == RP_READ_JSON;
    if (place.begin > 0) { /* the byte before says whether a line begins there */
        place.skips = true;
        place.at--;
    }
    int code = rp_plain_open(&plain, input->path, place.at, error);
    convert->counts.files += code == 0 && input->begin == 0;
    if (code == 0)
        code = add_lines(convert, &plain, place, error);
    rp_plain_close(&plain);
    return code;
}
