/* SPDX-License-Identifier: Apache-2.0 */
/* descriptor_zero.h — a program that was started without stdin opens its first file as descriptor
 * 0, which is as good as any: it is not taken for a failure, and not forgotten. */
#ifndef RP_TESTS_DESCRIPTOR_ZERO_H
#define RP_TESTS_DESCRIPTOR_ZERO_H

#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

/* From now on the next opened descriptor is 0. Returns the argument of give_back_zero(). */
static inline int free_zero(void)
{
    int aside = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    assert_true(aside >= 3);
    assert_int_equal(close(STDIN_FILENO), 0);
    return aside;
}

static inline bool zero_is_free(void)
{
    return fcntl(STDIN_FILENO, F_GETFD) < 0;
}

/* stdin is back. Fails if somebody has forgotten to close 0. */
static inline void give_back_zero(int aside)
{
    bool forgotten = !zero_is_free();
    assert_int_equal(dup2(aside, STDIN_FILENO), STDIN_FILENO);
    assert_int_equal(close(aside), 0);
    assert_false(forgotten);
}

#endif
