/* SPDX-License-Identifier: Apache-2.0 */
/* io_fake.h — a method of engine/io that misbehaves on purpose, the same way for the same seed.
 *
 * It reads the real file at the moment a read is reaped, so a buffer that is used too early is
 * empty. It keeps to the kernel's behaviour: no more bytes than requested, no aligned (O_DIRECT)
 * read that stops off its alignment before the end of the file. An aligned read at an unaligned
 * place is EINVAL. */
#ifndef RP_TESTS_IO_FAKE_H
#define RP_TESTS_IO_FAKE_H

#include "io/io.h"

struct io_fake_script {
    uint64_t seed;
    /* among 1000 results, how many … */
    unsigned cut;    /* bring only a part */
    unsigned again;  /* are EAGAIN, EINTR, EBUSY or ENOMEM */
    unsigned broken; /* are EIO, three times in a row at most: io.c retries as often */
    unsigned lazy;   /* submits take only a part, or refuse with EAGAIN */
    bool reorder;    /* give results back in a random order */
    /* Reads that touch [bad_start, bad_end) fail with bad_error: a buffered read brings the bytes
     * in front of it, an aligned one (O_DIRECT) none. bad_times: how often; 0 = for ever. */
    uint64_t bad_start, bad_end;
    int bad_error;
    unsigned bad_times;
    uint64_t ends_at; /* apparent end of the file; 0 = its real end */
    bool takes_none;  /* submit refuses for ever, with EAGAIN */
};

/** The script of every rp_io that is opened from now on, in whatever thread. */
void io_fake_set(const struct io_fake_script *script);
extern const struct rp_io_method io_fake_method;

/** Small generator for tests: the same numbers on every machine. */
static inline uint64_t io_fake_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#endif
