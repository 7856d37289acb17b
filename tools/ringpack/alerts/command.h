/* SPDX-License-Identifier: Apache-2.0 */
/* command.h — runs the command of an alert: a program and its arguments, without a shell.
 *
 * A thread of its own starts the command, waits for it, and kills its process group when it takes
 * too long; a child that has moved to another group is not killed. So the caller never waits, not
 * even for a program on a disk that hangs. At most one command of a kind runs at a time.
 *
 * The command gets the environment of the engine and the variables of the alert, no descriptor but
 * /dev/null as its input and the engine's log as its outputs, no signal that is ignored or blocked,
 * and a process group of its own. */
#ifndef RP_TOOLS_ALERT_COMMAND_H
#define RP_TOOLS_ALERT_COMMAND_H

#include <sys/types.h>

#include "alerts/alert.h"
#include "base/fail.h"

struct rp_alert_command;

/* How long a command may take, and how long it may take after the end of the engine. */
struct rp_alert_patience {
    uint64_t run_ns, end_ns;
};

/** The file of the program of `command`, a program and its arguments, separated by commas; the
 * caller frees it. A program without a slash is looked up in PATH. -RP_E_CONFIG: no such program
 * can be run. */
RP_MUST_CHECK int rp_alert_command_find(char **program, const char *command,
                                        struct rp_error *error);

/** `changed_fd`: an eventfd that is written whenever the counts below have changed; -1 = none. */
RP_MUST_CHECK int rp_alert_command_open(struct rp_alert_command **out, const char *command,
                                        const char *program,
                                        const struct rp_alert_patience *patience, int changed_fd,
                                        struct rp_error *error);

/** Run it for an alert of that kind, with `variables`, "NAME=value" with a NULL after them, on the
 * heap; they belong to it from now on, also where they are NULL for want of memory. If a command of
 * that kind still runs, it follows when that has ended. */
void rp_alert_command_run(struct rp_alert_command *command, enum rp_alert_kind kind,
                          char **variables);

struct rp_alert_command_counts {
    uint64_t failures; /* commands that could not be started, failed, or were killed */
    pid_t pid;         /* the running command's, and its process group's; 0 = none */
};
struct rp_alert_command_counts rp_alert_command_counts(struct rp_alert_command *command,
                                                       enum rp_alert_kind kind);

/** Start the requested commands, give those that run patience->end_ns to end, and kill
 * the rest. NULL is fine. */
void rp_alert_command_close(struct rp_alert_command *command);

#endif
