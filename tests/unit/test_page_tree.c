/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of page hashes: with one, two and three levels, damage is found wherever it is, at the
 * first use of the page that depends on it, and no other page is affected. */
#include "corpus_files.h"

#include <sys/mman.h>

#include "corpus/index/page_tree.h"
#include "descriptor_zero.h"

#define PAGE ((uint64_t)RP_BLOCK_BYTES)

struct area {
    uint8_t *data;
    uint64_t *hashes;
    uint64_t pages, bytes;
    struct rp_hash128 root;
};

/* Pages of zeros, but for some; unwritten ones take no memory. */
static struct area make(uint64_t pages)
{
    struct area area = {.pages = pages};
    area.bytes = pages * PAGE + 8 * rp_tree_hash_count(pages);
    area.data = mmap(NULL, area.bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(area.data != MAP_FAILED);
    madvise(area.data, area.bytes, MADV_NOHUGEPAGE);
    area.hashes = (uint64_t *)(void *)(area.data + pages * PAGE);
    area.data[0] = 1;
    area.data[(pages - 1) * PAGE + 4095] = 2;
    rp_tree_hash_pages(area.data, pages * PAGE, 0, pages, area.hashes);
    area.root = rp_tree_finish(pages, area.hashes);
    return area;
}

static struct rp_tree open_tree(const struct area *area)
{
    struct rp_tree tree;
    struct rp_error error;
    assert_int_equal(rp_tree_over(&tree, area->data, area->pages * PAGE, area->root, &error), 0);
    return tree;
}

/* Which of the first, the last and a page in the middle are good now? */
static unsigned good_pages(const struct area *area)
{
    struct rp_tree tree = open_tree(area);
    unsigned good = rp_tree_verify(&tree, 5);
    good |= (unsigned)rp_tree_verify(&tree, (area->pages - 1) * PAGE) << 1;
    good |= (unsigned)rp_tree_verify(&tree, area->pages / 2 * PAGE + 17) << 2;
    rp_tree_close(&tree);
    return good;
}

static void test_damage_at_every_level(void **state)
{
    (void)state;
    static const struct {
        uint64_t pages, hashes;
        uint32_t levels;
    } cases[] = {{1, 1, 1},
                 {512, 512, 1},
                 {513, 513 + 2, 2},
                 {2000, 2000 + 4, 2},
                 {512 * 512 + 1, 512 * 512 + 1 + 513 + 2, 3}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(cases); i++) {
        struct area area = make(cases[i].pages);
        struct rp_tree tree = open_tree(&area);
        assert_int_equal(tree.level_count, cases[i].levels);
        assert_int_equal(rp_tree_hash_count(area.pages), cases[i].hashes);
        assert_int_equal(good_pages(&area), 7);
        area.data[77] ^= 1; /* page 0 */
        assert_false(good_pages(&area) & 1);
        assert_true(area.pages == 1 || good_pages(&area) == 6);
        area.data[77] ^= 1;
        for (uint32_t level = 0, at = 0; level < cases[i].levels; level++) {
            area.hashes[at] ^= 1ull << 40; /* the first hash of the level */
            assert_false(good_pages(&area) & 1);
            bool is_top = level + 1 == cases[i].levels;
            assert_int_equal(good_pages(&area) == 0, is_top);
            area.hashes[at] ^= 1ull << 40;
            at += (uint32_t)tree.levels[level].count;
        }
        area.root.high ^= 1;
        assert_int_equal(good_pages(&area), 0);
        rp_tree_close(&tree);
        munmap(area.data, area.bytes);
    }
}

static void test_what_was_verified_is_verified_again(void **state)
{
    (void)state;
    struct area area = make(1300);
    struct rp_tree tree = open_tree(&area);
    assert_true(rp_tree_verify_range(&tree, 600 * PAGE + 1, 2 * PAGE));
    assert_true(rp_tree_verify_again(&tree));
    area.data[900 * PAGE] ^= 1; /* unused */
    assert_true(rp_tree_verify_again(&tree));
    assert_false(rp_tree_verify(&tree, 900 * PAGE));
    area.data[602 * PAGE] ^= 1;                     /* the last one of the range */
    assert_true(rp_tree_verify(&tree, 602 * PAGE)); /* it was compared before */
    assert_false(rp_tree_verify_again(&tree));
    assert_false(rp_tree_verify_range(&tree, 600 * PAGE, 3 * PAGE));
    rp_tree_close(&tree);
    munmap(area.data, area.bytes);
}

/* The last page may be short, and its hashes follow it at once. */
static void test_a_short_page(void **state)
{
    (void)state;
    static uint64_t words[512 + 3 + 2]; /* a page, 24 bytes, and two hashes */
    uint8_t *data = (uint8_t *)words;
    struct rp_tree tree;
    struct rp_error error;
    words[513] = 7;
    rp_tree_hash_pages(data, PAGE + 24, 0, 2, words + 515);
    struct rp_hash128 root = rp_tree_finish(2, words + 515);
    for (uint64_t flip = 0; flip <= PAGE + 24; flip += 8) {
        data[flip] ^= 1; /* the last one: of the hash after the data */
        assert_int_equal(rp_tree_over(&tree, data, PAGE + 24, root, &error), 0);
        assert_int_equal(tree.pages, 2);
        assert_int_equal(rp_tree_verify(&tree, 0), flip > PAGE - 8 && flip < PAGE + 24);
        assert_int_equal(rp_tree_verify(&tree, PAGE), flip < PAGE);
        rp_tree_close(&tree);
        data[flip] ^= 1;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_short_page),
        cmocka_unit_test(test_damage_at_every_level),
        cmocka_unit_test(test_what_was_verified_is_verified_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
