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

static void every_length_has_the_hash_of_the_library(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)io_fake_random(&seed);
    for (size_t n = 0; n <= sizeof bytes; n += n < 5000 ? 1 : 997)
        for (size_t at = 0; at < 3 && at + n <= sizeof bytes; at++)
            assert_int_equal(rp_hash64(bytes + at, n), XXH3_64bits(bytes + at, n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_has_the_hash_of_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
