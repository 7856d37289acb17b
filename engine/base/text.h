/* SPDX-License-Identifier: Apache-2.0 */
/* text.h — parsing of numbers and words that people type. */
#ifndef RP_BASE_TEXT_H
#define RP_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Parse a whole number: decimal digits only. False if the text is not one, or too large. */
bool rp_text_u64(const char *text, uint64_t *value);

enum rp_decimal {
    RP_DECIMAL_NONE,  /* the text is no number, or a negative one */
    RP_DECIMAL_FINE,  /* it is in *value */
    RP_DECIMAL_PARTS, /* it has more decimals */
    RP_DECIMAL_LARGE, /* it is above 2^64 - 1 */
};
/** Parse a decimal number with an optional point and exponent, as programs print them (2, .5, 5.,
 * 1e-05, 1.0e9, 1000000000.0), exactly: *value is the number times 10^places. */
enum rp_decimal rp_text_decimal(const char *text, unsigned places, uint64_t *value);

/** A whole number in the form of rp_text_decimal, or of digits with a suffix in upper or lower
 * case: k, m, g or t for powers of 1000, ki, mi, gi or ti for powers of 1024. */
bool rp_text_count(const char *text, uint64_t *value);

/** The same, where k, m, g and t are also powers of 1024, and a final b is allowed: 64m, 64mb and
 * 64MiB are equal. */
bool rp_text_bytes(const char *text, uint64_t *value);

/** Print a number of millionths as a decimal, without zeros at the end: 250000 as 0.25. */
void rp_text_millionths(uint64_t number, char *text, size_t bytes);

/** Whether `text` ends with `suffix` and has something before it: a file name with an extension. */
bool rp_text_has_suffix(const char *text, const char *suffix);
/** Compare two elements of an array of texts bytewise, for qsort. */
int rp_text_compare(const void *a, const void *b);
/** Sort texts bytewise, and free those that are repetitions. Returns the number that is left. */
size_t rp_text_sort(char **texts, size_t count);
/** The bytes of a text without `suffix`, if it has that; else all of its bytes. */
size_t rp_text_stem(const char *text, const char *suffix);

/** The bytes of the UTF-8 character that a text of `left` > 0 bytes begins with, and its *code; 0
 * if it begins with none. */
size_t rp_text_character(const char *text, size_t left, uint32_t *code);
/** Put a question mark in the place of each byte that belongs to no valid UTF-8 character, as in a
 * path in another encoding, or where a text was cut within a character. */
void rp_text_make_utf8(char *text);

/* Room for a path as a word of a command. */
struct rp_text_shell {
    char text[1024];
};
/** A path as it is to be typed after a command: as it is, or in quotes where a shell would take it
 * for something else, and "./-x" for "-x". A longer one is cut. The text is in *word. */
const char *rp_text_shell(struct rp_text_shell *word, const char *path);
/** The same of a word that is no path, for instance the value of an option: "-x" stays "-x". */
const char *rp_text_shell_word(struct rp_text_shell *word, const char *text);
/* The same, in memory of the enclosing block: for the hints of messages. */
#define RP_TEXT_SHELL(path) rp_text_shell(&(struct rp_text_shell){{0}}, path)
#define RP_TEXT_SHELL_WORD(text) rp_text_shell_word(&(struct rp_text_shell){{0}}, text)

/* Bytes of a path that fits, with its quotes, into each hint of an error (ringpack/error.h). */
#define RP_HINT_PATH_BYTES 200u
/** A path as in rp_text_shell, or "PATH" if it is too long for a hint: a command that is cut would
 * be another. The message of the error has the path. */
const char *rp_text_hint_path(struct rp_text_shell *word, const char *path);
#define RP_HINT_PATH(path) rp_text_hint_path(&(struct rp_text_shell){{0}}, path)

/* A longer word is never suggested, and gets no suggestion. */
#define RP_TEXT_WORD_MAX 64

/* A search for the word that was meant. Start with {.word = the typed word}, offer every valid
 * word, then read `best`, which is NULL if no word is near enough. */
struct rp_text_near {
    const char *word, *best;
    /* Letters to insert, delete, replace or swap with a neighbour, from `word` to `best`. */
    size_t distance;
};
void rp_text_offer(struct rp_text_near *near, const char *candidate);

#endif
