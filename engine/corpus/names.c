/* SPDX-License-Identifier: Apache-2.0 */
/* names — formats and token types as people write them. */
#include <string.h>

#include "base/bits.h"
#include "corpus/corpus.h"

static const char *const format_names[] = {
    [RP_FORMAT_AUTO] = "auto", [RP_FORMAT_MEGATRON] = "megatron", [RP_FORMAT_RAW] = "raw",
    [RP_FORMAT_NPY] = "npy",   [RP_FORMAT_LLMC] = "llmc",
};
static const char *const type_names[] = {
    [RP_TOKEN_NONE] = "none", [RP_TOKEN_U8] = "u8",   [RP_TOKEN_U16] = "u16",
    [RP_TOKEN_I16] = "i16",   [RP_TOKEN_I32] = "i32", [RP_TOKEN_U32] = "u32",
    [RP_TOKEN_I64] = "i64",
};
static const uint8_t type_widths[] = {
    [RP_TOKEN_NONE] = 0, [RP_TOKEN_U8] = 1,  [RP_TOKEN_U16] = 2, [RP_TOKEN_I16] = 2,
    [RP_TOKEN_I32] = 4,  [RP_TOKEN_U32] = 4, [RP_TOKEN_I64] = 8,
};

const char *rp_format_name(enum rp_format format)
{
    return (size_t)format < RP_ARRAY_COUNT(format_names) ? format_names[format] : "unknown";
}

const char *rp_token_type_name(enum rp_token_type type)
{
    return (size_t)type < RP_ARRAY_COUNT(type_names) ? type_names[type] : "unknown";
}

uint32_t rp_token_width(enum rp_token_type type)
{
    return (size_t)type < RP_ARRAY_COUNT(type_widths) ? type_widths[type] : 0;
}

uint32_t rp_token_bits(enum rp_token_type type)
{
    bool is_signed = type == RP_TOKEN_I16 || type == RP_TOKEN_I32 || type == RP_TOKEN_I64;
    return 8 * rp_token_width(type) - is_signed;
}

bool rp_format_parse(const char *text, enum rp_format *format)
{
    for (size_t i = 0; i < RP_ARRAY_COUNT(format_names); i++) {
        if (strcmp(text, format_names[i]))
            continue;
        *format = (enum rp_format)i;
        return true;
    }
    return false;
}

bool rp_token_type_parse(const char *text, enum rp_token_type *type)
{
    for (size_t i = RP_TOKEN_U8; i < RP_ARRAY_COUNT(type_names); i++) {
        if (strcmp(text, type_names[i]))
            continue;
        *type = (enum rp_token_type)i;
        return true;
    }
    return false;
}
