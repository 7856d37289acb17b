/* SPDX-License-Identifier: Apache-2.0 */
/* fail.h — errors are filled in once, by the function that finds the failure. */
#ifndef RP_BASE_FAIL_H
#define RP_BASE_FAIL_H

#include <stdlib.h>

#include "ringpack/error.h"

/** Fill *error (if not NULL) and return `code`, which must be negative. `hint` may be NULL.
 *  Usage: return rp_fail(error, -RP_E_FORMAT, "run `ringpack inspect FILE`",
 *                       "%s: expected …", path); */
int rp_fail(struct rp_error *error, int code, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Shows compilers and analysers, which do not see fail.c, that rp_fail returns a negative code.
 * Without this they warn that callers use results that a failed function has not set. */
static inline int rp_negative(int code)
{
    if (code >= 0)
        __builtin_unreachable(); /* asserted in fail.c */
    return code;
}
#define rp_fail(...) rp_negative(rp_fail(__VA_ARGS__))

/** Put "prefix: " in front of a message that a callee set. Returns error->code or `code`. */
int rp_fail_context(struct rp_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Report a failure that was kept, once more. Returns its code. */
static inline int rp_fail_again(struct rp_error *error, const struct rp_error *failure)
{
    if (error)
        *error = *failure;
    return failure->code;
}

/* RP_ASSERT is for mistakes in this code, and is always on. Data from files, peers and users is
 * validated, never asserted. RP_DASSERT is for code that runs for every document; it is off in
 * release builds. */
void rp_assert_failed(const char *expression, const char *file, int line) __attribute__((noreturn));
#define RP_ASSERT(e) ((e) ? (void)0 : rp_assert_failed(#e, __FILE__, __LINE__))
#ifdef NDEBUG
#define RP_DASSERT(e) ((void)0)
#else
#define RP_DASSERT(e) RP_ASSERT(e)
#endif

#endif
