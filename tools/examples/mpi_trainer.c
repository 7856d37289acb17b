/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_trainer.c — the whole of a data-parallel trainer in C: a unigram model, MPI, exact resume.
 *
 *     mpicc mpi_trainer.c $(pkg-config --cflags --libs ringpack) -lm -o mpi_trainer
 *     mpirun -np 4 ./mpi_trainer config.yaml state 100 8      # 100 steps, 8 rows per rank
 *
 * The first rank of each node starts the node's engine. `state` is written by rank 0 after every
 * step: weights, and the position of the stream. Kill everything and run it again, with another
 * number of ranks or rows if you like: the rows continue at the saved position. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ringpack/client.h"

enum { VOCABULARY = 257, TOKEN_BYTES = 1 << 16 };

/* The contents of a checkpoint. */
static struct {
    double weights[VOCABULARY];
    uint64_t token_bytes;
    char token[TOKEN_BYTES];
} state;

static int rank, ranks, lifeline[2];

static void check(int code, const struct rp_error *error)
{
    if (code >= 0)
        return;
    fprintf(stderr, "rank %d: %s\n  next: %s\n", rank, error->message, error->hint);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The engine of this node lives as long as the first rank on it: it watches a pipe of that rank. */
static void start_engine(const char *config, const char *run, const char *rows)
{
    MPI_Comm node;
    int local, size;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local);
    MPI_Comm_size(node, &size);
    if (local == 0 && pipe(lifeline) == 0 && fork() == 0) {
        char world[16], served[32], end[16];
        const char *program = getenv("RINGPACK") ? getenv("RINGPACK") : "ringpack";
        close(lifeline[1]);
        snprintf(world, sizeof world, "%d", ranks);
        snprintf(served, sizeof served, "%d-%d", rank, rank + size - 1);
        snprintf(end, sizeof end, "%d", lifeline[0]);
        execlp(program, program, "serve", "-c", config, "--run", run, "--batch-size", rows,
               "--dp-world-size", world, "--ranks", served, "--lifeline", end, NULL);
        perror(program);
        _exit(1);
    }
}

/* The plan digest of all rows before those to come: in a state token of version 4 at byte 48
 * (engine/plan/STREAM2.md section 12.2), of version 3 the 16 bytes before the last 16 (STREAM.md
 * section 9). Zeros where an older token lacks it. */
static void plan_digest(const struct rp_client *client, uint64_t digest[2])
{
    static char token[TOKEN_BYTES];
    uint32_t version;
    size_t bytes = rp_client_state(client, token, sizeof token);
    memcpy(&version, token + 8, sizeof version);
    if ((version == 3 || version == 4) && bytes <= sizeof token)
        memcpy(digest, token + (version == 4 ? 48 : bytes - 32), 16);
}

static void check_digest(const uint64_t mine[2], const uint64_t first[2])
{
    int is_known = (mine[0] || mine[1]) && (first[0] || first[1]);
    if (!is_known || memcmp(mine, first, 16) == 0)
        return;
    fprintf(stderr,
            "rank %d: plan_digest differs: rank 0 has %016llx%016llx, this one has %016llx%016llx; "
            "the rows before this one were not the same\n"
            "  next: load one state on every rank; `ringpack audit A B` compares two states\n",
            rank, (unsigned long long)first[1], (unsigned long long)first[0],
            (unsigned long long)mine[1], (unsigned long long)mine[0]);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Nodes share no memory: only the job can check whether they read one stream, from one row and in
 * the same steps. */
static void check_ranks(const struct rp_client *client)
{
    uint64_t mine[5] = {rp_client_contract(client, NULL, 0), rp_client_next_row(client),
                        rp_client_step_row(client)};
    plan_digest(client, mine + 3);
    uint64_t first[5];
    memcpy(first, mine, sizeof first);
    MPI_Bcast(first, 5, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    char *contract = malloc(mine[0]), *other = malloc(first[0]);
    struct rp_error error = {.message = "it begins at another row than rank 0, or in other steps"};
    if (!contract || !other) {
        fprintf(stderr, "rank %d: out of memory\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    rp_client_contract(client, contract, mine[0]);
    if (rank == 0)
        memcpy(other, contract, mine[0]);
    MPI_Bcast(other, (int)first[0], MPI_CHAR, 0, MPI_COMM_WORLD);
    int code = rp_contract_agree("rank 0", other, first[0], "this one", contract, mine[0], &error);
    if (code < 0 || mine[1] != first[1] || mine[2] != first[2]) {
        fprintf(stderr, "rank %d: %s\n", rank, error.message);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    check_digest(mine + 3, first + 3);
    free(contract);
    free(other);
}

/* Gradient descent on -log softmax(weights)[token]; returns the loss over all ranks. */
static double train(const struct rp_geometry *geometry, const struct rp_batch *batch)
{
    const int32_t *ids = rp_batch_section(batch, RP_SECTION_INPUT_IDS);
    double counts[VOCABULARY] = {0}, sum = 0, loss = 0, tokens = 0;
    const struct rp_row_info *rows = rp_batch_section(batch, RP_SECTION_ROWS);
    for (uint32_t r = 0; r < batch->rows; r++)
        for (uint32_t i = 0; i < rows[r].tokens; i++)
            counts[ids[r * geometry->seq_len + i]]++;
    MPI_Allreduce(MPI_IN_PLACE, counts, VOCABULARY, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int t = 0; t < VOCABULARY; t++) {
        sum += exp(state.weights[t]);
        tokens += counts[t];
    }
    for (int t = 0; t < VOCABULARY; t++) {
        loss -= counts[t] * (state.weights[t] - log(sum)) / tokens;
        counts[t] = counts[t] / tokens - exp(state.weights[t]) / sum;
    }
    for (int t = 0; t < VOCABULARY; t++)
        state.weights[t] += 8 * counts[t];
    return loss;
}

static void save(const char *path, const struct rp_client *client)
{
    char fresh[4096];
    state.token_bytes = rp_client_state(client, state.token, sizeof state.token);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "wb");
    if (!file || fwrite(&state, sizeof state, 1, file) != 1 || fflush(file) != 0 ||
        fsync(fileno(file)) != 0 || fclose(file) != 0 || rename(fresh, path) != 0) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int count, char **arguments)
{
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count != 5) {
        fprintf(stderr, "usage: mpi_trainer CONFIG STATE STEPS ROWS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const char *path = arguments[2];
    FILE *file = rank == 0 ? fopen(path, "rb") : NULL;
    if (file && (fread(&state, sizeof state, 1, file) != 1 || fclose(file) != 0))
        MPI_Abort(MPI_COMM_WORLD, 1);
    int started = rank == 0 ? (int)getpid() : 0; /* names the run: the job's own engines */
    MPI_Bcast(&state, sizeof state, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Bcast(&started, 1, MPI_INT, 0, MPI_COMM_WORLD);
    char run[32];
    snprintf(run, sizeof run, "mpi-%d", started);
    start_engine(arguments[1], run, arguments[4]);

    struct rp_error error = {0};
    struct rp_client *client;
    struct rp_client_options options = {.struct_size = sizeof options,
                                        .run = run,
                                        .rank = (uint32_t)rank,
                                        .world = (uint32_t)ranks,
                                        .state = state.token_bytes ? state.token : NULL,
                                        .state_bytes = state.token_bytes,
                                        .connect_timeout_ns = 60000000000};
    check(rp_client_attach(&client, &options, &error), &error);
    check_ranks(client);
    for (int step = 0; step < atoi(arguments[3]); step++) {
        struct rp_batch batch = {.struct_size = sizeof batch};
        int code = rp_client_next(client, -1, &batch, &error);
        check(code, &error);
        if (code == RP_NEXT_END)
            break;
        double loss = train(rp_client_geometry(client), &batch);
        check(rp_client_release(client, &batch), &error);
        if (rank == 0) {
            save(path, client);
            printf("row %llu loss %.6f %a\n", (unsigned long long)batch.next_row, loss, loss);
            fflush(stdout);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD); /* the engine of a node ends with its first rank */
    rp_client_detach(client);
    MPI_Finalize();
    return 0;
}
