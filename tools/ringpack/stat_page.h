/* SPDX-License-Identifier: Apache-2.0 */
/* stat_page.h — the page for people that `ringpack stat` prints on a terminal. */
#ifndef RP_TOOLS_STAT_PAGE_H
#define RP_TOOLS_STAT_PAGE_H

#include <jansson.h>

/** Print the status that an engine has reported. The page has a part of its keys, 80 columns wide;
 * a key that is missing, because the engine is of another version, is shown as `-`. */
void rp_status_page(const json_t *stat);

#endif
