// mckey: datagrams to all members of a multicast group. Both roles, and on the wire that of rdma-core's
// librdmacm/examples/mckey.c.
//
// Both join the group; each datagram of the sender carries its queue pair's number as immediate data.
//
// What it does better than the C program: a receiver does not wait for ever for a datagram that was lost, and sleeps
// meanwhile; a sender leaves the group only when the device has sent everything; and a group is left, and all that was
// made ends, whatever fails.
#include <rdmaxx/rdmaxx.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <list>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <unistd.h>

namespace {

using rdmaxx::cm_event_type;
using std::chrono::seconds;

struct options {
    const char *group = nullptr, *source = nullptr;
    bool sender = false;
    rdmaxx::mc_join join = rdmaxx::mc_join::full_member;
    rdmaxx::port_space ps = rdmaxx::port_space::udp;
    unsigned members = 1, count = 10, size = 100;
    seconds patience{60};
};

/// One member of the group, and all that it uses.
struct member {
    /// @param bound an id that has a device: its address is resolved
    member(rdmaxx::cm_id bound, const options& opts)
        : o(opts), id(std::move(bound)), completions(id.verbs()),
          cq(id.verbs(), static_cast<int>(o.count) + 1, completions),
          datagram(id.pd(), rdmaxx::datagram::room_for(o.size)),
          qp(id.create_qp(rdmaxx::qp_init_attr(cq, o.count + 1).type(rdmaxx::qp_type::ud))) {
        const std::uint32_t mtu = to_bytes(id.verbs().query_port(id.port_num()).mtu());
        if (o.size > mtu)
            throw std::runtime_error("a datagram takes at most " + std::to_string(mtu) + " bytes here");
        for (unsigned i = 0; i < o.count && !o.sender; ++i) // before the group's datagrams can come
            qp.post_recv(datagram);
        membership = id.join_multicast(rdmaxx::address(o.group, 0), this, o.join);
    }

    void joined(const rdma_ud_param& param) {
        char dgid[INET6_ADDRSTRLEN] = "";
        ::inet_ntop(AF_INET6, param.ah_attr.grh.dgid.raw, dgid, sizeof dgid);
        std::printf("mckey: joined dgid: %s mlid 0x%x sl %d\n", dgid, param.ah_attr.dlid, param.ah_attr.sl);
        group = rdmaxx::ah(id.pd(), param.ah_attr);
        group_qpn = param.qp_num;
        group_qkey = param.qkey;
    }

    void send_all() const {
        const rdmaxx::sge piece = datagram.sge(rdmaxx::datagram::grh_size, o.size);
        for (unsigned i = 0; i < o.count; ++i)
            qp.post_send(
                rdmaxx::send_wr::send_with_imm(piece, qp.qp_num()).to(group, group_qpn, group_qkey).signaled());
    }

    /// Waits for as many completions as there are datagrams.
    void wait_for_all() {
        std::array<rdmaxx::wc, 8> done;
        for (std::size_t left = o.count; left != 0;) {
            const auto some = completions.wait_for(cq, std::span(done).first(std::min(left, done.size())), o.patience);
            if (some.empty())
                throw std::runtime_error(std::to_string(left) + " of " + std::to_string(o.count) +
                                         " datagrams have not come");
            for (const rdmaxx::wc& wc : some)
                wc.check();
            left -= some.size();
        }
    }

    const options& o;
    rdmaxx::cm_id id; // before what is made from its device
    rdmaxx::comp_channel completions;
    rdmaxx::cq cq;
    rdmaxx::registered_buffer datagram; // of all of them: nobody reads any
    rdmaxx::ah group;
    std::uint32_t group_qpn = 0;
    std::uint32_t group_qkey = 0;
    rdmaxx::qp_ref qp;
    rdmaxx::multicast_membership membership;
};

/// The id of an event. The event ends, since the id does if it does not come to a member.
rdmaxx::cm_id take(std::vector<rdmaxx::cm_id>& resolving, rdmaxx::cm_event event) {
    const auto id = std::find(resolving.begin(), resolving.end(), event.id());
    std::move(event).ack();
    return std::move(*id);
}

/// Handles events until all members have joined.
void join_all(rdmaxx::event_channel& channel, std::vector<rdmaxx::cm_id>& resolving, std::list<member>& members,
              const options& o) {
    for (unsigned joined = 0; joined < o.members;) {
        rdmaxx::cm_event event = channel.get_cm_event_for(o.patience);
        if (event.type() == cm_event_type::addr_resolved) {
            members.emplace_back(take(resolving, std::move(event)), o);
        } else if (event.type() == cm_event_type::multicast_join) {
            event.multicast_context<member>()->joined(event.ud_param());
            ++joined;
        } else {
            throw rdmaxx::unexpected_event(event.snapshot(), cm_event_type::multicast_join);
        }
    }
}

void run(const options& o) {
    std::printf("mckey: starting %s\n", o.sender ? "client" : "server");
    const rdmaxx::address group(o.group, 0);
    rdmaxx::event_channel channel;
    std::vector<rdmaxx::cm_id> resolving;
    std::list<member> members;

    std::puts("mckey: joining");
    for (unsigned i = 0; i < o.members; ++i) {
        const rdmaxx::cm_id& id = resolving.emplace_back(channel, o.ps);
        if (o.source != nullptr)
            id.bind_addr({o.source, 0});
        id.resolve_addr(group, seconds(2));
    }
    join_all(channel, resolving, members, o);

    if (o.count != 0 && o.sender) {
        const rdmaxx::cm_id& id = members.front().id;
        if (id.verbs().query_port(id.port_num()).link_layer() == rdmaxx::link_layer::infiniband)
            std::this_thread::sleep_for(seconds(3)); // the subnet manager sets up the switches
        std::puts("initiating data transfers");
        for (const member& m : members)
            m.send_all();
    } else if (o.count != 0) {
        std::puts("receiving data transfers");
    }
    for (member& m : members)
        m.wait_for_all();
    if (o.count != 0)
        std::puts("data transfers complete");
}

constexpr const char* usage = R"(mckey -m group [-b address] [options]     receiver
mckey -m group -s [-b address] [options]  sender
  -m group       address of the group
  -b address     of this machine (default: the one that a route leads through)
  -c members     queue pairs to join with (default: 1)
  -C count       datagrams of each sender, and to each receiver (default: 10)
  -S size        bytes of a datagram (default: 100)
  -p port_space  0x111 for UDP (default), 0x2 for IPoIB
  -o             a sender joins as one that only sends
  -w seconds     to wait for the next event or datagram (default: 60)
)";

unsigned number(const char* text, unsigned least, unsigned most) {
    unsigned value = 0;
    const char* const last = text + std::strlen(text);
    const auto [end, error] = std::from_chars(text, last, value);
    if (error != std::errc() || end != last || value < least || value > most)
        throw std::invalid_argument(std::string("out of range, or no number: ") + text);
    return value;
}

rdmaxx::port_space port_space(const std::string& text) {
    if (text != "0x111" && text != "0x2")
        throw std::invalid_argument("no port space of datagrams: " + text);
    return text == "0x2" ? rdmaxx::port_space::ipoib : rdmaxx::port_space::udp;
}

} // namespace

int main(int argc, char** argv) try {
    options o;
    for (int letter = 0; (letter = ::getopt(argc, argv, "m:sb:c:C:S:p:ow:")) != -1;)
        switch (letter) {
        case 'm': o.group = optarg; break;
        case 's': o.sender = true; break;
        case 'b': o.source = optarg; break;
        case 'c': o.members = number(optarg, 1, 10'000); break;
        case 'C': o.count = number(optarg, 0, 100'000); break;
        case 'S': o.size = number(optarg, 1, 1U << 16); break;
        case 'p': o.ps = port_space(optarg); break;
        case 'o': o.join = rdmaxx::mc_join::sendonly_full_member; break;
        case 'w': o.patience = seconds(number(optarg, 1, 1'000'000)); break;
        default: return std::fputs(usage, stderr), 1;
        }
    if (o.group == nullptr)
        return std::fputs(usage, stderr), 1;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    run(o);
    std::puts("test complete\nreturn status 0");
} catch (const std::invalid_argument& e) {
    return std::fprintf(stderr, "mckey: %s\n%s", e.what(), usage), 1;
} catch (const rdmaxx::error& e) {
    return std::fprintf(stderr, "mckey: %s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str()), 1;
} catch (const std::exception& e) {
    return std::fprintf(stderr, "mckey: %s\n", e.what()), 1;
}
