// The headers as a header unit, compiled before this by the same compiler.
import <rdmaxx/rdmaxx.hpp>;

int main() {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    rdmaxx::comp_channel completions(id.verbs());
    rdmaxx::cq cq(id.verbs(), 4, completions);
    rdmaxx::qp_ref qp = id.create_qp(rdmaxx::qp_init_attr(cq, 2));
    rdmaxx::wc done[4];
    return qp ? static_cast<int>(cq.poll(done).size()) : 0;
}
