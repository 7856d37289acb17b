/* SPDX-License-Identifier: Apache-2.0 */
/* values.c — the values of a column while they arrive (annotate.h). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "annotate/annotate.h"
#include "base/file.h"

static double real_of(uint64_t word)
{
    double real;
    memcpy(&real, &word, sizeof real);
    return real;
}

static uint64_t word_of(double real)
{
    uint64_t word;
    memcpy(&word, &real, sizeof word);
    return word;
}

/* ---- types ----------------------------------------------------------------------------------- */

/* The type of a mixture of two. */
static enum rp_index_column_type join(enum rp_index_column_type a, enum rp_index_column_type b)
{
    if (a == b || b == RP_INDEX_COLUMN_NONE)
        return a;
    if (a == RP_INDEX_COLUMN_NONE)
        return b;
    if (rp_index_column_kind(a) == RP_COLUMN_REAL || rp_index_column_kind(b) == RP_COLUMN_REAL)
        return RP_INDEX_COLUMN_F64;
    if (rp_index_column_kind(a) != rp_index_column_kind(b))
        return RP_INDEX_COLUMN_I64;
    return rp_index_column_width(a) > rp_index_column_width(b) ? a : b;
}

/* An integer as a real number; false: it is none exactly. */
static bool to_real(enum rp_column_kind kind, uint64_t *word)
{
    double real = kind == RP_COLUMN_SIGNED ? (double)(int64_t)*word : (double)*word;
    bool is_exact = kind == RP_COLUMN_SIGNED ? real < 0x1p63 && (int64_t)real == (int64_t)*word
                                             : real < 0x1p64 && (uint64_t)real == *word;
    *word = word_of(real);
    return is_exact;
}

/* A value of one kind as one of a type; false: the type does not hold it. */
static bool convert(enum rp_column_kind from, enum rp_index_column_type type, uint64_t *word)
{
    unsigned bits = 8 * rp_index_column_width(type);
    enum rp_column_kind to = rp_index_column_kind(type);
    if (to == RP_COLUMN_REAL) {
        bool is_exact = from == RP_COLUMN_REAL || to_real(from, word);
        float narrow = (float)real_of(*word);
        return is_exact && (type == RP_INDEX_COLUMN_F64 || (double)narrow == real_of(*word));
    }
    if (from == RP_COLUMN_REAL)
        return false;
    bool is_negative = from == RP_COLUMN_SIGNED && (int64_t)*word < 0;
    if (to == RP_COLUMN_UNSIGNED)
        return !is_negative && (bits == 64 || *word >> bits == 0);
    return is_negative ? (int64_t)*word >= -((int64_t)1 << (bits - 2)) * 2
                       : *word >> (bits - 1) == 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

int rp_gathered_open(struct rp_gathered *values, const char *folder, struct rp_error *error)
{
    values->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return values->fd < 0 ? rp_file_fail(error, folder, "make a file in") : 0;
}

void rp_gathered_close(struct rp_gathered *values)
{
    if (values->words)
        munmap(values->words, (size_t)values->count * 8);
    if (values->fd >= 0)
        close(values->fd);
    values->words = NULL;
    values->fd = -1;
}

static int flush(struct rp_gathered *values, struct rp_error *error)
{
    uint64_t at = (values->count - values->buffered) * 8;
    int code = rp_file_write_at(values->fd, "values of the column", values->buffer,
                                (size_t)values->buffered * 8, at, error);
    values->buffered = 0;
    rp_progress_report(values->progress, values->count, values->expected);
    return code;
}

int rp_gathered_map(struct rp_gathered *values, struct rp_error *error)
{
    int code = flush(values, error);
    if (code < 0 || values->count == 0)
        return code;
    void *map = mmap(NULL, (size_t)values->count * 8, PROT_READ | PROT_WRITE, MAP_SHARED,
                     values->fd, 0);
    if (map == MAP_FAILED)
        return rp_fail(error, -errno, NULL, "column `%s`: its values cannot be mapped: %s",
                       values->column, strerror(errno));
    values->words = map;
    return 0;
}

static int fail_mixture(const struct rp_gathered *values, const char *path, uint64_t row,
                        struct rp_error *error)
{
    return rp_fail(
        error, -RP_E_FORMAT, RP_ANNOTATE_MEND,
        "%s: row %" PRIu64 ": column `%s`: no type holds its numbers exactly: integers "
        "of 2^53 and more do not mix with real numbers, nor integers of 2^63 and more with "
        "numbers below 0",
        path, row, values->column);
}

/* The values before become values of a wider type. */
static int widen(struct rp_gathered *values, enum rp_index_column_type type, const char *path,
                 uint64_t row, struct rp_error *error)
{
    bool is_real = rp_index_column_kind(type) == RP_COLUMN_REAL &&
                   rp_index_column_kind(values->type) != RP_COLUMN_REAL && values->count > 0;
    bool is_signed = rp_index_column_kind(type) == RP_COLUMN_SIGNED &&
                     rp_index_column_kind(values->type) == RP_COLUMN_UNSIGNED;
    if (is_signed && values->has_large)
        return fail_mixture(values, path, row, error);
    if (is_real) {
        int code = rp_gathered_map(values, error);
        if (code < 0)
            return code;
        bool is_exact = rp_gathered_become(values, type);
        munmap(values->words, (size_t)values->count * 8);
        values->words = NULL;
        if (!is_exact)
            return fail_mixture(values, path, row, error);
    }
    values->type = type;
    return 0;
}

int rp_gathered_add(struct rp_gathered *values, enum rp_index_column_type type, uint64_t word,
                    const char *path, uint64_t row, struct rp_error *error)
{
    enum rp_index_column_type joined = join(values->type, type);
    enum rp_column_kind from = rp_index_column_kind(type);
    if (from == RP_COLUMN_REAL && isnan(real_of(word)))
        return rp_fail(error, -RP_E_FORMAT, RP_ANNOTATE_MEND,
                       "%s: row %" PRIu64 ": column `%s`: expected a number, found NaN", path, row,
                       values->column);
    int code = joined == values->type ? 0 : widen(values, joined, path, row, error);
    if (code == 0 && from != rp_index_column_kind(joined) && !convert(from, joined, &word))
        code = fail_mixture(values, path, row, error);
    if (code < 0)
        return code;
    values->has_large |= rp_index_column_kind(joined) == RP_COLUMN_UNSIGNED && word >> 63;
    values->buffer[values->buffered++] = word;
    values->count++;
    return values->buffered == RP_ANNOTATE_BUFFERED ? flush(values, error) : 0;
}

bool rp_gathered_become(struct rp_gathered *values, enum rp_index_column_type type)
{
    enum rp_column_kind from = rp_index_column_kind(values->type);
    for (uint64_t i = 0; i < values->count; i++)
        if (!convert(from, type, &values->words[i]))
            return false;
    values->type = type;
    return true;
}
