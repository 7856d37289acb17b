/* SPDX-License-Identifier: Apache-2.0 */
/* panels.h — the panels of padding, of lengths of documents, of cost by rank, of a layout. */
#ifndef RP_TOOLS_PANELS_H
#define RP_TOOLS_PANELS_H

#include "plan/layout_tally.h"
#include "plan/picture.h"

#define RP_PADDING_HEIGHT 190.0
void rp_draw_padding(FILE *out, const struct rp_picture *picture,
                     const struct rp_plan_counts *counts, double top);
#define RP_LENGTHS_HEIGHT 300.0
void rp_draw_lengths(FILE *out, const struct rp_picture *picture, double top);
void rp_draw_ranks(FILE *out, const struct rp_picture *picture, double top);
#define RP_LAYOUT_HEIGHT 240.0
void rp_draw_layout(FILE *out, const struct rp_layout_tally *tally, double top);

#endif
