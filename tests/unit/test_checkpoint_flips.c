/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint with a token, a config, contents and a contract: a flipped bit in any byte is found,
 * also in those that no run needs. */
#include "checkpoint_sample.h"

#include "checkpoint/format.h"

enum verdict { REFUSED, WHOLE, WITHOUT_CONTENTS, WITHOUT_OTHERS };

static enum verdict judge(const uint8_t *file, size_t bytes, struct rp_checkpoint_head *head)
{
    struct rp_error error;
    struct rp_checkpoint_damage damage;
    if (rp_checkpoint_parse_head(head, file, bytes, "test", &error) < 0 ||
        rp_checkpoint_verify(head, file, "test", &damage, &error) < 0)
        return REFUSED;
    return damage.contents ? WITHOUT_CONTENTS : damage.others ? WITHOUT_OTHERS : WHOLE;
}

static void a_flipped_bit_in_any_byte_is_found(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_head head;
    struct rp_checkpoint_dir *dir;
    struct sample sample;
    size_t bytes, seen[WITHOUT_OTHERS + 1] = {0};
    char *text;
    static const char contract[] = "what the run agreed on";
    const struct rp_checkpoint_piece piece = {contract, sizeof contract};
    sample_make(&sample, 5);
    struct rp_checkpoint_part parts[4];
    memcpy(parts, sample.parts, 3 * sizeof *parts);
    parts[3] = (struct rp_checkpoint_part){RP_CHECKPOINT_CONTRACT, &piece, 1, NULL};
    assert_int_equal(rp_checkpoint_dir_open(&dir, "flips", 3, NULL, &error), 0);
    assert_int_equal(rp_checkpoint_save(dir, &sample.info, parts, 4, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
    assert_int_equal(
        rp_file_read_all("flips/checkpoint-000000000001.rpc", 1 << 20, &text, &bytes, &error), 0);
    uint8_t *file = (uint8_t *)text;
    assert_int_equal(judge(file, bytes, &head), WHOLE);
    for (size_t i = 0; i < bytes; i++) {
        uint8_t bit = (uint8_t)(1u << i % 8);
        file[i] ^= bit;
        seen[judge(file, bytes, &head)]++;
        file[i] ^= bit;
    }
    assert_int_equal(seen[WHOLE], 0);
    assert_true(seen[REFUSED] && seen[WITHOUT_CONTENTS]);
    assert_int_equal(seen[WITHOUT_OTHERS], 4096); /* the contract and its padding */
    free(text);
    remove_directory("flips");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_flipped_bit_in_any_byte_is_found)};
    return cmocka_run_group_tests_name("checkpoint_flips", tests, sample_enter_memory,
                                       sample_leave);
}
