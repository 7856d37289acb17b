/* SPDX-License-Identifier: Apache-2.0 */
/* case.c — linked with each unit test. With RP_CASE=NAME (with * and ?) only these cases of it run.
 * With RP_THREADED=FOLDER a test that has started a thread or a process leaves an empty file of its
 * name in FOLDER: tools/check runs no other test under ThreadSanitizer. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#if __has_include(<sys/single_threaded.h>) /* glibc 2.32 */
#include <sys/single_threaded.h>
#else
enum { __libc_single_threaded = 0 };
#endif

static bool has_forked;

static void note_fork(void)
{
    has_forked = true;
}

__attribute__((constructor)) static void begin(void)
{
    const char *chosen = getenv("RP_CASE");
    if (chosen)
        cmocka_set_test_filter(chosen);
    if (getenv("RP_THREADED"))
        pthread_atfork(note_fork, NULL, NULL);
}

__attribute__((destructor)) static void note_threads(void)
{
    const char *folder = getenv("RP_THREADED");
    if (!folder || (__libc_single_threaded && !has_forked))
        return;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, program_invocation_short_name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) { /* without its file the test would be left out */
        perror(path);
        abort();
    }
    close(fd);
}
