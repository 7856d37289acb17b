/* SPDX-License-Identifier: Apache-2.0 */
#include "base/escape.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

size_t rp_control_bytes(const char *text)
{
    unsigned char first = (unsigned char)text[0], second = first ? (unsigned char)text[1] : 0;
    if ((first > 0 && first < 0x20) || first == 0x7f)
        return 1;
    if ((first == 0xc2 && second >= 0x80 && second < 0xa0) || (first == 0xd8 && second == 0x9c))
        return 2;
    unsigned char third = first == 0xe2 && second ? (unsigned char)text[2] : 0;
    bool is_mark = second == 0x80 && (third == 0x8e || third == 0x8f);
    bool is_line = second == 0x80 && third >= 0xa8 &&
                   third <= 0xae; /* and paragraph, embedding … */
    bool is_isolate = second == 0x81 && third >= 0xa6 && third <= 0xa9;
    return is_mark || is_line || is_isolate ? 3 : 0;
}

void rp_escape(char *out, size_t room, const char *text, const char *kept)
{
    while (*text && room > RP_ESCAPE_BYTES_MAX) {
        size_t controls = rp_control_bytes(text);
        if (controls == 1 && strchr(kept, *text))
            controls = 0;
        size_t used = 0;
        for (size_t i = 0; i < controls; i++)
            used += (size_t)snprintf(out + used, room - used, "\\%03o", (unsigned char)text[i]);
        if (controls == 0)
            out[used++] = *text;
        text += controls ? controls : 1;
        out += used;
        room -= used;
    }
    *out = '\0';
}
