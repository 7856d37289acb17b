/* SPDX-License-Identifier: Apache-2.0 */
/* wanted.h — side columns on a command line: `ringpack convert`, `column` and `annotate` read their
 * names and types alike. */
#ifndef RP_TOOLS_CONVERT_WANTED_H
#define RP_TOOLS_CONVERT_WANTED_H

#include <stdbool.h>
#include <stdint.h>

/* NAME=PLACE[:DETAIL]. One block of memory has all three; `name` is its address. */
struct rp_column_wanted {
    char *name, *place;
    char *detail; /* NULL: none */
};
/** Cut a text at its `=`. False: it has none, a part is empty, or there is no memory. */
bool rp_wanted_take(struct rp_column_wanted *wanted, const char *text);
/** Cut the place at its last colon, if it has one with text on both sides. */
void rp_wanted_cut(struct rp_column_wanted *wanted);
/** RP_EXIT_FINE, or the status of a misuse of `verb`, which is printed. */
int rp_wanted_check_name(const char *verb, const char *name);

#define RP_COLUMN_TYPES "u8, i8, u16, i16, i32, i64, f16, f32 or f64"
/** enum rp_dtype of one of RP_COLUMN_TYPES; RP_DTYPE_NONE: another text. */
uint32_t rp_wanted_dtype(const char *type);

#endif
