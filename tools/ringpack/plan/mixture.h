/* SPDX-License-Identifier: Apache-2.0 */
/* mixture.h — the panel with the shares of sources over the rows. */
#ifndef RP_TOOLS_MIXTURE_H
#define RP_TOOLS_MIXTURE_H

#include "plan/picture.h"

#define RP_PICTURE_BANDS 16 /* sources that are drawn; above that the smallest are one band */

/* A source, or the last band of all: the sources that are not drawn. */
struct rp_band {
    uint32_t source;
    uint64_t tokens;
    double asked; /* the wanted share of the tokens */
};
/* The sources that are drawn, the largest first. */
struct rp_bands {
    struct rp_band bands[RP_PICTURE_BANDS];
    uint32_t count; /* number of `bands` */
    uint32_t rest;  /* how many sources are the last band; 0 = each band is a source */
};

static inline bool rp_band_is_rest(const struct rp_bands *bands, uint32_t band)
{
    return bands->rest > 0 && band + 1 == bands->count;
}

/** Choose the sources that are drawn. -ENOMEM. */
RP_MUST_CHECK int rp_bands_choose(struct rp_bands *bands, const struct rp_picture *picture,
                                  struct rp_error *error);
double rp_mixture_height(const struct rp_bands *bands);
void rp_draw_mixture(FILE *out, const struct rp_picture *picture, const struct rp_bands *bands,
                     double top);

#endif
