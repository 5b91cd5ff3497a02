// The one difference between the two programs that each source makes here: `net` is standalone Asio or Boost.Asio, and
// `rx` the adapter of it.
#ifndef RDMAXX_TESTS_LOOPS_NET_HPP
#define RDMAXX_TESTS_LOOPS_NET_HPP

#if RDMAXX_TESTS_BOOST
#    include <boost/asio.hpp>
#    include <rdmaxx/boost_asio.hpp>
#else
#    include <asio.hpp>
#    include <rdmaxx/asio.hpp>
#endif

namespace loops {

#if RDMAXX_TESTS_BOOST
namespace net = boost::asio;
namespace rx = rdmaxx::boost_asio;
using error_code = boost::system::error_code;
using system_error = boost::system::system_error;
#else
namespace net = asio;
namespace rx = rdmaxx::asio;
using error_code = std::error_code;
using system_error = std::system_error;
#endif

inline const error_code aborted = net::error::operation_aborted;

} // namespace loops

#endif
