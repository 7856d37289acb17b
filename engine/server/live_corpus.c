/* SPDX-License-Identifier: Apache-2.0 */
#include "server/live_corpus.h"

#include <inttypes.h>

#include "base/bits.h"
#include "server/rings.h"
#include "stream.h"

/* Is any source to have more documents than the corpus has? *source: the first one. */
static bool lacks_documents(const struct rp_corpus *corpus, const uint64_t *documents,
                            uint32_t *source)
{
    uint32_t count = rp_corpus_source_count(corpus);
    for (*source = 0; *source < count; ++*source)
        if (documents[*source] > rp_source_documents(rp_corpus_source(corpus, *source)))
            return true;
    return false;
}

/* Can the corpus be opened again while the engine runs? */
static int check_corpus(const struct rp_engine *engine, uint32_t source, struct rp_error *error)
{
    const struct rp_stream *stream = &engine->stream;
    static const char *const restart = "start the engine again: it opens the corpus as it is then";
    const char *name = engine->config->sources[source].name;
    uint64_t has = rp_source_documents(rp_corpus_source(stream->corpus, source));
    if (!rp_config_index_file(engine->config))
        return rp_fail(error, -RP_E_USAGE, restart,
                       "source %s had %" PRIu64 " documents when the engine began, and only the "
                       "index of a corpus (key `index`) is opened again while it runs",
                       name, has);
    if (engine->delivery.cache)
        return rp_fail(error, -RP_E_USAGE, restart,
                       "source %s had %" PRIu64 " documents when the engine began, and it keeps "
                       "blocks of its objects (cache_bytes)",
                       name, has);
    return 0;
}

static int open_plans(struct rp_grown *grown, const struct rp_stream *stream,
                      struct rp_error *error)
{
    struct rp_plan **plans[] = {&grown->plan, &grown->probe, &grown->planner};
    const struct rp_docs_per_row none = {0}; /* a stage of version 2 has a default of its own */
    int code = 0;
    for (size_t i = 0; i < RP_ARRAY_COUNT(plans) && code >= 0; i++) {
        code = rp_stream_open_plan_with(plans[i], stream->config, grown->corpus, &none, error);
        if (code >= 0)
            code = rp_plan_follow(*plans[i], stream->probe, error);
    }
    return code;
}

int rp_engine_open_grown(struct rp_grown *grown, const struct rp_engine *engine,
                         const uint64_t *documents, struct rp_error *error)
{
    const struct rp_stream *stream = &engine->stream;
    uint32_t source;
    *grown = (struct rp_grown){.corpus = NULL};
    if (!lacks_documents(stream->corpus, documents, &source))
        return 0;
    int code = check_corpus(engine, source, error);
    if (code >= 0)
        code = rp_stream_open_corpus_with(&grown->corpus, stream->config, false,
                                          &stream->contract.stream, NULL, error);
    if (code >= 0 && lacks_documents(grown->corpus, documents, &source))
        code = rp_fail(error, -RP_E_CONFIG,
                       "index the documents that were appended (`ringpack index`), and give the "
                       "command again",
                       "source %s: expected %" PRIu64 " documents or more in the index, found "
                       "%" PRIu64,
                       engine->config->sources[source].name, documents[source],
                       rp_source_documents(rp_corpus_source(grown->corpus, source)));
    return code < 0 ? code : open_plans(grown, stream, error);
}

void rp_grown_close(struct rp_grown *grown)
{
    struct rp_plan *plans[] = {grown->plan, grown->probe, grown->planner};
    for (size_t i = 0; i < RP_ARRAY_COUNT(plans); i++)
        rp_plan_close(plans[i]);
    rp_corpus_close(grown->corpus);
    *grown = (struct rp_grown){.corpus = NULL};
}

int rp_engine_adopt_grown(struct rp_engine *engine, struct rp_grown *grown, struct rp_error *error)
{
    struct rp_stream *stream = &engine->stream;
    struct rp_grown before = {stream->corpus, stream->plan, stream->probe, stream->planner.plan};
    RP_ASSERT(!stream->planner.is_busy);
    rp_gain_log_end(&stream->gain_log);
    stream->corpus = grown->corpus;
    stream->plan = grown->plan;
    stream->probe = grown->probe;
    stream->planner.plan = grown->planner;
    *grown = (struct rp_grown){.corpus = NULL};
    int code = rp_engine_replace_flow(engine, error);
    if (code >= 0) /* else the old flow, which ends with the engine, reads the old corpus */
        rp_grown_close(&before);
    return code;
}
