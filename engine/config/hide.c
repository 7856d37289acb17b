/* SPDX-License-Identifier: Apache-2.0 */
/* hide — the text of a config without the rights that its URLs carry. */
#include <string.h>

#include "base/bits.h"
#include "base/defect.h"
#include "config/config.h"

#define ENDS_URL " \t\r\n\"'"

void rp_config_hide_queries(char *text)
{
    static const char *const schemes[] = {"https://", "http://"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(schemes); i++)
        for (char *at = strstr(text, schemes[i]); at; at = strstr(at, schemes[i])) {
            char *end = at + strcspn(at, ENDS_URL);
            char *query = memchr(at, '?', (size_t)(end - at));
            if (query && !RP_DEFECT(keep_queries))
                memset(query + 1, '*', (size_t)(end - query - 1));
            at = end;
        }
}
