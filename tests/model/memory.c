/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include <string.h>

#include "base/hash.h"
#include "snapshot.h"

#define SHARED_BYTES (8u << 20)
#define PAGE_BYTES 4096u
#define LINE_BYTES 128u /* a line that was written is hashed and saved */
#define LINES (SHARED_BYTES / LINE_BYTES)
#define TOUCHED 8192u
#define UNKNOWN 64u
#define CELL_BYTES 4u /* the smallest that two threads write without an order between them */

struct store {
    uint64_t value;
    struct knowledge carried;
};

struct word {
    const void *at;
    unsigned bytes, count;
    struct store stores[MODEL_STORES];
};

/* Who accessed four bytes last, and when by his clock. */
struct cell {
    uint32_t run;
    uint16_t writer, written;
    uint16_t read[MODEL_THREADS];
};

static _Alignas(PAGE_BYTES) uint8_t shared[SHARED_BYTES];
static struct cell cells[SHARED_BYTES / CELL_BYTES];
static bool is_written[LINES];
static uint32_t written[LINES]; /* lines of this run */
static unsigned written_count;
static size_t shared_used;
static uint32_t touched[TOUCHED]; /* cells of this run */
static unsigned touched_count;
static struct word words[MODEL_WORDS];
static unsigned word_count;
static struct knowledge fences; /* the joined knowledge of all fences so far; no clocks */
static uint32_t run;

static void clear_lines(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        memset(shared + written[i] * LINE_BYTES, 0, LINE_BYTES);
        is_written[written[i]] = false;
    }
}

void memory_reset(void)
{
    clear_lines(0, written_count);
    memset(&fences, 0, sizeof fences);
    shared_used = word_count = touched_count = written_count = 0;
    run++;
}

/* Stores, touched cells and written lines are only appended in a run: those before a length stay.
 */
void memory_save(void)
{
    snapshot_add(&fences, sizeof fences);
    snapshot_add(&word_count, sizeof word_count);
    for (unsigned i = 0; i < word_count; i++)
        snapshot_add(&words[i].count, sizeof words[i].count);
    snapshot_add(&touched_count, sizeof touched_count);
    for (unsigned i = 0, next; i < touched_count; i = next) {
        for (next = i + 1; next < touched_count && touched[next] == touched[next - 1] + 1;)
            next++;
        snapshot_add(&cells[touched[i]], (next - i) * sizeof *cells);
    }
    snapshot_add(&shared_used, sizeof shared_used);
    snapshot_add(&written_count, sizeof written_count);
    for (unsigned i = 0; i < written_count; i++)
        snapshot_add(shared + written[i] * LINE_BYTES, LINE_BYTES);
}

void memory_restore(void)
{
    unsigned cells_end = touched_count, lines_end = written_count;
    snapshot_restore();
    for (unsigned i = touched_count; i < cells_end; i++)
        cells[touched[i]].run = 0;
    clear_lines(written_count, lines_end);
}

void *model_memory(size_t bytes)
{
    void *at = shared + shared_used;
    shared_used += (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (shared_used > sizeof shared)
        model_fail("too much shared memory");
    return at;
}

bool memory_is_shared(const void *at)
{
    return (const uint8_t *)at >= shared && (const uint8_t *)at < shared + sizeof shared;
}

void memory_touch(const void *at, size_t bytes)
{
    size_t first = (size_t)((const uint8_t *)at - shared);
    for (size_t line = first / LINE_BYTES; line <= (first + bytes - 1) / LINE_BYTES; line++) {
        if (is_written[line])
            continue;
        is_written[line] = true;
        written[written_count++] = (uint32_t)line;
    }
}

/* ---- the knowledge of a thread
 * --------------------------------------------------------------------- */

static void join_seen(uint8_t *to, const uint8_t *from)
{
    for (unsigned i = 0; i < MODEL_WORDS; i++)
        to[i] = from[i] > to[i] ? from[i] : to[i];
}

static void join(struct knowledge *to, const struct knowledge *from)
{
    join_seen(to->seen, from->seen);
    for (unsigned i = 0; i < MODEL_THREADS; i++)
        to->clock[i] = from->clock[i] > to->clock[i] ? from->clock[i] : to->clock[i];
}

void memory_start_thread(struct thread_memory *m, unsigned self, const struct thread_memory *from)
{
    struct knowledge known = {0};
    if (from)
        known = from->now;
    known.clock[self]++;
    *m = (struct thread_memory){known, known, known};
}

void memory_learn(struct thread_memory *m, const struct knowledge *from)
{
    join(&m->now, from);
    join(&m->read, from);
}

void memory_tell(struct knowledge *to, const struct thread_memory *m)
{
    join(to, &m->now);
}

void memory_wait(struct thread_memory *m)
{
    for (unsigned i = 0; i < word_count; i++)
        m->now.seen[i] = m->read.seen[i] = (uint8_t)(words[i].count - 1);
}

/* ---- words ----------------------------------------------------------------------------------- */

unsigned memory_word(const void *at, unsigned bytes)
{
    for (unsigned i = 0; i < word_count; i++)
        if (words[i].at == at)
            return i;
    if (word_count == MODEL_WORDS)
        model_fail("too many words");
    struct word *word = &words[word_count];
    word->at = at;
    word->bytes = bytes;
    word->count = 1;
    word->stores[0] = (struct store){0};
    memcpy(&word->stores[0].value, at, bytes);
    return word_count++;
}

unsigned memory_stores(const struct thread_memory *m, unsigned word, unsigned *oldest)
{
    *oldest = m->now.seen[word];
    return words[word].count;
}

uint64_t memory_load(struct thread_memory *m, unsigned self, unsigned word, unsigned store,
                     bool acquire)
{
    const struct store *from = &words[word].stores[store];
    m->now.clock[self]++;
    m->now.seen[word] = m->read.seen[word] = (uint8_t)store;
    join(&m->read, &from->carried);
    if (acquire)
        join(&m->now, &from->carried);
    return from->value;
}

static struct store *append(struct thread_memory *m, unsigned self, unsigned index, uint64_t value,
                            bool release)
{
    struct word *word = &words[index];
    if (word->count == MODEL_STORES)
        model_fail("too many stores");
    struct store *store = &word->stores[word->count];
    m->now.seen[index] = m->read.seen[index] = (uint8_t)word->count;
    store->value = value;
    store->carried = release ? m->now : m->fenced;
    store->carried.seen[index] = (uint8_t)word->count;
    m->now.clock[self]++;
    word->count++;
    memcpy((void *)(uintptr_t)word->at, &value, word->bytes); /* for `end`, and the kernel */
    memory_touch(word->at, word->bytes);
    return store;
}

void memory_store(struct thread_memory *m, unsigned self, unsigned word, uint64_t value,
                  bool release)
{
    (void)append(m, self, word, value, release);
}

uint64_t memory_change(struct thread_memory *m, unsigned self, unsigned word, uint64_t value,
                       bool replace, bool acquire, bool release)
{
    unsigned newest = words[word].count - 1;
    const struct store *before = &words[word].stores[newest];
    uint64_t old = memory_load(m, self, word, newest, acquire);
    uint64_t mask = words[word].bytes == 8 ? UINT64_MAX : UINT32_MAX;
    struct store *after = append(m, self, word, replace ? value : (old + value) & mask, release);
    join(&after->carried, &before->carried); /* a release sequence continues */
    return old;
}

void memory_fence(struct thread_memory *m, unsigned self)
{
    join(&m->now, &m->read);
    join_seen(m->now.seen, fences.seen);
    memcpy(fences.seen, m->now.seen, sizeof fences.seen);
    join(&m->read, &m->now);
    m->fenced = m->now;
    m->now.clock[self]++;
}

void memory_look(struct thread_memory *m)
{
    join_seen(m->now.seen, fences.seen);
    join_seen(m->read.seen, fences.seen);
}

/* ---- data ------------------------------------------------------------------------------------ */

const char *memory_access(struct thread_memory *m, unsigned self, const void *at, size_t bytes,
                          bool write)
{
    size_t first = (size_t)((const uint8_t *)at - shared);
    if (write)
        memory_touch(at, bytes);
    for (size_t i = first / CELL_BYTES; i <= (first + bytes - 1) / CELL_BYTES; i++) {
        struct cell *cell = &cells[i];
        if (cell->run != run) {
            *cell = (struct cell){.run = run};
            if (touched_count == TOUCHED)
                model_fail("too much data");
            touched[touched_count++] = (uint32_t)i;
        }
        if (cell->writer != self && cell->written > m->now.clock[cell->writer])
            return write ? "a write that is not ordered after another write"
                         : "a read that is not ordered after a write";
        if (!write) {
            cell->read[self] = m->now.clock[self];
            continue;
        }
        for (unsigned t = 0; t < MODEL_THREADS; t++)
            if (t != self && cell->read[t] > m->now.clock[t])
                return "a write that is not ordered after a read";
        cell->writer = (uint16_t)self;
        cell->written = m->now.clock[self];
    }
    return NULL;
}

/* ---- hashes ---------------------------------------------------------------------------------- */

/* The common knowledge of all live threads, and the accesses that one of them does not know. */
struct common {
    uint8_t seen[MODEL_WORDS];
    uint16_t clock[MODEL_THREADS];
    unsigned unknown_count[MODEL_THREADS];
    uint16_t unknown[MODEL_THREADS][UNKNOWN]; /* steps, ascending */
};

static struct common common;

static void find_common(const struct knowledge *const *active, unsigned count)
{
    memset(&common, 0xff, offsetof(struct common, unknown_count));
    memset(common.unknown_count, 0, sizeof common.unknown_count);
    for (unsigned a = 0; a < count; a++) {
        for (unsigned i = 0; i < word_count; i++)
            if (active[a]->seen[i] < common.seen[i])
                common.seen[i] = active[a]->seen[i];
        for (unsigned t = 0; t < MODEL_THREADS; t++)
            if (active[a]->clock[t] < common.clock[t])
                common.clock[t] = active[a]->clock[t];
    }
}

static void add_unknown(unsigned thread, uint16_t clock)
{
    uint16_t *list = common.unknown[thread];
    unsigned *count = &common.unknown_count[thread], at = 0;
    while (at < *count && list[at] < clock)
        at++;
    if (at < *count && list[at] == clock)
        return;
    if (*count == UNKNOWN) {
        model_fail("too many accesses without an order");
        return;
    }
    memmove(list + at + 1, list + at, (*count - at) * sizeof *list);
    list[at] = clock;
    ++*count;
}

/* The accesses to a cell that a live thread does not know. Most cells have none. */
static void add_unknown_of(const struct cell *cell)
{
    if (cell->written > common.clock[cell->writer])
        add_unknown(cell->writer, cell->written);
    for (unsigned t = 0; t < MODEL_THREADS; t++)
        if (cell->read[t] > common.clock[t])
            add_unknown(t, cell->read[t]);
}

static bool is_known(const struct cell *cell)
{
    bool known = cell->written <= common.clock[cell->writer];
    for (unsigned t = 0; t < MODEL_THREADS; t++)
        known &= cell->read[t] <= common.clock[t];
    return known;
}

/* The number of a thread's unknown accesses at or before `clock`. */
static unsigned rank_of(unsigned thread, uint16_t clock)
{
    unsigned rank = 0;
    while (rank < common.unknown_count[thread] && common.unknown[thread][rank] <= clock)
        rank++;
    return rank;
}

static uint64_t hash_knowledge(const struct knowledge *k)
{
    uint64_t hash = 0;
    for (unsigned i = 0; i < word_count; i++)
        if (k->seen[i] > common.seen[i])
            hash += model_mix((uintptr_t)words[i].at, k->seen[i] - common.seen[i] + 1u);
    for (unsigned t = 0; t < MODEL_THREADS; t++)
        hash = hash * 31 + rank_of(t, k->clock[t]);
    return hash;
}

static uint64_t hash_words(void)
{
    uint64_t hash = 0;
    for (unsigned i = 0; i < word_count; i++) {
        uint64_t chain = (uintptr_t)words[i].at;
        for (unsigned s = common.seen[i]; s < words[i].count; s++) {
            chain = model_mix(chain, words[i].stores[s].value);
            chain = model_mix(chain, hash_knowledge(&words[i].stores[s].carried));
        }
        hash += chain;
    }
    return hash;
}

static uint64_t hash_cells(void)
{
    uint64_t hash = 0;
    for (unsigned i = 0; i < touched_count; i++) {
        const struct cell *cell = &cells[touched[i]];
        if (is_known(cell))
            continue;
        uint64_t ranks = rank_of(cell->writer, cell->written) * MODEL_THREADS + cell->writer;
        ranks = cell->written > common.clock[cell->writer] ? ranks : 0;
        for (unsigned t = 0; t < MODEL_THREADS; t++)
            ranks = ranks * 31 + rank_of(t, cell->read[t]);
        if (ranks)
            hash += model_mix(touched[i], ranks);
    }
    return hash;
}

static uint64_t hash_contents(void)
{
    static const uint8_t zeros[LINE_BYTES];
    uint64_t hash = 0;
    for (unsigned i = 0; i < written_count; i++) {
        const uint8_t *line = shared + written[i] * LINE_BYTES;
        if (memcmp(line, zeros, LINE_BYTES) != 0) /* else as if it was not written */
            hash += model_mix(written[i], rp_hash64(line, LINE_BYTES));
    }
    return hash;
}

uint64_t memory_hash(const struct knowledge *const *active, unsigned active_count,
                     const struct knowledge *const *others, unsigned other_count)
{
    find_common(active, active_count);
    for (unsigned i = 0; i < touched_count; i++) {
        const struct cell *cell = &cells[touched[i]];
        if (!is_known(cell))
            add_unknown_of(cell);
    }
    uint64_t hash = hash_words() + 3 * hash_cells() + 5 * hash_contents();
    hash = model_mix(hash, hash_knowledge(&fences));
    for (unsigned i = 0; i < other_count; i++)
        hash = model_mix(hash, others[i] ? hash_knowledge(others[i]) : 1);
    return hash;
}
