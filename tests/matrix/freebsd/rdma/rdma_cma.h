// A stand-in for FreeBSD's <rdma/rdma_cma.h>, which is that of rdma-core 14: what is declared there, written anew, to
// compile against and never to link. Without rdma_establish, rdma_init_qp_attr, rdma_join_multicast_ex, the ECE calls,
// the addrinfo calls and their events.
#ifndef RDMAXX_MATRIX_FREEBSD_RDMA_CMA_H
#define RDMAXX_MATRIX_FREEBSD_RDMA_CMA_H

#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/socket.h>

extern "C" {

enum rdma_cm_event_type {
    RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR,
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_CONNECT_ERROR,
    RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_EVENT_MULTICAST_ERROR,
    RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_TIMEWAIT_EXIT,
};

enum rdma_port_space { RDMA_PS_IPOIB = 0x2, RDMA_PS_TCP = 0x106, RDMA_PS_UDP = 0x111, RDMA_PS_IB = 0x13f };

#define RDMA_IB_IP_PS_MASK 0xffffffffffff0000ULL
#define RDMA_IB_IP_PORT_MASK 0xffffULL
#define RDMA_IB_IP_PS_TCP 0x1060000ULL
#define RDMA_IB_IP_PS_UDP 0x1110000ULL
#define RDMA_IB_PS_IB 0x13f0000ULL
#define RDMA_UDP_QKEY 0x01234567

enum { RDMA_MAX_RESP_RES = 0xff, RDMA_MAX_INIT_DEPTH = 0xff };

struct rdma_ib_addr {
    union ibv_gid sgid, dgid;
    __be16 pkey;
};

struct rdma_addr {
    union {
        struct sockaddr src_addr;
        struct sockaddr_in src_sin;
        struct sockaddr_in6 src_sin6;
        struct sockaddr_storage src_storage;
    };
    union {
        struct sockaddr dst_addr;
        struct sockaddr_in dst_sin;
        struct sockaddr_in6 dst_sin6;
        struct sockaddr_storage dst_storage;
    };
    union {
        struct rdma_ib_addr ibaddr;
    } addr;
};

struct rdma_route {
    struct rdma_addr addr;
    struct ibv_sa_path_rec* path_rec;
    int num_paths;
};

struct rdma_event_channel {
    int fd;
};

struct rdma_cm_event;

struct rdma_cm_id {
    struct ibv_context* verbs;
    struct rdma_event_channel* channel;
    void* context;
    struct ibv_qp* qp;
    struct rdma_route route;
    enum rdma_port_space ps;
    uint8_t port_num;
    struct rdma_cm_event* event;
    struct ibv_comp_channel* send_cq_channel;
    struct ibv_cq* send_cq;
    struct ibv_comp_channel* recv_cq_channel;
    struct ibv_cq* recv_cq;
    struct ibv_srq* srq;
    struct ibv_pd* pd;
    enum ibv_qp_type qp_type;
};

struct rdma_conn_param {
    const void* private_data;
    uint8_t private_data_len, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
    uint32_t qp_num;
};

struct rdma_ud_param {
    const void* private_data;
    uint8_t private_data_len;
    struct ibv_ah_attr ah_attr;
    uint32_t qp_num, qkey;
};

struct rdma_cm_event {
    struct rdma_cm_id *id, *listen_id;
    enum rdma_cm_event_type event;
    int status;
    union {
        struct rdma_conn_param conn;
        struct rdma_ud_param ud;
    } param;
};

#define RAI_PASSIVE 0x1
#define RAI_NUMERICHOST 0x2
#define RAI_NOROUTE 0x4
#define RAI_FAMILY 0x8

struct rdma_addrinfo {
    int ai_flags, ai_family, ai_qp_type, ai_port_space;
    socklen_t ai_src_len, ai_dst_len;
    struct sockaddr *ai_src_addr, *ai_dst_addr;
    char *ai_src_canonname, *ai_dst_canonname;
    size_t ai_route_len;
    void* ai_route;
    size_t ai_connect_len;
    void* ai_connect;
    struct rdma_addrinfo* ai_next;
};

// Options: levels, then names.
enum { RDMA_OPTION_ID, RDMA_OPTION_IB };
enum { RDMA_OPTION_ID_TOS, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_AFONLY };
enum { RDMA_OPTION_IB_PATH = 1 };

struct rdma_event_channel* rdma_create_event_channel(void);
void rdma_destroy_event_channel(struct rdma_event_channel*);
int rdma_create_id(struct rdma_event_channel*, struct rdma_cm_id**, void*, enum rdma_port_space);
int rdma_create_ep(struct rdma_cm_id**, struct rdma_addrinfo*, struct ibv_pd*, struct ibv_qp_init_attr*);
void rdma_destroy_ep(struct rdma_cm_id*);
int rdma_destroy_id(struct rdma_cm_id*);
int rdma_bind_addr(struct rdma_cm_id*, struct sockaddr*);
int rdma_resolve_addr(struct rdma_cm_id*, struct sockaddr*, struct sockaddr*, int);
int rdma_resolve_route(struct rdma_cm_id*, int);
int rdma_create_qp(struct rdma_cm_id*, struct ibv_pd*, struct ibv_qp_init_attr*);
int rdma_create_qp_ex(struct rdma_cm_id*, struct ibv_qp_init_attr_ex*);
void rdma_destroy_qp(struct rdma_cm_id*);
int rdma_connect(struct rdma_cm_id*, struct rdma_conn_param*);
int rdma_listen(struct rdma_cm_id*, int);
int rdma_get_request(struct rdma_cm_id*, struct rdma_cm_id**);
int rdma_accept(struct rdma_cm_id*, struct rdma_conn_param*);
int rdma_reject(struct rdma_cm_id*, const void*, uint8_t);
int rdma_notify(struct rdma_cm_id*, enum ibv_event_type);
int rdma_disconnect(struct rdma_cm_id*);
int rdma_join_multicast(struct rdma_cm_id*, struct sockaddr*, void*);
int rdma_leave_multicast(struct rdma_cm_id*, struct sockaddr*);
int rdma_get_cm_event(struct rdma_event_channel*, struct rdma_cm_event**);
int rdma_ack_cm_event(struct rdma_cm_event*);
__be16 rdma_get_src_port(struct rdma_cm_id*);
__be16 rdma_get_dst_port(struct rdma_cm_id*);
static inline struct sockaddr* rdma_get_local_addr(struct rdma_cm_id* id) { return &id->route.addr.src_addr; }
static inline struct sockaddr* rdma_get_peer_addr(struct rdma_cm_id* id) { return &id->route.addr.dst_addr; }
struct ibv_context** rdma_get_devices(int*);
void rdma_free_devices(struct ibv_context**);
const char* rdma_event_str(enum rdma_cm_event_type);
int rdma_set_option(struct rdma_cm_id*, int, int, void*, size_t);
int rdma_migrate_id(struct rdma_cm_id*, struct rdma_event_channel*);
int rdma_getaddrinfo(const char*, const char*, const struct rdma_addrinfo*, struct rdma_addrinfo**);
void rdma_freeaddrinfo(struct rdma_addrinfo*);
int rdma_create_srq(struct rdma_cm_id*, struct ibv_pd*, struct ibv_srq_init_attr*);
int rdma_create_srq_ex(struct rdma_cm_id*, struct ibv_srq_init_attr_ex*);
void rdma_destroy_srq(struct rdma_cm_id*);

} // extern "C"

#endif
