/* SPDX-License-Identifier: Apache-2.0 */
#include "inspection.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/bits.h"
#include "cmd.h"
#include "corpus/eos.h"

#define BAR_COLUMNS 40

static bool fingerprint_is_full(const struct rp_inspection *inspection)
{
    return rp_hash128_is_known(inspection->fingerprint.full);
}

/* Signed tokens are read as unsigned ones, so a negative id shows as one with the top bit. */
static bool has_negative(const struct rp_inspection *inspection)
{
    uint32_t bits = rp_token_bits(inspection->type);
    return bits < 8 * rp_token_width(inspection->type) && inspection->token_max != UINT64_MAX &&
           inspection->token_max >> bits;
}

/* Problems of a shard that can be read. */
struct warnings {
    char text[5][200];
    size_t count;
};

static __attribute__((format(printf, 2, 3))) void warn(struct warnings *warnings,
                                                       const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(warnings->text[warnings->count++], sizeof warnings->text[0], format, arguments);
    va_end(arguments);
}

static struct rp_eos_facts facts_of(const struct rp_inspection *inspection)
{
    return (struct rp_eos_facts){rp_eos_dividing(inspection->format, inspection->eos),
                                 inspection->documents, inspection->tokens, inspection->length_max,
                                 1};
}

static struct warnings find_warnings(const struct rp_inspection *inspection)
{
    struct warnings warnings = {.count = 0};
    if (inspection->damaged_documents)
        warn(&warnings, "%" PRIu64 " index entries are damaged: a run stops at the first of them",
             inspection->damaged_documents);
    if (has_negative(inspection))
        warn(&warnings, "there are negative token ids (seen as unsigned: up to %" PRIu64 ")",
             inspection->token_max);
    if (inspection->empty_documents)
        warn(&warnings, "%" PRIu64 " documents are empty: they are skipped and counted",
             inspection->empty_documents);
    if (inspection->untrained_documents)
        warn(&warnings,
             "%" PRIu64 " documents have no trained token (drop_untrained leaves them out)",
             inspection->untrained_documents);
    const struct rp_eos_facts facts = facts_of(inspection);
    if (rp_eos_doubt(&facts, warnings.text[warnings.count], sizeof warnings.text[0]))
        warnings.count++;
    return warnings;
}

static void print_histogram(const struct rp_inspection *inspection)
{
    unsigned first = 64, last = 0;
    uint64_t most = 1;
    for (unsigned b = 0; b <= 64; b++) {
        if (!inspection->length_histogram[b])
            continue;
        first = b < first ? b : first;
        last = b;
        most = rp_max_u64(most, inspection->length_histogram[b]);
    }
    char low[RP_CMD_TEXT_BYTES], high[RP_CMD_TEXT_BYTES], count[RP_CMD_TEXT_BYTES];
    for (unsigned b = first; b <= last && b <= 64; b++) {
        uint64_t documents = inspection->length_histogram[b];
        uint64_t from = b ? UINT64_C(1) << (b - 1) : 0, to = b ? from + (from - 1) : 0;
        int bar = (int)((double)documents / (double)most * BAR_COLUMNS);
        printf("  %13s - %-13s %.*s%s %s\n", rp_cmd_count_text(from, low),
               rp_cmd_count_text(to, high), bar, "########################################",
               documents && !bar ? "." : "", documents ? rp_cmd_count_text(documents, count) : "");
    }
}

void rp_inspection_doubt(const char *path, const struct rp_inspection *inspection)
{
    char text[200];
    const struct rp_eos_facts facts = facts_of(inspection);
    if (rp_eos_doubt(&facts, text, sizeof text))
        printf("%s: warning: %s\n", path, text);
}

void rp_inspection_print(const char *path, const struct rp_inspection *inspection)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], c[RP_CMD_TEXT_BYTES], hex[RP_HASH_HEX_BYTES];
    char tokenizer[RP_TOKENIZER_TEXT_BYTES];
    printf("%s\n  what         %s, %s tokens", path, rp_format_name(inspection->format),
           rp_token_type_name(inspection->type));
    if (inspection->eos != RP_EOS_NONE)
        printf(", eos %" PRId64, inspection->eos);
    if (inspection->column[0])
        printf(", column `%s`", inspection->column);
    printf("\n  why          %s\n", inspection->why);
    printf("  documents    %s\n", rp_cmd_count_text(inspection->documents, a));
    printf("  tokens       %s in %s\n", rp_cmd_count_text(inspection->tokens, a),
           rp_cmd_bytes_text(inspection->bytes, b));
    if (inspection->token_max == UINT64_MAX)
        printf("  largest id   not known; --scan reads every token\n");
    else
        printf("  largest id   %s\n", rp_cmd_count_text(inspection->token_max, a));
    if (inspection->mask[0])
        printf("  mask         %s, %s of %s tokens trained\n", inspection->mask,
               rp_cmd_count_text(inspection->trained_tokens, a),
               rp_cmd_count_text(inspection->tokens, b));
    if (rp_ids_know_tokenizer(&inspection->tokenizer))
        printf("  tokenizer    %s\n", rp_ids_tokenizer_text(&inspection->tokenizer, tokenizer));
    bool full = fingerprint_is_full(inspection);
    printf(
        "  fingerprint  %s, %s\n",
        rp_hash128_hex(full ? inspection->fingerprint.full : inspection->fingerprint.sampled, hex),
        full ? "full (sidecar)" : "sampled (no sidecar; `ringpack index` makes it full)");
    uint64_t mean = inspection->documents ? inspection->tokens / inspection->documents : 0;
    printf("  length       %s to %s tokens, mean %s\n",
           rp_cmd_count_text(inspection->length_min, a),
           rp_cmd_count_text(inspection->length_max, b), rp_cmd_count_text(mean, c));
    print_histogram(inspection);
    struct warnings warnings = find_warnings(inspection);
    for (size_t i = 0; i < warnings.count; i++)
        printf("  warning: %s\n", warnings.text[i]);
}

/* jansson has no unsigned 64-bit integers: counts fit, a token id that does not is clamped. */
static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)rp_min_u64(value, INT64_MAX));
}

json_t *rp_inspection_tokenizer(const struct rp_tokenizer_id *id)
{
    char hex[RP_HASH_HEX_BYTES];
    return rp_ids_know_tokenizer(id) ? json_pack("{s:o, s:s}", "name", rp_cmd_json_text(id->name),
                                                 "xxh3_128", rp_hash128_hex(id->hash, hex))
                                     : json_null();
}

json_t *rp_inspection_json(const char *path, const struct rp_inspection *inspection)
{
    char sampled[RP_HASH_HEX_BYTES], full[RP_HASH_HEX_BYTES];
    bool is_full = fingerprint_is_full(inspection);
    json_t *histogram = json_array(), *warning_list = json_array();
    for (unsigned b = 0; b <= 64; b++) {
        if (!inspection->length_histogram[b])
            continue;
        uint64_t from = b ? UINT64_C(1) << (b - 1) : 0;
        json_array_append_new(histogram,
                              json_pack("{s:o, s:o}", "length_from", number(from), "documents",
                                        number(inspection->length_histogram[b])));
    }
    struct warnings warnings = find_warnings(inspection);
    for (size_t i = 0; i < warnings.count; i++)
        json_array_append_new(warning_list, json_string(warnings.text[i]));
    return json_pack(
        "{s:o, s:s, s:s, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, "
        "s:o, s:s, s:o, s:o, s:o}",
        "path", rp_cmd_json_text(path), "format", rp_format_name(inspection->format), "dtype",
        rp_token_type_name(inspection->type), "eos",
        inspection->eos == RP_EOS_NONE ? json_null() : json_integer(inspection->eos), "column",
        inspection->column[0] ? rp_cmd_json_text(inspection->column) : json_null(), "why",
        inspection->why, "bytes", number(inspection->bytes), "tokens", number(inspection->tokens),
        "documents", number(inspection->documents), "empty_documents",
        number(inspection->empty_documents), "length_min", number(inspection->length_min),
        "length_max", number(inspection->length_max), "token_max",
        inspection->token_max == UINT64_MAX ? json_null() : number(inspection->token_max),
        "sidecar", (int)inspection->has_sidecar, "mask",
        inspection->mask[0] ? rp_cmd_json_text(inspection->mask) : json_null(), "trained_tokens",
        number(inspection->trained_tokens), "untrained_documents",
        number(inspection->untrained_documents), "tokenizer",
        rp_inspection_tokenizer(&inspection->tokenizer), "fingerprint_sampled",
        rp_hash128_hex(inspection->fingerprint.sampled, sampled), "fingerprint_full",
        is_full ? json_string(rp_hash128_hex(inspection->fingerprint.full, full)) : json_null(),
        "length_histogram", histogram, "warnings", warning_list);
}
