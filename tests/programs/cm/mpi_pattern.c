/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_pattern - two MPI ranks that send each other messages of many sizes, at once and in turn, and
 * put into each other's memory; every byte is compared.
 *
 *   mpirun -n 2 mpi_pattern
 *
 * Prints "all N messages as sent" and ends with 0, or tells the first that differs and ends with
 * 1.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/pattern.h"

enum { BYTES_MAX = 1 << 20, ROUNDS = 3 };

static const int sizes[] = {
	0, 1, 7, 64, 1000, 1023, 1024, 1025, 4096, 8191, 65536, 100001, 1 << 20};

static void check(const uint8_t *got, int n, uint64_t seed, const char *what)
{
	size_t wrong = pattern_wrong(got, (size_t)n, seed);

	if (wrong == (size_t)n)
		return;
	fprintf(stderr, "%s of %d bytes, seed %llu: byte %zu is not what was sent\n", what, n,
		(unsigned long long)seed, wrong);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned both_ways(int rank, uint8_t *out, uint8_t *in)
{
	unsigned n = 0;

	for (int round = 0; round < ROUNDS; round++)
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++, n++) {
			uint64_t seed = (uint64_t)round * 1000 + i * 2;

			pattern_fill(out, (size_t)sizes[i], seed + (unsigned)rank);
			memset(in, 0, BYTES_MAX);
			MPI_Sendrecv(out, sizes[i], MPI_BYTE, !rank, (int)seed, in, sizes[i],
				MPI_BYTE, !rank, (int)seed, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			check(in, sizes[i], seed + !rank, "message");
		}
	return n;
}

static unsigned in_turn(int rank, uint8_t *out, uint8_t *in)
{
	for (int turn = 0; turn < 40; turn++) {
		int n = 1 + turn * 997;

		if (turn % 2 == rank) {
			pattern_fill(out, (size_t)n, 5000u + (unsigned)turn);
			MPI_Send(out, n, MPI_BYTE, !rank, turn, MPI_COMM_WORLD);
		} else {
			MPI_Recv(in, n, MPI_BYTE, !rank, turn, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			check(in, n, 5000u + (unsigned)turn, "message");
		}
	}
	return 40;
}

static unsigned put(int rank, uint8_t *out, uint8_t *in)
{
	MPI_Win window;

	MPI_Win_create(in, BYTES_MAX, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
	for (int round = 0; round < ROUNDS; round++) {
		int n = 100003 * (round + 1);

		pattern_fill(out, (size_t)n, 9000u + 2u * (unsigned)round + (unsigned)rank);
		MPI_Win_fence(0, window);
		MPI_Put(out, n, MPI_BYTE, !rank, 0, n, MPI_BYTE, window);
		MPI_Win_fence(0, window);
		check(in, n, 9000u + 2u * (unsigned)round + !rank, "put");
	}
	MPI_Win_free(&window);
	return ROUNDS;
}

int main(int argc, char **argv)
{
	uint8_t *out = malloc(BYTES_MAX), *in = malloc(BYTES_MAX);
	unsigned n;
	int rank, ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks != 2 || !out || !in)
		MPI_Abort(MPI_COMM_WORLD, 2);
	n = both_ways(rank, out, in) + in_turn(rank, out, in);
	if (argc < 2 || strcmp(argv[1], "--two-sided"))
		n += put(rank, out, in);
	if (!rank)
		printf("all %u messages as sent\n", n);
	MPI_Finalize();
	free(out), free(in);
	return 0;
}
