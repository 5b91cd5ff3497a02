// The C headers of libibverbs, included in the one order that works everywhere, and what their versions differ in.
#ifndef RDMAXX_DETAIL_VERBS_API_HPP
#define RDMAXX_DETAIL_VERBS_API_HPP

#include <rdmaxx/detail/config.hpp>

#include <cstddef>
#include <cstdint>

// FreeBSD: if_ether.h uses types of these two and does not include them.
#include <netinet/in.h>
#include <sys/types.h>

// musl: verbs.h of rdma-core 52 and later takes struct ethhdr from the kernel, after which the C library's own header
// no longer compiles; the other way round it does.
#include <netinet/if_ether.h>

#include <infiniband/verbs.h>

// verbs.h has no version macro. What it has under which name since when:
//   ibv_reg_mr is a macro     rdma-core 28 and later, which is every supported Linux, and not FreeBSD
//   IBV_DEVICE_CC_DMA_BOUNCE  rdma-core 64
// Everything else is asked of the compiler where it is used (a requires-expression on a dependent type).
#if defined(ibv_reg_mr)
#    define RDMAXX_HAS_LINUX_VERBS 1
#else
#    define RDMAXX_HAS_LINUX_VERBS 0
#endif

#if defined(RDMA_STATIC_PROVIDERS)
// rdma-core's macro for a static link acts where ibv_get_device_list is called: here also in a program that never does.
[[gnu::used]] static ibv_device** (*const rdmaxx_link_static_providers)(int*) = &::__ibv_get_device_list;
#endif

#endif
