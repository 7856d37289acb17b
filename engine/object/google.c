/* SPDX-License-Identifier: Apache-2.0 */
/* google.c — find the bearer, and keep the token that a command printed. */
#include "object/google.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/mem.h"
#include "object/command.h"
#include "object/profile.h"

#define TOKEN_BYTES_MAX (16u << 10)
#define LIFETIME_S 1800 /* a command's token is kept this long: Google's last for an hour */
#define RENEW_S 10
#define COMMAND "RINGPACK_GOOGLE_TOKEN_COMMAND"
#define FILE_OF_TOKEN "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *printed; /* by the command; NULL: it has not run */
static time_t printed_at;

/* Keep the first word. False: the text is blank. */
static bool trim(char *text)
{
    size_t blanks = strspn(text, " \t\r\n");
    memmove(text, text + blanks, strlen(text + blanks) + 1);
    text[strcspn(text, " \t\r\n")] = '\0';
    return *text != '\0';
}

static int from_file(const char *path, char **token_out, struct rp_error *error)
{
    size_t bytes;
    int code = rp_file_read_all(path, TOKEN_BYTES_MAX, token_out, &bytes, error);
    if (code < 0)
        return rp_fail_context(error, code, FILE_OF_TOKEN);
    if (trim(*token_out))
        return 0;
    free(*token_out);
    *token_out = NULL;
    return rp_fail(error, -RP_E_TIMEOUT,
                   "write the token into it", /* it is being written, perhaps */
                   FILE_OF_TOKEN ": expected a token, found an empty file");
}

static int run(const char *line, const struct rp_patience *patience, struct rp_error *error)
{
    const struct rp_command command = {.name = COMMAND,
                                       .line = line,
                                       .limit_s = RP_COMMAND_STALLS * patience->stall_s,
                                       .stopper = patience->stopper};
    char *text = NULL;
    int code = rp_command_output(&command, &text, error);
    if (code == 0 && !trim(text))
        code = rp_fail(error, -RP_E_FORMAT, "`gcloud auth print-access-token` is such a command",
                       COMMAND ": expected a token, found no output");
    if (code == 0) {
        rp_free_secret(printed);
        printed = text;
        printed_at = time(NULL);
        text = NULL;
    }
    rp_free_secret(text);
    return printed && code < 0 && code != -RP_E_STOPPED ? -RP_E_TIMEOUT : code;
}

static int from_command(const char *line, bool renew, const struct rp_patience *patience,
                        char **token_out, struct rp_error *error)
{
    int code = 0;
    pthread_mutex_lock(&lock);
    time_t age = time(NULL) - printed_at;
    if (!printed || age >= LIFETIME_S || (renew && age >= RENEW_S))
        code = run(line, patience, error);
    if (code == 0 && !(*token_out = strdup(printed)))
        code = rp_fail(error, -ENOMEM, NULL, "out of memory for a token");
    pthread_mutex_unlock(&lock);
    return code;
}

int rp_google_token(bool renew, const struct rp_patience *patience, char **token_out,
                    const char **place_out, struct rp_error *error)
{
    const char *given = rp_environment("GOOGLE_OAUTH_ACCESS_TOKEN");
    const char *file = rp_environment(FILE_OF_TOKEN), *line = rp_environment(COMMAND);
    *token_out = NULL;
    if (!given)
        given = rp_environment("CLOUDSDK_AUTH_ACCESS_TOKEN");
    if (given) {
        *place_out = "the environment";
        *token_out = strdup(given);
        return *token_out ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory for a token");
    }
    *place_out = file ? FILE_OF_TOKEN : line ? COMMAND : NULL;
    if (file)
        return from_file(file, token_out, error);
    if (line)
        return from_command(line, renew, patience, token_out, error);
    if (rp_environment("GOOGLE_APPLICATION_CREDENTIALS"))
        return rp_fail(error, -RP_E_CONFIG,
                       "set RINGPACK_GOOGLE_TOKEN_COMMAND='gcloud auth application-default "
                       "print-access-token', or unset GOOGLE_APPLICATION_CREDENTIALS",
                       "credentials: GOOGLE_APPLICATION_CREDENTIALS is set: such files are not "
                       "read here, and no other right is used in its place");
    return 0;
}
