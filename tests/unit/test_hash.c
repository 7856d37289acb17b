/* SPDX-License-Identifier: Apache-2.0 */
/* The hash is XXH3 as libxxhash has it, whichever instructions this processor computes it with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <xxhash.h>

#include "../fakes/io_fake.h"
#include "base/hash.h"

static uint8_t bytes[70000];
static uint64_t seed = 11;

static void assert_equal(struct rp_hash128 hash, XXH128_hash_t expected)
{
    assert_int_equal(hash.low, expected.low64);
    assert_int_equal(hash.high, expected.high64);
}

/* The same bytes in parts of any length, down to none. */
static struct rp_hash128 hash_of_parts(const uint8_t *data, size_t n, size_t part_max)
{
    struct rp_hasher hasher;
    rp_hasher_begin(&hasher);
    for (size_t at = 0; at < n;) {
        size_t part = io_fake_random(&seed) % (part_max + 1);
        part = part < n - at ? part : n - at;
        rp_hasher_add(&hasher, data + at, part);
        at += part;
    }
    return rp_hasher_finish(&hasher);
}

static void assert_hashes_of_library(const uint8_t *data, size_t n)
{
    assert_int_equal(rp_hash64(data, n), XXH3_64bits(data, n));
    XXH128_hash_t expected = XXH3_128bits(data, n);
    assert_equal(rp_hash128(data, n), expected);
    assert_equal(hash_of_parts(data, n, n), expected);
    assert_equal(hash_of_parts(data, n, 300), expected);
}

static void every_length_has_the_hashes_of_the_library(void **state)
{
    (void)state;
    for (size_t n = 0; n <= sizeof bytes; n += n < 5000 ? 1 : 997)
        for (size_t at = 0; at < 3 && at + n <= sizeof bytes; at++)
            assert_hashes_of_library(bytes + at, n);
}

int main(void)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)io_fake_random(&seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_has_the_hashes_of_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
