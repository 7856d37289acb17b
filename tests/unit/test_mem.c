/* SPDX-License-Identifier: Apache-2.0 */
/* Pages are taken and given back whole, on a machine that says that they have 64 KiB, as some of
 * aarch64 do: an munmap that begins elsewhere is refused there, and the memory stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

#define PAGE_BYTES 65536u
#define HUGE_PAGE_BYTES (2u << 20)

static struct {
    void *address;
    size_t bytes;
} last_unmapped;

int __real_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes)
{
    last_unmapped.address = address;
    last_unmapped.bytes = bytes;
    return __real_munmap(address, bytes);
}

static struct {
    void *address;
    size_t bytes;
    int advice;
} last_advised;

int __real_madvise(void *address, size_t bytes, int advice);
int __wrap_madvise(void *address, size_t bytes, int advice);
int __wrap_madvise(void *address, size_t bytes, int advice)
{
    last_advised.address = address;
    last_advised.bytes = bytes;
    last_advised.advice = advice;
    return __real_madvise(address, bytes, advice);
}

long __real_sysconf(int name);
long __wrap_sysconf(int name);
long __wrap_sysconf(int name)
{
    return name == _SC_PAGESIZE ? PAGE_BYTES : __real_sysconf(name);
}

static char last_wiped[16];
static size_t last_wiped_bytes;

void __wrap_explicit_bzero(void *memory, size_t bytes);
void __wrap_explicit_bzero(void *memory, size_t bytes)
{
    last_wiped_bytes = bytes;
    memcpy(last_wiped, memory, bytes < sizeof last_wiped ? bytes : sizeof last_wiped);
    memset(memory, 0, bytes);
}

/* With -D_FORTIFY_SOURCE the C library's header calls this one. */
void __wrap___explicit_bzero_chk(void *memory, size_t bytes, size_t room);
void __wrap___explicit_bzero_chk(void *memory, size_t bytes, size_t room)
{
    (void)room;
    __wrap_explicit_bzero(memory, bytes);
}

static void a_secret_is_wiped_before_it_is_freed(void **state)
{
    (void)state;
    char *secret = rp_asprintf("%s", "S3CR3T");
    assert_non_null(secret);
    rp_free_secret(secret);
    assert_int_equal(last_wiped_bytes, 6);
    assert_memory_equal(last_wiped, "S3CR3T", 6);
    rp_free_secret(NULL);
}

static void check(size_t bytes, size_t whole)
{
    uint8_t *memory = rp_take_pages(bytes);
    assert_non_null(memory);
    if (whole >= HUGE_PAGE_BYTES) { /* surplus that was taken to begin at a huge page */
        assert_ptr_equal(last_unmapped.address, memory + whole);
        assert_int_equal((uintptr_t)memory % HUGE_PAGE_BYTES, 0);
    }
    memset(memory, 5, bytes);
    rp_spare_pages(memory, bytes);
    assert_ptr_equal(last_advised.address, memory);
    assert_int_equal(last_advised.bytes, whole);
    assert_int_equal(last_advised.advice, MADV_FREE);
    memset(memory, 6, bytes);
    assert_true(bytes == 0 || memory[bytes - 1] == 6);
    rp_give_pages(memory, bytes);
    assert_ptr_equal(last_unmapped.address, memory);
    assert_int_equal(last_unmapped.bytes, whole);
}

static void pages_are_given_back_whole(void **state)
{
    (void)state;
    check(0, PAGE_BYTES);
    check(PAGE_BYTES + 1, 2 * PAGE_BYTES);
    check(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES);
    check(HUGE_PAGE_BYTES + 1, HUGE_PAGE_BYTES + PAGE_BYTES);
}

/* The kernel's answer. Something else may be mapped there by now, as a sanitizer does in a child.
 */
static bool holds(const uint8_t *address, uint8_t value)
{
    int ends[2];
    uint8_t found = (uint8_t)~value;
    if (pipe(ends) < 0)
        return true;
    return write(ends[1], address, 1) == 1 && read(ends[0], &found, 1) == 1 && found == value;
}

static void a_forked_child_has_no_withheld_pages(void **state)
{
    (void)state;
    for (size_t bytes = PAGE_BYTES; bytes <= 2 * HUGE_PAGE_BYTES; bytes *= 64) {
        uint8_t *memory = rp_take_pages(bytes);
        int status;
        assert_non_null(memory);
        memset(memory, 5, bytes);
        rp_withhold_pages(memory, bytes);
        pid_t child = fork();
        if (child == 0)
            _exit(holds(memory, 5) || holds(memory + bytes - 1, 5) ? 1 : 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(memory[bytes - 1], 5);
        rp_give_pages(memory, bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pages_are_given_back_whole),
                                       cmocka_unit_test(a_forked_child_has_no_withheld_pages),
                                       cmocka_unit_test(a_secret_is_wiped_before_it_is_freed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
