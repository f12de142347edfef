/* Every function of the subset but those of grid.c.
 * Prints "rank R of N is through". With an argument it calls a function that is not part of the subset. */
#include <string.h>

#include "abi.h"
#include "mpi_abi_memory.h"

#define LONG_MESSAGE 100000
#define MOST 16

static int rank, size, right, left;

static void point_to_point(void) {
    static double out[LONG_MESSAGE], in[LONG_MESSAGE];
    MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status status, statuses[2];
    int count, flag, which, value = -1, first = 0;
    for (int i = 0; i < LONG_MESSAGE; i++) out[i] = rank + i * 0.5;
    MPI_Irecv(in, LONG_MESSAGE, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, LONG_MESSAGE, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    REQUIRE(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
    MPI_Get_count(&statuses[0], MPI_DOUBLE, &count);
    REQUIRE(count == LONG_MESSAGE && statuses[0].MPI_SOURCE == left && statuses[0].MPI_TAG == 1);
    for (int i = 0; i < LONG_MESSAGE; i++) REQUIRE(in[i] == left + i * 0.5);
    /* Any source, any tag; a probe; a count that is no whole number. */
    MPI_Send("abc", 3, MPI_CHAR, right, 7, MPI_COMM_WORLD);
    MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    REQUIRE(status.MPI_SOURCE == left && status.MPI_TAG == 7 && count == MPI_UNDEFINED);
    MPI_Iprobe(left, 7, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    REQUIRE(flag);
    MPI_Recv(in, 100, MPI_BYTE, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    REQUIRE(memcmp(in, "abc", 3) == 0);
    MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    REQUIRE(!flag);
    MPI_Sendrecv(&rank, 1, MPI_INT, right, 2, &value, 1, MPI_INT, left, 2, MPI_COMM_WORLD, &status);
    REQUIRE(value == left && status.MPI_SOURCE == left);
    /* Nobody. */
    MPI_Sendrecv(&rank, 1, MPI_INT, MPI_PROC_NULL, 2, &value, 1, MPI_INT, MPI_PROC_NULL, 2, MPI_COMM_WORLD, &status);
    REQUIRE(value == left && status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
    MPI_Get_count(&status, MPI_INT, &count);
    REQUIRE(count == 0);
    /* Persistent ones, one of them to nobody. */
    MPI_Recv_init(&value, 1, MPI_INT, left, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(&first, 1, MPI_INT, right, 3, MPI_COMM_WORLD, &requests[1]);
    MPI_Send_init(&first, 1, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &requests[2]);
    for (int round = 0; round < 100; round++) {
        first = round * size + rank;
        MPI_Startall(3, requests);
        if (round % 3 == 0) {
            MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        } else if (round % 3 == 1) {
            for (int left_over = 3; left_over > 0; left_over--) {
                MPI_Waitany(3, requests, &which, &status);
                REQUIRE(which >= 0 && which < 3);
            }
            MPI_Waitany(3, requests, &which, &status);
            REQUIRE(which == MPI_UNDEFINED);
        } else {
            for (flag = 0; !flag;) MPI_Testall(3, requests, &flag, MPI_STATUSES_IGNORE);
        }
        REQUIRE(value == round * size + left && requests[0] != MPI_REQUEST_NULL);
    }
    MPI_Start(&requests[0]);
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], &status);
    MPI_Test_cancelled(&status, &flag);
    REQUIRE(flag);
    for (int i = 0; i < 3; i++) MPI_Request_free(&requests[i]);
    REQUIRE(requests[0] == MPI_REQUEST_NULL);
    MPI_Wait(&requests[0], &status);
    REQUIRE(status.MPI_SOURCE == MPI_ANY_SOURCE);
    MPI_Irecv(&value, 1, MPI_INT, left, 4, MPI_COMM_WORLD, &requests[0]);
    MPI_Send(&rank, 1, MPI_INT, right, 4, MPI_COMM_WORLD);
    for (flag = 0; !flag;) MPI_Test(&requests[0], &flag, &status);
    REQUIRE(value == left && requests[0] == MPI_REQUEST_NULL);
}

/* Requests that were started: in each of the calls that take some, also by copies of their handles. */
static void requests_of(MPI_Comm comm) {
    enum { MANY = 300 };
    MPI_Request requests[MANY], copies[MANY];
    MPI_Status status, statuses[MANY];
    int me, ranks, which, flag, seen = 0, values[MANY], last = -1;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &ranks);
    int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
    for (int i = 0; i < MANY; i++) MPI_Irecv(&values[i], 1, MPI_INT, from, i, comm, &requests[i]);
    MPI_Testall(2, &requests[MANY - 2], &flag, MPI_STATUSES_IGNORE);
    REQUIRE(!flag && requests[MANY - 1] != MPI_REQUEST_NULL);
    memcpy(copies, requests, sizeof copies);
    for (int i = MANY - 2; i >= 0; i--) {
        MPI_Request send;
        MPI_Isend(&i, 1, MPI_INT, to, i, comm, &send);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        REQUIRE(send == MPI_REQUEST_NULL);
    }
    for (; seen < 100; seen++) {
        MPI_Waitany(MANY, requests, &which, &status);
        REQUIRE(requests[which] == MPI_REQUEST_NULL && values[which] == which && status.MPI_TAG == which);
        REQUIRE(status.MPI_SOURCE == from);
        copies[which] = MPI_REQUEST_NULL;
    }
    /* The handles of the others are what they were. */
    REQUIRE(memcmp(copies, requests, sizeof copies) == 0);
    MPI_Testall(MANY, copies, &flag, statuses);
    REQUIRE(!flag);
    MPI_Waitall(MANY - 1, copies, statuses);
    for (int i = 0; i < MANY - 1; i++) REQUIRE(values[i] == i && copies[i] == MPI_REQUEST_NULL);
    /* The last one has got nothing. */
    MPI_Test(&copies[MANY - 1], &flag, &status);
    REQUIRE(!flag && copies[MANY - 1] == requests[MANY - 1]);
    MPI_Cancel(&copies[MANY - 1]);
    for (flag = 0; !flag;) MPI_Testall(MANY, copies, &flag, statuses);
    MPI_Test_cancelled(&statuses[MANY - 1], &flag);
    REQUIRE(flag && copies[MANY - 1] == MPI_REQUEST_NULL);
    /* One that is left to itself, for which nothing ever comes. */
    MPI_Irecv(&last, 1, MPI_INT, from, MANY + 1, comm, &requests[0]);
    MPI_Request_free(&requests[0]);
    REQUIRE(requests[0] == MPI_REQUEST_NULL);
    MPI_Irecv(&values[0], 1, MPI_INT, from, MANY, comm, &requests[0]);
    MPI_Send(&me, 1, MPI_INT, to, MANY, comm);
    MPI_Waitany(1, requests, &which, &status);
    REQUIRE(which == 0 && values[0] == from && last == -1);
    MPI_Waitany(1, requests, &which, &status);
    REQUIRE(which == MPI_UNDEFINED);
}

static void collectives(MPI_Comm comm) {
    int me, ranks, all[2 * MOST], mine[2 * MOST], counts[MOST], places[MOST];
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &ranks);
    for (int root = 0; root < ranks; root++) {
        long value = me == root ? 100 + root : -1, sum = -1, one = me + 1;
        MPI_Bcast(&value, 1, MPI_LONG, root, comm);
        REQUIRE(value == 100 + root);
        MPI_Reduce(&one, &sum, 1, MPI_LONG, MPI_SUM, root, comm);
        REQUIRE(sum == (me == root ? ranks * (ranks + 1) / 2 : -1));
        MPI_Reduce(me == root ? MPI_IN_PLACE : &one, &one, 1, MPI_LONG, MPI_MAX, root, comm);
        REQUIRE(one == (me == root ? ranks : me + 1));
        MPI_Gather(&me, 1, MPI_INT, all, 1, MPI_INT, root, comm);
        for (int i = 0; me == root && i < ranks; i++) REQUIRE(all[i] == i);
        for (int i = 0; i < ranks; i++) all[i] = 10 * i + root;
        MPI_Scatter(all, 1, MPI_INT, mine, 1, MPI_INT, root, comm);
        REQUIRE(mine[0] == 10 * me + root);
    }
    double values[3] = {me, 1, -me};
    MPI_Allreduce(MPI_IN_PLACE, values, 3, MPI_DOUBLE, MPI_SUM, comm);
    REQUIRE(values[0] == ranks * (ranks - 1) / 2 && values[1] == ranks && values[2] == -values[0]);
    struct {
        double value;
        int place;
    } here = {me == ranks - 1 ? 1.0 : 2.0, me}, least;
    MPI_Allreduce(&here, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm);
    REQUIRE(least.value == 1.0 && least.place == ranks - 1);
    MPI_Allgather(&me, 1, MPI_INT, all, 1, MPI_INT, comm);
    for (int i = 0; i < ranks; i++) REQUIRE(all[i] == i);
    for (int i = 0; i < ranks; i++) mine[i] = 100 * me + i;
    MPI_Alltoall(mine, 1, MPI_INT, all, 1, MPI_INT, comm);
    for (int i = 0; i < ranks; i++) REQUIRE(all[i] == 100 * i + me);
    /* Nothing from even ranks, two from odd ones, placed backwards. */
    int sent[MOST], begin[MOST];
    for (int i = 0; i < ranks; i++) {
        sent[i] = me % 2 * 2;
        begin[i] = 0;
        counts[i] = i % 2 * 2;
        places[i] = 2 * (ranks - 1 - i);
    }
    mine[0] = me;
    mine[1] = me + 1;
    MPI_Alltoallv(mine, sent, begin, MPI_INT, all, counts, places, MPI_INT, comm);
    for (int i = 1; i < ranks; i += 2) REQUIRE(all[places[i]] == i && all[places[i] + 1] == i + 1);
    MPI_Barrier(comm);
}

static void attributes(void) {
    MPI_Datatype type, again;
    int kept, dropped, flag, bytes, to = 7, from = 0;
    char name[128];
    void *value;
    MPI_Type_create_keyval((MPI_Copy *)1, NULL, &kept, NULL);
    MPI_Type_create_keyval(NULL, NULL, &dropped, NULL);
    REQUIRE(kept != dropped);
    MPI_Type_dup(MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Type_size(type, &bytes);
    REQUIRE(bytes == sizeof(int) && type != MPI_INT);
    MPI_Type_get_name(MPI_INT, name, &bytes);
    REQUIRE(strcmp(name, "MPI_INT") == 0 && bytes == 7);
    MPI_Type_get_name(type, name, &bytes);
    REQUIRE(name[0] == 0 && bytes == 0);
    MPI_Type_get_attr(type, kept, &value, &flag);
    REQUIRE(!flag);
    MPI_Type_get_attr(MPI_INT, kept, &value, &flag);
    REQUIRE(!flag);
    MPI_Type_set_attr(type, kept, &to);
    MPI_Type_set_attr(type, dropped, &from);
    MPI_Type_get_attr(type, dropped, &value, &flag);
    REQUIRE(flag && value == &from);
    MPI_Type_dup(type, &again);
    MPI_Type_get_attr(again, kept, &value, &flag);
    REQUIRE(flag && value == &to);
    MPI_Type_get_attr(again, dropped, &value, &flag);
    REQUIRE(!flag);
    MPI_Type_delete_attr(again, kept);
    MPI_Type_get_attr(again, kept, &value, &flag);
    REQUIRE(!flag);
    MPI_Type_get_attr(type, kept, &value, &flag);
    REQUIRE(flag);
    /* Host memory said to be host memory. */
    MPI_Type_set_attr(type, MPIX_MEMORY_KIND, (void *)MPIX_MEMORY_HOST);
    MPI_Sendrecv(&to, 1, type, rank, 3, &from, 1, type, rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    REQUIRE(from == 7);
    MPI_Type_free_keyval(&kept);
    REQUIRE(kept == 0);
    MPI_Type_free(&type);
    MPI_Type_free(&again);
    REQUIRE(type == (MPI_Datatype)0x200);
}

int main(int argc, char **argv) {
    int provided, flag, bytes, ranks;
    char name[256];
    MPI_Comm half, same;
    MPI_Request under_way;
    MPI_Initialized(&flag);
    REQUIRE(!flag);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    REQUIRE(provided == MPI_THREAD_MULTIPLE);
    MPI_Initialized(&flag);
    REQUIRE(flag);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    REQUIRE(size <= MOST);
    right = (rank + 1) % size;
    left = (rank + size - 1) % size;
    if (argc > 1) MPI_Win_free(NULL);
    MPI_Get_processor_name(name, &bytes);
    REQUIRE(bytes > 0 && (int)strlen(name) == bytes);
    MPI_Type_size(MPI_DOUBLE_INT, &bytes);
    REQUIRE(bytes == 16);
    double since = MPI_Wtime();
    attributes();
    point_to_point();
    requests_of(MPI_COMM_WORLD);
    collectives(MPI_COMM_WORLD);
    collectives(MPI_COMM_SELF);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    collectives(half);
    MPI_Comm_dup(half, &same);
    collectives(same);
    requests_of(same);
    requests_of(MPI_COMM_SELF);
    /* A request of a communicator that is freed meanwhile. */
    MPI_Irecv(&bytes, 1, MPI_INT, 0, 1, same, &under_way);
    MPI_Comm_rank(same, &flag);
    MPI_Comm_size(same, &ranks);
    for (int i = 0; flag == 0 && i < ranks; i++) MPI_Send(&i, 1, MPI_INT, i, 1, same);
    MPI_Barrier(same);
    MPI_Comm_free(&same);
    REQUIRE(same == MPI_COMM_NULL);
    MPI_Waitall(1, &under_way, MPI_STATUSES_IGNORE);
    REQUIRE(bytes == flag);
    MPI_Comm_free(&half);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 5 : MPI_UNDEFINED, 0, &half);
    REQUIRE((half != MPI_COMM_NULL) == (rank == 0));
    REQUIRE(MPI_Wtime() > since && MPI_Wtick() > 0);
    MPI_Finalize();
    MPI_Finalized(&flag);
    REQUIRE(flag);
    printf("rank %d of %d is through\n", rank, size);
    return 0;
}
