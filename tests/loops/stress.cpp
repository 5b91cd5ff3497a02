// Operations are cancelled at random, in every way, while events arrive: none may be lost, and each is acked once.
#include "loop.hpp"

#include <atomic>
#include <cstdio>
#include <memory>
#include <random>

using namespace loops;

namespace {

struct counts {
    unsigned begun = 0;
    unsigned delivered = 0;
    unsigned cancelled = 0;
    unsigned failed = 0; // with anything else
};

/// Keeps some gets under way on one I/O object after the other, which share one channel or context.
template <class Source>
class player {
public:
    using event = typename Source::event;
    using io_object = typename Source::io_object;

    player(net::io_context& loop, Source& from, unsigned seed) : loop_(loop), from_(from), random_(seed) {
        for (slot& each : slots_)
            begin(each);
    }

    /// One thing at random.
    void disturb() {
        switch (random_() % 16) {
        case 0: from_.io.cancel(); break;
        case 1: // to another I/O object
            from_.io = io_object(loop_, from_.io.release());
            break;
        case 2: {
            io_object elsewhere = std::move(from_.io);
            from_.io = std::move(elsewhere);
            break;
        }
        case 3: held_.clear(); break;
        default: {
            static constexpr net::cancellation_type types[] = {
                net::cancellation_type::terminal, net::cancellation_type::partial, net::cancellation_type::total,
                net::cancellation_type::all};
            slots_[random_() % std::size(slots_)].signal.emit(types[random_() % std::size(types)]);
        }
        }
    }

    void stop() {
        stopping_ = true;
        from_.io.cancel();
        held_.clear();
    }

    [[nodiscard]] const counts& result() const { return counts_; }

private:
    struct slot {
        net::cancellation_signal signal;
    };

    void begin(slot& in) {
        ++counts_.begun;
        from_.get(net::bind_cancellation_slot(in.signal.slot(), [this, &in](error_code ec, event got) {
            if (got)
                ++counts_.delivered;
            if (ec == aborted)
                ++counts_.cancelled;
            else if (ec)
                ++counts_.failed;
            if (got && random_() % 4 == 0)
                held_.push_back(std::move(got));
            if (!stopping_)
                begin(in);
        }));
    }

    net::io_context& loop_;
    Source& from_;
    std::minstd_rand random_;
    slot slots_[3];
    std::vector<event> held_;
    counts counts_;
    bool stopping_ = false;
};

template <class Source>
unsigned push_some(Source& to, std::minstd_rand& random) {
    const unsigned n = static_cast<unsigned>(random() % 4);
    for (unsigned i = 0; i < n; ++i)
        to.push();
    return n;
}

} // namespace

TEMPLATE_TEST_CASE("stress: gets are cancelled at random while events arrive", "[stress]", RDMAXX_TESTS_EACH_SOURCE) {
    const fixture here;
#if defined(__SANITIZE_THREAD__)
    constexpr unsigned events = 3000; // TSan makes each of them dear
#else
    constexpr unsigned events = 10000;
#endif
    const unsigned seed = GENERATE(1U, 2U);
    net::io_context loop;
    TestType from(loop.get_executor());
    player<TestType> plays(loop, from, seed);

    // The events come from another thread, at no certain time, and about as often as something is cancelled.
    std::atomic<unsigned> pushed = 0;
    std::atomic<unsigned> disturbed = 0;
    unit::worker pusher([&] {
        std::minstd_rand random(seed + 100);
        while (pushed < events) {
            pushed += push_some(from, random);
            while (pushed > 2 * disturbed + 8)
                std::this_thread::yield();
        }
    });
    std::minstd_rand random(seed + 200);
    const auto start = std::chrono::steady_clock::now();
    while (pushed < events) {
        loop.restart();
        if (random() % 8 == 0)
            loop.run_one_for(std::chrono::microseconds(random() % 50));
        for (auto n = random() % 6; n > 0; --n)
            loop.poll_one();
        plays.disturb();
        ++disturbed;
    }
    pusher.join();
    plays.stop();
    CHECK(run(loop));

    // What nobody has got is still there.
    const counts& result = plays.result();
    unsigned left = 0;
    while (const auto event = TestType::try_get(from.io.next_layer()))
        ++left;
    const auto lost = static_cast<long>(pushed) - result.delivered - left;
    std::printf("%s: %u gets begun, %u cancelled; %u events, %u delivered, %u left in the channel, %ld lost; %ld ms\n",
                TestType::get_call, result.begun, result.cancelled, pushed.load(), result.delivered, left, lost,
                static_cast<long>(unit::elapsed(start).count()));
    CHECK(lost == 0);
    CHECK(result.failed == 0);
    CHECK(result.begun == result.delivered + result.cancelled);
    CHECK(result.cancelled > events / 10);
    CHECK(result.delivered > events / 10);
    CHECK(TestType::tally().got == pushed);
    CHECK(TestType::tally().held() == 0);
}
