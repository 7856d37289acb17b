/* SPDX-License-Identifier: Apache-2.0 */
/* plan_dump.c — prints the engine's plan for a spec of the oracle, in the oracle's own form.
 *
 *     plan_dump --spec FILE [--rows N] [--from-token FILE] [--accept-weights] [--states] [--digest]
 *
 * fuzz_plan.py reads it. Exit status: 0, or 2 with the engine's own message on stderr. */
#include <getopt.h>

#include "plan_spec.h"

struct options {
    const char *spec, *token;
    uint64_t rows;
    bool accept_weights, states, digest;
};

static void check(int code, const struct rp_error *error)
{
    if (code >= 0)
        return;
    fprintf(stderr, "plan_dump: %d: %s\n", code, error->message);
    exit(2);
}

static struct rp_plan *open_plan(const struct rp_spec *spec, const struct options *options)
{
    struct rp_error error = {0};
    struct rp_plan *plan;
    check(rp_plan_open(&plan, &spec->config, spec->sources, spec->source_count, &error), &error);
    if (options->token == NULL)
        return plan;
    size_t room = rp_plan_state_bytes_max(plan);
    unsigned char *token = malloc(room);
    FILE *file = fopen(options->token, "rb");
    if (file == NULL)
        rp_spec_fail("cannot open", options->token);
    size_t bytes = fread(token, 1, room, file);
    fclose(file);
    check(rp_plan_resume(plan, token, bytes, options->accept_weights, &error), &error);
    free(token);
    return plan;
}

/* N, counted from where the options start; UINT64_MAX when the stream is endless. */
static uint64_t count_rows(const struct rp_spec *spec, const struct options *options)
{
    if (spec->config.num_epochs == 0)
        return UINT64_MAX;
    struct rp_error error = {0};
    struct rp_plan *plan = open_plan(spec, options);
    struct rp_row row = {.row = rp_plan_row(plan) - 1};
    int more;
    while ((more = rp_plan_next(plan, &row, &error)) == 1)
        continue;
    check(more, &error);
    rp_plan_close(plan);
    return row.row + 1;
}

static void print_state(const struct rp_plan *plan)
{
    char *state = rp_spec_state(plan);
    printf("\"state\": \"%s\", ", state);
    free(state);
}

static void print_fragments(const struct rp_row *row)
{
    printf("\"fragments\": [");
    for (uint32_t i = 0; i < row->count; i++) {
        const struct rp_fragment *fragment = &row->fragments[i];
        printf("%s[%u, %" PRIu64 ", %" PRIu64 ", %u]", i == 0 ? "" : ", ", fragment->source,
               fragment->document, fragment->offset, fragment->length);
    }
    printf("]}\n");
}

static void print_counts(const struct rp_plan *plan)
{
    struct rp_plan_counts counts;
    rp_plan_counts(plan, &counts);
    printf("\"counts\": {\"documents\": %" PRIu64 ", \"empty\": %" PRIu64, counts.documents,
           counts.empty);
    printf(", \"tokens_read\": %" PRIu64 ", \"truncated\": %" PRIu64 ", \"dropped\": %" PRIu64,
           counts.tokens_read, counts.truncated, counts.dropped);
    printf(", \"emitted\": %" PRIu64 ", \"padding\": %" PRIu64 ", \"buffered\": %" PRIu64 "}",
           counts.emitted, counts.padding, counts.buffered);
}

static void print_summary(const struct rp_plan *plan, uint64_t end_of_stream,
                          struct rp_hash128 digest, const struct options *options)
{
    printf("{\"next_row\": %" PRIu64 ", \"N\": ", rp_plan_row(plan));
    if (end_of_stream == UINT64_MAX)
        printf("null, ");
    else
        printf("%" PRIu64 ", ", end_of_stream);
    if (options->states)
        print_state(plan);
    char hex[RP_HASH_HEX_BYTES];
    if (options->digest)
        printf("\"digest\": \"%s\", ", rp_hash128_hex(digest, hex));
    printf("\"identity\": \"%s\", ", rp_hash128_hex(rp_spec_identity(plan), hex));
    print_counts(plan);
    printf("}\n");
}

static void dump(const struct rp_spec *spec, const struct options *options)
{
    uint64_t end_of_stream = count_rows(spec, options);
    struct rp_plan *plan = open_plan(spec, options);
    struct rp_hash128 digest = {0, 0};
    struct rp_error error = {0};
    for (uint64_t n = 0; n < options->rows && rp_plan_row(plan) < end_of_stream; n++) {
        struct rp_row row;
        printf("{\"row\": %" PRIu64 ", ", rp_plan_row(plan));
        if (options->states)
            print_state(plan);
        int more = rp_plan_next(plan, &row, &error);
        check(more, &error);
        if (more == 0)
            rp_spec_fail("stream", "ended before the end that was counted");
        print_fragments(&row);
        if (options->digest)
            digest = rp_hash128_sum(digest, rp_spec_row_digest(&row));
    }
    print_summary(plan, end_of_stream, digest, options);
    rp_plan_close(plan);
}

int main(int argc, char **argv)
{
    static const struct option names[] = {{"spec", required_argument, NULL, 's'},
                                          {"rows", required_argument, NULL, 'n'},
                                          {"from-token", required_argument, NULL, 't'},
                                          {"accept-weights", no_argument, NULL, 'w'},
                                          {"states", no_argument, NULL, 'a'},
                                          {"digest", no_argument, NULL, 'd'},
                                          {NULL, 0, NULL, 0}};
    struct options options = {.rows = UINT64_MAX};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 's':
            options.spec = optarg;
            break;
        case 'n':
            options.rows = strtoull(optarg, NULL, 10);
            break;
        case 't':
            options.token = optarg;
            break;
        case 'w':
            options.accept_weights = true;
            break;
        case 'a':
            options.states = true;
            break;
        case 'd':
            options.digest = true;
            break;
        default:
            return 2;
        }
    }
    json_error_t json_error;
    json_t *json = options.spec == NULL ? NULL : json_load_file(options.spec, 0, &json_error);
    if (json == NULL)
        rp_spec_fail("cannot read", options.spec == NULL ? "no --spec" : json_error.text);
    struct rp_spec spec = rp_spec_read(json);
    dump(&spec, &options);
    rp_spec_free(&spec);
    json_decref(json);
    return 0;
}
