/* SPDX-License-Identifier: Apache-2.0 */
/* memory_file.h — files in the memory of this process. A file below FUZZ_FOLDER is opened here,
 * without a call to the kernel: the linker puts __wrap_open in the place of open, and so on
 * (CMakeLists.txt). Every other path and descriptor is the kernel's.
 *
 * Invariants: the page after a file's last byte cannot be read, so that a mapped file is never
 * read past its end unnoticed, whatever the build (up to 7 bytes in front of that page are, because
 * a mapping is aligned; AddressSanitizer sees those too). Whoever opens or maps a file gives it
 * back before it gets its next content. */
#ifndef RP_TESTS_MEMORY_FILE_H
#define RP_TESTS_MEMORY_FILE_H

#include <stddef.h>

#define FUZZ_FOLDER "/fuzz"

/* The file FUZZ_FOLDER/name has this content from now on; the bytes in front of the end of the
 * memory stay where they are until then. Returns its path. */
const char *fuzz_file(const char *name, const void *content, size_t bytes);

/* How many descriptors there are of the file that `fd` is one of. */
unsigned fuzz_opened(int fd);

/* A copy of `content` that ends where memory ends, until the next one; aligned to 8 bytes. */
void *fuzz_at_edge(const void *content, size_t bytes);

#endif
