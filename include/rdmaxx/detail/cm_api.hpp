// The C header of librdmacm, and the levels of its interface: FreeBSD (rdma-core 14), 33 to 59, 60 and later.
#ifndef RDMAXX_DETAIL_CM_API_HPP
#define RDMAXX_DETAIL_CM_API_HPP

#include <rdmaxx/detail/verbs_api.hpp>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h> // rdma_create_srq

// rdma_establish, rdma_init_qp_attr, rdma_join_multicast_ex, the ECE calls: all of Linux, none of FreeBSD.
#define RDMAXX_HAS_ESTABLISH RDMAXX_HAS_LINUX_VERBS

// rdma_resolve_addrinfo, rdma_query_addrinfo, rdma_write_cm_event and their events: rdma-core 60.
#if defined(RAI_DNS)
#    define RDMAXX_HAS_RESOLVE_ADDRINFO 1
#else
#    define RDMAXX_HAS_RESOLVE_ADDRINFO 0
#endif

#endif
