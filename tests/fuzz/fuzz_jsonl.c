/* SPDX-License-Identifier: Apache-2.0 */
/* A file of JSON lines, plain or gzip: u8 (1: eos is declared; 2: one value; 4: lines have side
 * columns), the file.
 *
 * Every document that comes out has a token, and only ids that fit; a plain file that is accepted
 * was read to its last line; text comes out as many tokens as it has bytes. A side column has a
 * number for a document, or an entry for each of its ids. */
#include <stdlib.h>

#include "cmd.h"
#include "convert/convert.h"
#include "fuzz.h"

static const struct rp_wanted_sides none,
    two = {.columns = {{.name = "w", .place = "w"}, {.name = "n", .place = "n", .detail = "i16"}},
           .count = 2};

int rp_cmd_misuse(const char *verb, const char *format, ...)
{
    (void)verb, (void)format;
    abort(); /* command lines call it, and none is read here */
}

static uint64_t documents;

static int take_sides(struct rp_convert *convert, const struct rp_ids *ids, struct rp_error *error)
{
    struct rp_entries entries[RP_SIDES_MAX];
    int code = rp_convert_sides_take(convert, ids, entries, error);
    for (uint32_t i = 0; i < convert->sides->count && code == 0; i++) {
        FUZZ_REQUIRE(entries[i].count == (entries[i].is_number ? 1 : ids->count));
        (void)rp_hash64(entries[i].at, entries[i].count * entries[i].type.bytes);
    }
    return code;
}

int rp_convert_sink(void *convert, const struct rp_ids *ids, struct rp_error *error)
{
    FUZZ_REQUIRE(ids->count > 0);
    int code = take_sides(convert, ids, error);
    if (code < 0)
        return code;
    for (size_t i = 0; i < ids->count; i++)
        FUZZ_REQUIRE(ids->width == 2 || ((const uint32_t *)ids->at)[i] <= INT32_MAX);
    documents++;
    return 0;
}

void rp_convert_tell(struct rp_convert *convert, uint64_t bytes)
{
    (void)convert, (void)bytes;
}

static uint64_t count_lines(const uint8_t *text, size_t bytes)
{
    if (bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) /* a byte order mark is no line */
        text += 3, bytes -= 3;
    uint64_t lines = bytes > 0 && text[bytes - 1] != '\n';
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    return lines;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    struct rp_convert convert = {.append_eos = true, .eos = 256};
    uint64_t flags = fuzz_number(&input, 1);
    convert.eos_declared = flags & 1;
    convert.sides = flags & 4 ? &two : &none;
    convert.text = RP_TEXT_BYTES;
    const struct rp_tokenizer_choice bytes = {.name = "bytes"};
    const struct rp_form form = {.reading = flags & 2 ? RP_READ_JSON : RP_READ_JSONL};
    FUZZ_REQUIRE(
        rp_tokenizer_open(&convert.tokenizer, &bytes, 0, rp_convert_sink, &convert, &error) == 0);
    char path[32];
    snprintf(path, sizeof path, "%s", fuzz_file("text", input.at, input.left));
    struct rp_input file = {.path = path, .bytes = input.left, .form = &form, .named = true};
    documents = 0;
    bool accepted = fuzz_accepted(rp_convert_jsonl(&convert, &file, &error), &error);
    bool plain = input.left < 2 || rp_load_u16(input.at) != 0x8b1f;
    FUZZ_REQUIRE(documents <= convert.line);
    if (accepted && plain)
        FUZZ_REQUIRE(convert.line == count_lines(input.at, input.left));
    rp_tokenizer_close(&convert.tokenizer);
    free(convert.queue.bytes);
    return 0;
}
