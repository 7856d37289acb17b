/* SPDX-License-Identifier: Apache-2.0 */
/* bugs.c — the control of static analysis: each tool must find something here. Never compiled into
 * anything. */
#include <stdlib.h>
#include <string.h>

int read_behind_free(void);
int read_behind_free(void)
{
    int *number = malloc(sizeof *number);
    if (!number)
        return 0;
    *number = 7;
    free(number);
    return *number; /* gcc -fanalyzer, clang --analyze */
}

char *copy_too_little(const char *text);
char *copy_too_little(const char *text)
{
    char places[4];
    places[4] = text[0];                   /* cppcheck */
    char *copy = malloc(strlen(text + 1)); /* clang-tidy */
    return copy ? strcat(strcpy(copy, text), places) : NULL;
}
