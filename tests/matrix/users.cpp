// What users write, compiled with optimization: some compilers then warn of what the headers do inside.
#include <rdmaxx/rdmaxx.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

void note(const std::string& text); // not known here: it may do anything, also throw

// An owner that is made later, and perhaps not at all.
void made_later() {
    std::optional<rdmaxx::context> open;
    {
        rdmaxx::device_list devices;
        const rdmaxx::device_list moved(std::move(devices));
        open.emplace(moved.front());
    }
    try {
        note(open->device().name());
    } catch (...) {
        note("failed");
    }
    open.reset();
    try {
        note("closed");
    } catch (...) {
        note("failed");
    }
}

void events_kept(rdmaxx::event_channel& channel) {
    std::optional<rdmaxx::cm_event> last;
    for (int i = 0; i < 3; ++i) {
        rdmaxx::cm_event next = channel.get_cm_event_for(std::chrono::seconds(1));
        if (next)
            last = std::move(next);
    }
    if (last)
        note(to_string(last->type()));
    std::vector<rdmaxx::cm_event> all;
    all.push_back(channel.get_cm_event());
}

// Closed by hand, on every path.
template <class Body>
int guarded(Body body) {
    try {
        body();
    } catch (const std::exception& e) {
        note(e.what());
        return 1;
    }
    return 0;
}

int closed_by_hand() {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id(channel);
    return guarded([&] {
        id.close();
        channel.close();
        if (channel)
            note("still there");
    });
}

struct session {
    rdmaxx::event_channel channel;
    rdmaxx::cm_id id{channel};
    std::optional<rdmaxx::pd> domain;
    std::optional<rdmaxx::cq> queue;
    std::unique_ptr<rdmaxx::mr> memory;
    std::vector<std::byte> bytes = std::vector<std::byte>(4096);

    void start() {
        domain.emplace(id.verbs());
        queue.emplace(id.verbs(), 16);
        memory = std::make_unique<rdmaxx::mr>(*domain, bytes, rdmaxx::access::local_write);
        id.create_qp(*domain, rdmaxx::qp_init_attr(*queue));
    }
};

bool sessions(std::size_t count) {
    std::vector<std::unique_ptr<session>> all(count);
    for (auto& one : all) {
        one = std::make_unique<session>();
        one->start();
    }
    session moved = std::move(*all.front());
    moved.queue.reset();
    return moved.id && !all.empty();
}
