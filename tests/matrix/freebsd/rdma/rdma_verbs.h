// A stand-in for <rdma/rdma_verbs.h>: the same in FreeBSD and in every rdma-core, functions for synchronous ids.
#ifndef RDMAXX_MATRIX_FREEBSD_RDMA_VERBS_H
#define RDMAXX_MATRIX_FREEBSD_RDMA_VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

extern "C" {

struct ibv_mr* rdma_reg_msgs(struct rdma_cm_id*, void*, size_t);
struct ibv_mr* rdma_reg_read(struct rdma_cm_id*, void*, size_t);
struct ibv_mr* rdma_reg_write(struct rdma_cm_id*, void*, size_t);
int rdma_dereg_mr(struct ibv_mr*);
int rdma_post_recvv(struct rdma_cm_id*, void*, struct ibv_sge*, int);
int rdma_post_sendv(struct rdma_cm_id*, void*, struct ibv_sge*, int, int);
int rdma_post_recv(struct rdma_cm_id*, void*, void*, size_t, struct ibv_mr*);
int rdma_post_send(struct rdma_cm_id*, void*, void*, size_t, struct ibv_mr*, int);
int rdma_get_send_comp(struct rdma_cm_id*, struct ibv_wc*);
int rdma_get_recv_comp(struct rdma_cm_id*, struct ibv_wc*);

} // extern "C"

#endif
