/* SPDX-License-Identifier: Apache-2.0 */
/* patience.h — the limit of a test's short waits. A slow and loaded machine must not make it fail;
 * ctest ends it at 600 s. */
#ifndef RP_TESTS_PATIENCE_H
#define RP_TESTS_PATIENCE_H

#ifndef PATIENCE_NS                /* a planted defect that stops a test sets less */
#define PATIENCE_NS 300000000000ll /* a working wait is shorter */
#endif
#define PATIENCE_MS ((int)(PATIENCE_NS / 1000000))

#endif
