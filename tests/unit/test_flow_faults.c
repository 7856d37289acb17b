/* SPDX-License-Identifier: Apache-2.0 */
/* A real flow that meets bad disks, changed files, foreign tokens and missing threads: each failure
 * is in its place and by name, after all batches before it. And contents of a checkpoint, which
 * make files needless. */
#include "flow_kit.h"
#include "patience.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#include "corpus/index/index.h"

/* ---- failures -------------------------------------------------------------------------------- */

static unsigned count_entries(const char *path)
{
    unsigned count = 0;
    DIR *directory = opendir(path);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

/* A joined thread may be in the list for a moment longer. */
static void wait_for_threads(unsigned count)
{
    for (int i = 0; i < PATIENCE_MS && count_entries("/proc/self/task") != count; i++)
        usleep(1000);
    assert_int_equal(count_entries("/proc/self/task"), count);
}

/* A sanitizer begins a thread of its own with the first one. That one has gone when this returns.
 */
static void *say_who(void *path)
{
    snprintf(path, 64, "/proc/self/task/%ld", syscall(SYS_gettid));
    return NULL;
}

static void begin_a_first_thread(void)
{
    char path[64];
    pthread_t first;
    assert_int_equal(pthread_create(&first, NULL, say_who, path), 0);
    pthread_join(first, NULL);
    while (access(path, F_OK) == 0)
        usleep(1000);
}

static int refuse_open(void **self, const struct rp_io_options *options, struct rp_error *error)
{
    static struct rp_a32 opened; /* the second reader is the one that fails */
    *self = NULL;
    if (rp_a32_add_relaxed(&opened, 1) % 2 == 0)
        return rp_io_method_pread.open(self, options, error);
    return rp_fail(error, -ENOMEM, "buy more", "no memory for this reader");
}

static void a_failed_start_leaves_nothing(void **state)
{
    (void)state;
    struct rp_io_method method = rp_io_method_pread;
    method.open = refuse_open;
    struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, two_sources, 2, &config);
    begin_a_first_thread();
    unsigned fds = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
    for (int processes = 0; processes <= processes_work(); processes++) {
        struct rp_flow_options options = small_flow(&method);
        struct rp_error error = {0};
        struct stream s;
        options.readers = options.packers = 3;
        options.packer_processes = processes;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
        for (int again = 0; again < 2; again++) {
            const struct rp_flow_begin begin = {0, s.plan, &s.numbering, s.rings, NULL};
            assert_int_equal(rp_flow_start(s.flow, &begin, &error), -ENOMEM);
            assert_string_equal(error.message, "no memory for this reader");
            assert_string_equal(error.hint, "buy more");
            wait_for_threads(threads);
        }
        stream_close(&s);
        assert_int_equal(count_entries("/proc/self/fd"), fds);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    }
    kit_close(&kit);
}

/* Batches come until the one whose tokens cannot be had, and then the reason. */
static void check_failure(struct stream *s, int expected, uint64_t batches, const char *words)
{
    struct rp_error error = {0};
    int code = stream_run(s, UINT64_MAX, &error);
    assert_int_equal(code, expected);
    trainer_takes(s, 0);
    assert_int_equal(s->batches, batches);
    assert_says(&error, words);
}

/* In the order of the file every batch has its own part of it. */
static void open_ordered(struct kit *kit, const struct kit_source *source)
{
    struct rp_plan_config config = small_plan();
    config.shuffle = RP_SHUFFLE_NONE;
    config.packing = RP_PACKING_CONCAT;
    config.window = 0;
    kit_open(kit, source, 1, &config);
}

/* The micro-batch of 4 rows with the byte. */
static uint64_t batch_of_byte(uint64_t byte, unsigned width)
{
    return byte / width / 256 / 4;
}

static void a_bad_disk_is_named_in_its_place(void **state)
{
    (void)state;
    struct kit kit;
    open_ordered(&kit, two_sources);
    for (uint64_t at = 100; at < 8000; at += 2100) {
        struct rp_flow_options options = small_flow(&io_fake_method);
        struct io_fake_script script = {
            .seed = at, .reorder = true, .bad_start = at, .bad_end = at + 1, .bad_error = EIO};
        struct stream s;
        options.readers = 3;
        io_fake_set(&script);
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, at);
        stream_start(&s);
        check_failure(&s, -EIO, batch_of_byte(at, 2), "words.bin|cannot read|offset");
        stream_close(&s);
    }
    kit_close(&kit);
}

static void a_file_that_changed_is_refused(void **state)
{
    (void)state;
    static const struct kit_source source = {"fleeting", 8, 2, 300};
    kit_write(&source, 0, 60, 8);
    struct kit kit;
    open_ordered(&kit, &source);
    assert_int_equal(truncate("fleeting.bin", 1000), 0);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    struct stream s;
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
    stream_start(&s);
    check_failure(&s, -RP_E_CHANGED, 0, "fleeting.bin|bytes|1000");
    stream_close(&s);
    kit_close(&kit);
}

/* No row is made of it, also not of the documents before the place. */
static void an_index_that_is_written_over_is_refused(void **state)
{
    (void)state;
    enum { DOCUMENTS = 2000, ODD = 200 }; /* a smaller index is copied when it is opened */
    static const struct kit_source source = {"redone", 8, 2, DOCUMENTS};
    const long pointer = 34 + 4 * DOCUMENTS + 8 * ODD;
    const uint64_t far = 1 << 30;
    kit_write(&source, 0, 60, 8);
    struct kit kit;
    open_ordered(&kit, &source);
    usleep(20000); /* longer than the clock of a file system stands still */
    FILE *index = fopen("redone.idx", "r+b");
    assert_int_equal(fseek(index, pointer, SEEK_SET), 0);
    assert_int_equal(fwrite(&far, sizeof far, 1, index), 1);
    assert_int_equal(fclose(index), 0);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    struct stream s;
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
    stream_start(&s);
    check_failure(&s, -RP_E_CHANGED, 0, "redone.idx|changed while it was in use|hash");
    stream_close(&s);
    kit_close(&kit);
}

/* The times of the file are put back, as a failing disk would leave them. */
static void flip_byte(const char *path, long at)
{
    struct stat was;
    assert_int_equal(stat(path, &was), 0);
    FILE *file = fopen(path, "r+b");
    fseek(file, at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ 1, file);
    fclose(file);
    const struct timespec times[] = {was.st_atim, was.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void a_flipped_bit_is_found_by_its_block(void **state)
{
    (void)state;
    static const struct kit_source source = {"sealed", 8, 2, 300};
    struct rp_error error;
    kit_write(&source, 0, 60, 8);
    if (rp_sidecar_build("sealed", NULL, &error) != 0)
        fail_msg("%s", error.message);
    struct kit kit;
    open_ordered(&kit, &source);
    assert_non_null(rp_corpus_shard(kit.corpus, 0)->block_hashes);
    for (long at = 9000; at < 17000; at += 7001) {
        char words[64];
        struct rp_flow_options options = small_flow(&rp_io_method_pread);
        struct stream s;
        flip_byte("sealed.bin", at);
        snprintf(words, sizeof words, "sealed.bin|block %ld|differs", at / 4096);
        options.verify_blocks = true;
        options.mapped = at == 9000;
        options.readers = 2;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
        stream_start(&s);
        /* the first batch that has any part of the block */
        check_failure(&s, -RP_E_CORRUPT, batch_of_byte((uint64_t)at / 4096 * 4096, 2), words);
        stream_close(&s);
        flip_byte("sealed.bin", at);
    }
    kit_close(&kit);
}

/* A hash in a page of a sidecar that is too large to be read at the start: the stream stops at the
 * block, and the sidecar is named. */
static void a_wrong_hash_is_found_by_its_sidecar(void **state)
{
    (void)state;
    static const struct kit_source source = {"vast", 8, 2, 3000};
    struct rp_error error;
    kit_write(&source, 0, 6000, 8);
    assert_int_equal(rp_sidecar_build("vast", NULL, &error), 0);
    struct rp_index *index;
    struct rp_index_record record;
    assert_int_equal(rp_sidecar_open(&index, &record, "vast.bin.rpi", "vast.bin", &error), 0);
    assert_non_null(index->map.mapping);
    uint64_t blocks_at = index->segments[0].offset + index->segments[0].parts.blocks;
    rp_index_close(index);
    FILE *sidecar = fopen("vast.bin.rpi", "r+b");
    assert_int_equal(fseek(sidecar, (long)blocks_at + 8 * 1001, SEEK_SET), 0);
    assert_int_equal(fputc(1, sidecar), 1);
    assert_int_equal(fclose(sidecar), 0);
    struct kit kit;
    open_ordered(&kit, &source);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.verify_blocks = true;
    struct stream s;
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
    stream_start(&s);
    int code = stream_run(&s, UINT64_MAX, &error);
    assert_int_equal(code, -RP_E_CORRUPT);
    assert_says(&error, "vast.bin.rpi|block hashes");
    assert_non_null(strstr(error.hint, "ringpack index"));
    stream_close(&s);
    kit_close(&kit);
}

static void a_token_above_the_limit_is_named(void **state)
{
    (void)state;
    struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, two_sources, 2, &config);
    /* the largest token of the stream is one too many; the batch with it is the first that fails */
    uint64_t largest = 0, batch = 0;
    struct rp_fragment place = {0};
    for (uint64_t row = 0; row < kit.row_count; row++)
        for (uint32_t f = 0; f < kit.rows[row].expected.count; f++)
            for (uint64_t i = 0; i < kit.rows[row].expected.fragments[f].length; i++) {
                struct rp_fragment fragment = kit.rows[row].expected.fragments[f];
                uint64_t token = kit_token(NULL, &fragment, i);
                if (token <= largest)
                    continue;
                largest = token;
                batch = row / 4;
                place = fragment;
                place.offset += i;
            }
    char words[160];
    snprintf(words, sizeof words, "source %s, document %d, token %d|below %d|found %d",
             two_sources[place.source].name, (int)place.document, (int)place.offset, (int)largest,
             (int)largest);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.token_limit = largest;
    struct stream s;
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
    stream_start(&s);
    check_failure(&s, -RP_E_VOCABULARY, batch, words);
    stream_close(&s);
    kit_close(&kit);
}

/* ---- contents -------------------------------------------------------------------------------- */

/* Rows [0, rows) as a checkpoint keeps them: some whole, some fragment by fragment. */
static struct rp_contents *make_contents(const struct kit *kit, uint64_t rows, uint32_t width)
{
    static uint8_t places[20][256 * 8]; /* the tokens of each row */
    struct rp_contents *contents = rp_contents_new(places, sizeof places);
    assert_true(rows <= 20);
    for (uint64_t row = 0; row < rows; row++) {
        const struct expected_row *r = &kit->rows[row].expected;
        uint8_t *tokens = places[row];
        uint32_t at = 0, from = 0;
        for (uint32_t f = 0; f < r->count; f++) {
            for (uint32_t i = 0; i < r->fragments[f].length; i++, at++) {
                uint64_t token = kit_token(NULL, &r->fragments[f], i);
                memcpy(tokens + at * width, &token, width);
            }
            if (row % 2 && f + 1 < r->count)
                continue;
            assert_int_equal(
                rp_contents_add(contents, row, from, at - from, width, tokens + from * width), 0);
            from = at;
        }
    }
    return contents;
}

static void contents_need_no_file(void **state)
{
    (void)state;
    static const struct kit_source source = {"gone", 8, 2, 300};
    for (uint32_t width = 2; width <= 4; width += 2) {
        kit_write(&source, 0, 60, 8);
        struct rp_plan_config config = small_plan();
        struct kit kit;
        kit_open(&kit, &source, 1, &config);
        struct rp_contents *contents = make_contents(&kit, 20, width);
        assert_int_equal(unlink("gone.bin"), 0);
        struct rp_flow_options options = small_flow(&rp_io_method_pread);
        options.contents = contents;
        options.packers = 2;
        struct stream s;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, width);
        stream_start(&s);
        check_failure(&s, -ENOENT, 5, "gone.bin");
        stream_close(&s);
        rp_contents_free(contents);
        kit_close(&kit);
    }
}

static void contents_and_files_together(void **state)
{
    (void)state;
    struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, two_sources, 2, &config);
    struct rp_contents *contents = make_contents(&kit, 11, 4);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.contents = contents;
    options.dp_world_size = options.rank_count = 2; /* another shape than it was saved with */
    options.batch_size = 3;
    options.step_batches = 6 / (options.batch_size * options.dp_world_size);
    options.verify_blocks = true;
    for (int mapped = 0; mapped < 2; mapped++) {
        struct stream s;
        options.mapped = mapped;
        stream_open(&s, &kit, &options, RP_DTYPE_I64, 2, 5);
        stream_start(&s);
        run_to_end(&s);
        check_all_came(&s);
        stream_close(&s);
    }
    rp_contents_free(contents);
    kit_close(&kit);
}

/* The place of the first token id that is too large for int16, in a stream that has many. */
static struct rp_fragment first_negative(const struct kit *kit, int *id)
{
    const struct expected_row *row = &kit->rows[0].expected;
    struct rp_fragment place = row->fragments[0];
    uint32_t f = 0;
    while ((*id = (int16_t)kit_token(NULL, &place, 0)) >= 0)
        if (++place.offset == row->fragments[f].offset + row->fragments[f].length)
            place = row->fragments[++f];
    return place;
}

/* A token equals its file's, however it comes here: read, mapped, or kept in a checkpoint. */
static void a_negative_token_is_named(void **state)
{
    (void)state;
    static const struct kit_source source = {"negative", 3, 2, 100};
    kit_write(&source, 0, 60, 8);
    struct kit kit;
    open_ordered(&kit, &source);
    int id;
    struct rp_fragment place = first_negative(&kit, &id);
    char words[160];
    snprintf(words, sizeof words,
             "negative.bin|document %d, token %d|a token id below 32768|found %d",
             (int)place.document, (int)place.offset, id);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.token_limit = 1u << 31;
    struct rp_contents *contents = make_contents(&kit, 4, 2);
    for (int way = 0; way < 3; way++) {
        options.mapped = way == 1;
        options.contents = way == 2 ? contents : NULL;
        struct stream s;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
        stream_start(&s);
        check_failure(&s, -RP_E_VOCABULARY, 0, words);
        stream_close(&s);
    }
    rp_contents_free(contents);
    kit_close(&kit);
}

/* The token that a packer has seen is gone when the engine comes to name it. */
static void a_token_that_is_gone_again_is_a_changed_file(void **state)
{
    (void)state;
    static const struct kit_source source = {"shifting", 3, 2, 100};
    static const uint8_t zeros[100 * 60 * 2];
    kit_write(&source, 0, 60, 8);
    struct kit kit;
    open_ordered(&kit, &source);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.mapped = true;
    struct stream s;
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
    stream_start(&s);
    const struct rp_ticket *first = rp_arena_ticket(rp_flow_arena(s.flow), 0);
    while (rp_a64_load_acquire(&first->state) != rp_ticket_word(0, RP_TICKET_PACKED))
        usleep(1000);
    int fd = open("shifting.bin", O_WRONLY | O_CLOEXEC);
    off_t bytes = lseek(fd, 0, SEEK_END);
    assert_true(bytes > 0 && (size_t)bytes <= sizeof zeros);
    assert_int_equal(pwrite(fd, zeros, (size_t)bytes, 0), bytes);
    close(fd);
    check_failure(&s, -RP_E_CHANGED, 0, "shifting.bin|source shifting, document|is gone");
    stream_close(&s);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_start_leaves_nothing),
        cmocka_unit_test(a_bad_disk_is_named_in_its_place),
        cmocka_unit_test(a_file_that_changed_is_refused),
        cmocka_unit_test(an_index_that_is_written_over_is_refused),
        cmocka_unit_test(a_flipped_bit_is_found_by_its_block),
        cmocka_unit_test(a_wrong_hash_is_found_by_its_sidecar),
        cmocka_unit_test(a_token_above_the_limit_is_named),
        cmocka_unit_test(contents_need_no_file),
        cmocka_unit_test(contents_and_files_together),
        cmocka_unit_test(a_negative_token_is_named),
        cmocka_unit_test(a_token_that_is_gone_again_is_a_changed_file),
    };
    return cmocka_run_group_tests(tests, kit_enter, scratch_leave);
}
