/* SPDX-License-Identifier: Apache-2.0 */
/* stream2_dump.c — the engine's rows of streams of version 2, for the oracle to compare.
 *
 * Each line of standard input is a job in JSON: {"stream": …, "rows": N}, optionally with "token"
 * (hexadecimal; the run continues from it), "records" (text of the contract), "weights" (accepted,
 * by source of the config) and "grow". The answer is one line: the rows with the token before each
 * and the ledger, then contract and identity, or the engine's error. fuzz_stream2.py writes the
 * jobs. Exit status: 0, or 2 if a job is malformed. */
#include "stream2_spec.h"

struct run {
    struct rp_calendar *calendar;
    struct rp_planner *plan;
    unsigned char *token;
};

static void set_number(json_t *object, const char *key, uint64_t number)
{
    json_object_set_new(object, key, json_integer((json_int_t)number));
}

static void append_number(json_t *array, uint64_t number)
{
    json_array_append_new(array, json_integer((json_int_t)number));
}

static void set_error(json_t *answer, int code, const struct rp_error *error)
{
    set_number(answer, "code", (uint64_t)(int64_t)code);
    if (code != error->code)
        rp_spec_fail("a code without its error", error->message);
    json_object_set_new(answer, "error", json_string(error->message));
}

/* Where the next row is: token, position and ledger. */
static int set_state(json_t *answer, const struct run *run, struct rp_error *error)
{
    size_t bytes = 0;
    int code = rp_planner_token_write(run->plan, run->token, &bytes, error);
    if (code < 0)
        return code;
    if (bytes > rp_planner_token_bytes_max(run->calendar))
        rp_spec_fail("stream2_dump", "a token is longer than its bound");
    char *hex = rp_spec_hex(run->token, bytes);
    json_object_set_new(answer, "token", json_string(hex));
    free(hex);
    struct rp_stream_position position = rp_planner_position(run->plan);
    if (position.next_row != rp_planner_row(run->plan))
        rp_spec_fail("stream2_dump", "two positions");
    json_t *ledgers = json_array();
    for (uint32_t j = 0; j < rp_calendar_source_count(run->calendar); j++) {
        struct rp_stream_ledger ledger = {0};
        rp_planner_ledger(run->plan, j, &ledger);
        json_t *own = json_array();
        append_number(own, ledger.planned);
        append_number(own, ledger.waiting);
        append_number(own, ledger.withheld);
        append_number(own, ledger.delivered);
        append_number(own, ledger.taken);
        json_array_append_new(ledgers, own);
    }
    json_object_set_new(answer, "ledger", ledgers);
    return 0;
}

static void set_row(json_t *answer, const struct rp_stream_row *row)
{
    set_number(answer, "g", row->row);
    set_number(answer, "q", row->planned);
    set_number(answer, "cost", row->cost);
    set_number(answer, "tokens", row->tokens);
    json_object_set_new(answer, "skipped", json_boolean(row->skipped));
    json_t *fragments = json_array();
    for (uint32_t i = 0; i < row->count; i++) {
        const struct rp_fragment *fragment = &row->fragments[i];
        json_t *own = json_array();
        append_number(own, fragment->source);
        append_number(own, fragment->document);
        append_number(own, fragment->offset);
        append_number(own, fragment->length);
        json_array_append_new(fragments, own);
    }
    json_object_set_new(answer, "fragments", fragments);
}

static int set_rows(json_t *answer, const struct run *run, uint64_t rows, struct rp_error *error)
{
    json_t *list = json_array();
    json_object_set_new(answer, "rows", list);
    for (uint64_t n = 0;; n++) {
        json_t *own = json_object();
        json_array_append_new(list, own);
        int code = set_state(own, run, error);
        if (code < 0 || n == rows)
            return code;
        struct rp_stream_row row;
        code = rp_planner_next(run->plan, &row, error);
        if (code == 0)
            json_object_set_new(own, "end", json_true());
        if (code < 1)
            return code;
        set_row(own, &row);
    }
}

static int set_contract(json_t *answer, const struct run *run, struct rp_error *error)
{
    struct rp_record_writer writer = {0};
    int code = rp_calendar_contract(run->calendar, &writer, error);
    struct rp_record record;
    if (code == 0)
        code = rp_record_open(&record, writer.text, writer.bytes, error);
    if (code == 0) {
        char hex[RP_HASH_HEX_BYTES];
        json_object_set_new(answer, "contract", json_stringn(writer.text, writer.bytes));
        json_object_set_new(answer, "identity",
                            json_string(rp_hash128_hex(rp_record_hash(&record), hex)));
    }
    free(writer.text);
    return code;
}

/* The token is copied to memory of its own size, so that a sanitizer sees a read past its end. */
static int resume_run(struct run *run, const struct rp_spec2 *spec, const json_t *job,
                      const char *hex, struct rp_error *error)
{
    struct rp_spec2 arrays = {0};
    size_t bytes = strlen(hex) / 2;
    unsigned char *token = malloc(bytes + (bytes == 0));
    for (size_t i = 0; i < bytes; i++)
        sscanf(hex + 2 * i, "%2hhx", &token[i]);
    struct rp_stream_resume resume = {
        .begun_records = json_string_value(json_object_get(job, "records")),
        .weights = rp_spec2_weights(&arrays, json_object_get(job, "weights")),
        .grow = rp_spec2_get(job, "grow", 1) != 0};
    int code = rp_planner_token_resume(&run->calendar, &run->plan, &spec->spec, token, bytes,
                                       &resume, error);
    free(token);
    rp_spec2_free(&arrays);
    return code;
}

static int open_run(struct run *run, const struct rp_spec2 *spec, const json_t *job,
                    struct rp_error *error)
{
    const char *token = json_string_value(json_object_get(job, "token"));
    int code;
    if (token != NULL) {
        code = resume_run(run, spec, job, token, error);
    } else {
        struct rp_calendar_position position = {0};
        code = rp_calendar_open(&run->calendar, &spec->spec, &position, error);
        if (code == 0)
            code = rp_planner_open(&run->plan, run->calendar, error);
    }
    if (code == 0)
        run->token = malloc(rp_planner_token_bytes_max(run->calendar));
    return code;
}

static json_t *answer_job(const json_t *job)
{
    struct rp_spec2 spec;
    struct run run = {0};
    struct rp_error error = {0};
    json_t *answer = json_object();
    rp_spec2_read(&spec, rp_spec_get(job, "stream"));
    int code = open_run(&run, &spec, job, &error);
    if (code == 0)
        code = set_contract(answer, &run, &error);
    if (code == 0)
        code = set_rows(answer, &run, rp_spec_u64(job, "rows"), &error);
    if (code < 0)
        set_error(answer, code, &error);
    rp_planner_close(run.plan);
    rp_calendar_close(run.calendar);
    free(run.token);
    rp_spec2_free(&spec);
    return answer;
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        json_error_t fault;
        json_t *job = json_loads(line, 0, &fault);
        if (job == NULL)
            rp_spec_fail("cannot read a job", fault.text);
        json_t *answer = answer_job(job);
        json_dumpf(answer, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(answer);
        json_decref(job);
    }
    free(line);
    return 0;
}
