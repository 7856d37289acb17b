/* SPDX-License-Identifier: Apache-2.0 */
/* director.h — what the files of the director share: lives.c draws and begins a life, director.c
 * drives it. */
#ifndef RP_TESTS_SIM_DIRECTOR_H
#define RP_TESTS_SIM_DIRECTOR_H

#include "story.h"

/** A new job: its shape, its faults, where its ranks go on; starts its engine and its trainers. */
void director_begin_life(struct story *story, uint32_t number, bool calm);
/** Try to start an engine of another stream on our checkpoints, while nobody is there. */
void director_intrude(struct story *story);
void director_start_engine(struct story *story);
void director_start_trainer(struct story *story, uint32_t number);
/** Somebody asks for a row that there is not. */
void director_send_stranger(struct story *story);
void director_expect_earlier(struct story *story, uint64_t row);

#endif
