/* SPDX-License-Identifier: Apache-2.0 */
/* growing_section.c — a section that one thread fills while another writes it.
 *
 * Invariant: a byte is hashed before the writer can see it, by the thread that made it, while it is
 * in the cache. So reading back compares with the intended bytes, as for other sections.
 *
 * Threads: `hasher` belongs to the filling thread until the section ends; `bytes` and `ended` are
 * guarded by the mutex, and only the filling thread changes them. */
#include "checkpoint/growing_section.h"

#include <pthread.h>

#include "base/mem.h"

struct rp_growing_section {
    struct rp_hasher hasher; /* needs an alignment that calloc does not give */
    struct rp_checkpoint_piece piece;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t bytes; /* how many are final */
    bool ended;
};

struct rp_growing_section *rp_growing_section_open(const void *data, size_t bytes)
{
    struct rp_growing_section *growing = rp_calloc_aligned(_Alignof(struct rp_growing_section),
                                                           sizeof *growing);
    if (!growing)
        return NULL;
    growing->piece = (struct rp_checkpoint_piece){data, bytes};
    rp_hasher_begin(&growing->hasher);
    pthread_mutex_init(&growing->mutex, NULL);
    pthread_cond_init(&growing->changed, NULL);
    return growing;
}

void rp_growing_section_add(struct rp_growing_section *growing, size_t bytes)
{
    RP_ASSERT(bytes <= growing->piece.bytes - growing->bytes);
    rp_hasher_add(&growing->hasher, (const uint8_t *)growing->piece.data + growing->bytes, bytes);
    pthread_mutex_lock(&growing->mutex);
    growing->bytes += bytes;
    pthread_cond_signal(&growing->changed);
    pthread_mutex_unlock(&growing->mutex);
}

void rp_growing_section_end(struct rp_growing_section *growing)
{
    pthread_mutex_lock(&growing->mutex);
    growing->ended = true;
    pthread_cond_signal(&growing->changed);
    pthread_mutex_unlock(&growing->mutex);
}

void rp_growing_section_close(struct rp_growing_section *growing)
{
    if (!growing)
        return;
    pthread_cond_destroy(&growing->changed);
    pthread_mutex_destroy(&growing->mutex);
    free(growing);
}

const struct rp_checkpoint_piece *rp_growing_section_piece(const struct rp_growing_section *growing)
{
    return &growing->piece;
}

int64_t rp_growing_section_wait(struct rp_growing_section *growing, uint64_t wanted)
{
    pthread_mutex_lock(&growing->mutex);
    while (growing->bytes < wanted && !growing->ended)
        pthread_cond_wait(&growing->changed, &growing->mutex);
    int64_t found = growing->bytes < wanted ? -RP_E_STOPPED : (int64_t)growing->bytes;
    pthread_mutex_unlock(&growing->mutex);
    return found;
}

struct rp_hash128 rp_growing_section_hash(const struct rp_growing_section *growing)
{
    RP_ASSERT(growing->bytes == growing->piece.bytes);
    return rp_hasher_finish(&growing->hasher);
}
