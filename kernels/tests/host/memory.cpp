// Copies of plain memory and signals in it, by threads, warps and blocks on host threads: the kernels of cuda/memory.cu.
#include <algorithm>
#include <mp/host/launch.hpp>
#include <vector>

#include "../cuda/memory.cu"
#include "check.hpp"

using std::uint64_t;

namespace {

constexpr uint64_t millisecond_ns = 1'000'000, minute_ns = 60'000 * millisecond_ns;

// Threads and blocks for each flavour: more than a warp in a block.
struct Shape {
    std::uint32_t flavour;
    unsigned threads, blocks;
};
constexpr Shape shapes[] = {{0, 1, 1}, {1, 32, 1}, {2, 40, 1}, {2, 3, 2}};

}  // namespace

CASE(a_copy_brings_every_byte_from_any_place_to_any_other_and_touches_no_more) {
    constexpr size_t around = 128;
    for (const Shape& shape : shapes)
        for (const auto& [to, from] : {std::pair<size_t, size_t>{0, 0}, {8, 0}, {8, 8}, {1, 1}, {0, 3}, {13, 8}, {16, 0}, {48, 32}, {120, 8}, {127, 1}})
            for (const uint64_t bytes : {0u, 1u, 8u, 15u, 16u, 17u, 64u, 4096u, 5003u}) {
                alignas(128) static unsigned char source[around + 5003 + 128 + around], target[sizeof source];
                for (size_t i = 0; i < sizeof source; ++i) source[i] = static_cast<unsigned char>(31 * i + 1 + bytes);
                std::fill(std::begin(target), std::end(target), static_cast<unsigned char>(0xa5));
                uint64_t stamps[4] = {};
                mp::host::launch(shape.blocks, shape.threads, mp_copies, static_cast<void*>(target + around + to),
                                 static_cast<const void*>(source + around + from), bytes, uint64_t{1}, shape.flavour, stamps);
                int wrong = 0;
                for (size_t i = 0; i < sizeof target; ++i) {
                    const bool copied = i >= around + to && i < around + to + bytes;
                    wrong += target[i] != (copied ? source[i - to + from] : 0xa5);
                    wrong += source[i] != static_cast<unsigned char>(31 * i + 1 + bytes);
                }
                CHECK_THAT(wrong, ==, 0);
                CHECK(stamps[0] > 0 && stamps[1] >= stamps[0]);
            }
}

CASE(a_group_raises_a_signal_once_behind_what_all_of_it_wrote) {
    constexpr uint64_t count = 50;
    for (const Shape& shape : shapes) {
        const uint64_t rounds = shape.threads == 1 ? 200 : 30;
        std::vector<uint64_t> words(test::signal_data + 3 * count);
        uint64_t results[3] = {};
        mp::host::launch(2, shape.threads, mp_signals, words.data(), count, rounds, mp::WaitBounds{0, minute_ns}, shape.flavour, results);
        CHECK_THAT(results[0], ==, 0u);
        CHECK_THAT(results[1], ==, 2 * rounds);
        CHECK_THAT(results[2], ==, 0u);
        CHECK_THAT(words[test::signal_set], ==, rounds);
        CHECK_THAT(words[test::signal_added], ==, 3 * rounds);
        CHECK_THAT(words[test::signal_answer], ==, 2 * rounds);
        for (uint64_t last = rounds - 2; last <= rounds; ++last) CHECK_THAT(words[test::signal_turns + 8 * (last % 3)], ==, last);
    }
}

CASE(a_group_whose_signals_do_not_come_gives_up_in_time) {
    for (const Shape& shape : shapes) {
        std::vector<uint64_t> words(test::signal_data + 3);
        uint64_t results[3] = {};
        // Nobody raises anything: the answer does not come to the one block that there is.
        mp::host::launch(1, shape.threads, mp_signals, words.data(), uint64_t{1}, uint64_t{5}, mp::WaitBounds{0, millisecond_ns},
                         shape.flavour, results);
        CHECK_THAT(results[1], ==, 0u);
        CHECK_THAT(results[2], ==, 1u);
        CHECK_THAT(words[test::signal_added], ==, 3u);
        CHECK_THAT(words[test::signal_answer], ==, 0u);
    }
}
