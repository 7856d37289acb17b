/* SPDX-License-Identifier: Apache-2.0 */
/* mem — see mem.h. */
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

void *rp_calloc_aligned(size_t alignment, size_t bytes)
{
    size_t rounded = rp_align_up(bytes ? bytes : 1, alignment);
    void *memory = rounded < bytes ? NULL : aligned_alloc(alignment, rounded);
    return memory ? memset(memory, 0, rounded) : NULL;
}

char *rp_format(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    return length < 0 ? NULL : text;
}
