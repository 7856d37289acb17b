/* SPDX-License-Identifier: Apache-2.0 */
/* Sections in any place of memory and of any length: the saved bytes equal the given ones, and
 * whole pages are written from their place. */
#include "checkpoint_sample.h"

#include "checkpoint/storage.h"

#define WRITE_BYTES 8192u /* the writer's buffer */
#define MEMORY_BYTES (256u << 10)

static uint8_t *memory;
static unsigned from_memory; /* writes out of it, not out of the writer's buffer */

static ssize_t counting_write(struct rp_storage *storage, int fd, const void *data, size_t bytes,
                              uint64_t offset)
{
    const uint8_t *first = data;
    from_memory += first >= memory && first < memory + MEMORY_BYTES;
    assert_int_equal((uintptr_t)data % 4096, 0); /* alignment of direct I/O */
    return rp_storage_system.write(storage, fd, data, bytes, offset);
}

/* Save two pieces as one section; returns how many writes came right out of them. */
static unsigned check_pieces(struct rp_checkpoint_dir *dir, size_t first, size_t first_bytes,
                             size_t second, size_t second_bytes)
{
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    char *path;
    const struct rp_checkpoint_piece pieces[] = {{memory + first, first_bytes},
                                                 {memory + second, second_bytes}};
    struct sample sample;
    sample_make(&sample, 10);
    sample.parts[1] = (struct rp_checkpoint_part){
        .type = RP_CHECKPOINT_CONFIG, .pieces = pieces, .piece_count = 2};
    from_memory = 0;
    assert_int_equal(rp_checkpoint_save(dir, &sample.info, sample.parts, 3, &path, &error), 0);
    unsigned direct = from_memory;
    assert_int_equal(rp_checkpoint_open(&checkpoint, path, &error), 0);
    size_t bytes;
    const uint8_t *found = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONFIG, &bytes);
    assert_int_equal(bytes, first_bytes + second_bytes);
    assert_memory_equal(found, memory + first, first_bytes);
    assert_memory_equal(found + first_bytes, memory + second, second_bytes);
    rp_checkpoint_close(checkpoint);
    free(path);
    return direct;
}

static void test_pieces_at_every_place(void **state)
{
    (void)state;
    static const size_t places[] = {0, 1, 64, 4095, 4096}, half = MEMORY_BYTES / 2;
    static const size_t sizes[] = {1, 4096, 8191, 8192, 8193, 12288, 65536, 70001};
    struct rp_storage storage = rp_storage_system;
    storage.write = counting_write;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    memory = aligned_alloc(4096, MEMORY_BYTES);
    assert_non_null(memory);
    for (size_t i = 0; i < MEMORY_BYTES; i++)
        memory[i] = (uint8_t)(i * 2654435761u >> 13);
    assert_int_equal(sample_open_with(&dir, "pages", 2, NULL, &storage, WRITE_BYTES, &error), 0);
    for (size_t p = 0; p < RP_ARRAY_COUNT(places); p++)
        for (size_t s = 0; s < RP_ARRAY_COUNT(sizes); s++) {
            bool on_pages = places[p] % 4096 == 0 && sizes[s] >= WRITE_BYTES;
            /* after a first piece of whole pages, and after one that is none */
            assert_int_equal(check_pieces(dir, places[p], sizes[s], half + 3, 5) > 0, on_pages);
            assert_int_equal(check_pieces(dir, 3, 4096, half + places[p], sizes[s]) > 0, on_pages);
            assert_int_equal(check_pieces(dir, 3, 5, half + places[p], sizes[s]), 0);
        }
    rp_checkpoint_dir_close(dir);
    remove_directory("pages");
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces_at_every_place)};
    return cmocka_run_group_tests_name("checkpoint_pages", tests, sample_enter_memory,
                                       sample_leave);
}
