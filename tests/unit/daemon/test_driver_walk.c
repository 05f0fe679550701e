/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a Prepare costs once the driver has been scanned: it reads no directory. In a child process
 * that the kernel kills (seccomp) at the first getdents64 after the first claim.
 */
#include "cdi_world.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/prepare/files.h"

static int prepare(struct alq_files *files, const char *uid)
{
    char name[] = "claim", pool[] = "node";
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_share_spec share = {.gpu_uuid = "GPU-11111111-2222-3333-4444-555555555555",
                                   .gpu_minor = 3,
                                   .gpu_memory_bytes = 1ull << 30,
                                   .memory_bytes = 1 << 28,
                                   .cores_pct = 30};
    struct alq_claim_spec claim = {
        .namespace_ = "ns", .name = name, .pool = pool, .share_count = 1, .shares = &share};
    snprintf(claim.uid, sizeof(claim.uid), "%s", uid);
    snprintf(share.share_id, sizeof(share.share_id), "%s-0", uid);
    int rc = alq_files_prepare(files, &claim, 0, &err);
    if (rc)
        fprintf(stderr, "%s\n", err.text);
    return rc;
}

static int forbid_directory_reads(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_getdents64, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

/* Exit status: 0 good, 77 no seccomp here, else the step that failed. */
static int run(struct world *w, int changes)
{
    struct alq_store *store = NULL;
    struct alq_files *files = NULL;
    w->cfg.state_dir = strdup(at(w, "state"));
    w->cfg.is_non_tmpfs_allowed = 1;
    free(w->cfg.run_dir);
    w->cfg.run_dir = strdup(at(w, "run"));
    free(w->cfg.cdi_dir);
    w->cfg.cdi_dir = strdup(at(w, "cdi"));
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    put_text(w, "proc/driver/nvidia/gpus/0000:65:00.0", "information", "Device Minor: 3\n");
    if (alq_store_open(w->cfg.state_dir, &store, NULL) ||
        alq_files_open(&w->cfg, store, "11111111-2222-3333-4444-555555555555", &files, NULL))
        return 2;
    if (prepare(files, "73086585-cd22-416e-87f8-a2f08248dd2a"))
        return 3;
    if (changes)
        put_driver(w, LIB_DIR, "550.163.01"); /* the same, installed again */
    if (forbid_directory_reads())
        return 77;
    return prepare(files, "84086585-cd22-416e-87f8-a2f08248dd2b") ? 4 : 0;
}

static int status_of(struct world *w, int changes)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(run(w, changes));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("[  REASON  ] no seccomp filter can be had here\n");
        skip();
    }
    return status;
}

static void prepare_after_the_first_reads_no_directory(void **state)
{
    struct world *w = *state;
    assert_int_equal(status_of(w, 0), 0);
    alq_auto_free char *spec =
        alq_str_printf("%s/cdi/k8s.%s-claim_84086585-cd22-416e-87f8-a2f08248dd2b.json", w->root,
                       w->cfg.driver_name);
    assert_int_equal(access(spec, R_OK), 0);
}

/* The filter does bite: a changed driver is scanned again, which walks. */
static void prepare_after_a_change_scans_again(void **state)
{
    int status = status_of(*state, 1);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(prepare_after_the_first_reads_no_directory, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(prepare_after_a_change_scans_again, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
