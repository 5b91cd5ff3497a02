// Every class of the library, declared.
#ifndef RDMAXX_FWD_HPP
#define RDMAXX_FWD_HPP

namespace rdmaxx::inline v0 {

class address;
class error;

class ah;
class ah_ref;
class async_event;
class device_ref;
class device_list;
class context;
class context_ref;
class pd;
class pd_ref;
class mr;
class mr_ref;
class comp_channel;
class comp_channel_ref;
class cq;
class cq_ref;
class cq_event;
class cq_init_attr_ex;
class qp;
class qp_ref;
class qp_attr;
class qp_init_attr;
class qp_init_attr_ex;
class srq;
class srq_ref;
struct sge;
struct send_wr;
struct recv_wr;
struct wc;
struct remote_buffer;
class mr_change;
class mr_init_attr;
class iova_mr;
class registered_buffer;
class registered_resource;
class mw;
class mw_ref;
struct mw_bind_info;
class dm;
class dm_ref;
class dmah;
class dmah_ref;
class buf;
class buf_ref;
class xrcd;
class xrcd_ref;
class td;
class td_ref;
class parent_domain;
class wq;
class wq_ref;
class rwq_ind_table;
class rwq_ind_table_ref;
class counters;
class counters_ref;
class comp_cntr;
class comp_cntr_ref;
class flow;
class flow_ref;
class flow_attr;
class flow_action;
class flow_action_ref;
class srq_init_attr_ex;
class datagram;
struct ops_wr;
class gid;
class gid_table;
struct gid_entry;
struct port_attr;
struct device_attr;
struct device_attr_ex;

class addrinfo;
class devices;
class event_channel;
class event_channel_ref;
class cm_event;
class cm_event_snapshot;
class cm_id;
class cm_id_ref;
class multicast_membership;
class sync_id;
struct conn_param;

namespace detail {
template <class Traits>
class id_owner;      // what cm_id and sync_id share
class qp_owner;      // what qp and qp_ex share
struct async_access; // the gets of async_event
struct gid_queries;  // the calls of gid_table
struct mr_rereg;     // the call of rereg_mr
struct stop_access;  // the gets of cm/stop.hpp and verbs/stop.hpp
}

} // namespace rdmaxx::inline v0

#endif
