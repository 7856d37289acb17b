/* SPDX-License-Identifier: Apache-2.0 */
/* page.h — page.html, which the build makes a part of the program. */
#ifndef RP_TOOLS_METRICS_PAGE_H
#define RP_TOOLS_METRICS_PAGE_H

#include <stddef.h>

extern const unsigned char rp_metrics_page[];
extern const size_t rp_metrics_page_bytes;

#endif
