/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.h — the flag that Ctrl-C sets, for verbs that clean up before they end. The engine's
 * long work also polls it (base/stop.h). */
#ifndef RP_TOOLS_INTERRUPT_H
#define RP_TOOLS_INTERRUPT_H

#include <stdbool.h>

#include "base/fail.h"

/** Let SIGINT, SIGTERM and SIGHUP set the flag and interrupt system calls that wait. A signal that
 * was ignored when the program was started (nohup, a shell's &) stays ignored. */
void rp_interrupt_catch(void);
/** The same for the first of each of these signals: the second ends the process at once, in case
 * that the flag is not polled for long. */
void rp_interrupt_catch_once(void);
/** Give the signals back their default action. The flag stays as it is, and so do signals that are
 * blocked and pending, which count as well. */
void rp_interrupt_release(void);
/** True after one of those signals. */
bool rp_interrupted(void);
/** -RP_E_STOPPED with "interrupted; `safe`" after one of those signals, else 0. */
RP_MUST_CHECK int rp_interrupt_check(const char *safe, struct rp_error *error);

#endif
