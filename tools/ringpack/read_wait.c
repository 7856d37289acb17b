/* SPDX-License-Identifier: Apache-2.0 */
/* The message is written by the handler of an alarm: an attach that was cut into slices for it
 * would request again a row that the engine already plans to. */
#include "read_wait.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "interrupt.h"

static char message[256]; /* made before, because a handler may not make a text */

static void say_message(int signal_number)
{
    int before = errno;
    ssize_t written = write(STDERR_FILENO, message, strlen(message));
    (void)written, (void)signal_number;
    errno = before;
}

int rp_cmd_attach(struct rp_client **client_out, const struct rp_client_options *options,
                  struct rp_error *error)
{
    struct sigaction action = {.sa_handler = say_message, .sa_flags = SA_RESTART};
    snprintf(message, sizeof message,
             "ringpack: not attached to run `%.64s` for %u s: `ringpack ps` shows which engines "
             "run; Ctrl-C ends the wait\n",
             options->run, RP_READ_SILENCE_S);
    sigaction(SIGALRM, &action, NULL);
    alarm(RP_READ_SILENCE_S);
    int code = rp_client_attach(client_out, options, error);
    alarm(0);
    if (code == 0)
        rp_interrupt_catch();
    return code;
}
