/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a contract: u8 mode (1: the bytes are the text, 0: edits of a good one; 6: the moment
 * of the comparison), then the bytes.
 *
 * Accepted: writing its lines again gives the same bytes, it equals itself, and against the good
 * one it is refused if and only if a line that must be equal at that moment is not. */
#include "../unit/contract_sample.h"

#include "base/contract.h"
#include "fuzz.h"

#define TEXT_BYTES_MAX 4096u

static char good[TEXT_BYTES_MAX], text[TEXT_BYTES_MAX];
static size_t good_bytes;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    for (size_t i = 0; i < SAMPLE_FIELDS; i++) {
        const struct sample_field *field = &sample_fields[i];
        int added = field->name ? sprintf(good + good_bytes, "%s%c%s\n", field->name, field->sign,
                                          field->value)
                                : sprintf(good + good_bytes, "\n");
        good_bytes += (size_t)added;
    }
    return 0;
}

/* The second of the two records of a contract; its text ends with the contract. */
static const char *delivery_of(const char *whole)
{
    return strstr(whole, "\n\n") + 2;
}

/* The value of a line of a record as text, or NULL: found in the plainest way. An empty line ends
 * the first record. */
static const char *value_of(const char *record, const char *name, char *sign)
{
    static char value[2][TEXT_BYTES_MAX];
    static unsigned turn;
    size_t length = strlen(name);
    for (const char *line = record; *line && *line != '\n'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, name, length) != 0 || !line[length] || !strchr("=~:", line[length]))
            continue;
        *sign = line[length];
        char *copy = value[turn++ % 2];
        size_t bytes = (size_t)(strchr(line, '\n') - line) - length - 1;
        memcpy(copy, line + length + 1, bytes);
        copy[bytes] = 0;
        return copy;
    }
    return NULL;
}

static bool may_differ(const char *name, unsigned moment)
{
    for (size_t i = 0; i < SAMPLE_FIELDS; i++) {
        const struct sample_field *field = &sample_fields[i];
        if (field->name && !strcmp(field->name, name))
            return field->freedom == LABEL ||
                   (field->freedom == FREE && moment & (RP_AT_RESUME | RP_AT_REWEIGHTED)) ||
                   (field->freedom == REWEIGHT && moment & RP_AT_REWEIGHTED);
    }
    return false;
}

/* Lines of record `a` that record `b` lacks, or has with another value. Fields that the sample does
 * not have are bound, but for weights of more sources. */
static bool differs(const char *a, const char *b, unsigned moment)
{
    for (const char *line = a; *line && *line != '\n'; line = strchr(line, '\n') + 1) {
        char name[RP_RECORD_NAME_MAX + 1], sign = 0, other_sign = 0;
        size_t length = strcspn(line, "=~:\n");
        snprintf(name, sizeof name, "%.*s", (int)length, line);
        if (may_differ(name, moment) || strstr(name, "source["))
            continue;
        const char *own = value_of(a, name, &sign), *other = value_of(b, name, &other_sign);
        if (!other ? sign == '=' : (sign != ':' || other_sign != ':') && strcmp(own, other) != 0)
            return true;
    }
    return false;
}

/* A field of one record is not looked for in the other: `seed` in the delivery is unknown. */
static bool contracts_differ(unsigned moment)
{
    const char *ours = delivery_of(good), *theirs = delivery_of(text);
    return differs(good, text, moment) || differs(text, good, moment) ||
           differs(ours, theirs, moment) || differs(theirs, ours, moment);
}

static bool sources_are_equal(void)
{
    const char *a = strstr(good, "source["), *end = strstr(good, "\nsources");
    const char *b = memmem(text, strlen(text), a, (size_t)(end - a));
    return b && (b == text || b[-1] == '\n') && strncmp(b + (end - a), "\nsources", 8) == 0 &&
           !strstr(b + (end - a), "source[") && strstr(text, "source[") == b;
}

static void check_accepted(const struct rp_contract *contract, size_t bytes, unsigned moment)
{
    struct rp_record_writer writer = {0};
    const struct rp_record *records[] = {&contract->stream, &contract->delivery};
    struct rp_field field;
    for (unsigned r = 0; r < 2; r++) {
        for (size_t at = 0; rp_record_next(records[r], &at, &field);) {
            char name[RP_RECORD_NAME_MAX + 1], value[RP_RECORD_VALUE_MAX + 1];
            snprintf(name, sizeof name, "%.*s", (int)field.name_bytes, field.name);
            snprintf(value, sizeof value, "%.*s", (int)field.value_bytes, field.value);
            if (strchr(value, '\\'))
                goto unwritable; /* it would be escaped again */
            rp_record_add(&writer, field.sign, name, "%s", value);
        }
        if (r == 0)
            rp_record_end(&writer);
    }
    FUZZ_REQUIRE(writer.bytes == bytes && memcmp(writer.text, text, bytes) == 0);
unwritable:
    free(writer.text);
    struct rp_contract other;
    struct rp_error error = {0};
    struct rp_contract_sides sides = {(enum rp_contract_moment)moment, "one", "the other", 0, 0};
    FUZZ_REQUIRE(rp_contract_compare(contract, contract, &sides, &error) == 0);
    FUZZ_REQUIRE(rp_contract_open(&other, good, good_bytes, &error) == 0);
    bool refused = !fuzz_accepted(rp_contract_compare(&other, contract, &sides, &error), &error);
    FUZZ_REQUIRE(!refused || error.hint[0]);
    if (sources_are_equal())
        FUZZ_REQUIRE(refused == contracts_differ(moment));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rp_error error = {0};
    struct rp_contract contract;
    unsigned mode = (unsigned)fuzz_number(&input, 1), moment = 1u << (mode >> 1 & 3);
    size_t bytes = mode & 1 ? rp_min_u64(input.left, sizeof text - 1) : good_bytes;
    memset(text, 0, sizeof text);
    if (bytes)
        memcpy(text, mode & 1 ? (const char *)input.at : good, bytes);
    if (!(mode & 1))
        fuzz_edit(&input, (uint8_t *)text, bytes);
    bool same = bytes == good_bytes && memcmp(text, good, bytes) == 0;
    bool accepted = fuzz_accepted(
        rp_contract_open(&contract, fuzz_at_edge(text, bytes), bytes, &error), &error);
    FUZZ_REQUIRE(accepted || !same);
    if (accepted)
        check_accepted(&contract, bytes, moment);
    return 0;
}
