/* SPDX-License-Identifier: Apache-2.0 */
/* feed — bytes that one thread makes while another one writes those before them.
 *
 * Invariant: a byte is hashed before the writer can see it, by the thread that made it, while it is
 * in the cache. So the read-back compares with the memory as it was meant, as for all others.
 * Threads: `hasher` belongs to whoever adds until the end; the rest is under the mutex. */
#include "checkpoint/feed.h"

#include <pthread.h>

#include "base/mem.h"

struct rp_checkpoint_feed {
    struct rp_hasher hasher; /* aligned, and the feed with it */
    struct rp_checkpoint_piece piece;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t bytes; /* that are there */
    bool ended;
};

struct rp_checkpoint_feed *rp_checkpoint_feed_open(const void *data, size_t bytes)
{
    struct rp_checkpoint_feed *feed = rp_calloc_aligned(_Alignof(struct rp_checkpoint_feed),
                                                        sizeof *feed);
    if (!feed)
        return NULL;
    feed->piece = (struct rp_checkpoint_piece){data, bytes};
    rp_hasher_begin(&feed->hasher);
    pthread_mutex_init(&feed->mutex, NULL);
    pthread_cond_init(&feed->changed, NULL);
    return feed;
}

void rp_checkpoint_feed_add(struct rp_checkpoint_feed *feed, size_t bytes)
{
    RP_ASSERT(bytes <= feed->piece.bytes - feed->bytes); /* nobody else changes it */
    rp_hasher_add(&feed->hasher, (const uint8_t *)feed->piece.data + feed->bytes, bytes);
    pthread_mutex_lock(&feed->mutex);
    feed->bytes += bytes;
    pthread_cond_signal(&feed->changed);
    pthread_mutex_unlock(&feed->mutex);
}

void rp_checkpoint_feed_end(struct rp_checkpoint_feed *feed)
{
    pthread_mutex_lock(&feed->mutex);
    feed->ended = true;
    pthread_cond_signal(&feed->changed);
    pthread_mutex_unlock(&feed->mutex);
}

void rp_checkpoint_feed_close(struct rp_checkpoint_feed *feed)
{
    if (!feed)
        return;
    pthread_cond_destroy(&feed->changed);
    pthread_mutex_destroy(&feed->mutex);
    free(feed);
}

const struct rp_checkpoint_piece *rp_feed_piece(const struct rp_checkpoint_feed *feed)
{
    return &feed->piece;
}

int64_t rp_feed_wait(struct rp_checkpoint_feed *feed, uint64_t wanted)
{
    pthread_mutex_lock(&feed->mutex);
    while (feed->bytes < wanted && !feed->ended)
        pthread_cond_wait(&feed->changed, &feed->mutex);
    int64_t found = feed->bytes < wanted ? -RP_E_STOPPED : (int64_t)feed->bytes;
    pthread_mutex_unlock(&feed->mutex);
    return found;
}

struct rp_hash128 rp_feed_hash(const struct rp_checkpoint_feed *feed)
{
    RP_ASSERT(feed->bytes == feed->piece.bytes);
    return rp_hasher_finish(&feed->hasher);
}
