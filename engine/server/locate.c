/* SPDX-License-Identifier: Apache-2.0 */
#include "server/locate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX (RP_MESSAGE_BYTES_MAX / 2)

static int write_line(const struct rp_stream *stream, const struct rp_provenance *document,
                      FILE *out, struct rp_error *error)
{
    if (document->source >= stream->config->source_count)
        return rp_fail(error, -RP_E_USAGE, NULL, "source %" PRIu32 ": the run has %" PRIu32,
                       document->source, stream->config->source_count);
    const struct rp_source *source = rp_corpus_source(stream->corpus, document->source);
    if (document->document >= rp_source_documents(source))
        return rp_fail(error, -RP_E_USAGE, NULL,
                       "source `%s`, document %" PRIu64 ": it has %" PRIu64 " documents",
                       rp_source_name(source), document->document, rp_source_documents(source));
    uint64_t row;
    const char *path = rp_source_provenance(source, document->document, &row);
    fprintf(out, "%" PRIu64 " ", row);
    for (; *path; path++) {
        if (*path == '\n' || *path == '\\')
            fputc('\\', out);
        fputc(*path == '\n' ? 'n' : *path, out);
    }
    fputc('\n', out);
    return 0;
}

int rp_engine_locate(const struct rp_stream *stream, const uint8_t *body, uint64_t body_bytes,
                     char **text_out, struct rp_error *error)
{
    struct rp_provenance document;
    size_t bytes = 0;
    int code = 0;
    FILE *out = open_memstream(text_out, &bytes);
    if (!out)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for the files of documents");
    if (body_bytes % sizeof document != 0)
        code = rp_fail(error, -RP_E_PROTOCOL, NULL, "%" PRIu64 " bytes are no list of documents",
                       body_bytes);
    for (uint64_t at = 0; at < body_bytes && code == 0; at += sizeof document) {
        memcpy(&document, body + at, sizeof document);
        code = write_line(stream, &document, out, error);
        if (code == 0 && ftello(out) > (off_t)TEXT_BYTES_MAX)
            code = rp_fail(error, -RP_E_USAGE, "request fewer documents at once",
                           "the files of so many documents do not fit in a message");
    }
    if (fclose(out) != 0 && code == 0)
        code = rp_fail(error, -ENOMEM, NULL, "out of memory for the files of documents");
    if (code < 0) {
        free(*text_out);
        *text_out = NULL;
    }
    return code;
}
