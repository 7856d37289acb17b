/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_calibrate.c — `ringpack calibrate`: check the options, then become the Python that measures
 * (tools/python/ringpack/_calibrate). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "cmd.h"
#include "job/job.h"
#include "options.h"
#include "python.h"

#define WIDTH_MOST (1u << 24)
#define HEADS_MOST (1u << 12)

struct arguments {
    struct rp_cmd_line line;
    uint32_t hidden, ffn, heads, kv_heads, head_dim;
    uint32_t attention_window, window_layers, layers;
    uint32_t tokens, seconds;
    const char *device, *dtype, *times, *write;
    bool json;
};

#define NUMBER(name, field, most_)                                                                 \
    RP_COUNT(name, "N", struct arguments, field), .least = 1, .most = (most_)

static const struct rp_option options[] = {
    {NUMBER("hidden", hidden, WIDTH_MOST), .help = "width of the model"},
    {NUMBER("ffn", ffn, WIDTH_MOST),
     .help = "width of the feed-forward network (gated), of all active experts together"},
    {NUMBER("heads", heads, HEADS_MOST), .help = "query heads"},
    {NUMBER("kv-heads", kv_heads, HEADS_MOST),
     .help = "key and value heads (default: as many as heads)"},
    {NUMBER("head-dim", head_dim, HEADS_MOST), .help = "width of a head (default: hidden / heads)"},
    {NUMBER("attention-window", attention_window, WIDTH_MOST),
     .help = "of layers that attend to the last N tokens only: also time such a layer"},
    {NUMBER("window-layers", window_layers, HEADS_MOST), .help = "layers with this window"},
    {NUMBER("layers", layers, HEADS_MOST), .help = "all layers"},
    {NUMBER("tokens", tokens, 1u << 27),
     .help = "tokens of a row (default: 131072 on a GPU and 4096 on a CPU, or fewer if memory or "
             "time want it)"},
    {NUMBER("seconds", seconds, 3600), .help = "time of all measurements (default 40)"},
    {RP_CHOICE("device", "DEVICE", struct arguments, device), .expected = "auto, cuda or cpu",
     .help = "auto (a GPU if there is one), cuda or cpu"},
    {RP_CHOICE("dtype", "TYPE", struct arguments, dtype), .expected = "auto, bf16, fp16 or fp32",
     .help = "auto (bf16, on a CPU fp32), bf16, fp16 or fp32"},
    {RP_TEXT("times", "FILE", struct arguments, times),
     .help = "fit times of a job instead: lines of {\"lengths\": [512, 4096], \"seconds\": 0.125}"},
    {RP_LOCAL("write", "CONFIG", struct arguments, write),
     .help = "set `cost` in this YAML file, which is made if it does not exist"},
    {RP_FLAG("json", struct arguments, json), .help = "print JSON"},
    {0},
};

static int check(void *parsed)
{
    const struct arguments *given = parsed;
    if (!given->times && (!given->hidden || !given->ffn || !given->heads))
        return rp_cmd_misuse("calibrate", "expected --hidden, --ffn and --heads, or --times FILE");
    if (!given->times && !given->head_dim && given->hidden % given->heads != 0)
        return rp_cmd_misuse("calibrate",
                             "--hidden %u is no multiple of --heads %u: give --head-dim",
                             given->hidden, given->heads);
    if ((given->window_layers || given->layers) && !given->attention_window)
        return rp_cmd_misuse("calibrate",
                             "--window-layers and --layers are of layers with --attention-window");
    if (given->window_layers > given->layers && given->window_layers)
        return rp_cmd_misuse("calibrate", "--window-layers %u of --layers %u", given->window_layers,
                             given->layers);
    return RP_EXIT_FINE;
}

static void add_numbers(struct rp_words *words, const struct arguments *given)
{
    const struct {
        const char *name;
        uint32_t number;
    } numbers[] = {
        {"hidden", given->hidden},
        {"ffn", given->ffn},
        {"heads", given->heads},
        {"kv-heads", given->kv_heads},
        {"head-dim", given->head_dim},
        {"attention-window", given->attention_window},
        {"window-layers", given->window_layers},
        {"layers", given->layers},
        {"tokens", given->tokens},
        {"seconds", given->seconds},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(numbers); i++)
        if (numbers[i].number)
            rp_words_add(words, "--%s=%u", numbers[i].name, numbers[i].number);
}

/* Returns only if Python cannot be started. */
static int become_python(const struct arguments *given, struct rp_error *error)
{
    const char *chosen = getenv("RINGPACK_PYTHON");
    const char *python = chosen && *chosen ? chosen : "python3";
    char *program = rp_python_find(python);
    char *script = rp_python_script("calibrate.py", "_calibrate/command.py");
    struct rp_words words = {.count = 0};
    rp_words_add(&words, "%s", program ? program : python);
    if (!script)
        rp_words_add(&words, "-c");
    rp_words_add(&words, "%s", script ? script : RP_PYTHON_RUN("ringpack._calibrate.command"));
    add_numbers(&words, given);
    rp_words_add(&words, "--device=%s", given->device);
    rp_words_add(&words, "--dtype=%s", given->dtype);
    if (given->times)
        rp_words_add(&words, "--times=%s", given->times);
    if (given->write)
        rp_words_add(&words, "--write=%s", given->write);
    if (given->json)
        rp_words_add(&words, "--json");
    rp_python_keep_imports_away();
    int code = words.failed ? ENOMEM : ENOENT;
    if (program && !words.failed) {
        execv(program, words.word);
        code = errno;
    }
    rp_words_free(&words);
    free(script);
    free(program);
    return rp_fail(error, -code, "install python3, or set RINGPACK_PYTHON to the Python to use",
                   "cannot start %s: %s", python, strerror(code));
}

int rp_cmd_calibrate(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "calibrate",
        .help = "Measure the cost of a document on this machine: a document of l tokens costs "
                "l * (K + l), and K is the key `cost`.",
        .notes = "One transformer block of the model's shape runs forward and backward over rows "
                 "of documents, with attention inside documents. K is fitted to the times by least "
                 "squares, and tried on rows that were held out. Python with torch does the work: "
                 "python3, or the one in RINGPACK_PYTHON.\n\n"
                 "  ringpack calibrate --hidden=2048 --ffn=8192 --heads=16 --kv-heads=8",
        .options = options,
        .check = check};
    struct arguments arguments = {.device = "auto", .dtype = "auto", .seconds = 40};
    struct rp_error error = {0};
    if (rp_cmd_parse(&verb, argc, argv, &arguments) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    return become_python(&arguments, &error) < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}
