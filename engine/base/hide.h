/* SPDX-License-Identifier: Apache-2.0 */
/* hide.h — rights that URLs carry (a user and a password, a query) in texts that are shown or kept.
 * Asterisks take their place, so that no text changes its length. No function takes a lock. */
#ifndef RP_BASE_HIDE_H
#define RP_BASE_HIDE_H

#include <stdbool.h>

/** In a value, as a program reads it: the query of the first URL of http or https that has one,
 * and all that follows, because its end is not known. True if a part was hidden. */
bool rp_hide_in_value(char *value);

/** In a sentence: up to the quotation mark after the URL, or else up to ": " or the end. */
void rp_hide_in_sentence(char *text);

#endif
