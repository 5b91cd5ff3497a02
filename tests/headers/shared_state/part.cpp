// Compiled once for each part, with PART as its name.
#include "part.hpp"

#include <cstring>

namespace {

#define TEXT_OF_(x) #x
#define TEXT_OF(x) TEXT_OF_(x)
#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)

const std::error_category* reject_category() noexcept {
    return &rdmaxx::reject_category();
}
const std::error_category* sidr_category() noexcept {
    return &rdmaxx::sidr_category();
}
const std::error_category* addrinfo_category() noexcept {
    return &rdmaxx::addrinfo_category();
}
const std::error_category* wc_category() noexcept {
    return &rdmaxx::wc_category();
}

void set_destroy_failure_hook(rdmaxx::destroy_failure_hook hook) noexcept {
    rdmaxx::set_destroy_failure_hook(hook);
}
void report_destroy_failure() noexcept {
    rdmaxx::detail::report_destroy_failure({"ibv_dereg_mr", EBUSY}, nullptr);
}
void set_hang_hook(rdmaxx::hang_hook hook) noexcept {
    rdmaxx::set_hang_hook(hook);
}
void report_hang() noexcept {
    static_cast<void>(rdmaxx::detail::report_hang(rdmaxx::hang_report{"rdma_destroy_id", nullptr, 0, 0, {}}));
}

void throw_one(const char* which) {
    if (std::strcmp(which, "error") == 0)
        static_cast<void>(rdmaxx::address::parse("no address"));
    if (std::strcmp(which, "post_error") == 0)
        throw rdmaxx::post_error(std::error_code(ENOMEM, std::system_category()), "ibv_post_send", 0);
    if (std::strcmp(which, "unexpected_event") == 0)
        throw rdmaxx::unexpected_event(rdmaxx::cm_event_snapshot(), rdmaxx::cm_event_type::established);
}

const char* name_of_caught(void (*throw_it)(const char* which), const char* which) {
    try {
        throw_it(which);
        return "nothing";
    } catch (const rdmaxx::post_error&) {
        return "post_error";
    } catch (const rdmaxx::unexpected_event&) {
        return "unexpected_event";
    } catch (const rdmaxx::error&) {
        return "error";
    } catch (const std::exception&) {
        return "std::exception";
    }
}

} // namespace

const part* JOINED(part_, PART)() noexcept {
    static const part self = {
        TEXT_OF(PART),
        reject_category,
        sidr_category,
        addrinfo_category,
        wc_category,
        set_destroy_failure_hook,
        report_destroy_failure,
        set_hang_hook,
        report_hang,
        &rdmaxx::detail::hang_report_after_ns,
        throw_one,
        name_of_caught,
    };
    return &self;
}
