/* SPDX-License-Identifier: Apache-2.0 */
/* switch.h — planted defects that are turned on in whole programs: a guarantee counts as tested
 * only when breaking it makes a test fail.
 *
 * The patches of switches/ put RP_DEFECT(name) into copies of sources; tests/DEFECTS.md says what
 * each breaks. The programs of tests/sim, tests/kill and tests/model have all defects, and turn on
 * one at a time; a build with -DRP_PLANTED=name has one. */
#ifndef RP_TESTS_DEFECTS_SWITCH_H
#define RP_TESTS_DEFECTS_SWITCH_H

#include "switch_names.h" /* RP_DEFECTS(X): X(name) for each; the build makes it of the patches */

enum rp_defect {
#define RP_DEFECT_ENUM(name) RP_DEFECT_IS_##name,
    RP_DEFECTS(RP_DEFECT_ENUM)
#undef RP_DEFECT_ENUM
        RP_DEFECT_COUNT
};

#ifdef RP_PLANTED
#define RP_DEFECT_NUMBER(name) RP_DEFECT_IS_##name
#define RP_DEFECT_NUMBER_OF(macro) RP_DEFECT_NUMBER(macro)
#define RP_DEFECT(name) (RP_DEFECT_NUMBER(name) == RP_DEFECT_NUMBER_OF(RP_PLANTED))
#else
extern _Bool rp_defects[RP_DEFECT_COUNT];
#define RP_DEFECT(name) (rp_defects[RP_DEFECT_IS_##name])
#endif

#endif
