/* SPDX-License-Identifier: Apache-2.0 */
/* run_with_faults.h — the end of a test that stands in front of the C library. ThreadSanitizer
 * stands there itself, with allocators and calls of its own, so under it no test is run. */
#ifndef RP_TESTS_RUN_WITH_FAULTS_H
#define RP_TESTS_RUN_WITH_FAULTS_H

#ifdef __SANITIZE_THREAD__
#define run_with_faults(name, tests, setup, teardown)                                              \
    ((void)(tests), (void)(setup), (void)(teardown),                                               \
     print_message("left out: ThreadSanitizer has allocators and calls of its own\n"), 0)
#else
#define run_with_faults cmocka_run_group_tests_name
#endif

#endif
