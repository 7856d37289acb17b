/* SPDX-License-Identifier: Apache-2.0 */
/* start.c — finds the start state of a run: a given state token, the newest checkpoint that
 * verifies, or row 0 (with a warning, because a checkpoint may be missing).
 *
 * Order matters: the checkpoint is opened before the corpus, because with its contents a run can
 * begin although token files are unreachable; and before the plan, which then checks the token
 * against the corpus field by field. The trial write of the checkpoint directory runs meanwhile. It
 * is finished before any file is written there, and before the long steps: a start that cannot save
 * is refused before a scan of the corpus, not after it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "corpus/eos.h"
#include "plan/trace.h"
#include "server/journal.h"
#include "server/kept_records.h"
#include "server/recorder.h"
#include "server/save.h"
#include "server/start.h"
#include "stream.h"
#include "stream_gain.h"
#include "stream_version.h"

#define ROWS_SKIPPED_MAX 65536u /* skipped rows that are planned to find the first other one */
#define WEIGHTS_HOLD_PERCENT 90 /* warn if a source ends before this part of the stream */

static int open_plans(struct rp_stream *stream, const struct rp_docs_per_row *docs_per_row,
                      struct rp_error *error)
{
    const struct rp_config *config = stream->config;
    struct rp_plan **plans[] = {&stream->plan, &stream->probe, &stream->planner.plan};
    int code = 0;
    stream->planner.accept_weights = stream->accepts_weights;
    for (size_t i = 0; i < RP_ARRAY_COUNT(plans) && code >= 0; i++)
        code = rp_stream_open_plan_with(plans[i], config, stream->corpus, docs_per_row, error);
    return code;
}

/* Warn if a source ends well before the stream does: from there on the other weights share out its
 * tokens. */
static void warn_of_weights(const struct rp_config *config, const struct rp_corpus *corpus)
{
    double weights = 0, tokens = 0, first = 0;
    uint32_t source = 0;
    for (uint32_t i = 0; i < config->source_count; i++) {
        double own = (double)rp_source_tokens(rp_corpus_source(corpus, i));
        double lasts = own / (double)config->sources[i].weight;
        weights += (double)config->sources[i].weight;
        tokens += own;
        if (i == 0 || lasts < first) {
            first = lasts;
            source = i;
        }
    }
    double percent = tokens > 0 ? 100 * first * weights / tokens : 100;
    if (rp_config_reads_alike(config) && config->num_epochs && percent < WEIGHTS_HOLD_PERCENT)
        rp_log(RP_LOG_WARNING,
               "weights: source `%s` is used up after about %.0f %% of the stream, and the others "
               "continue without it; `ringpack plan` shows the mixture",
               config->sources[source].name, percent);
}

static void warn_of_settings(const struct rp_config *config, const struct rp_corpus *corpus,
                             const struct rp_docs_per_row *docs_per_row)
{
    char text[512], doubt[200];
    rp_version_tell(config);
    warn_of_weights(config, corpus);
    if (rp_stream_docs_per_row_text(docs_per_row, config, text, sizeof text))
        rp_log(RP_LOG_WARNING, "%s", text);
    if (rp_config_sections_doubt(config, text, sizeof text))
        rp_log(RP_LOG_WARNING, "%s", text);
    for (uint32_t i = 0; i < rp_corpus_source_count(corpus); i++) {
        const struct rp_source *source = rp_corpus_source(corpus, i);
        if (rp_source_eos_doubt(source, doubt, sizeof doubt))
            rp_log(RP_LOG_WARNING, "source `%s`: %s", rp_source_name(source), doubt);
    }
}

/* Log the settings in which this run differs from the run that wrote the checkpoint. All of these
 * may change, but a change may be a mistake. A checkpoint of an older ringpack has no contract. */
static void log_changes(const struct rp_stream *stream, const struct rp_checkpoint *checkpoint)
{
    const struct rp_contract_sides sides = {RP_ON_NODES, "the checkpoint", "this run",
                                            stream->config->weight_unit, 0};
    struct rp_contract had;
    struct rp_error difference;
    if (!rp_engine_contract_of(checkpoint, &had))
        return;
    if (rp_contract_compare(&had, &stream->contract, &sides, &difference) < 0)
        rp_log_event(RP_EVENT_contract_changed, "changed since the checkpoint: %s",
                     difference.message);
    bool whole = rp_contract_knows_whole(&had) && rp_contract_knows_whole(&stream->contract);
    rp_log(RP_LOG_INFO, "the corpus equals the checkpoint's, by %s",
           whole ? "its full fingerprint"
                 : "its sampled fingerprint: it is not indexed on both sides");
}

/* Set stream->contents, if the checkpoint has usable ones. They use its bytes in place, so the
 * engine keeps the checkpoint (stream->resumed). */
static int load_contents(struct rp_stream *stream, const struct rp_checkpoint *checkpoint,
                         struct rp_error *error)
{
    size_t bytes, cursor = 0;
    const void *section = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTENTS, &bytes);
    if (!section)
        return 0;
    stream->contents = rp_contents_new(section, bytes);
    if (!stream->contents)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for checkpoint contents");
    struct rp_content_record record;
    const void *tokens;
    int code;
    while ((code = rp_content_next(section, bytes, &cursor, &record, &tokens)) == 1) {
        code = rp_contents_add(stream->contents, record.row, record.offset, record.count,
                               record.width, tokens);
        if (code < 0)
            break;
    }
    if (code < 0) { /* without contents the rows are read from the corpus: the same tokens */
        rp_log(RP_LOG_WARNING,
               "%s: contents are unusable (%s); their rows are read from the corpus again",
               rp_checkpoint_path(checkpoint), rp_strerror(code));
        rp_contents_free(stream->contents);
        stream->contents = NULL;
    }
    return 0;
}

void rp_engine_forget_contents(struct rp_stream *stream)
{
    if (stream->contents)
        rp_contents_clear(stream->contents);
    rp_checkpoint_close(stream->resumed);
    stream->resumed = NULL;
}

static int fail_required(const struct rp_config *config, const char *what, struct rp_error *error)
{
    return rp_fail(error, -RP_E_EMPTY,
                   "mount or restore it; to begin a new run, start "
                   "once with `--resume auto`",
                   "resume: required, and %s %s", config->checkpoint_dir, what);
}

int rp_engine_check_resume(const struct rp_engine *engine, struct rp_error *error)
{
    const struct rp_config *config = engine->config;
    bool is_required = config->resume == RP_RESUME_REQUIRED && !engine->options->state;
    if (is_required && engine->options->fresh)
        return rp_fail(error, -RP_E_USAGE, "give one of them",
                       "--fresh sets the checkpoints aside, and resume: required wants one");
    struct stat info;
    if (is_required && !config->checkpoint_mirror_dir && stat(config->checkpoint_dir, &info) < 0 &&
        errno == ENOENT)
        return fail_required(engine->config, "does not exist", error);
    return 0;
}

/* A directory without a checkpoint belongs to a new run, or to an old run whose file system is not
 * mounted. The engine cannot distinguish them. */
static void warn_of_row_0(const struct rp_saving *saving)
{
    bool is_new = rp_checkpoint_dir_is_new(saving->checkpoints);
    rp_log_event(
        RP_EVENT_started_at_row_0,
        "no checkpoint in %s%s: starting at row 0; if this run has been trained before, stop it "
        "now: is the file system of that directory mounted? (`resume: required` refuses such a "
        "start)",
        saving->config->checkpoint_dir, is_new ? ", which was made just now" : "");
}

/* Use the newest of the copies, if the directory has no checkpoint but its copies do: the directory
 * was lost, a run that began at row 0 would lose all progress, and its checkpoints would replace
 * the copies. */
static int open_copy(struct rp_saving *saving, struct rp_checkpoint **out, struct rp_error *error)
{
    const char *copies = saving->config->checkpoint_mirror_dir;
    int code = copies ? rp_checkpoint_newest(out, copies, true, error) : 0;
    if (code == 1) {
        rp_log_event(RP_EVENT_resumed_from_copy,
                     "no checkpoint in %s: the run continues from its mirror %s",
                     saving->config->checkpoint_dir, copies);
        rp_recorder_warn_of_copies(saving->recorder, rp_checkpoint_info(*out)->next_row);
    }
    return code;
}

/* The newest checkpoint, if one is to be used; *out stays NULL otherwise. */
static int open_checkpoint(struct rp_engine *engine, struct rp_checkpoint **out,
                           struct rp_error *error)
{
    const char *directory = engine->config->checkpoint_dir;
    engine->saving.saved_row = RP_RECORDER_ROW_UNKNOWN;
    if (!directory || engine->options->state)
        return 0;
    engine->saving.saved_row = 0;
    if (engine->options->fresh || engine->config->resume == RP_RESUME_FRESH) {
        int tried = rp_checkpoint_dir_finish_trial(engine->saving.checkpoints, error);
        if (tried < 0)
            return tried;
        engine->saving.set_aside = rp_checkpoint_set_aside_all(engine->saving.checkpoints, error);
        return engine->saving.set_aside < 0 ? engine->saving.set_aside : 0;
    }
    int code = rp_checkpoint_newest(out, directory, true, error);
    bool has_own = code == 1;
    if (has_own)
        engine->saving.saved_row = rp_checkpoint_info(*out)->next_row;
    if (code == 0)
        code = open_copy(&engine->saving, out, error);
    if (code == 0 && engine->config->resume == RP_RESUME_REQUIRED)
        return fail_required(engine->config, "has no checkpoint", error);
    if (has_own || code == 0) {
        int checked = rp_recorder_check(engine->saving.recorder, engine->saving.checkpoints,
                                        engine->saving.saved_row, has_own, error);
        code = checked < 0 ? checked : code;
    }
    if (code == 0)
        warn_of_row_0(&engine->saving);
    return code < 0 ? code : 0;
}

static bool has_other_epochs(const struct rp_config *config, const void *token, size_t bytes)
{
    struct rp_state_info info;
    return rp_state_info(token, bytes, &info, NULL) == 0 && info.stream_version == 1 &&
           info.config.num_epochs != config->num_epochs;
}

/* If the token is refused only for its weights, replace the hint by the command that previews the
 * new ones. That command needs the names of two files: of the config and of the token. */
static void hint_at_preview(const struct rp_stream *stream, const char *file, const void *token,
                            size_t bytes, struct rp_error *error)
{
    const char *config = stream->config->path;
    char hint[sizeof error->hint];
    bool is_file = config && strcmp(config, stream->config->called) == 0; /* not a memfd */
    if (!error || !file || !is_file || rp_plan_resume(stream->plan, token, bytes, true, NULL) < 0)
        return;
    int length = snprintf(
        hint, sizeof hint,
        "the run is unchanged; `ringpack plan -c %s --state %s` shows the mixture "
        "of the new weights from there on: take them with --accept-weights, or "
        "set the weights back",
        RP_TEXT_SHELL(config), RP_TEXT_SHELL(file));
    if (length >= 0 && (size_t)length < sizeof hint)
        memcpy(error->hint, hint, (size_t)length + 1);
}

/* Move the plan to the start state: the given token, the checkpoint's, or row 0. The records of a
 * run of version 2 are in the contract of its checkpoints. *reweighted: the state was saved with
 * other weights, which accept_weights allows, or with another num_epochs. */
static int take_start_state(struct rp_engine *engine, const struct rp_checkpoint *checkpoint,
                            const struct rp_records_ahead *ahead, bool *reweighted,
                            struct rp_error *error)
{
    struct rp_stream *stream = &engine->stream;
    const void *token = engine->options->state;
    size_t bytes = engine->options->state_bytes;
    if (checkpoint) {
        token = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes);
        if (!token)
            return rp_fail(error, -RP_E_CORRUPT, "run `ringpack checkpoint list` to see the others",
                           "%s: the checkpoint has no state", rp_checkpoint_path(checkpoint));
    }
    if (token) {
        struct rp_contract contract;
        struct rp_plan_start start = {
            .contract = rp_engine_records_of(engine, checkpoint, &contract),
            .keeps_records = engine->options->records != NULL,
            .grow = engine->config->grow,
            .ahead = ahead->list,
            .ahead_count = ahead->count};
        int code = rp_plan_start(stream->plan, token, bytes, &start, error);
        *reweighted = start.accept_weights = code == -RP_E_MISMATCH && stream->accepts_weights;
        if (*reweighted)
            code = rp_plan_start(stream->plan, token, bytes, &start, error);
        *reweighted |= has_other_epochs(engine->config, token, bytes);
        if (code == -RP_E_MISMATCH && !stream->accepts_weights)
            hint_at_preview(
                stream, checkpoint ? rp_checkpoint_path(checkpoint) : engine->options->state_path,
                token, bytes, error);
        if (code < 0 && checkpoint)
            return rp_fail_context(error, code, "%s", rp_checkpoint_path(checkpoint));
        if (code < 0)
            return code;
    }
    return 0;
}

int rp_engine_share_calendar(struct rp_stream *stream, struct rp_error *error)
{
    struct rp_plan *plans[] = {stream->probe, stream->planner.plan};
    int code = 0;
    for (size_t i = 0; i < RP_ARRAY_COUNT(plans) && code >= 0; i++)
        code = plans[i] ? rp_plan_follow(plans[i], stream->plan, error) : 0;
    return code;
}

/* The state of the plan, which is at row 0. */
static int save_zero_state(struct rp_stream *stream, struct rp_error *error)
{
    RP_ASSERT(rp_plan_row(stream->plan) == 0);
    stream->state_bytes_max = rp_plan_state_bytes_max(stream->plan);
    stream->zero_state = rp_calloc(1, stream->state_bytes_max);
    if (!stream->zero_state)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for state tokens");
    return rp_plan_try_save(stream->plan, stream->zero_state, &stream->zero_bytes, error);
}

static int save_start_state(struct rp_stream *stream, struct rp_error *error)
{
    stream->state_bytes_max = rp_max_u64(stream->state_bytes_max,
                                         rp_plan_state_bytes_max(stream->plan));
    if (stream->state_bytes_max > RP_STATE_BYTES_MAX)
        return rp_fail(error, -RP_E_CONFIG, "lower packing_buffer or open_bins, or plan_partitions",
                       "the state of this stream may need %" PRIu64
                       " bytes, and a trainer could not bring back more than %zu",
                       stream->state_bytes_max, RP_STATE_BYTES_MAX);
    stream->start_state = rp_calloc(1, stream->state_bytes_max);
    if (!stream->start_state)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for state tokens");
    int code = rp_plan_try_save(stream->plan, stream->start_state, &stream->start_bytes, error);
    stream->start_row = rp_plan_row(stream->plan);
    stream->is_reweighted = rp_plan_is_reweighted(stream->plan);
    RP_ASSERT(code < 0 || stream->start_bytes <= stream->state_bytes_max);
    return code;
}

/* Rows of other weights or epochs hold other documents. In version 2, documents that join, stages,
 * limits and skips ahead may differ as well, and all of them are in the identity. */
static bool has_same_rows(const struct rp_stream *stream, const struct rp_checkpoint *checkpoint)
{
    struct rp_contract had;
    return rp_plan_version(stream->plan) == 1 ||
           (rp_engine_contract_of(checkpoint, &had) &&
            rp_hash128_equal(rp_record_hash(&had.stream), stream->identity));
}

/* A selection, limits or skips may leave a new stream of version 2 without a row. Moves the probe,
 * by at most ROWS_SKIPPED_MAX skipped rows. */
static int check_first_row(struct rp_stream *stream, struct rp_error *error)
{
    struct rp_row row = {.skipped = true};
    uint64_t skipped = 0;
    int code = 1;
    if (stream->start_row > 0 || rp_plan_version(stream->plan) == 1)
        return 0;
    for (; code > 0 && row.skipped && skipped <= ROWS_SKIPPED_MAX; skipped++)
        code = rp_plan_next(stream->probe, &row, error);
    if (code != 0 || rp_plan_is_stage_end(stream->probe))
        return code < 0 ? code : 0;
    if (skipped > 1)
        return rp_fail(error, -RP_E_EMPTY, "leave some rows out of `skip`",
                       "the stream has no row: `skip` has all of its %" PRIu64 " rows",
                       skipped - 1);
    return rp_fail(error, -RP_E_EMPTY,
                   "`ringpack plan` counts the documents that each source selects and passes over",
                   "the stream has no row: no source selects a document that may be used");
}

static int prepare_states(struct rp_engine *engine, const struct rp_checkpoint *checkpoint,
                          struct rp_error *error)
{
    struct rp_stream *stream = &engine->stream;
    struct rp_records_ahead ahead = {NULL, 0};
    struct rp_contract had;
    bool reweighted = false;
    int code = save_zero_state(stream, error);
    if (code >= 0)
        code = rp_engine_list_records(engine, &ahead, error);
    if (code >= 0)
        code = take_start_state(engine, checkpoint, &ahead, &reweighted, error);
    if (code >= 0)
        code = rp_engine_append_records(engine, &ahead, error);
    rp_engine_free_records(&ahead);
    if (code >= 0)
        code = rp_engine_share_calendar(stream, error);
    if (code >= 0)
        code = rp_engine_set_contract(engine, error);
    if (code >= 0)
        code = save_start_state(stream, error);
    if (code >= 0)
        code = check_first_row(stream, error);
    if (code >= 0 && rp_engine_contract_of(checkpoint, &had))
        code = rp_stream_check_columns(&had, &stream->contract, error);
    engine->saving.started_reweighted = reweighted;
    if (code >= 0 && checkpoint) {
        engine->saving.started_from = strdup(rp_checkpoint_path(checkpoint));
        /* rows of other weights, epochs or stages have other documents */
        if (!reweighted && has_same_rows(stream, checkpoint))
            code = load_contents(stream, checkpoint, error);
        rp_log_event(RP_EVENT_resumed, "resuming from %s: row %" PRIu64 "%s",
                     rp_checkpoint_path(checkpoint), stream->start_row,
                     stream->contents ? ", with contents" : "");
        log_changes(stream, checkpoint);
    }
    return code;
}

/* The start state is the newest checkpoint's: a save that is made before any progress finds it
 * unchanged. Without memory for the state, that save takes longer. */
static void set_newest_state(struct rp_engine *engine)
{
    struct rp_stream *stream = &engine->stream;
    void *token = rp_calloc(1, stream->start_bytes);
    if (token)
        memcpy(token, stream->start_state, stream->start_bytes);
    rp_saving_set_newest(&engine->saving, token, stream->start_bytes, engine->saving.started_from);
}

static int finish_trial(void *checkpoints, struct rp_error *error)
{
    return rp_checkpoint_dir_finish_trial(checkpoints, error);
}

static int open_corpus(struct rp_engine *engine, const struct rp_checkpoint *checkpoint,
                       struct rp_error *error)
{
    struct rp_saving *saving = &engine->saving;
    const struct rp_corpus_gate gate = {finish_trial, saving->checkpoints};
    size_t bytes = 0;
    bool has_contents = checkpoint &&
                        rp_checkpoint_section(checkpoint, RP_CHECKPOINT_CONTENTS, &bytes);
    struct rp_contract contract;
    int code = rp_stream_open_corpus_with(&engine->stream.corpus, engine->config, has_contents,
                                          rp_engine_records_of(engine, checkpoint, &contract),
                                          saving->checkpoints ? &gate : NULL, error);
    /* A directory that cannot be written is reported as such, not as an error of the source. */
    int tried = code < 0 && saving->checkpoints ? finish_trial(saving->checkpoints, error) : 0;
    return tried < 0 ? tried : code;
}

int rp_engine_find_start(struct rp_engine *engine, struct rp_error *error)
{
    struct rp_checkpoint *checkpoint = NULL;
    struct rp_docs_per_row docs_per_row;
    if (engine->saving.checkpoints)
        rp_recorder_open(&engine->saving.recorder, engine->config);
    int code = open_checkpoint(engine, &checkpoint, error);
    if (code >= 0)
        code = open_corpus(engine, checkpoint, error);
    if (code >= 0)
        code = rp_stream_docs_per_row(&docs_per_row, engine->config, engine->stream.corpus, error);
    if (code >= 0)
        code = open_plans(&engine->stream, &docs_per_row, error);
    if (code >= 0)
        warn_of_settings(engine->config, engine->stream.corpus, &docs_per_row);
    if (code >= 0)
        code = prepare_states(engine, checkpoint, error);
    if (code >= 0 && !checkpoint && !engine->options->state)
        rp_gain_log_start(&engine->stream.gain_log, engine->config, engine->stream.corpus);
    if (code >= 0 && checkpoint && engine->saving.saved_row == engine->stream.start_row)
        set_newest_state(engine);
    if (engine->stream.contents)
        engine->stream.resumed = checkpoint;
    else
        rp_checkpoint_close(checkpoint);
    return code;
}

int rp_engine_settle_start(struct rp_engine *engine, struct rp_error *error)
{
    struct rp_saving *saving = &engine->saving;
    int code = saving->checkpoints ? rp_checkpoint_dir_finish_trial(saving->checkpoints, error) : 0;
    if (code >= 0 && saving->checkpoints)
        code = rp_recorder_begin(saving->recorder, saving->checkpoints, saving->saved_row, error);
    if (code >= 0)
        rp_engine_journal_start(engine);
    return code;
}
