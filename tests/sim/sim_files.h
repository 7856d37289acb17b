/* SPDX-License-Identifier: Apache-2.0 */
/* sim_files.h — what the calls on files (sim_calls.c, sim_names.c) and on sockets (sim_sockets.c)
 * need of the file system. */
#ifndef RP_TESTS_SIM_FILES_H
#define RP_TESTS_SIM_FILES_H

#include "sim.h"

/** One who used the node has gone. */
void sim_node_unref(struct sim_node *node);
/** A descriptor of it, in a table or under way in a message, is closed. */
void sim_node_close(struct sim_node *node);
void sim_node_resize(struct sim_node *node, uint64_t bytes);
void sim_entry_add(struct sim_node *directory, const char *name, struct sim_node *node);
struct sim_node *sim_entry_find(const struct sim_node *directory, const char *name);
bool sim_entry_drop(struct sim_node *directory, const char *name);
/** The directory that a path lies in, and its last part; NULL with errno set. */
struct sim_node *sim_walk(int at, const char *path, char name_out[64]);
struct sim_node *sim_look(int at, const char *path);
void sim_note_write(struct sim_node *node, uint64_t offset, uint64_t bytes);
/** What is in it now survives a power cut. */
void sim_sync(struct sim_node *node);
/** True for what lies in the directory of checkpoints. */
bool sim_is_saved(const struct sim_node *node);

#endif
