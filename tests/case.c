/* SPDX-License-Identifier: Apache-2.0 */
/* case — a unit test runs only the cases that RP_CASE names (with * and ?), if it is set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

__attribute__((constructor)) static void choose_case(void)
{
    const char *chosen = getenv("RP_CASE");
    if (chosen)
        cmocka_set_test_filter(chosen);
}
