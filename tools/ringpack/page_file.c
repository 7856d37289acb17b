/* SPDX-License-Identifier: Apache-2.0 */
#include "page_file.h"

#include <errno.h>
#include <unistd.h>

double rp_page_round_up(double value)
{
    double power = 1;
    while (power > value)
        power /= 10;
    while (10 * power <= value)
        power *= 10;
    double digit = value / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

int rp_page_file_open(struct rp_page_file *page, const char *path, struct rp_error *error)
{
    page->out = NULL;
    int code = rp_new_file_open(&page->file, path, error);
    if (code < 0)
        return code;
    int copy = dup(page->file.fd);
    if (copy >= 0)
        page->out = fdopen(copy, "w");
    if (page->out)
        return 0;
    code = rp_file_fail(error, path, "open");
    if (copy >= 0)
        close(copy);
    rp_new_file_discard(&page->file);
    return code;
}

int rp_page_file_close(struct rp_page_file *page, int code, struct rp_error *error)
{
    errno = EIO; /* an earlier write has failed */
    if ((fflush(page->out) != 0 || ferror(page->out)) && code == 0)
        code = rp_file_fail(error, page->file.path, "write");
    if (fclose(page->out) != 0 && code == 0)
        code = rp_file_fail(error, page->file.path, "write");
    if (code == 0)
        return rp_new_file_publish(&page->file, error);
    rp_new_file_discard(&page->file);
    return code;
}
