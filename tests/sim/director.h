/* SPDX-License-Identifier: Apache-2.0 */
/* director.h — what the files of the director share: lives.c chooses and begins a life at random,
 * director.c runs it. */
#ifndef RP_TESTS_SIM_DIRECTOR_H
#define RP_TESTS_SIM_DIRECTOR_H

#include "story.h"

/** Choose the ranks and batches of a life, its faults, and the rows at which its ranks begin. Start
 * its engine and trainers. */
void director_begin_life(struct story *story, uint32_t number, bool calm);
/** Start an engine of another stream with the story's checkpoints. It must refuse to run. */
void director_intrude(struct story *story);
void director_start_engine(struct story *story);
void director_start_trainer(struct story *story, uint32_t number);
/** Start a peer that asks for a row that cannot be delivered (stranger.c). */
void director_send_stranger(struct story *story);
/** Lower row_safe: a trainer may resume at `row`, so a checkpoint may be at the start of that step.
 */
void director_expect_earlier(struct story *story, uint64_t row);

#endif
