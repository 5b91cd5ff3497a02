// The C headers of libibverbs, included in the one order that works everywhere, and what their versions differ in.
#ifndef RDMAXX_DETAIL_VERBS_API_HPP
#define RDMAXX_DETAIL_VERBS_API_HPP

#include <rdmaxx/detail/config.hpp>

#include <cerrno>
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
// Everything else is asked of the compiler (a requires-expression on a dependent type).
#if defined(ibv_reg_mr)
#    define RDMAXX_HAS_LINUX_VERBS 1
#else
#    define RDMAXX_HAS_LINUX_VERBS 0
#endif

// Types that older headers lack: declared, and completed by those that have them.
struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_comp_cntr_init_attr;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;

namespace rdmaxx::inline v0::detail {

// A function is found by its arguments' types, which are of the global namespace; here, where no member hides it.
template <class Context>
concept has_query_port_speed = requires(Context* context, std::uint64_t* speed) {
    ibv_query_port_speed(context, 1U, speed);
};
template <class Dmah>
concept has_dmah = requires(Dmah* dmah) {
    ibv_dealloc_dmah(dmah);
};
template <class Pd>
concept has_reg_mr_ex = requires(Pd* pd, ibv_mr_init_attr* attr) {
    ibv_reg_mr_ex(pd, attr);
};
template <class Dm>
concept has_dm_dmabuf = requires(Dm* dm) {
    ibv_dm_export_dmabuf_fd(dm);
};
template <class Buf>
concept has_buf = requires(Buf* buf) {
    ibv_free_buf(buf);
};
template <class Buf>
concept has_buf_dmabuf = requires(Buf* buf) {
    ibv_export_buf_dmabuf_fd(buf);
};
template <class Counter>
concept has_comp_cntr = requires(Counter* counter) {
    ibv_destroy_comp_cntr(counter);
};

#if RDMAXX_HAS_LINUX_VERBS
// What rdma-core 33 lacks, which is older than what is supported: the headers compile there all the same.
template <class Dm>
concept has_dm_import = requires(Dm* dm) {
    ibv_unimport_dm(dm);
};
template <class Pd>
concept has_dmabuf_mr = requires(Pd* pd) {
    ibv_reg_dmabuf_mr(pd, 0U, 0U, 0U, 0, 0);
};

template <class Dm>
void unimport_dm(Dm* dm) noexcept {
    if constexpr (has_dm_import<Dm>)
        ibv_unimport_dm(dm);
}
template <class Context>
[[nodiscard]] ibv_dm* import_dm(Context* device, std::uint32_t handle) noexcept {
    if constexpr (has_dm_import<ibv_dm>)
        return ibv_import_dm(device, handle);
    errno = EOPNOTSUPP;
    return nullptr;
}
template <class Pd>
[[nodiscard]] ibv_mr* reg_dmabuf_mr(Pd* domain, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                                    int flags) noexcept {
    if constexpr (has_dmabuf_mr<Pd>)
        return ibv_reg_dmabuf_mr(domain, offset, length, iova, fd, flags);
    errno = EOPNOTSUPP;
    return nullptr;
}
extern "C" int is_fork_initialized() noexcept __asm__("ibv_is_fork_initialized");
#endif

} // namespace rdmaxx::inline v0::detail

// Constant expressions, for static_assert and if constexpr; not for #if.
#define RDMAXX_HAS_QUERY_PORT_SPEED (::rdmaxx::detail::has_query_port_speed<ibv_context>) // rdma-core 62
#define RDMAXX_HAS_DMAH (::rdmaxx::detail::has_dmah<ibv_dmah>)                            // rdma-core 59
#define RDMAXX_HAS_REG_MR_EX (::rdmaxx::detail::has_reg_mr_ex<ibv_pd>)                    // rdma-core 59
#define RDMAXX_HAS_DM_DMABUF (::rdmaxx::detail::has_dm_dmabuf<ibv_dm>)                    // rdma-core 62
#define RDMAXX_HAS_BUF (::rdmaxx::detail::has_buf<ibv_buf>)                               // rdma-core 64
#define RDMAXX_HAS_BUF_DMABUF (::rdmaxx::detail::has_buf_dmabuf<ibv_buf>)                 // rdma-core 65
#define RDMAXX_HAS_COMP_CNTR (::rdmaxx::detail::has_comp_cntr<ibv_comp_cntr>)             // rdma-core 65

#if defined(RDMA_STATIC_PROVIDERS)
// rdma-core's macro for a static link acts where ibv_get_device_list is called: here also in a program that never does.
[[gnu::used]] static ibv_device** (*const rdmaxx_link_static_providers)(int*) = &::__ibv_get_device_list;
#endif

#endif
