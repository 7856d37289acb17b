/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/mixing.h"

__extension__ typedef unsigned __int128 wide; /* mixed * weight needs 96 bits */

static bool is_before(const struct rp_mixing *mixing, uint32_t a, uint32_t b)
{
    wide left = (wide)mixing->mixed[a] * mixing->weight[b];
    wide right = (wide)mixing->mixed[b] * mixing->weight[a];
    return left != right ? left < right : a < b;
}

void rp_mixing_sink(struct rp_mixing *mixing, uint32_t at)
{
    uint32_t *heap = mixing->heap, source = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= mixing->count)
            break;
        if (child + 1 < mixing->count && is_before(mixing, heap[child + 1], heap[child]))
            child++;
        if (!is_before(mixing, heap[child], source))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = source;
}

void rp_mixing_build(struct rp_mixing *mixing, const uint8_t *finished, uint32_t source_count)
{
    mixing->count = 0;
    for (uint32_t source = 0; source < source_count; source++)
        if (!finished[source])
            mixing->heap[mixing->count++] = source;
    for (uint32_t at = mixing->count / 2; at > 0; at--)
        rp_mixing_sink(mixing, at - 1);
}
