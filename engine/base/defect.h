/* SPDX-License-Identifier: Apache-2.0 */
/* defect.h — deliberate defects, for the tests that must fail.
 *
 * RP_DEFECT(name) is the constant 0 in every build but the one that tests compile with
 * -DRP_DEFECT_<name>=1: a guarantee counts as tested only when breaking it makes a test fail. */
#ifndef RP_BASE_DEFECT_H
#define RP_BASE_DEFECT_H

#define RP_DEFECT(name) (RP_DEFECT_##name)

#ifndef RP_DEFECT_ignore_section_hash
#define RP_DEFECT_ignore_section_hash 0
#endif
#ifndef RP_DEFECT_lose_fragment_at_resume
#define RP_DEFECT_lose_fragment_at_resume 0
#endif
#ifndef RP_DEFECT_trust_index_extents
#define RP_DEFECT_trust_index_extents 0
#endif
#ifndef RP_DEFECT_trust_release_word
#define RP_DEFECT_trust_release_word 0
#endif

#endif
