/* SPDX-License-Identifier: Apache-2.0 */
/* An expression of select or repeat.
 *
 * Refused: the message says where. Accepted: its canonical text is accepted, is its own
 * canonical text, has the same names, and is true for the same documents; and `not ( … )` of it for
 * the others. */
#include "fuzz.h"
#include "plan/v2/expression.h"

#define STRIDE 64u

static union rp_value values[RP_EXPRESSION_COMPARISONS_MAX * STRIDE];

/* Values around 0, and at the borders of their kinds. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    for (uint32_t c = 0; c < RP_EXPRESSION_COMPARISONS_MAX; c++)
        for (uint32_t i = 0; i < STRIDE; i++) {
            union rp_value *value = &values[c * STRIDE + i];
            if (c % 4 == RP_VALUE_REAL)
                value->real = (double)i / 8 - 4;
            else
                value->word = i % 2 ? i / 2 : (uint64_t)INT64_MIN + i / 4 - 4;
        }
    return 0;
}

static uint64_t test(struct rp_expression *expression)
{
    static struct rp_value_column columns[RP_EXPRESSION_COMPARISONS_MAX];
    uint32_t count = rp_expression_names(expression);
    FUZZ_REQUIRE(count >= 1 && count <= RP_EXPRESSION_COMPARISONS_MAX);
    for (uint32_t c = 0; c < count; c++) {
        FUZZ_REQUIRE(rp_expression_is_name(rp_expression_name(expression, c)));
        columns[c] = (struct rp_value_column){c, (enum rp_value_kind)(c % 4)};
    }
    rp_expression_bind(expression, columns);
    return rp_expression_test(expression, values, STRIDE, STRIDE);
}

static void check_again(const struct rp_expression *expression, uint64_t found)
{
    struct rp_error error = {0};
    struct rp_expression *again;
    const char *text = rp_expression_text(expression);
    /* spaces between tokens may be too many bytes, or another parenthesis too deep */
    int code = rp_expression_parse(&again, text, &error);
    FUZZ_REQUIRE(code == 0 || strlen(text) > RP_EXPRESSION_BYTES_MAX);
    if (code == 0) {
        FUZZ_REQUIRE(!strcmp(rp_expression_text(again), text));
        FUZZ_REQUIRE(rp_expression_names(again) == rp_expression_names(expression));
        FUZZ_REQUIRE(test(again) == found);
    }
    rp_expression_free(again);
    size_t bytes = strlen(text) + 8;
    char *inverted = malloc(bytes);
    FUZZ_REQUIRE(inverted != NULL);
    snprintf(inverted, bytes, "not(%s)", text);
    if (rp_expression_parse(&again, inverted, &error) == 0)
        FUZZ_REQUIRE(test(again) == ~found);
    rp_expression_free(again);
    free(inverted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rp_error error = {0};
    struct rp_expression *expression;
    char *text = malloc(size + 1);
    FUZZ_REQUIRE(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    int code = rp_expression_parse(&expression, text, &error);
    if (fuzz_accepted(code, &error))
        check_again(expression, test(expression));
    else
        FUZZ_REQUIRE(code == -RP_E_CONFIG && !strncmp(error.message, "line ", 5));
    rp_expression_free(expression);
    free(text);
    return 0;
}
