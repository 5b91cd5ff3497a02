// A stand-in for <rdma/rsocket.h>: FreeBSD installs the header, but builds no such functions.
#ifndef RDMAXX_MATRIX_FREEBSD_RSOCKET_H
#define RDMAXX_MATRIX_FREEBSD_RSOCKET_H

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>

extern "C" {

int rsocket(int, int, int);
int rbind(int, const struct sockaddr*, socklen_t);
int rlisten(int, int);
int raccept(int, struct sockaddr*, socklen_t*);
int rconnect(int, const struct sockaddr*, socklen_t);
int rshutdown(int, int);
int rclose(int);
ssize_t rrecv(int, void*, size_t, int);
ssize_t rrecvfrom(int, void*, size_t, int, struct sockaddr*, socklen_t*);
ssize_t rrecvmsg(int, struct msghdr*, int);
ssize_t rsend(int, const void*, size_t, int);
ssize_t rsendto(int, const void*, size_t, int, const struct sockaddr*, socklen_t);
ssize_t rsendmsg(int, const struct msghdr*, int);
ssize_t rread(int, void*, size_t);
ssize_t rreadv(int, const struct iovec*, int);
ssize_t rwrite(int, const void*, size_t);
ssize_t rwritev(int, const struct iovec*, int);
int rpoll(struct pollfd*, nfds_t, int);
int rselect(int, fd_set*, fd_set*, fd_set*, struct timeval*);
int rgetpeername(int, struct sockaddr*, socklen_t*);
int rgetsockname(int, struct sockaddr*, socklen_t*);
#define SOL_RDMA 0x10000
enum { RDMA_SQSIZE, RDMA_RQSIZE, RDMA_INLINE, RDMA_IOMAPSIZE, RDMA_ROUTE };
int rsetsockopt(int, int, int, const void*, socklen_t);
int rgetsockopt(int, int, int, void*, socklen_t*);
int rfcntl(int, int, ... /* arg */);
off_t riomap(int, void*, size_t, int, int, off_t);
int riounmap(int, void*, size_t);
size_t riowrite(int, const void*, size_t, off_t, int);

} // extern "C"

#endif
