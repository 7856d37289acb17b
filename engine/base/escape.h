/* SPDX-License-Identifier: Apache-2.0 */
/* escape.h — control characters in texts that a terminal shows. Names of files, sources and keys
 * may hold any, and a terminal would obey them. No function takes a lock. */
#ifndef RP_BASE_ESCAPE_H
#define RP_BASE_ESCAPE_H

#include <stddef.h>

/** Bytes of the control character that a text begins with: one of ASCII; one of U+0080 to U+009F,
 * which terminals also obey; a direction mark, which makes a name look like another one (U+061C,
 * U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069); or a separator of lines (U+2028, U+2029). 0
 * if it begins with none. */
size_t rp_control_bytes(const char *text);

/** Copy a text to `out`, with an escape of its octal digits ("\033") in the place of each byte of a
 * control character; those in `kept` stay. Text that finds no room is cut. */
void rp_escape(char *out, size_t room, const char *text, const char *kept);
/* Enough room for any text of `bytes` bytes, its NUL included. */
#define RP_ESCAPED_BYTES(bytes) (4 * (bytes) + 12)
#define RP_ESCAPE_BYTES_MAX 12 /* for one control character */

#endif
