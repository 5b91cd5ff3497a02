// A stand-in for FreeBSD's <infiniband/verbs.h>, which is that of rdma-core 14 with small changes: what is declared
// there, written anew and without bodies, to compile against and never to link. What differs from Linux is what it is
// for: no C++ header is included, no ibv_reg_mr macro, no extended posting, signed flags, names that came later absent.
#ifndef RDMAXX_MATRIX_FREEBSD_VERBS_H
#define RDMAXX_MATRIX_FREEBSD_VERBS_H

#include <errno.h>
#include <infiniband/types.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BEGIN_C_DECLS extern "C" {
#define END_C_DECLS }
#define container_of(pointer, type, member) ((type*)((uint8_t*)(pointer)-offsetof(type, member)))
#define vext_field_avail(type, field, size) (offsetof(type, field) < (size))

BEGIN_C_DECLS

struct ibv_ah;
struct ibv_async_event;
struct ibv_context;
struct ibv_cq;
struct ibv_cq_ex;
struct ibv_mr;
struct ibv_mw;
struct ibv_mw_bind;
struct ibv_pd;
struct ibv_qp;
struct ibv_recv_wr;
struct ibv_send_wr;
struct ibv_srq;
struct ibv_wc;
struct ibv_wq;
struct ibv_xrcd;

union ibv_gid {
    uint8_t raw[16];
    struct {
        __be64 subnet_prefix, interface_id;
    } global;
};

static void* __VERBS_ABI_IS_EXTENDED = (void*)-1;

// ---- Devices

enum ibv_node_type {
    IBV_NODE_UNKNOWN = -1, IBV_NODE_CA = 1, IBV_NODE_SWITCH, IBV_NODE_ROUTER, IBV_NODE_RNIC, IBV_NODE_USNIC,
    IBV_NODE_USNIC_UDP,
};

enum ibv_transport_type {
    IBV_TRANSPORT_UNKNOWN = -1, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP, IBV_TRANSPORT_USNIC, IBV_TRANSPORT_USNIC_UDP,
};

enum ibv_device_cap_flags {
    IBV_DEVICE_RESIZE_MAX_WR = 0x1, IBV_DEVICE_BAD_PKEY_CNTR = 0x2, IBV_DEVICE_BAD_QKEY_CNTR = 0x4,
    IBV_DEVICE_RAW_MULTI = 0x8, IBV_DEVICE_AUTO_PATH_MIG = 0x10, IBV_DEVICE_CHANGE_PHY_PORT = 0x20,
    IBV_DEVICE_UD_AV_PORT_ENFORCE = 0x40, IBV_DEVICE_CURR_QP_STATE_MOD = 0x80, IBV_DEVICE_SHUTDOWN_PORT = 0x100,
    IBV_DEVICE_INIT_TYPE = 0x200, IBV_DEVICE_PORT_ACTIVE_EVENT = 0x400, IBV_DEVICE_SYS_IMAGE_GUID = 0x800,
    IBV_DEVICE_RC_RNR_NAK_GEN = 0x1000, IBV_DEVICE_SRQ_RESIZE = 0x2000, IBV_DEVICE_N_NOTIFY_CQ = 0x4000,
    IBV_DEVICE_MEM_WINDOW = 0x20000, IBV_DEVICE_UD_IP_CSUM = 0x40000, IBV_DEVICE_XRC = 0x100000,
    IBV_DEVICE_MEM_MGT_EXTENSIONS = 0x200000, IBV_DEVICE_MEM_WINDOW_TYPE_2A = 0x800000,
    IBV_DEVICE_MEM_WINDOW_TYPE_2B = 0x1000000, IBV_DEVICE_RC_IP_CSUM = 0x2000000,
    IBV_DEVICE_RAW_IP_CSUM = 0x4000000, IBV_DEVICE_MANAGED_FLOW_STEERING = 0x20000000,
};
#define IBV_DEVICE_RAW_SCATTER_FCS (1ULL << 34)

enum ibv_atomic_cap { IBV_ATOMIC_NONE, IBV_ATOMIC_HCA, IBV_ATOMIC_GLOB };

struct ibv_device_attr {
    char fw_ver[64];
    __be64 node_guid, sys_image_guid;
    uint64_t max_mr_size, page_size_cap;
    uint32_t vendor_id, vendor_part_id, hw_ver;
    int max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom,
        max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom;
    enum ibv_atomic_cap atomic_cap;
    int max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach,
        max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge;
    uint16_t max_pkeys;
    uint8_t local_ca_ack_delay, phys_port_cnt;
};

enum ibv_odp_general_caps { IBV_ODP_SUPPORT = 1 };
enum ibv_odp_transport_cap_bits {
    IBV_ODP_SUPPORT_SEND = 1, IBV_ODP_SUPPORT_RECV = 2, IBV_ODP_SUPPORT_WRITE = 4, IBV_ODP_SUPPORT_READ = 8,
    IBV_ODP_SUPPORT_ATOMIC = 16,
};
struct ibv_odp_caps {
    uint64_t general_caps;
    struct {
        uint32_t rc_odp_caps, uc_odp_caps, ud_odp_caps;
    } per_transport_caps;
};
struct ibv_tso_caps {
    uint32_t max_tso, supported_qpts;
};
struct ibv_rss_caps {
    uint32_t supported_qpts, max_rwq_indirection_tables, max_rwq_indirection_table_size;
    uint64_t rx_hash_fields_mask;
    uint8_t rx_hash_function;
};
struct ibv_packet_pacing_caps {
    uint32_t qp_rate_limit_min, qp_rate_limit_max, supported_qpts;
};
struct ibv_query_device_ex_input {
    uint32_t comp_mask;
};
struct ibv_device_attr_ex {
    struct ibv_device_attr orig_attr;
    uint32_t comp_mask;
    struct ibv_odp_caps odp_caps;
    uint64_t completion_timestamp_mask, hca_core_clock, device_cap_flags_ex;
    struct ibv_tso_caps tso_caps;
    struct ibv_rss_caps rss_caps;
    uint32_t max_wq_type_rq;
    struct ibv_packet_pacing_caps packet_pacing_caps;
    uint32_t raw_packet_caps;
};

enum { IBV_SYSFS_NAME_MAX = 64, IBV_SYSFS_PATH_MAX = 256 };

struct ibv_device {
    void* _ops[2];
    enum ibv_node_type node_type;
    enum ibv_transport_type transport_type;
    char name[IBV_SYSFS_NAME_MAX], dev_name[IBV_SYSFS_NAME_MAX], dev_path[IBV_SYSFS_PATH_MAX],
        ibdev_path[IBV_SYSFS_PATH_MAX];
};

struct ibv_device** ibv_get_device_list(int*);
void ibv_free_device_list(struct ibv_device**);
const char* ibv_get_device_name(struct ibv_device*);
__be64 ibv_get_device_guid(struct ibv_device*);
struct ibv_context* ibv_open_device(struct ibv_device*);
int ibv_close_device(struct ibv_context*);
int ibv_query_device(struct ibv_context*, struct ibv_device_attr*);
int ibv_query_device_ex(struct ibv_context*, const struct ibv_query_device_ex_input*, struct ibv_device_attr_ex*);
const char* ibv_node_type_str(enum ibv_node_type);
int ibv_fork_init(void);

struct ibv_port_attr;

// The operations are those of the calls themselves; the inline functions of the data path go through them.
struct ibv_context_ops {
    int (*query_device)(struct ibv_context*, struct ibv_device_attr*);
    int (*query_port)(struct ibv_context*, uint8_t, struct ibv_port_attr*);
    struct ibv_mw* (*alloc_mw)(struct ibv_pd*, int);
    int (*bind_mw)(struct ibv_qp*, struct ibv_mw*, struct ibv_mw_bind*);
    int (*dealloc_mw)(struct ibv_mw*);
    int (*poll_cq)(struct ibv_cq*, int, struct ibv_wc*);
    int (*req_notify_cq)(struct ibv_cq*, int);
    int (*post_srq_recv)(struct ibv_srq*, struct ibv_recv_wr*, struct ibv_recv_wr**);
    int (*post_send)(struct ibv_qp*, struct ibv_send_wr*, struct ibv_send_wr**);
    int (*post_recv)(struct ibv_qp*, struct ibv_recv_wr*, struct ibv_recv_wr**);
};

struct ibv_context {
    struct ibv_device* device;
    struct ibv_context_ops ops;
    int cmd_fd, async_fd, num_comp_vectors;
    pthread_mutex_t mutex;
    void* abi_compat;
};

// ---- Ports

enum ibv_mtu { IBV_MTU_256 = 1, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096 };

enum ibv_port_state {
    IBV_PORT_NOP, IBV_PORT_DOWN, IBV_PORT_INIT, IBV_PORT_ARMED, IBV_PORT_ACTIVE, IBV_PORT_ACTIVE_DEFER,
};

enum { IBV_LINK_LAYER_UNSPECIFIED, IBV_LINK_LAYER_INFINIBAND, IBV_LINK_LAYER_ETHERNET };

struct ibv_port_attr {
    enum ibv_port_state state;
    enum ibv_mtu max_mtu, active_mtu;
    int gid_tbl_len;
    uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
    uint16_t pkey_tbl_len, lid, sm_lid;
    uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state,
        link_layer, reserved;
};

int ibv_query_port(struct ibv_context*, uint8_t, struct ibv_port_attr*);
int ___ibv_query_port(struct ibv_context*, uint8_t, struct ibv_port_attr*);
#define ibv_query_port(context, port, attr) ___ibv_query_port(context, port, attr)
int ibv_query_gid(struct ibv_context*, uint8_t, int, union ibv_gid*);
int ibv_query_pkey(struct ibv_context*, uint8_t, int, __be16*);
const char* ibv_port_state_str(enum ibv_port_state);

enum ibv_rate {
    IBV_RATE_MAX = 0, IBV_RATE_2_5_GBPS = 2, IBV_RATE_10_GBPS = 3, IBV_RATE_30_GBPS = 4, IBV_RATE_5_GBPS = 5,
    IBV_RATE_20_GBPS = 6, IBV_RATE_40_GBPS = 7, IBV_RATE_60_GBPS = 8, IBV_RATE_80_GBPS = 9, IBV_RATE_120_GBPS = 10,
    IBV_RATE_14_GBPS = 11, IBV_RATE_56_GBPS = 12, IBV_RATE_112_GBPS = 13, IBV_RATE_168_GBPS = 14,
    IBV_RATE_25_GBPS = 15, IBV_RATE_100_GBPS = 16, IBV_RATE_200_GBPS = 17, IBV_RATE_300_GBPS = 18,
    IBV_RATE_28_GBPS = 19, IBV_RATE_50_GBPS = 20, IBV_RATE_400_GBPS = 21, IBV_RATE_600_GBPS = 22,
    IBV_RATE_800_GBPS = 23, IBV_RATE_1200_GBPS = 24,
};
int ibv_rate_to_mult(enum ibv_rate);
int ibv_rate_to_mbps(enum ibv_rate);
enum ibv_rate mult_to_ibv_rate(int);
enum ibv_rate mbps_to_ibv_rate(int);

// ---- Asynchronous events

enum ibv_event_type {
    IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST,
    IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ACTIVE,
    IBV_EVENT_PORT_ERR, IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE, IBV_EVENT_SRQ_ERR,
    IBV_EVENT_SRQ_LIMIT_REACHED, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE,
    IBV_EVENT_WQ_FATAL,
};

struct ibv_async_event {
    union {
        struct ibv_cq* cq;
        struct ibv_qp* qp;
        struct ibv_srq* srq;
        struct ibv_wq* wq;
        int port_num;
    } element;
    enum ibv_event_type event_type;
};

int ibv_get_async_event(struct ibv_context*, struct ibv_async_event*);
void ibv_ack_async_event(struct ibv_async_event*);
const char* ibv_event_type_str(enum ibv_event_type);

// ---- Protection domains, memory

struct ibv_pd {
    struct ibv_context* context;
    uint32_t handle;
};
struct ibv_pd* ibv_alloc_pd(struct ibv_context*);
int ibv_dealloc_pd(struct ibv_pd*);

enum ibv_xrcd_init_attr_mask {
    IBV_XRCD_INIT_ATTR_FD = 1, IBV_XRCD_INIT_ATTR_OFLAGS = 2, IBV_XRCD_INIT_ATTR_RESERVED = 4,
};
struct ibv_xrcd_init_attr {
    uint32_t comp_mask;
    int fd, oflags;
};
struct ibv_xrcd {
    struct ibv_context* context;
};
struct ibv_xrcd* ibv_open_xrcd(struct ibv_context*, struct ibv_xrcd_init_attr*);
int ibv_close_xrcd(struct ibv_xrcd*);

enum ibv_access_flags {
    IBV_ACCESS_LOCAL_WRITE = 0x1, IBV_ACCESS_REMOTE_WRITE = 0x2, IBV_ACCESS_REMOTE_READ = 0x4,
    IBV_ACCESS_REMOTE_ATOMIC = 0x8, IBV_ACCESS_MW_BIND = 0x10, IBV_ACCESS_ZERO_BASED = 0x20,
    IBV_ACCESS_ON_DEMAND = 0x40,
};

struct ibv_mr {
    struct ibv_context* context;
    struct ibv_pd* pd;
    void* addr;
    size_t length;
    uint32_t handle, lkey, rkey;
};
struct ibv_mr* ibv_reg_mr(struct ibv_pd*, void*, size_t, int);
int ibv_dereg_mr(struct ibv_mr*);

enum ibv_rereg_mr_flags {
    IBV_REREG_MR_CHANGE_TRANSLATION = 1, IBV_REREG_MR_CHANGE_PD = 2, IBV_REREG_MR_CHANGE_ACCESS = 4,
    IBV_REREG_MR_KEEP_VALID = 8, IBV_REREG_MR_FLAGS_SUPPORTED = 15,
};
enum ibv_rereg_mr_err_code {
    IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW = -5, IBV_REREG_MR_ERR_CMD, IBV_REREG_MR_ERR_DO_FORK_OLD,
    IBV_REREG_MR_ERR_DONT_FORK_NEW, IBV_REREG_MR_ERR_INPUT,
};
int ibv_rereg_mr(struct ibv_mr*, int, struct ibv_pd*, void*, size_t, int);

enum ibv_mw_type { IBV_MW_TYPE_1 = 1, IBV_MW_TYPE_2 };
struct ibv_mw {
    struct ibv_context* context;
    struct ibv_pd* pd;
    uint32_t rkey, handle;
    enum ibv_mw_type type;
};
struct ibv_mw_bind_info {
    struct ibv_mr* mr;
    uint64_t addr, length;
    int mw_access_flags;
};
struct ibv_mw_bind {
    uint64_t wr_id;
    int send_flags;
    struct ibv_mw_bind_info bind_info;
};
struct ibv_mw* ibv_alloc_mw(struct ibv_pd*, enum ibv_mw_type);
int ibv_dealloc_mw(struct ibv_mw*);
int ibv_bind_mw(struct ibv_qp*, struct ibv_mw*, struct ibv_mw_bind*);
uint32_t ibv_inc_rkey(uint32_t);

// ---- Address handles, multicast

struct ibv_global_route {
    union ibv_gid dgid;
    uint32_t flow_label;
    uint8_t sgid_index, hop_limit, traffic_class;
};
struct ibv_grh {
    __be32 version_tclass_flow;
    __be16 paylen;
    uint8_t next_hdr, hop_limit;
    union ibv_gid sgid, dgid;
};
struct ibv_ah_attr {
    struct ibv_global_route grh;
    uint16_t dlid;
    uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};
struct ibv_ah {
    struct ibv_context* context;
    struct ibv_pd* pd;
    uint32_t handle;
};
struct ibv_ah* ibv_create_ah(struct ibv_pd*, struct ibv_ah_attr*);
int ibv_init_ah_from_wc(struct ibv_context*, uint8_t, struct ibv_wc*, struct ibv_grh*, struct ibv_ah_attr*);
struct ibv_ah* ibv_create_ah_from_wc(struct ibv_pd*, struct ibv_wc*, struct ibv_grh*, uint8_t);
int ibv_destroy_ah(struct ibv_ah*);
int ibv_attach_mcast(struct ibv_qp*, const union ibv_gid*, uint16_t);
int ibv_detach_mcast(struct ibv_qp*, const union ibv_gid*, uint16_t);
#define ETHERNET_LL_SIZE 6
int ibv_resolve_eth_l2_from_gid(struct ibv_context*, struct ibv_ah_attr*, uint8_t[ETHERNET_LL_SIZE], uint16_t*);

// ---- Completions

enum ibv_wc_status {
    IBV_WC_SUCCESS, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_EEC_OP_ERR, IBV_WC_LOC_PROT_ERR,
    IBV_WC_WR_FLUSH_ERR, IBV_WC_MW_BIND_ERR, IBV_WC_BAD_RESP_ERR, IBV_WC_LOC_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR,
    IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR,
    IBV_WC_LOC_RDD_VIOL_ERR, IBV_WC_REM_INV_RD_REQ_ERR, IBV_WC_REM_ABORT_ERR, IBV_WC_INV_EECN_ERR,
    IBV_WC_INV_EEC_STATE_ERR, IBV_WC_FATAL_ERR, IBV_WC_RESP_TIMEOUT_ERR, IBV_WC_GENERAL_ERR,
};
const char* ibv_wc_status_str(enum ibv_wc_status);

enum ibv_wc_opcode {
    IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_BIND_MW,
    IBV_WC_LOCAL_INV, IBV_WC_TSO, IBV_WC_RECV = 128, IBV_WC_RECV_RDMA_WITH_IMM,
};

enum { IBV_WC_IP_CSUM_OK_SHIFT = 2 };
enum ibv_wc_flags { IBV_WC_GRH = 1, IBV_WC_WITH_IMM = 2, IBV_WC_IP_CSUM_OK = 4, IBV_WC_WITH_INV = 8 };

struct ibv_wc {
    uint64_t wr_id;
    enum ibv_wc_status status;
    enum ibv_wc_opcode opcode;
    uint32_t vendor_err, byte_len;
    union {
        __be32 imm_data;
        uint32_t invalidated_rkey;
    };
    uint32_t qp_num, src_qp;
    int wc_flags;
    uint16_t pkey_index, slid;
    uint8_t sl, dlid_path_bits;
};

struct ibv_comp_channel {
    struct ibv_context* context;
    int fd, refcnt;
};
struct ibv_comp_channel* ibv_create_comp_channel(struct ibv_context*);
int ibv_destroy_comp_channel(struct ibv_comp_channel*);

struct ibv_cq {
    struct ibv_context* context;
    struct ibv_comp_channel* channel;
    void* cq_context;
    uint32_t handle;
    int cqe;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t comp_events_completed, async_events_completed;
};
struct ibv_cq* ibv_create_cq(struct ibv_context*, int, void*, struct ibv_comp_channel*, int);
int ibv_resize_cq(struct ibv_cq*, int);
int ibv_destroy_cq(struct ibv_cq*);
int ibv_get_cq_event(struct ibv_comp_channel*, struct ibv_cq**, void**);
void ibv_ack_cq_events(struct ibv_cq*, unsigned int);
static inline int ibv_poll_cq(struct ibv_cq* cq, int count, struct ibv_wc* wc) {
    return cq->context->ops.poll_cq(cq, count, wc);
}
static inline int ibv_req_notify_cq(struct ibv_cq* cq, int solicited) {
    return cq->context->ops.req_notify_cq(cq, solicited);
}

enum ibv_create_cq_wc_flags {
    IBV_WC_EX_WITH_BYTE_LEN = 0x1, IBV_WC_EX_WITH_IMM = 0x2, IBV_WC_EX_WITH_QP_NUM = 0x4, IBV_WC_EX_WITH_SRC_QP = 0x8,
    IBV_WC_EX_WITH_SLID = 0x10, IBV_WC_EX_WITH_SL = 0x20, IBV_WC_EX_WITH_DLID_PATH_BITS = 0x40,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 0x80, IBV_WC_EX_WITH_CVLAN = 0x100, IBV_WC_EX_WITH_FLOW_TAG = 0x200,
};
enum { IBV_WC_STANDARD_FLAGS = 0x7f };
enum { IBV_CREATE_CQ_SUP_WC_FLAGS = 0x3ff };
enum ibv_cq_init_attr_mask { IBV_CQ_INIT_ATTR_MASK_FLAGS = 1, IBV_CQ_INIT_ATTR_MASK_RESERVED = 2 };
enum ibv_create_cq_attr_flags { IBV_CREATE_CQ_ATTR_SINGLE_THREADED = 1, IBV_CREATE_CQ_ATTR_RESERVED = 2 };
struct ibv_cq_init_attr_ex {
    uint32_t cqe;
    void* cq_context;
    struct ibv_comp_channel* channel;
    uint32_t comp_vector;
    uint64_t wc_flags;
    uint32_t comp_mask, flags;
};
struct ibv_poll_cq_attr {
    uint32_t comp_mask;
};
struct ibv_cq_ex {
    struct ibv_context* context;
    struct ibv_comp_channel* channel;
    void* cq_context;
    uint32_t handle;
    int cqe;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t comp_events_completed, async_events_completed, comp_mask;
    enum ibv_wc_status status;
    uint64_t wr_id;
};
struct ibv_cq_ex* ibv_create_cq_ex(struct ibv_context*, struct ibv_cq_init_attr_ex*);
struct ibv_cq* ibv_cq_ex_to_cq(struct ibv_cq_ex*);
int ibv_start_poll(struct ibv_cq_ex*, struct ibv_poll_cq_attr*);
int ibv_next_poll(struct ibv_cq_ex*);
void ibv_end_poll(struct ibv_cq_ex*);
enum ibv_wc_opcode ibv_wc_read_opcode(struct ibv_cq_ex*);
uint32_t ibv_wc_read_vendor_err(struct ibv_cq_ex*);
uint32_t ibv_wc_read_byte_len(struct ibv_cq_ex*);
uint32_t ibv_wc_read_imm_data(struct ibv_cq_ex*);
uint32_t ibv_wc_read_qp_num(struct ibv_cq_ex*);
uint32_t ibv_wc_read_src_qp(struct ibv_cq_ex*);
int ibv_wc_read_wc_flags(struct ibv_cq_ex*);
uint32_t ibv_wc_read_slid(struct ibv_cq_ex*);
uint8_t ibv_wc_read_sl(struct ibv_cq_ex*);
uint8_t ibv_wc_read_dlid_path_bits(struct ibv_cq_ex*);
uint64_t ibv_wc_read_completion_ts(struct ibv_cq_ex*);
uint16_t ibv_wc_read_cvlan(struct ibv_cq_ex*);
uint32_t ibv_wc_read_flow_tag(struct ibv_cq_ex*);

enum ibv_values_mask { IBV_VALUES_MASK_RAW_CLOCK = 1, IBV_VALUES_MASK_RESERVED = 2 };
struct ibv_values_ex {
    uint32_t comp_mask;
    struct timespec raw_clock;
};
int ibv_query_rt_values_ex(struct ibv_context*, struct ibv_values_ex*);

// ---- Shared receive queues

enum ibv_srq_attr_mask { IBV_SRQ_MAX_WR = 1, IBV_SRQ_LIMIT = 2 };
struct ibv_srq_attr {
    uint32_t max_wr, max_sge, srq_limit;
};
struct ibv_srq_init_attr {
    void* srq_context;
    struct ibv_srq_attr attr;
};
enum ibv_srq_type { IBV_SRQT_BASIC, IBV_SRQT_XRC };
enum ibv_srq_init_attr_mask {
    IBV_SRQ_INIT_ATTR_TYPE = 1, IBV_SRQ_INIT_ATTR_PD = 2, IBV_SRQ_INIT_ATTR_XRCD = 4, IBV_SRQ_INIT_ATTR_CQ = 8,
    IBV_SRQ_INIT_ATTR_RESERVED = 16,
};
struct ibv_srq_init_attr_ex {
    void* srq_context;
    struct ibv_srq_attr attr;
    uint32_t comp_mask;
    enum ibv_srq_type srq_type;
    struct ibv_pd* pd;
    struct ibv_xrcd* xrcd;
    struct ibv_cq* cq;
};
struct ibv_srq {
    struct ibv_context* context;
    void* srq_context;
    struct ibv_pd* pd;
    uint32_t handle;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t events_completed;
};
struct ibv_srq* ibv_create_srq(struct ibv_pd*, struct ibv_srq_init_attr*);
struct ibv_srq* ibv_create_srq_ex(struct ibv_context*, struct ibv_srq_init_attr_ex*);
int ibv_modify_srq(struct ibv_srq*, struct ibv_srq_attr*, int);
int ibv_query_srq(struct ibv_srq*, struct ibv_srq_attr*);
int ibv_get_srq_num(struct ibv_srq*, uint32_t*);
int ibv_destroy_srq(struct ibv_srq*);
static inline int ibv_post_srq_recv(struct ibv_srq* srq, struct ibv_recv_wr* wr, struct ibv_recv_wr** bad) {
    return srq->context->ops.post_srq_recv(srq, wr, bad);
}

// ---- Work queues

enum ibv_wq_type { IBV_WQT_RQ };
enum ibv_wq_init_attr_mask { IBV_WQ_INIT_ATTR_FLAGS = 1, IBV_WQ_INIT_ATTR_RESERVED = 2 };
enum ibv_wq_flags { IBV_WQ_FLAGS_CVLAN_STRIPPING = 1, IBV_WQ_FLAGS_SCATTER_FCS = 2, IBV_WQ_FLAGS_RESERVED = 4 };
struct ibv_wq_init_attr {
    void* wq_context;
    enum ibv_wq_type wq_type;
    uint32_t max_wr, max_sge;
    struct ibv_pd* pd;
    struct ibv_cq* cq;
    uint32_t comp_mask, create_flags;
};
enum ibv_wq_state { IBV_WQS_RESET, IBV_WQS_RDY, IBV_WQS_ERR, IBV_WQS_UNKNOWN };
enum ibv_wq_attr_mask {
    IBV_WQ_ATTR_STATE = 1, IBV_WQ_ATTR_CURR_STATE = 2, IBV_WQ_ATTR_FLAGS = 4, IBV_WQ_ATTR_RESERVED = 8,
};
struct ibv_wq_attr {
    uint32_t attr_mask;
    enum ibv_wq_state wq_state, curr_wq_state;
    uint32_t flags, flags_mask;
};
struct ibv_wq {
    struct ibv_context* context;
    void* wq_context;
    struct ibv_pd* pd;
    struct ibv_cq* cq;
    uint32_t wq_num, handle;
    enum ibv_wq_state state;
    enum ibv_wq_type wq_type;
    int (*post_recv)(struct ibv_wq*, struct ibv_recv_wr*, struct ibv_recv_wr**);
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t events_completed, comp_mask;
};
struct ibv_wq* ibv_create_wq(struct ibv_context*, struct ibv_wq_init_attr*);
int ibv_modify_wq(struct ibv_wq*, struct ibv_wq_attr*);
int ibv_destroy_wq(struct ibv_wq*);
int ibv_post_wq_recv(struct ibv_wq*, struct ibv_recv_wr*, struct ibv_recv_wr**);

enum ibv_rx_hash_function_flags { IBV_RX_HASH_FUNC_TOEPLITZ = 1 };
enum ibv_rx_hash_fields {
    IBV_RX_HASH_SRC_IPV4 = 0x1, IBV_RX_HASH_DST_IPV4 = 0x2, IBV_RX_HASH_SRC_IPV6 = 0x4, IBV_RX_HASH_DST_IPV6 = 0x8,
    IBV_RX_HASH_SRC_PORT_TCP = 0x10, IBV_RX_HASH_DST_PORT_TCP = 0x20, IBV_RX_HASH_SRC_PORT_UDP = 0x40,
    IBV_RX_HASH_DST_PORT_UDP = 0x80,
};
struct ibv_rx_hash_conf {
    uint8_t rx_hash_function, rx_hash_key_len;
    uint8_t* rx_hash_key;
    uint64_t rx_hash_fields_mask;
};
struct ibv_rwq_ind_table {
    struct ibv_context* context;
    int ind_tbl_handle, ind_tbl_num;
    uint32_t comp_mask;
};
struct ibv_rwq_ind_table_init_attr {
    uint32_t log_ind_tbl_size;
    struct ibv_wq** ind_tbl;
    uint32_t comp_mask;
};
struct ibv_rwq_ind_table* ibv_create_rwq_ind_table(struct ibv_context*, struct ibv_rwq_ind_table_init_attr*);
int ibv_destroy_rwq_ind_table(struct ibv_rwq_ind_table*);

// ---- Queue pairs

enum ibv_qp_type {
    IBV_QPT_RC = 2, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET = 8, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV,
};
struct ibv_qp_cap {
    uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};
struct ibv_qp_init_attr {
    void* qp_context;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_srq* srq;
    struct ibv_qp_cap cap;
    enum ibv_qp_type qp_type;
    int sq_sig_all;
};
enum ibv_qp_init_attr_mask {
    IBV_QP_INIT_ATTR_PD = 1, IBV_QP_INIT_ATTR_XRCD = 2, IBV_QP_INIT_ATTR_CREATE_FLAGS = 4,
    IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 8, IBV_QP_INIT_ATTR_IND_TABLE = 16, IBV_QP_INIT_ATTR_RX_HASH = 32,
    IBV_QP_INIT_ATTR_RESERVED = 64,
};
enum ibv_qp_create_flags {
    IBV_QP_CREATE_BLOCK_SELF_MCAST_LB = 0x2, IBV_QP_CREATE_SCATTER_FCS = 0x100, IBV_QP_CREATE_CVLAN_STRIPPING = 0x200,
};
struct ibv_qp_init_attr_ex {
    void* qp_context;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_srq* srq;
    struct ibv_qp_cap cap;
    enum ibv_qp_type qp_type;
    int sq_sig_all;
    uint32_t comp_mask;
    struct ibv_pd* pd;
    struct ibv_xrcd* xrcd;
    uint32_t create_flags;
    uint16_t max_tso_header;
    struct ibv_rwq_ind_table* rwq_ind_tbl;
    struct ibv_rx_hash_conf rx_hash_conf;
};
enum ibv_qp_open_attr_mask {
    IBV_QP_OPEN_ATTR_NUM = 1, IBV_QP_OPEN_ATTR_XRCD = 2, IBV_QP_OPEN_ATTR_CONTEXT = 4, IBV_QP_OPEN_ATTR_TYPE = 8,
    IBV_QP_OPEN_ATTR_RESERVED = 16,
};
struct ibv_qp_open_attr {
    uint32_t comp_mask, qp_num;
    struct ibv_xrcd* xrcd;
    void* qp_context;
    enum ibv_qp_type qp_type;
};
enum ibv_qp_attr_mask {
    IBV_QP_STATE = 0x1, IBV_QP_CUR_STATE = 0x2, IBV_QP_EN_SQD_ASYNC_NOTIFY = 0x4, IBV_QP_ACCESS_FLAGS = 0x8,
    IBV_QP_PKEY_INDEX = 0x10, IBV_QP_PORT = 0x20, IBV_QP_QKEY = 0x40, IBV_QP_AV = 0x80, IBV_QP_PATH_MTU = 0x100,
    IBV_QP_TIMEOUT = 0x200, IBV_QP_RETRY_CNT = 0x400, IBV_QP_RNR_RETRY = 0x800, IBV_QP_RQ_PSN = 0x1000,
    IBV_QP_MAX_QP_RD_ATOMIC = 0x2000, IBV_QP_ALT_PATH = 0x4000, IBV_QP_MIN_RNR_TIMER = 0x8000,
    IBV_QP_SQ_PSN = 0x10000, IBV_QP_MAX_DEST_RD_ATOMIC = 0x20000, IBV_QP_PATH_MIG_STATE = 0x40000,
    IBV_QP_CAP = 0x80000, IBV_QP_DEST_QPN = 0x100000, IBV_QP_RATE_LIMIT = 0x2000000,
};
enum ibv_qp_state {
    IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR, IBV_QPS_UNKNOWN,
};
enum ibv_mig_state { IBV_MIG_MIGRATED, IBV_MIG_REARM, IBV_MIG_ARMED };
struct ibv_qp_attr {
    enum ibv_qp_state qp_state, cur_qp_state;
    enum ibv_mtu path_mtu;
    enum ibv_mig_state path_mig_state;
    uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
    int qp_access_flags;
    struct ibv_qp_cap cap;
    struct ibv_ah_attr ah_attr, alt_ah_attr;
    uint16_t pkey_index, alt_pkey_index;
    uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout,
        retry_cnt, rnr_retry, alt_port_num, alt_timeout;
    uint32_t rate_limit;
};
struct ibv_qp {
    struct ibv_context* context;
    void* qp_context;
    struct ibv_pd* pd;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_srq* srq;
    uint32_t handle, qp_num;
    enum ibv_qp_state state;
    enum ibv_qp_type qp_type;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t events_completed;
};
struct ibv_qp* ibv_create_qp(struct ibv_pd*, struct ibv_qp_init_attr*);
struct ibv_qp* ibv_create_qp_ex(struct ibv_context*, struct ibv_qp_init_attr_ex*);
struct ibv_qp* ibv_open_qp(struct ibv_context*, struct ibv_qp_open_attr*);
int ibv_modify_qp(struct ibv_qp*, struct ibv_qp_attr*, int);
int ibv_query_qp(struct ibv_qp*, struct ibv_qp_attr*, int, struct ibv_qp_init_attr*);
int ibv_destroy_qp(struct ibv_qp*);
int ibv_is_qpt_supported(uint32_t, enum ibv_qp_type);

// ---- Work requests

enum ibv_wr_opcode {
    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_READ,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, IBV_WR_SEND_WITH_INV,
    IBV_WR_TSO,
};
enum ibv_send_flags {
    IBV_SEND_FENCE = 1, IBV_SEND_SIGNALED = 2, IBV_SEND_SOLICITED = 4, IBV_SEND_INLINE = 8, IBV_SEND_IP_CSUM = 16,
};
struct ibv_sge {
    uint64_t addr;
    uint32_t length, lkey;
};
struct ibv_recv_wr {
    uint64_t wr_id;
    struct ibv_recv_wr* next;
    struct ibv_sge* sg_list;
    int num_sge;
};
struct ibv_send_wr {
    uint64_t wr_id;
    struct ibv_send_wr* next;
    struct ibv_sge* sg_list;
    int num_sge;
    enum ibv_wr_opcode opcode;
    int send_flags;
    union {
        __be32 imm_data;
        u32 invalidate_rkey;
    };
    union {
        struct {
            uint64_t remote_addr;
            uint32_t rkey;
        } rdma;
        struct {
            uint64_t remote_addr, compare_add, swap;
            uint32_t rkey;
        } atomic;
        struct {
            struct ibv_ah* ah;
            uint32_t remote_qpn, remote_qkey;
        } ud;
    } wr;
    union {
        struct {
            uint32_t remote_srqn;
        } xrc;
    } qp_type;
    union {
        struct {
            struct ibv_mw* mw;
            uint32_t rkey;
            struct ibv_mw_bind_info bind_info;
        } bind_mw;
        struct {
            void* hdr;
            uint16_t hdr_sz, mss;
        } tso;
    };
};
static inline int ibv_post_send(struct ibv_qp* qp, struct ibv_send_wr* wr, struct ibv_send_wr** bad) {
    return qp->context->ops.post_send(qp, wr, bad);
}
static inline int ibv_post_recv(struct ibv_qp* qp, struct ibv_recv_wr* wr, struct ibv_recv_wr** bad) {
    return qp->context->ops.post_recv(qp, wr, bad);
}

// ---- Flow steering

enum ibv_flow_flags { IBV_FLOW_ATTR_FLAGS_ALLOW_LOOP_BACK = 1, IBV_FLOW_ATTR_FLAGS_DONT_TRAP = 2 };
enum ibv_flow_attr_type {
    IBV_FLOW_ATTR_NORMAL, IBV_FLOW_ATTR_ALL_DEFAULT, IBV_FLOW_ATTR_MC_DEFAULT, IBV_FLOW_ATTR_SNIFFER,
};
struct ibv_flow_attr {
    uint32_t comp_mask;
    enum ibv_flow_attr_type type;
    uint16_t size, priority;
    uint8_t num_of_specs, port;
    uint32_t flags;
};
struct ibv_flow {
    uint32_t comp_mask;
    struct ibv_context* context;
    uint32_t handle;
};
struct ibv_flow* ibv_create_flow(struct ibv_qp*, struct ibv_flow_attr*);
int ibv_destroy_flow(struct ibv_flow*);

END_C_DECLS

#endif
