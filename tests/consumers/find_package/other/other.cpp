#include <rdmaxx/version.hpp>

int other() {
    return RDMAXX_VERSION;
}
