/* Grids of ranks, and messages of rows. Prints "rank R of N is through". With an argument it makes the mistake of that name. */
#include <string.h>

#include "abi.h"

#define ROWS 7
#define COLUMNS 9

static int rank, size;

static double of(int who, int row, int column) { return who * 1000 + row * 20 + column; }

static void lengths(void) {
    int two[2] = {0, 0}, three[3] = {0, 2, 0}, one[1] = {0}, prime[2] = {0, 0};
    MPI_Dims_create(12, 2, two);
    REQUIRE(two[0] == 4 && two[1] == 3);
    MPI_Dims_create(24, 3, three);
    REQUIRE(three[0] == 4 && three[1] == 2 && three[2] == 3);
    MPI_Dims_create(5, 1, one);
    REQUIRE(one[0] == 5);
    MPI_Dims_create(7, 2, prime);
    REQUIRE(prime[0] == 7 && prime[1] == 1);
}

/* Columns go around along the second direction, which is closed, and rows along the first, which is not. */
static void exchange(MPI_Comm grid) {
    double mine[ROWS][COLUMNS];
    int place[2], length[2], closed[2], directions, found, bytes, count, before, behind, above, below, flag = 0;
    MPI_Comm same;
    MPI_Datatype column, copy, row;
    MPI_Request requests[4];
    MPI_Status statuses[4];

    MPI_Cartdim_get(grid, &directions);
    MPI_Cart_get(grid, 2, length, closed, place);
    REQUIRE(directions == 2 && length[0] * length[1] == size && closed[0] == 0 && closed[1] == 1);
    MPI_Cart_rank(grid, place, &found);
    REQUIRE(found == rank && rank == place[0] * length[1] + place[1]);
    place[1] += length[1];
    MPI_Cart_rank(grid, place, &found);
    REQUIRE(found == rank);
    MPI_Cart_coords(grid, size - 1, 2, place);
    REQUIRE(place[0] == length[0] - 1 && place[1] == length[1] - 1);
    MPI_Cart_shift(grid, 1, 1, &before, &behind);
    MPI_Cart_shift(grid, 0, 1, &above, &below);
    MPI_Cart_coords(grid, rank, 2, place);
    REQUIRE(before == place[0] * length[1] + (place[1] + length[1] - 1) % length[1]);
    REQUIRE(above == (place[0] == 0 ? MPI_PROC_NULL : rank - length[1]));
    REQUIRE(below == (place[0] + 1 == length[0] ? MPI_PROC_NULL : rank + length[1]));
    MPI_Comm_dup(grid, &same);
    MPI_Cartdim_get(same, &directions);
    REQUIRE(directions == 2);

    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) mine[i][j] = of(rank, i, j);
    MPI_Type_vector(ROWS, 2, COLUMNS, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    MPI_Type_dup(column, &copy);
    MPI_Type_contiguous(COLUMNS, MPI_DOUBLE, &row);
    MPI_Type_commit(&row);
    MPI_Type_size(copy, &bytes);
    REQUIRE(bytes == ROWS * 2 * (int)sizeof(double));
    MPI_Type_size(row, &bytes);
    REQUIRE(bytes == COLUMNS * (int)sizeof(double));
    MPI_Irecv(&mine[0][0], 1, column, before, 1, grid, &requests[0]);
    MPI_Irecv(mine[0], 1, row, MPI_PROC_NULL, 1, grid, &requests[1]);
    MPI_Isend(&mine[0][5], 1, copy, behind, 1, same, &requests[2]);
    MPI_Isend(&mine[0][5], 1, copy, behind, 1, grid, &requests[3]);
    MPI_Waitall(2, requests, statuses);
    MPI_Get_count(&statuses[0], column, &count);
    REQUIRE(count == 1 && statuses[0].MPI_SOURCE == before && statuses[1].MPI_SOURCE == MPI_PROC_NULL);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) REQUIRE(mine[i][j] == (j < 2 ? of(before, i, j + 5) : of(rank, i, j)));
    /* The same message to memory that lies together, as any may be received. */
    double flat[ROWS][2];
    MPI_Irecv(flat, 2 * ROWS, MPI_DOUBLE, before, 1, same, &requests[0]);
    while (!flag) MPI_Test(&requests[0], &flag, &statuses[0]);
    REQUIRE(memcmp(flat[3], &mine[3][0], sizeof flat[3]) == 0);
    MPI_Waitall(2, requests + 2, MPI_STATUSES_IGNORE);

    /* Several of rows, the second an extent behind the first; less comes than there is room for. */
    MPI_Datatype pairs;
    double sent[12], got[12];
    MPI_Type_vector(2, 1, 3, MPI_DOUBLE, &pairs);
    for (int i = 0; i < 12; i++) sent[i] = of(rank, 0, i), got[i] = -1;
    MPI_Isend(sent, 2, pairs, behind, 2, grid, &requests[0]);
    MPI_Recv(got, 3, pairs, before, 2, grid, &statuses[0]);
    MPI_Get_count(&statuses[0], pairs, &count);
    REQUIRE(count == 2);
    for (int i = 0; i < 12; i++) REQUIRE(got[i] == (i == 0 || i == 3 || i == 4 || i == 7 ? of(before, 0, i) : -1));
    MPI_Waitall(1, requests, MPI_STATUSES_IGNORE);
    MPI_Send(mine[ROWS - 1], 1, row, below, 3, grid);
    MPI_Recv(mine[0], 1, row, above, 3, grid, &statuses[0]);
    if (above != MPI_PROC_NULL) REQUIRE(mine[0][8] == of(above, ROWS - 1, 8));
    MPI_Type_free(&pairs);
    MPI_Type_free(&row);
    MPI_Type_free(&copy);
    MPI_Type_free(&column);
    MPI_Comm_free(&same);
}

/* The ranks but the first, the other way round. */
static void groups(void) {
    int others[64], numbers[3] = {0, size - 1, MPI_PROC_NULL}, found[3], own, count;
    MPI_Group all, some, none;
    MPI_Comm turned;
    for (int i = 0; i < size - 1; i++) others[i] = size - 1 - i;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, size - 1, others, &some);
    MPI_Group_incl(all, 0, others, &none);
    MPI_Group_size(some, &count);
    MPI_Group_rank(some, &own);
    REQUIRE(count == size - 1 && own == (rank == 0 ? MPI_UNDEFINED : size - 1 - rank) && none == MPI_GROUP_EMPTY);
    MPI_Group_translate_ranks(all, 3, numbers, some, found);
    REQUIRE(found[0] == MPI_UNDEFINED && found[1] == (size == 1 ? MPI_UNDEFINED : 0) && found[2] == MPI_PROC_NULL);
    MPI_Comm_create(MPI_COMM_WORLD, some, &turned);
    REQUIRE((turned == MPI_COMM_NULL) == (rank == 0));
    if (turned != MPI_COMM_NULL) {
        MPI_Comm_rank(turned, &own);
        REQUIRE(own == size - 1 - rank);
        MPI_Barrier(turned);
        MPI_Comm_free(&turned);
    }
    MPI_Group_free(&all);
    MPI_Group_free(&some);
    MPI_Group_free(&none);
    REQUIRE(all == MPI_GROUP_NULL && some == MPI_GROUP_NULL && none == MPI_GROUP_NULL);
}

static void mistake(const char *name) {
    MPI_Datatype rows;
    MPI_Request request;
    MPI_Comm grid;
    double here[8] = {0};
    int lengths[2] = {size, 2}, closed[2] = {0, 0};
    MPI_Type_vector(2, 1, 2, MPI_DOUBLE, &rows);
    if (strcmp(name, "collective") == 0) MPI_Bcast(here, 1, rows, 0, MPI_COMM_WORLD);
    if (strcmp(name, "persistent") == 0) MPI_Send_init(here, 1, rows, 0, 1, MPI_COMM_WORLD, &request);
    if (strcmp(name, "nested") == 0) MPI_Type_vector(1, 1, 1, rows, &rows);
    if (strcmp(name, "large") == 0) MPI_Cart_create(MPI_COMM_WORLD, 2, lengths, closed, 0, &grid);
    if (strcmp(name, "twice") == 0) {
        MPI_Group all;
        const int ranks[2] = {0, 0};
        MPI_Comm_group(MPI_COMM_WORLD, &all);
        MPI_Group_incl(all, 2, ranks, &all);
    }
    if (strcmp(name, "none") == 0) MPI_Cart_coords(MPI_COMM_WORLD, 0, 2, lengths);
}

int main(int argc, char **argv) {
    int length[2] = {0, 0};
    const int closed[2] = {0, 1}, small[1] = {1}, open[1] = {0};
    MPI_Comm grid, alone;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1) mistake(argv[1]);
    lengths();
    MPI_Dims_create(size, 2, length);
    MPI_Cart_create(MPI_COMM_WORLD, 2, length, closed, 1, &grid);
    exchange(grid);
    groups();
    /* Who has no place in a grid has no communicator. */
    MPI_Cart_create(MPI_COMM_WORLD, 1, small, open, 0, &alone);
    REQUIRE((alone == MPI_COMM_NULL) == (rank > 0));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_free(&grid);
    MPI_Finalize();
    printf("rank %d of %d is through\n", rank, size);
    return 0;
}
