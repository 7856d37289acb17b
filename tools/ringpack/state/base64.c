/* SPDX-License-Identifier: Apache-2.0 */
/* base64.c — encodes and decodes the base64 of state files (state_search.h). */
#include <stdlib.h>
#include <string.h>

#include "state/state_search.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *rp_base64_encode(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    char *text = malloc(bytes / 3 * 4 + 5), *out = text;
    if (!text)
        return NULL;
    for (size_t left = bytes; left > 0; left -= left < 3 ? left : 3, at += 3) {
        uint32_t three = (uint32_t)at[0] << 16;
        if (left > 1)
            three |= (uint32_t)at[1] << 8;
        if (left > 2)
            three |= at[2];
        *out++ = digits[three >> 18];
        *out++ = digits[three >> 12 & 63];
        *out++ = left > 1 ? digits[three >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[three & 63] : '=';
    }
    *out = 0;
    return text;
}

/* The value of a digit; -1 if it is none. */
static int value_of(char digit)
{
    const char *found = digit ? strchr(digits, digit) : NULL;
    return found ? (int)(found - digits) : -1;
}

uint8_t *rp_base64_decode(const char *text, size_t *bytes_out)
{
    size_t length = strlen(text), padding = 0;
    while (padding < 2 && padding < length && text[length - 1 - padding] == '=')
        padding++;
    uint8_t *data = length % 4 == 0 ? malloc(length / 4 * 3 + 1) : NULL, *out = data;
    for (size_t i = 0; data && i < length; i += 4) {
        uint32_t three = 0;
        for (size_t k = i; k < i + 4; k++) {
            int value = k < length - padding ? value_of(text[k]) : 0;
            if (value < 0) {
                free(data);
                return NULL;
            }
            three = three << 6 | (uint32_t)value;
        }
        *out++ = (uint8_t)(three >> 16);
        *out++ = (uint8_t)(three >> 8);
        *out++ = (uint8_t)three;
    }
    *bytes_out = length / 4 * 3 - padding;
    return data;
}
