/* SPDX-License-Identifier: Apache-2.0 */
/* names.c — the words of formats and token types, and the width of a type. */
#include <string.h>

#include "base/bits.h"
#include "corpus/corpus.h"

#define FORMAT_NAME(id, name) [RP_FORMAT_##id] = (name),
static const char *const format_names[] = {[RP_FORMAT_AUTO] = "auto", RP_FORMAT_LIST(FORMAT_NAME)};

#define TOKEN_TYPE(id, name, width, bits) [RP_TOKEN_##id] = {name, width, bits},
static const struct {
    const char *name;
    uint8_t width, bits;
} types[] = {[RP_TOKEN_NONE] = {"none", 0, 0}, RP_TOKEN_LIST(TOKEN_TYPE)};

const char *rp_format_name(enum rp_format format)
{
    return (size_t)format < RP_ARRAY_COUNT(format_names) ? format_names[format] : "unknown";
}

const char *rp_token_type_name(enum rp_token_type type)
{
    return (size_t)type < RP_ARRAY_COUNT(types) ? types[type].name : "unknown";
}

uint32_t rp_token_width(enum rp_token_type type)
{
    return (size_t)type < RP_ARRAY_COUNT(types) ? types[type].width : 0;
}

uint32_t rp_token_bits(enum rp_token_type type)
{
    return (size_t)type < RP_ARRAY_COUNT(types) ? types[type].bits : 0;
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
    for (size_t i = RP_TOKEN_U8; i < RP_ARRAY_COUNT(types); i++) {
        if (strcmp(text, types[i].name))
            continue;
        *type = (enum rp_token_type)i;
        return true;
    }
    return false;
}
