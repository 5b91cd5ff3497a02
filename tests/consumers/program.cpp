// The program of every consumer project: names the RDMA devices of this machine, or says why there are none.
#include <rdmaxx/rdmaxx.hpp>

#include <cstdio>

int main() try {
    std::printf("rdmaxx %s\n", RDMAXX_VERSION_STRING);
    const rdmaxx::event_channel channel;
    for (const rdmaxx::device_ref device : rdmaxx::device_list())
        std::printf("device %s\n", device.name());
} catch (const rdmaxx::error& e) {
    std::printf("%s\n%s\n", e.what(), rdmaxx::diagnose(e).c_str());
    return e.code() == std::errc::no_such_device ? 3 : 1;
}
