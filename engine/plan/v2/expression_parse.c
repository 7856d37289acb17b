/* SPDX-License-Identifier: Apache-2.0 */
/* expression_parse.c — from a text to a program (expression.h): one function for each rule of the
 * grammar of STREAM2.md section 4. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "plan/v2/expression_struct.h"

#define DIGITS_BEFORE 19u
#define DIGITS_AFTER 18u
#define SHOWN_MAX 40 /* bytes of a token in a message */

enum token_kind { TOKEN_END, TOKEN_NAME, TOKEN_NUMBER, TOKEN_SIGN, TOKEN_BAD };

struct token {
    enum token_kind kind;
    size_t at, bytes;
};

struct parser {
    const char *text;
    struct token token; /* the next one */
    uint32_t depth;
    size_t written; /* bytes of the canonical text */
    struct rp_expression *expression;
    struct rp_error *error;
};

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Not <ctype.h>, which depends on the locale. */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool begins_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static size_t digits_at(const char *text)
{
    size_t count = 0;
    while (is_digit(text[count]))
        count++;
    return count;
}

static size_t name_at(const char *text)
{
    size_t count = 0;
    while (begins_name(text[count]) || (count > 0 && is_digit(text[count])))
        count++;
    return count;
}

/* The bytes of a number, or 0. */
static size_t number_at(const char *text)
{
    size_t sign = text[0] == '-', whole = digits_at(text + sign), end = sign + whole;
    if (whole == 0)
        return 0;
    size_t part = text[end] == '.' ? digits_at(text + end + 1) : 0;
    return part ? end + 1 + part : end;
}

static struct token token_at(const char *text, size_t at)
{
    static const char *const signs[] = {"<=", ">=", "==", "!=", "<", ">", "(", ")", ","};
    while (is_space(text[at]))
        at++;
    const char *begin = text + at;
    if (*begin == 0)
        return (struct token){TOKEN_END, at, 0};
    if (begins_name(*begin))
        return (struct token){TOKEN_NAME, at, name_at(begin)};
    if (number_at(begin))
        return (struct token){TOKEN_NUMBER, at, number_at(begin)};
    for (size_t i = 0; i < RP_ARRAY_COUNT(signs); i++)
        if (!strncmp(begin, signs[i], strlen(signs[i])))
            return (struct token){TOKEN_SIGN, at, strlen(signs[i])};
    return (struct token){TOKEN_BAD, at, 1};
}

static bool is_word(const struct parser *parser, const char *word)
{
    return parser->token.bytes == strlen(word) &&
           !memcmp(parser->text + parser->token.at, word, parser->token.bytes);
}

static bool is_keyword(const char *text, size_t bytes)
{
    static const char *const keywords[] = {"and", "or", "not", "in"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(keywords); i++)
        if (bytes == strlen(keywords[i]) && !memcmp(text, keywords[i], bytes))
            return true;
    return false;
}

/* Append the token to the canonical text, and go to the next one. */
static void take(struct parser *parser)
{
    char *canonical = parser->expression->text;
    if (parser->written > 0)
        canonical[parser->written++] = ' ';
    memcpy(canonical + parser->written, parser->text + parser->token.at, parser->token.bytes);
    parser->written += parser->token.bytes;
    parser->token = token_at(parser->text, parser->token.at + parser->token.bytes);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

/* `expected` is missing at the next token, or the token is wrong. */
static int fail(const struct parser *parser, const char *expected)
{
    const char *text = parser->text;
    const struct token *token = &parser->token;
    size_t line = 1, column = 1;
    char found[SHOWN_MAX + 8];
    for (size_t i = 0; i < token->at; i++) {
        column = text[i] == '\n' ? 1 : column + 1;
        line += text[i] == '\n';
    }
    uint8_t first = (uint8_t)text[token->at];
    int shown = token->bytes > SHOWN_MAX ? SHOWN_MAX : (int)token->bytes;
    if (token->kind == TOKEN_END)
        snprintf(found, sizeof found, "the end");
    else if (first <= ' ' || first >= 0x7f)
        snprintf(found, sizeof found, "byte 0x%02x", first);
    else
        snprintf(found, sizeof found, "`%.*s`", shown, text + token->at);
    return rp_fail(parser->error, -RP_E_CONFIG,
                   "columns are numbers; compare one as in `score >= 0.5` or `language in (1, 4)`, "
                   "and combine comparisons by `and`, `or`, `not` and parentheses",
                   "line %zu, column %zu: expected %s, found %s", line, column, expected, found);
}

static int open_level(struct parser *parser)
{
    return ++parser->depth > RP_EXPRESSION_DEPTH_MAX
               ? fail(parser, "at most 64 open parentheses and `not`s")
               : 0;
}

/* ---- the program ----------------------------------------------------------------------------- */

static void emit(struct parser *parser, uint32_t code)
{
    parser->expression->codes[parser->expression->code_count++] = (uint16_t)code;
}

/* The last code makes the result of the last factor. */
static void emit_not(struct parser *parser)
{
    struct rp_expression *expression = parser->expression;
    uint32_t last = expression->codes[expression->code_count - 1];
    if (last == RP_CODE_NOT)
        expression->code_count--;
    else if (last < RP_EXPRESSION_COMPARISONS_MAX)
        expression->comparisons[last].is_inverted ^= true;
    else
        emit(parser, RP_CODE_NOT);
}

static int emit_comparison(struct parser *parser, const struct rp_comparison *comparison)
{
    struct rp_expression *expression = parser->expression;
    if (expression->comparison_count == RP_EXPRESSION_COMPARISONS_MAX)
        return fail(parser, "at most 1024 comparisons");
    emit(parser, expression->comparison_count);
    expression->comparisons[expression->comparison_count++] = *comparison;
    return 0;
}

/* ---- the grammar ----------------------------------------------------------------------------- */

static int expect(struct parser *parser, const char *word, const char *expected)
{
    if (!is_word(parser, word))
        return fail(parser, expected);
    take(parser);
    return 0;
}

static int take_name(struct parser *parser, uint32_t *name_out)
{
    struct rp_expression *expression = parser->expression;
    const char *text = parser->text + parser->token.at;
    size_t bytes = parser->token.bytes;
    if (parser->token.kind != TOKEN_NAME || is_keyword(text, bytes))
        return fail(parser, "the name of a column, `not` or `(`");
    if (bytes > RP_EXPRESSION_NAME_MAX)
        return fail(parser, "a name of at most 47 bytes");
    uint32_t name = 0;
    while (name < expression->name_count && (strncmp(expression->names[name], text, bytes) != 0 ||
                                             expression->names[name][bytes] != 0))
        name++;
    /* each name has a comparison of its own */
    if (name == RP_EXPRESSION_COMPARISONS_MAX)
        return fail(parser, "at most 1024 comparisons");
    if (name == expression->name_count)
        memcpy(expression->names[expression->name_count++], text, bytes);
    *name_out = name;
    take(parser);
    return 0;
}

static int take_number(struct parser *parser, struct rp_decimal_number *number)
{
    const char *text = parser->text + parser->token.at;
    if (parser->token.kind != TOKEN_NUMBER)
        return fail(parser, "a number");
    *number = (struct rp_decimal_number){.is_negative = text[0] == '-'};
    text += number->is_negative;
    size_t whole = digits_at(text), part = text[whole] == '.' ? digits_at(text + whole + 1) : 0;
    if (whole > DIGITS_BEFORE || part > DIGITS_AFTER)
        return fail(parser, "a number of at most 19 digits before the point and 18 after it");
    for (size_t i = 0; i < whole; i++)
        number->whole = 10 * number->whole + (uint64_t)(text[i] - '0');
    for (size_t i = 0; i < DIGITS_AFTER; i++)
        number->part = 10 * number->part + (i < part ? (uint64_t)(text[whole + 1 + i] - '0') : 0);
    take(parser);
    return 0;
}

static int parse_in(struct parser *parser, struct rp_comparison *comparison)
{
    int code = expect(parser, "(", "`(`");
    bool is_first = true;
    do {
        if (code == 0)
            code = take_number(parser, &comparison->number);
        if (code == 0)
            code = emit_comparison(parser, comparison);
        if (code == 0 && !is_first)
            emit(parser, RP_CODE_OR);
        is_first = false;
        if (code < 0 || !is_word(parser, ","))
            break;
        take(parser);
    } while (true);
    return code < 0 ? code : expect(parser, ")", "`,` or `)`");
}

static int parse_comparison(struct parser *parser)
{
    static const struct {
        const char *sign;
        enum rp_comparison_relation relation;
        bool is_inverted;
    } signs[] = {{"<", RP_LESS, false},  {"<=", RP_AT_MOST, false}, {"==", RP_EQUAL, false},
                 {"!=", RP_EQUAL, true}, {">=", RP_LESS, true},     {">", RP_AT_MOST, true},
                 {"in", RP_EQUAL, false}};
    struct rp_comparison comparison = {0};
    int code = take_name(parser, &comparison.name);
    if (code < 0)
        return code;
    size_t i = 0;
    while (i < RP_ARRAY_COUNT(signs) && !is_word(parser, signs[i].sign))
        i++;
    if (i == RP_ARRAY_COUNT(signs))
        return fail(parser, "<, <=, ==, !=, >=, > or `in`");
    comparison.relation = signs[i].relation;
    comparison.is_inverted = signs[i].is_inverted;
    bool is_in = is_word(parser, "in");
    take(parser);
    if (is_in)
        return parse_in(parser, &comparison);
    code = take_number(parser, &comparison.number);
    return code < 0 ? code : emit_comparison(parser, &comparison);
}

static int parse_expression(struct parser *parser);

static int parse_factor(struct parser *parser)
{
    uint32_t depth = parser->depth, inversions = 0;
    int code = 0;
    while (code == 0 && is_word(parser, "not")) {
        code = open_level(parser);
        inversions++;
        take(parser);
    }
    if (code == 0 && is_word(parser, "(")) {
        code = open_level(parser);
        take(parser);
        if (code == 0)
            code = parse_expression(parser);
        if (code == 0)
            code = expect(parser, ")", "`and`, `or` or `)`");
    } else if (code == 0) {
        code = parse_comparison(parser);
    }
    if (code == 0 && inversions % 2)
        emit_not(parser);
    parser->depth = depth;
    return code;
}

/* Parts with a word between them; `code` joins the results of two. */
static int parse_joined(struct parser *parser, int (*part)(struct parser *parser), const char *word,
                        uint32_t code)
{
    int failed = part(parser);
    while (failed == 0 && is_word(parser, word)) {
        take(parser);
        failed = part(parser);
        if (failed == 0)
            emit(parser, code);
    }
    return failed;
}

static int parse_term(struct parser *parser)
{
    return parse_joined(parser, parse_factor, "and", RP_CODE_AND);
}

static int parse_expression(struct parser *parser)
{
    return parse_joined(parser, parse_term, "or", RP_CODE_OR);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* A comparison has at least two bytes; and of codes each has itself, one that joins it to others,
 * and one that inverts these. */
static int allocate(struct rp_expression *expression, size_t bytes, struct rp_error *error)
{
    size_t comparisons = (size_t)rp_min_u64(RP_EXPRESSION_COMPARISONS_MAX, bytes / 2 + 1);
    expression->text = rp_calloc(2 * bytes + 1, 1);
    expression->names = rp_calloc(comparisons, sizeof *expression->names);
    expression->comparisons = rp_calloc(comparisons, sizeof *expression->comparisons);
    expression->codes = rp_calloc(3 * comparisons, sizeof *expression->codes);
    return expression->text && expression->names && expression->comparisons && expression->codes
               ? 0
               : rp_fail(error, -ENOMEM, NULL, "no memory for an expression");
}

int rp_expression_parse(struct rp_expression **expression_out, const char *text,
                        struct rp_error *error)
{
    size_t bytes = strlen(text);
    struct parser parser = {.text = text, .error = error};
    *expression_out = NULL;
    if (bytes > RP_EXPRESSION_BYTES_MAX)
        return rp_fail(error, -RP_E_CONFIG,
                       "make the decision beforehand, and keep it as a column of its own",
                       "line 1, column 1: expected at most %u bytes, found %zu",
                       RP_EXPRESSION_BYTES_MAX, bytes);
    parser.expression = rp_calloc(1, sizeof *parser.expression);
    if (!parser.expression)
        return rp_fail(error, -ENOMEM, NULL, "no memory for an expression");
    int code = allocate(parser.expression, bytes, error);
    if (code == 0) {
        parser.token = token_at(text, 0);
        code = parse_expression(&parser);
    }
    if (code == 0 && parser.token.kind != TOKEN_END)
        code = fail(&parser, "`and`, `or` or the end");
    if (code < 0)
        rp_expression_free(parser.expression);
    else
        *expression_out = parser.expression;
    return code;
}

bool rp_expression_is_name(const char *text)
{
    size_t bytes = name_at(text);
    return bytes > 0 && bytes <= RP_EXPRESSION_NAME_MAX && text[bytes] == 0 &&
           !is_keyword(text, bytes);
}
