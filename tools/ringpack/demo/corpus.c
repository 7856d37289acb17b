/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.c — a corpus of files that every machine has: documentation, headers, manual pages. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/bits.h"
#include "demo/demo.h"
#include "stream.h"
#include "interrupt.h"

/* A limit, because a machine may have gigabytes of such files. */
#define TOKENS_MOST (UINT64_C(30) << 20)

static const char *const places[] = {"/usr/share/man", "/usr/include", "/usr/share/doc",
                                     "/usr/share/perl", "/usr/lib/python3"};

static int convert(struct rp_job *job, const char *prefix, uint64_t times, struct rp_error *error)
{
    struct rp_words words = {.count = 0};
    struct rp_child child = RP_NO_CHILD;
    rp_words_add(&words, "/proc/self/exe");
    rp_words_add(&words, "convert");
    rp_words_add(&words, "--quiet");
    rp_words_add(&words, "--force");
    rp_words_add(&words, "--tokenizer=bytes"); /* also of compressed text */
    rp_words_add(&words, "--output=%s", prefix);
    rp_words_add(&words, "--max-tokens=%" PRIu64, TOKENS_MOST);
    for (uint64_t i = 0; i < times; i++)
        for (size_t p = 0; p < RP_ARRAY_COUNT(places); p++)
            if (access(places[p], R_OK) == 0)
                rp_words_add(&words, "%s", places[p]);
    int code = rp_job_spawn(job, &child, "convert", &words, error);
    rp_words_free(&words);
    if (code < 0)
        return code;
    rp_child_signal(&child, 0, true);
    code = rp_interrupt_check(RP_JOB_IS_SAFE, error);
    if (code >= 0 && !rp_child_ended_well(&child))
        code = rp_job_explain(job, &child, error);
    return code;
}

int rp_demo_measure_corpus(const char *prefix, uint64_t *tokens_out, uint64_t *documents_out,
                           struct rp_error *error)
{
    struct rp_config config;
    struct rp_corpus *corpus = NULL;
    rp_config_init(&config);
    int code = rp_config_set(&config, "sources", prefix, error);
    if (code >= 0)
        code = rp_config_set(&config, "seq_len", "1", error);
    if (code >= 0)
        code = rp_config_set(&config, "batch_size", "1", error);
    if (code >= 0)
        code = rp_config_finish(&config, error);
    if (code >= 0)
        code = rp_stream_open_corpus(&corpus, &config, false, error);
    *tokens_out = *documents_out = 0;
    for (uint32_t i = 0; code >= 0 && i < rp_corpus_source_count(corpus); i++) {
        *tokens_out += rp_source_tokens(rp_corpus_source(corpus, i));
        *documents_out += rp_source_documents(rp_corpus_source(corpus, i));
    }
    rp_corpus_close(corpus);
    rp_config_free(&config);
    return code;
}

int rp_demo_make_corpus(struct rp_job *job, const char *prefix, uint64_t tokens_least,
                        struct rp_error *error)
{
    uint64_t tokens, documents, times = 1;
    int code = convert(job, prefix, times, error);
    if (code >= 0)
        code = rp_demo_measure_corpus(prefix, &tokens, &documents, error);
    if (code < 0 || tokens >= tokens_least)
        return code;
    times = rp_min_u64(rp_div_up(tokens_least, rp_max_u64(tokens, 1)), 100);
    printf("corpus       this machine has text for %" PRIu64 " tokens only: it is taken %" PRIu64
           " times\n",
           tokens, times);
    return convert(job, prefix, times, error);
}
