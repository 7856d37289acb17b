/* SPDX-License-Identifier: Apache-2.0 */
/* director.h — shared by the files of the director: lives.c chooses and begins a life at random,
 * director.c runs it. */
#ifndef RP_TESTS_SIM_DIRECTOR_H
#define RP_TESTS_SIM_DIRECTOR_H

#include "story.h"

/** Choose the ranks and batches of a life, its faults, and the first rows of its ranks. Start its
 * engine and trainers. */
void director_begin_life(struct story *story, uint32_t number, bool calm);
/** Start an engine of another stream with the story's checkpoints. It must refuse to run. */
void director_intrude(struct story *story);
void director_start_engine(struct story *story);
void director_start_trainer(struct story *story, uint32_t number);
/** Restart a trainer from a state token or, if that is empty, as it was started last. */
void director_restart_trainer(struct story *story, uint32_t number, struct token token);
/** Kill the victim at one of its next steps, near or far. */
void director_kill_soon(struct story *story, struct sim_process *victim);
bool director_engine_lives(const struct story *story);
/** Send SIGTERM to the engine, if one lives, and wait for its end. */
void director_stop_engine(struct story *story);
/** Request a checkpoint. If the engine says that one is saved, it or a later one must be found
 * (saves.c). */
void director_ask_checkpoint(struct story *story);
/** Kill a trainer, request a checkpoint, and restart the trainer while the engine saves, some
 * times. */
void director_return_during_saves(struct story *story);
/** Kill a trainer, and restart it from an old state while other ranks continue (behind.c). */
void director_let_fall_behind(struct story *story);
/** Restart a trainer that is dead from an old state, or from another trainer's (behind.c). */
void director_fall_back(struct story *story, uint32_t number);
/** Start a peer that requests a row that cannot be delivered (stranger.c). */
void director_send_stranger(struct story *story);
/** Lower row_safe: a trainer may resume at `row`, so a checkpoint may be at the start of that step.
 */
void director_expect_earlier(struct story *story, uint64_t row);

#endif
