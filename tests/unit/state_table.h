/* SPDX-License-Identifier: Apache-2.0 */
/* state_table.h — reads the table of states and events from the head comment of a header. */
#ifndef RP_TESTS_STATE_TABLE_H
#define RP_TESTS_STATE_TABLE_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bits.h"

#define TABLE_STATES_MAX 8u

struct state_table {
    const char *path;          /* from the root of the sources */
    const char *const *events; /* by number; the first one names the first row */
    unsigned event_count;
    /* as they are written in the table, in the order of its columns; the last one is "-" */
    const char *const *states;
    unsigned state_count;
};

static unsigned find_word(const struct state_table *table, const char *word,
                          const char *const *words, unsigned count)
{
    unsigned i = 0;
    while (i < count && strcmp(word, words[i]) != 0)
        i++;
    if (i == count)
        fail_msg("`%s` in the table of %s", word, table->path);
    return i;
}

/* next[event][state]: the state after the event; state_count if it cannot happen. */
static void read_state_table(const struct state_table *table, uint8_t next[][TABLE_STATES_MAX])
{
    char path[512], line[256];
    unsigned rows = 0;
    snprintf(path, sizeof path, "%s/%s", RP_SOURCE_DIR, table->path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (rows < table->event_count && fgets(line, sizeof line, file)) {
        char *words[TABLE_STATES_MAX + 2] = {NULL}, *rest = line;
        unsigned count = 0;
        for (char *word; count < RP_ARRAY_COUNT(words) && (word = strtok_r(NULL, " *\n", &rest));)
            words[count++] = word;
        if (count != table->state_count + 1 ||
            (rows == 0 && strcmp(words[0], table->events[0]) != 0))
            continue;
        unsigned event = find_word(table, words[0], table->events, table->event_count);
        for (unsigned s = 0; s < table->state_count; s++)
            next[event][s] = (uint8_t)find_word(table, words[s + 1], table->states,
                                                table->state_count + 1);
        rows++;
    }
    fclose(file);
    assert_int_equal(rows, table->event_count);
}

/* How a process ends that calls `act`; 0: well. */
static int signal_of_act(void (*act)(unsigned state, unsigned event), unsigned state,
                         unsigned event)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        act(state, event);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

#endif
