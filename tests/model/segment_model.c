/* SPDX-License-Identifier: Apache-2.0 */
/* segment_model.c — in the place of shm/segment.c: segments are memory of the model, descriptors
 * are numbers. */
#include "model.h"
#include "scenarios.h"
#include "shm/segment.h"
#include "snapshot.h"

#define SEGMENTS 8

static struct {
    struct rp_segment segments[SEGMENTS];
    int count;
} made;

void model_segments_reset(void)
{
    made.count = 0;
}

void model_segments_save(void)
{
    snapshot_add(&made, sizeof made);
}

int rp_segment_create(struct rp_segment *segment, const char *name, size_t bytes, bool huge,
                      struct rp_error *error)
{
    (void)name, (void)error;
    if (made.count == SEGMENTS)
        model_fail("too many segments");
    *segment = (struct rp_segment){made.count, model_memory(bytes), bytes, huge};
    made.segments[made.count++] = *segment;
    return 0;
}

int rp_segment_create_private(struct rp_segment *segment, const char *name, size_t bytes,
                              struct rp_error *error)
{
    return rp_segment_create(segment, name, bytes, true, error);
}

int rp_segment_prefault(const struct rp_segment *segment, const char *name, struct rp_error *error)
{
    (void)segment, (void)name, (void)error;
    return 0;
}

int rp_segment_seal_readers(struct rp_segment *segment, struct rp_error *error)
{
    (void)segment, (void)error;
    return 0;
}

int rp_segment_seal_size(struct rp_segment *segment, struct rp_error *error)
{
    (void)segment, (void)error;
    return 0;
}

int rp_segment_attach(struct rp_segment *segment, int fd, bool writable, size_t bytes_min,
                      struct rp_error *error)
{
    (void)writable, (void)error;
    *segment = made.segments[fd];
    MODEL_REQUIRE(segment->bytes >= bytes_min);
    return 0;
}

void rp_segment_close(struct rp_segment *segment)
{
    segment->fd = -1;
    segment->data = NULL;
}
