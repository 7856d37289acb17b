/* SPDX-License-Identifier: Apache-2.0 */
/* page_file.h — the file of a page or a picture: it takes the place of an older one when all of it
 * is written, or not at all. */
#ifndef RP_TOOLS_PAGE_FILE_H
#define RP_TOOLS_PAGE_FILE_H

#include <stdint.h>
#include <stdio.h>

#include "base/file.h"

/* Colours far apart: steps of the golden angle around the circle. */
#define RP_PAGE_HUE(number) ((uint64_t)(number)*137508 / 1000 % 360)

/** The least of 1, 2 and 5 and their multiples by powers of ten that is at least `value` > 0: the
 * step between the numbers of an axis. */
double rp_page_round_up(double value);

struct rp_page_file {
    struct rp_new_file file;
    FILE *out; /* to be written to */
};

/** Begin a file that will replace `path`. Close it whatever happens after that. */
RP_MUST_CHECK int rp_page_file_open(struct rp_page_file *page, const char *path,
                                    struct rp_error *error);
/** Publish the file if `code` is 0 and everything was written, otherwise remove it. Returns `code`,
 * or why the file could not be written. */
RP_MUST_CHECK int rp_page_file_close(struct rp_page_file *page, int code, struct rp_error *error);

#endif
