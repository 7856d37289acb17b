/* SPDX-License-Identifier: Apache-2.0 */
/* While no side sleeps, a trainer makes no system call: it takes and returns batches in a process
 * that any call but exit kills. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include "fake_engine.h"

#define BATCHES 100u
#define NO_SECCOMP 77

/* More slots than batches: the engine never waits for space, so it need not be woken. */
static const struct fake_options engine_options = {
    .run_dir = fake_run_dir, .generation = 1, .slots = 128, .batches = BATCHES, .seed = 7};

static bool forbid_system_calls(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* In a child: 0 when every batch came, in silence. */
static int train(bool loud)
{
    struct rp_client_options options = fake_client_options();
    struct rp_client *client;
    struct rp_batch batch = {.struct_size = sizeof batch};
    struct rp_error error;
    char state[FAKE_STATE_BYTES];
    if (rp_client_attach(&client, &options, &error) != 0)
        return 1;
    if (!forbid_system_calls())
        return NO_SECCOMP;
    for (uint64_t k = 0; k < BATCHES; k++) {
        int code;
        while ((code = rp_client_take(client, &batch, &error)) == RP_NEXT_EMPTY)
            ;
        if (code != RP_NEXT_BATCH || !fake_batch_holds(&batch, k * FAKE_ROWS) ||
            !rp_client_holds(client, &batch) || rp_client_state(client, state, sizeof state) == 0)
            return 2;
        if (loud)
            (void)getppid();
        if (rp_client_release(client, &batch) != 0)
            return 3;
    }
    return 0;
}

static int status_of_trainer(bool loud)
{
    pid_t engine = fake_start(engine_options);
    fflush(NULL);
    pid_t trainer = fork();
    if (trainer == 0) {
        int code = train(loud);
        syscall(SYS_exit, code); /* exit_group is death too */
    }
    int status;
    assert_int_equal(waitpid(trainer, &status, 0), trainer);
    fake_kill(engine);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_SECCOMP) {
        print_message("left out: seccomp is not to be had here\n");
        skip();
    }
    return status;
}

static void a_batch_that_is_ready_takes_no_system_call(void **state)
{
    (void)state;
    int status = status_of_trainer(false);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_single_one_would_be_found(void **state)
{
    (void)state;
    int status = status_of_trainer(true);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSYS);
}

int main(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    print_message("left out: sanitizers have system calls of their own\n");
    return 0;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_that_is_ready_takes_no_system_call),
        cmocka_unit_test(a_single_one_would_be_found),
    };
    return cmocka_run_group_tests_name("client_quiet", tests, fake_enter, fake_leave);
}
