/* What the programs beside this need of MPI's standard ABI (MPI 5.0, appendix A), declared here: no mpi.h is installed with it. */
#ifndef ABI_H
#define ABI_H

#include <stdio.h>
#include <stdlib.h>

typedef struct MPI_ABI_Comm *MPI_Comm;
typedef struct MPI_ABI_Datatype *MPI_Datatype;
typedef struct MPI_ABI_Group *MPI_Group;
typedef struct MPI_ABI_Op *MPI_Op;
typedef struct MPI_ABI_Request *MPI_Request;
typedef struct {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR, MPI_internal[5];
} MPI_Status;

#define MPI_COMM_NULL ((MPI_Comm)0x100)
#define MPI_COMM_WORLD ((MPI_Comm)0x101)
#define MPI_COMM_SELF ((MPI_Comm)0x102)
#define MPI_GROUP_NULL ((MPI_Group)0x108)
#define MPI_GROUP_EMPTY ((MPI_Group)0x109)
#define MPI_REQUEST_NULL ((MPI_Request)0x180)
#define MPI_INT ((MPI_Datatype)0x209)
#define MPI_LONG ((MPI_Datatype)0x20a)
#define MPI_DOUBLE ((MPI_Datatype)0x214)
#define MPI_DOUBLE_INT ((MPI_Datatype)0x229)
#define MPI_CHAR ((MPI_Datatype)0x243)
#define MPI_BYTE ((MPI_Datatype)0x247)
#define MPI_SUM ((MPI_Op)0x21)
#define MPI_MAX ((MPI_Op)0x23)
#define MPI_MINLOC ((MPI_Op)0x38)
#define MPI_ANY_SOURCE (-1)
#define MPI_ANY_TAG (-2)
#define MPI_PROC_NULL (-3)
#define MPI_UNDEFINED (-32766)
#define MPI_IN_PLACE ((void *)1)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)
#define MPI_THREAD_MULTIPLE 4096

int MPI_Init(int *, char ***), MPI_Init_thread(int *, char ***, int, int *), MPI_Initialized(int *), MPI_Finalized(int *), MPI_Finalize(void);
int MPI_Comm_rank(MPI_Comm, int *), MPI_Comm_size(MPI_Comm, int *), MPI_Comm_split(MPI_Comm, int, int, MPI_Comm *);
int MPI_Comm_dup(MPI_Comm, MPI_Comm *), MPI_Comm_free(MPI_Comm *), MPI_Get_processor_name(char *, int *);
typedef int MPI_Copy(MPI_Datatype, int, void *, void *, void *, int *), MPI_Delete(MPI_Datatype, int, void *, void *);
int MPI_Type_dup(MPI_Datatype, MPI_Datatype *), MPI_Type_commit(MPI_Datatype *), MPI_Type_free(MPI_Datatype *);
int MPI_Type_create_keyval(MPI_Copy *, MPI_Delete *, int *, void *), MPI_Type_free_keyval(int *);
int MPI_Type_set_attr(MPI_Datatype, int, void *), MPI_Type_get_attr(MPI_Datatype, int, void *, int *);
int MPI_Type_delete_attr(MPI_Datatype, int);
int MPI_Type_size(MPI_Datatype, int *), MPI_Type_get_name(MPI_Datatype, char *, int *), MPI_Get_count(const MPI_Status *, MPI_Datatype, int *);
int MPI_Send(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int MPI_Recv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
int MPI_Isend(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int MPI_Irecv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int MPI_Send_init(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int MPI_Recv_init(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int MPI_Sendrecv(const void *, int, MPI_Datatype, int, int, void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
int MPI_Start(MPI_Request *), MPI_Startall(int, MPI_Request *), MPI_Request_free(MPI_Request *), MPI_Cancel(MPI_Request *);
int MPI_Wait(MPI_Request *, MPI_Status *), MPI_Waitall(int, MPI_Request *, MPI_Status *);
int MPI_Waitany(int, MPI_Request *, int *, MPI_Status *), MPI_Test(MPI_Request *, int *, MPI_Status *);
int MPI_Testall(int, MPI_Request *, int *, MPI_Status *), MPI_Test_cancelled(const MPI_Status *, int *);
int MPI_Probe(int, int, MPI_Comm, MPI_Status *), MPI_Iprobe(int, int, MPI_Comm, int *, MPI_Status *);
int MPI_Barrier(MPI_Comm), MPI_Bcast(void *, int, MPI_Datatype, int, MPI_Comm);
int MPI_Reduce(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm);
int MPI_Allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
int MPI_Gather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm);
int MPI_Scatter(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm);
int MPI_Allgather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
int MPI_Alltoall(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm);
int MPI_Alltoallv(const void *, const int *, const int *, MPI_Datatype, void *, const int *, const int *, MPI_Datatype,
                  MPI_Comm);
int MPI_Dims_create(int, int, int *), MPI_Cart_create(MPI_Comm, int, const int *, const int *, int, MPI_Comm *);
int MPI_Cartdim_get(MPI_Comm, int *), MPI_Cart_get(MPI_Comm, int, int *, int *, int *), MPI_Cart_rank(MPI_Comm, const int *, int *);
int MPI_Cart_coords(MPI_Comm, int, int, int *), MPI_Cart_shift(MPI_Comm, int, int, int *, int *);
int MPI_Comm_group(MPI_Comm, MPI_Group *), MPI_Comm_create(MPI_Comm, MPI_Group, MPI_Comm *), MPI_Group_free(MPI_Group *);
int MPI_Group_incl(MPI_Group, int, const int *, MPI_Group *), MPI_Group_size(MPI_Group, int *), MPI_Group_rank(MPI_Group, int *);
int MPI_Group_translate_ranks(MPI_Group, int, const int *, MPI_Group, int *);
int MPI_Type_vector(int, int, int, MPI_Datatype, MPI_Datatype *), MPI_Type_contiguous(int, MPI_Datatype, MPI_Datatype *);
int MPI_Win_free(void *);
double MPI_Wtime(void), MPI_Wtick(void);

#define REQUIRE(condition)                                                            \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: %s is not so\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

#endif
