/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint with a token, a config, contents, a contract and a section of an unknown type: a
 * flipped bit in any byte is found, also in those that no run needs. */
#include "checkpoint_sample.h"

#include "checkpoint/format.h"

#define UNKNOWN 99u

enum verdict { REFUSED, WHOLE, WITHOUT_CONTENTS, WITHOUT_CONTRACT, WITHOUT_UNKNOWN, VERDICTS };

static enum verdict judge(const uint8_t *file, size_t bytes, struct rp_checkpoint_head *head)
{
    struct rp_error error;
    struct rp_checkpoint_damage damage;
    if (rp_checkpoint_parse_head(head, file, bytes, "test", &error) < 0 ||
        rp_checkpoint_verify(head, file, "test", &damage, &error) < 0)
        return REFUSED;
    if (damage.other == UNKNOWN)
        return WITHOUT_UNKNOWN;
    return damage.contents                          ? WITHOUT_CONTENTS
           : damage.other == RP_CHECKPOINT_CONTRACT ? WITHOUT_CONTRACT
                                                    : WHOLE;
}

/* A file with all sections; the caller frees it. */
static uint8_t *make_file(size_t *bytes)
{
    static const char contract[] = "what the run agreed on", unknown[] = "what a later one adds";
    const struct rp_checkpoint_piece pieces[] = {{contract, sizeof contract},
                                                 {unknown, sizeof unknown}};
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    struct rp_checkpoint_part parts[5];
    struct sample sample;
    char *text;
    sample_make(&sample, 5);
    memcpy(parts, sample.parts, 3 * sizeof *parts);
    parts[3] = (struct rp_checkpoint_part){RP_CHECKPOINT_CONTRACT, &pieces[0], 1, NULL};
    parts[4] = (struct rp_checkpoint_part){UNKNOWN, &pieces[1], 1, NULL};
    assert_int_equal(sample_open(&dir, "flips", 3, NULL, &error), 0);
    assert_int_equal(rp_checkpoint_save(dir, &sample.info, parts, 5, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
    assert_int_equal(
        rp_file_read_all("flips/checkpoint-000000000001.rpc", 1 << 20, &text, bytes, &error), 0);
    remove_directory("flips");
    return (uint8_t *)text;
}

static void a_flipped_bit_in_any_byte_is_found(void **state)
{
    (void)state;
    struct rp_checkpoint_head head;
    size_t bytes, seen[VERDICTS] = {0};
    uint8_t *file = make_file(&bytes);
    assert_int_equal(judge(file, bytes, &head), WHOLE);
    for (size_t i = 0; i < bytes; i++) {
        uint8_t bit = (uint8_t)(1u << i % 8);
        file[i] ^= bit;
        seen[judge(file, bytes, &head)]++;
        file[i] ^= bit;
    }
    assert_int_equal(seen[WHOLE], 0);
    assert_true(seen[REFUSED] && seen[WITHOUT_CONTENTS]);
    assert_int_equal(seen[WITHOUT_CONTRACT], 4096); /* with its padding */
    assert_int_equal(seen[WITHOUT_UNKNOWN], 4096);
    free(file);
}

/* Damage to the contents and to another section are both reported; of several others, the first. */
static void all_damage_is_told(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_head head;
    struct rp_checkpoint_damage damage;
    size_t bytes;
    uint8_t *file = make_file(&bytes);
    assert_int_equal(rp_checkpoint_parse_head(&head, file, bytes, "test", &error), 0);
    file[rp_checkpoint_find(&head, UNKNOWN)->offset] ^= 1;
    file[rp_checkpoint_find(&head, RP_CHECKPOINT_CONTENTS)->offset] ^= 1;
    assert_int_equal(rp_checkpoint_verify(&head, file, "test", &damage, &error), 0);
    assert_true(damage.contents);
    assert_int_equal(damage.other, UNKNOWN);
    file[rp_checkpoint_find(&head, RP_CHECKPOINT_CONTRACT)->offset] ^= 1;
    assert_int_equal(rp_checkpoint_verify(&head, file, "test", &damage, &error), 0);
    assert_int_equal(damage.other, RP_CHECKPOINT_CONTRACT);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_flipped_bit_in_any_byte_is_found),
                                       cmocka_unit_test(all_damage_is_told)};
    return cmocka_run_group_tests_name("checkpoint_flips", tests, sample_enter_memory,
                                       sample_leave);
}
