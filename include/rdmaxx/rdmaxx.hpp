// Everything but the optional adapters (cm/stop.hpp, verbs/stop.hpp).
#ifndef RDMAXX_RDMAXX_HPP
#define RDMAXX_RDMAXX_HPP

#include <rdmaxx/cm.hpp>      // IWYU pragma: export
#include <rdmaxx/fwd.hpp>     // IWYU pragma: export
#include <rdmaxx/verbs.hpp>   // IWYU pragma: export
#include <rdmaxx/version.hpp> // IWYU pragma: export

#endif
