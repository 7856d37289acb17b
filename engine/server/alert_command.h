/* SPDX-License-Identifier: Apache-2.0 */
/* alert_command.h — runs the command of an alert: a program and its arguments, without a shell.
 *
 * A thread of its own starts it, waits for it, and kills it, with all of its process group, when it
 * takes too long: a child that has moved to another group is not killed. So whoever asks for a
 * command never waits, not even for a program on a disk that hangs. At most one command of a kind
 * runs at a time.
 *
 * The command gets the environment of the engine and the variables of the alert, no descriptor but
 * /dev/null as its input and the engine's log as its outputs, no signal that is ignored or blocked,
 * and a process group of its own. The engine does not kill it when it ends. But a service manager
 * may: systemd ends all processes that are left in the control group of the service. */
#ifndef RP_SERVER_ALERT_COMMAND_H
#define RP_SERVER_ALERT_COMMAND_H

#include "base/fail.h"
#include "server/alert.h"

struct rp_alert_command;

/* How long a command may take, and how long an engine that ends waits for it. */
struct rp_alert_patience {
    uint64_t run_ns, end_ns;
};

/** `command`: a program and its arguments, separated by commas. A program without a slash is looked
 * up in PATH. -RP_E_CONFIG: there is none that can be run. */
RP_MUST_CHECK int rp_alert_command_open(struct rp_alert_command **out, const char *command,
                                        const struct rp_alert_patience *patience,
                                        struct rp_error *error);

/** Run it for an alert of that kind, with `variables`, "NAME=value" with a NULL after them, on the
 * heap; they belong to it from now on, also where they are NULL for want of memory. If a command of
 * that kind still runs, it follows when that has ended. */
void rp_alert_command_run(struct rp_alert_command *command, enum rp_alert_kind kind,
                          char **variables);
void rp_alert_variables_free(char **variables);

/** How many commands of that kind could not be started, ended with another status than 0, or were
 * killed. */
uint64_t rp_alert_command_failures(struct rp_alert_command *command, enum rp_alert_kind kind);

/** Start what was asked for, give what runs patience->end_ns to end, and leave it. NULL is fine. */
void rp_alert_command_close(struct rp_alert_command *command);

#endif
