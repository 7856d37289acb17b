/* SPDX-License-Identifier: Apache-2.0 */
/* process.h — inherited settings that would break a verb: signals, umask, stack, and its place
 * as the first process of a container. */
#ifndef RP_TOOLS_PROCESS_H
#define RP_TOOLS_PROCESS_H

/** Called first, before there are threads: restore settings of a parent. */
void rp_process_prepare(void);

/** Let /proc/PID/cmdline, which every user can read, show no rights of URLs: words that have them
 * are copied, and hidden in place (base/hide.h). Before it, since exec, they could be seen. */
void rp_process_hide_words(int argc, char **argv);

/** run(argc, argv), on a stack that is large enough whatever the limit (`ulimit -s`) is. */
int rp_process_run(int (*run)(int argc, char **argv), int argc, char **argv);

/** For a process that runs for long. As the first process of a container (PID 1), fork: this call
 * returns in the child; the first process reaps orphans, forwards signals and ends as the child
 * does. Returns 0, or the exit status after a message. */
int rp_process_leave_first(void);

#endif
