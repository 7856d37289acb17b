/* SPDX-License-Identifier: Apache-2.0 */
/* spawn.c — start a worker process of `convert` or of `explain`. It runs the script
 * of this installation: neither it nor a module that it imports is looked for in the current
 * directory, which may be a data set that somebody else has made. */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"
#include "convert/convert.h"
#include "python.h"

/* The environment, with PYTHONPATH and PYTHONSAFEPATH as `places` and `safe` have them. The caller
 * frees only the list. */
static char **make_environment(char *places, char *safe)
{
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **made = rp_calloc(count + 3, sizeof *made);
    for (size_t i = 0; made && i < count; i++)
        if (strncmp(environ[i], "PYTHONPATH=", 11) && strncmp(environ[i], "PYTHONSAFEPATH=", 15))
            made[kept++] = environ[i];
    if (made && places)
        made[kept++] = places;
    if (made)
        made[kept] = safe;
    return made;
}

/* Python finds its libraries by its own name, so the name is a path. */
static int spawn(pid_t *child, const char **command, int input, int output)
{
    const char *path = getenv("PYTHONPATH");
    char *kept = path ? rp_python_places(path, true) : NULL, safe[] = "PYTHONSAFEPATH=1";
    char *places = kept && *kept ? rp_asprintf("PYTHONPATH=%s", kept) : NULL;
    char **environment = make_environment(places, safe);
    char *program = rp_python_find(command[0]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (input >= 0)
        posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    int code = ENOENT;
    command[0] = program;
    struct rp_thread_tries tries = {0};
    if (program && environment)
        do
            code = posix_spawn(child, program, &actions, NULL, (char *const *)(uintptr_t)command,
                               environment);
        while (rp_thread_again(&tries, code));
    posix_spawn_file_actions_destroy(&actions);
    free(program);
    free(environment);
    free(places);
    free(kept);
    return code;
}

int rp_worker_spawn(pid_t *child, const char *const arguments[RP_WORKER_WORDS], int input,
                    int output, struct rp_error *error)
{
    char *script = rp_python_script("convert_worker.py", "_convert/worker.py");
    const char *chosen = getenv("RINGPACK_PYTHON");
    const char *python = chosen && *chosen ? chosen : "python3";
    const char *command[RP_WORKER_WORDS + 4] = {python, script};
    size_t count = 2;
    if (!script) {
        command[1] = "-c";
        command[count++] = RP_PYTHON_RUN("ringpack._convert.worker");
    }
    for (size_t i = 0; i < RP_WORKER_WORDS && arguments[i]; i++)
        command[count++] = arguments[i];
    int code = spawn(child, command, input, output);
    free(script);
    if (code == 0)
        return 0;
    *child = 0;
    return rp_fail(error, -code, "install python3, or set RINGPACK_PYTHON to the Python to use",
                   "cannot start %s: %s", python, strerror(code));
}
