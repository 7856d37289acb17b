/* SPDX-License-Identifier: Apache-2.0 */
/* sim_files.h — the inside of the file system, for calls on files (sim_calls.c, sim_names.c) and on
 * sockets (sim_sockets.c). */
#ifndef RP_TESTS_SIM_FILES_H
#define RP_TESTS_SIM_FILES_H

#include "sim.h"

/** Free the node after its last reference. */
void sim_node_unref(struct sim_node *node);
/** Close a descriptor of the node, in a table of descriptors or in a message. */
void sim_node_close(struct sim_node *node);
void sim_node_resize(struct sim_node *node, uint64_t bytes);
void sim_entry_add(struct sim_node *directory, const char *name, struct sim_node *node);
struct sim_node *sim_entry_find(const struct sim_node *directory, const char *name);
bool sim_entry_drop(struct sim_node *directory, const char *name);
/** The directory of a path, with the last part of the path; NULL with errno set. */
struct sim_node *sim_walk(int at, const char *path, char name_out[64]);
struct sim_node *sim_look(int at, const char *path);
void sim_note_write(struct sim_node *node, uint64_t offset, uint64_t bytes);
/** Make the current content of the node durable. */
void sim_sync(struct sim_node *node);
/** Whether the node is the checkpoint directory or a file in it. */
bool sim_is_saved(const struct sim_node *node);

#endif
