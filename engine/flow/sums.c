/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/sums.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"

#define STEPS_KEPT 1024u

struct kept {
    uint64_t first_row, row_count; /* row_count 0: no step */
    struct rp_step_sums sums;
};

struct rp_sums {
    pthread_mutex_t lock;
    struct kept kept[STEPS_KEPT];
};

struct rp_sums *rp_sums_make(void)
{
    struct rp_sums *steps = rp_calloc(1, sizeof *steps);
    if (steps)
        pthread_mutex_init(&steps->lock, NULL);
    return steps;
}

void rp_sums_free(struct rp_sums *steps)
{
    if (!steps)
        return;
    pthread_mutex_destroy(&steps->lock);
    free(steps);
}

void rp_sums_forget_from(struct rp_sums *steps, uint64_t row)
{
    pthread_mutex_lock(&steps->lock);
    for (uint32_t i = 0; i < STEPS_KEPT; i++)
        if (steps->kept[i].first_row >= row)
            steps->kept[i].row_count = 0;
    pthread_mutex_unlock(&steps->lock);
}

static struct kept *place_of(struct rp_sums *steps, uint64_t first_row, uint64_t row_count)
{
    return &steps->kept[first_row / row_count % STEPS_KEPT];
}

void rp_sums_add(struct rp_sums *steps, uint64_t first_row, uint64_t row_count,
                 const struct rp_step_sums *sums)
{
    if (!steps || !sums->is_known)
        return;
    pthread_mutex_lock(&steps->lock);
    *place_of(steps, first_row, row_count) = (struct kept){first_row, row_count, *sums};
    pthread_mutex_unlock(&steps->lock);
}

bool rp_sums_find(struct rp_sums *steps, uint64_t first_row, uint64_t row_count,
                  struct rp_step_sums *sums)
{
    if (!steps)
        return false;
    pthread_mutex_lock(&steps->lock);
    const struct kept *kept = place_of(steps, first_row, row_count);
    bool is_kept = kept->row_count == row_count && kept->first_row == first_row;
    if (is_kept)
        *sums = kept->sums;
    pthread_mutex_unlock(&steps->lock);
    return is_kept;
}
