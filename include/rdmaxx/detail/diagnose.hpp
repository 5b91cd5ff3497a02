// diagnose(): what is likely wrong on this machine. Included by error.hpp.
#ifndef RDMAXX_DETAIL_DIAGNOSE_HPP
#define RDMAXX_DETAIL_DIAGNOSE_HPP

#include <rdmaxx/detail/config.hpp>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

namespace rdmaxx::inline v0::detail {

/// RLIMIT_MEMLOCK of this process: `64 KiB`, or `unlimited`.
[[nodiscard]] RDMAXX_COLD inline std::string memlock_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return "unknown";
    if (limit.rlim_cur == RLIM_INFINITY)
        return "unlimited";
    return std::to_string(static_cast<std::uint64_t>(limit.rlim_cur) / 1024) + " KiB";
}

/// Collects sentences; each answers one question about this machine.
class diagnosis {
public:
    RDMAXX_COLD void add(const std::string& sentence) {
        text_.append(text_.empty() || sentence.empty() ? "" : "\n").append(sentence);
    }
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

    /// Entries of a folder that start with `prefix`: -1 where there is no such folder.
    [[nodiscard]] RDMAXX_COLD static int entries(const char* folder, const char* prefix) noexcept {
        DIR* handle = ::opendir(folder);
        if (handle == nullptr)
            return -1;
        int count = 0;
        while (const dirent* entry = ::readdir(handle)) // NOLINT(concurrency-mt-unsafe): one stream, one thread
            if (entry->d_name[0] != '.' && std::strncmp(entry->d_name, prefix, std::strlen(prefix)) == 0)
                ++count;
        ::closedir(handle);
        return count;
    }

    RDMAXX_COLD void devices() {
        const int count = entries("/sys/class/infiniband", "");
        if (count < 0)
            add("The kernel has no RDMA support loaded (/sys/class/infiniband is missing): load the driver "
                "of the "
                "device, or rdma_rxe for Soft-RoCE.");
        else if (count == 0)
            add("This machine has no RDMA device (/sys/class/infiniband is empty): load the driver of the "
                "device, or "
                "add a software one: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE.");
        else
            node("/dev/infiniband/rdma_cm", "modprobe rdma_ucm");
        if (count > 0 && entries("/dev/infiniband", "uverbs") <= 0)
            add("There is an RDMA device, but no /dev/infiniband/uverbsN: modprobe ib_uverbs; in a "
                "container, pass "
                "/dev/infiniband in.");
        if (count > 0 && entries("/sys/class/infiniband_verbs", "uverbs") > 0)
            add("If `ibv_devices` lists nothing all the same, the user space driver of the device is not "
                "installed "
                "(ibverbs-providers, libibverbs-utils).");
    }

    RDMAXX_COLD void node(const char* path, const char* cure) {
        if (::access(path, F_OK) != 0)
            add(std::string(path) + " is missing: " + cure + "; in a container, pass /dev/infiniband in.");
        else if (::access(path, R_OK | W_OK) != 0)
            add(std::string("This user may not open ") + path +
                ": its mode or group, or the container's device rules.");
    }

    RDMAXX_COLD void locked_memory() {
        const std::string now = memlock_limit();
        add("Registered memory and queues are locked in RAM. RLIMIT_MEMLOCK (ulimit -l) is " + now +
            (now != "unlimited" ? ": raise it in limits.conf or the service's LimitMEMLOCK, or give the "
                                  "program CAP_IPC_LOCK."
                                : ", so it is not the reason, unless a cgroup has its own limit."));
    }

    RDMAXX_COLD void open_files() {
        rlimit limit{};
        if (::getrlimit(RLIMIT_NOFILE, &limit) == 0)
            add("Too many open files: each channel and each context is one or two. RLIMIT_NOFILE (ulimit -n) "
                "is " +
                std::to_string(static_cast<std::uint64_t>(limit.rlim_cur)) + ".");
    }

private:
    std::string text_;
};

[[nodiscard]] inline bool is_call(const char* call, const char* prefix) noexcept {
    return std::strncmp(call, prefix, std::strlen(prefix)) == 0;
}

/// What a C call says with EINVAL, where its man page does not tell; empty where nothing is known.
[[nodiscard]] RDMAXX_COLD inline const char* invalid_argument(const char* call) noexcept {
    if (is_call(call, "ibv_create_qp") || is_call(call, "rdma_create_qp"))
        return "More work requests, SGEs or inline data than the device has (query_device: max_qp_wr, max_sge; the "
               "inline limit is found by trying), or a PD or CQ of another device.";
    if (is_call(call, "ibv_create_cq"))
        return "A CQ takes from 1 to max_cqe completions (query_device), and a completion vector below the context's "
               "num_comp_vectors.";
    if (is_call(call, "ibv_create_srq") || is_call(call, "rdma_create_srq"))
        return "More receives or SGEs than the device has (query_device: max_srq_wr, max_srq_sge), or none.";
    if (is_call(call, "ibv_modify_qp"))
        return "No such transition from the queue pair's state, or an attribute that it needs was not set, or one that "
               "it does not take was (ibv_modify_qp(3) has the table); else a value is wrong: a port, a GID or P_Key "
               "index, an access flag, a depth.";
    if (is_call(call, "ibv_post_send"))
        return "More SGEs or inline data than were granted, an operation that the queue pair does not have, an atomic "
               "whose result is not 8 bytes or whose bytes at the peer are not aligned to 8, or the queue pair is not "
               "in a state that takes sends: that is after established.";
    if (is_call(call, "ibv_post_recv"))
        return "More SGEs than were granted, or the queue pair receives from a shared queue (post to that one), or is "
               "not in a state that takes requests.";
    if (is_call(call, "ibv_post"))
        return "More SGEs than were granted, or an operation that the queue does not have.";
    if (is_call(call, "ibv_bind_mw"))
        return "It binds a window of type 1 (send_wr::bind_mw binds one of type 2), of the queue pair's PD, to a "
               "region "
               "with access::mw_bind, for no more access than the region has.";
    if (is_call(call, "ibv_reg_mr"))
        return "An empty range, or access that the device does not have.";
    if (is_call(call, "ibv_dereg_mr"))
        return "A memory window may still be bound to the region: it is invalidated, bound elsewhere or ended first.";
    if (is_call(call, "rdma_bind_addr") || is_call(call, "rdma_resolve"))
        return "Each step of an id is taken once, in its order: bind_addr, resolve_addr, resolve_route.";
    if (is_call(call, "rdma_connect"))
        return "No route yet (route_resolved comes first), or more responder_resources or initiator_depth than the "
               "device has.";
    return "";
}

[[nodiscard]] RDMAXX_COLD inline const char* not_supported(const char* call) noexcept {
    if (is_call(call, "ibv_create_cq_ex"))
        return "The device lacks one of the wc_fields that were asked for, or a flag of the attributes.";
    return "The device, its driver or the kernel does not have this (query_device_ex says what there is).";
}

[[nodiscard]] RDMAXX_COLD inline std::string diagnose_errno(int value, const char* call) {
    diagnosis d;
    const bool address = is_call(call, "rdma_resolve") || is_call(call, "rdma_bind") || is_call(call, "rdma_get_cm");
    switch (value) {
    case ENODEV:
        if (address && diagnosis::entries("/sys/class/infiniband", "") > 0)
            d.add("No RDMA device belongs to the interface that this address leads through (127.0.0.1 has "
                  "none). In a "
                  "container the RDMA device and the interface must be in the same network namespace (rdma "
                  "system).");
        else
            d.devices();
        break;
    case ENOENT:
    case ENOSYS:
    case EPERM: d.devices(); break;
    case EACCES:
        d.devices();
        d.add("A process that changed its user or group after opening a channel may no longer use it.");
        break;
    case EMFILE:
    case ENFILE: d.open_files(); break;
    case ENOMEM:
        if (is_call(call, "ibv_post_send") || is_call(call, "ibv_bind"))
            d.add("The queue is full: poll the CQ for a signaled request that has completed, and post again.");
        else if (is_call(call, "ibv_post"))
            d.add("The queue is full: it has as many requests as it was made for, and each that completes makes room.");
        else
            d.locked_memory();
        break;
    case EINVAL: d.add(invalid_argument(call)); break;
    case EOPNOTSUPP: d.add(not_supported(call)); break;
    case EFAULT:
        if (is_call(call, "ibv_reg_mr"))
            d.add("The memory is not mapped, or not writable although local_write was asked for.");
        break;
    case EPROTO:
        if (is_call(call, "rdma_get_cm_event"))
            d.add(
                "expect() and resolve() are for a channel of one flow: where several ids have their events, or others "
                "than the expected may come, get them as they come.");
        break;
    case EADDRNOTAVAIL: d.add("The address is not one of this machine's."); break;
    case EADDRINUSE: d.add("Another id, of this or another process, has the port."); break;
    case ENETUNREACH:
    case EHOSTUNREACH: d.add("This machine has no route to the address."); break;
    case ETIMEDOUT:
        d.add("The peer did not answer in time: it is down, or something on the path drops the packets (RoCE "
              "is UDP port "
              "4791), or the time was too short.");
        break;
    case EBUSY:
        d.add("Something that was made from the object, and that rdmaxx does not know of, still uses it.");
        break;
    default: break;
    }
    return d.text();
}

/// enum ibv_wc_status by number: this header does without verbs.h.
[[nodiscard]] RDMAXX_COLD inline std::string diagnose_wc(int status) {
    switch (status) {
    case 1: // loc_len_err
        return "Post receives as long as the longest message (of a datagram, 40 bytes longer: the routing header comes "
               "first).";
    case 2: // loc_qp_op_err
        return "The queue pair does not take the request. On Soft-RoCE a receive ends so when it is shorter than its "
               "message, or its SGEs name memory that is gone, of another PD, or without local_write.";
    case 4: // loc_prot_err
        return "Look at the SGEs: each lies inside its region, with the lkey of that, in the queue pair's PD; what is "
               "received or read into needs local_write; and the region must stay until the completion.";
    case 5: // wr_flush_err
        return "Not the reason: that is in the first completion of the queue pair that failed otherwise, or the peer "
               "or this program has disconnected.";
    case 6: // mw_bind_err
        return "The region needs access::mw_bind, and the window no more access than the region has.";
    case 9: // rem_inv_req_err
        return "The peer's receive may be shorter than the message, or its queue pair does not take the operation "
               "(access_flags, max_dest_rd_atomic).";
    case 8:  // loc_access_err
    case 10: // rem_access_err
        return "Registration and queue pair need remote_read, remote_write or remote_atomic, as the operation is; the "
               "rkey must be of a region that still exists, or of a window that is still bound, and the range inside "
               "it.";
    case 11: // rem_op_err
        return "The peer's queue pair failed: its completions and asynchronous events say why.";
    case 12: // retry_exc_err
        return "The peer's process or machine is gone, or something on the path drops the packets (RoCE is UDP port "
               "4791), or timeout and retry_cnt are too small for a loaded peer.";
    case 13: // rnr_retry_exc_err
        return "Post receives before the peer may send, and again as they are used up; with rnr_retry 7 the sender "
               "waits for one without end.";
    default: return {};
    }
}

} // namespace rdmaxx::inline v0::detail

#endif
