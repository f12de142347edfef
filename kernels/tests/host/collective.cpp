// Collectives of mp/*.cuh on host threads: the kernels of src/cuda/collective.cu and those of mp-perf, ranks as launches that run
// at once. Meant for ThreadSanitizer as well.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <mp/host/launch.hpp>
#include <ranges>
#include <thread>
#include <utility>

#include "../../../bench/cuda/perf.cu"
#include "../../src/cuda/collective.cu"
#include "check.hpp"

using std::uint64_t;

namespace {

constexpr uint64_t minute_ns = 60'000'000'000;

// The memory of a collective of `ranks` ranks with room for `bytes` bytes, of which `small` go as packets of one ring.
struct Ranks {
    uint64_t ranks, bytes, len, ring, lanes, piece, rings, adds = 1;
    std::vector<std::vector<mp::Packet>> inboxes;
    std::vector<std::vector<uint64_t>> tables;
    std::vector<std::vector<mp::LaneCounters>> counters;
    std::vector<std::vector<mp::RingState>> behind_first;
    std::vector<mp::CollectiveState> states;
    std::vector<mp::WaitReport> reports;

    Ranks(uint64_t count, uint64_t room, uint64_t small, uint64_t lane_count = 0, uint64_t piece_bytes = 0, uint64_t ring_count = 1)
        : ranks(count), bytes(room), len(small / 8), ring(std::bit_ceil(2 * len)), lanes(lane_count), piece(piece_bytes), rings(ring_count),
          states(count), reports(count) {
        const uint64_t slots = (ranks - 1) * lanes * mp::lane_slots * piece;
        const uint64_t words = (rings + lanes) * ranks * mp::lane_stride;
        const uint64_t packets = rings * ranks * ring + (words + slots) / mp::packet_size;
        for (uint64_t rank = 0; rank < ranks; ++rank) inboxes.emplace_back(packets);
        for (uint64_t rank = 0; rank < ranks; ++rank) {
            tables.emplace_back();
            for (auto& inbox : inboxes) tables.back().push_back(address(inbox.data()));
            counters.emplace_back(lanes * ranks);
            behind_first.emplace_back(rings - 1);
        }
        for (uint64_t rank = 0; rank < ranks; ++rank) states[rank].collective = of(rank);
    }
    mp::Collective of(uint64_t rank, uint64_t timeout_ns = minute_ns) {
        mp::Collective collective = {};
        collective.inboxes = address(tables[rank].data());
        collective.ranks = ranks;
        collective.rank = rank;
        collective.len = len;
        collective.ring = ring;
        collective.rings = rings;
        collective.states = address(behind_first[rank].data());
        collective.bytes = bytes;
        collective.lanes = lanes;
        collective.piece = piece;
        collective.counters = address(counters[rank].data());
        collective.state = address(&states[rank]);
        collective.timeout_ns = timeout_ns;
        collective.report = address(&reports[rank]);
        collective.adds = adds;
        std::ranges::copy(tables[rank] | std::views::take(mp::near_ranks), collective.near);
        return collective;
    }
    // Each rank's calls at once, in one kernel of so many blocks and threads.
    void all(unsigned blocks, unsigned threads, const std::function<void(const mp::Collective&, mp::Part)>& calls) {
        std::vector<std::jthread> running;
        for (uint64_t rank = 0; rank < ranks; ++rank)
            running.emplace_back([&, rank, blocks, threads] {
                // Another number of blocks on each rank.
                const unsigned mine = blocks > 1 ? 1 + (blocks + unsigned(rank) - 1) % blocks : 1;
                mp::host::launch(mine, threads, +[](mp::Collective collective, decltype(&calls) calls) {
                    (*calls)(collective, {mp::block_rank(), mp::grid_blocks()});
                }, of(rank), &calls);
            });
    }
};

// Element `i` of what rank `from` has for rank `to`: sums of these depend on their order.
template <class T>
T value(uint64_t from, uint64_t to, uint64_t i) {
    const uint64_t number = 1 + from * 7 + to * 3 + i * 5;
    if constexpr (sizeof(T) == 2)
        return mp::impl::Narrow<T>::of(1.0f / float(1 + number % 97));
    else if constexpr (mp::impl::is_float<T>)
        return T(1) / T(1 + number % 97);
    else
        return static_cast<T>(number * 0x9e3779b97f4a7c15u >> 5);
}

template <class T>
bool same(const T& left, const T& right) {
    return std::memcmp(&left, &right, sizeof(T)) == 0;
}

// Every kind, with `count` elements a block, in two rounds that begin where the last ended.
template <class T, class Operation>
void every_kind(Ranks& world, unsigned blocks, unsigned threads, uint64_t count, Operation operation) {
    const uint64_t ranks = world.ranks;
    for (uint64_t root = 0; root < ranks; root += ranks > 1 ? ranks - 1 : 1) {
        // What a rank gives, what it gets of each kind, and the blocks of the last.
        std::vector<std::vector<T>> from(ranks), row(ranks);
        std::vector<std::array<std::vector<T>, 10>> to(ranks);
        std::vector<std::array<std::vector<mp::Extent>, 2>> tables(ranks);
        const auto length = [count](uint64_t giver, uint64_t taker) { return (giver * 3 + taker * 5) % 4 * count / 3; };
        for (uint64_t rank = 0; rank < ranks; ++rank) {
            for (uint64_t other = 0; other < ranks; ++other)
                for (uint64_t i = 0; i < count; ++i) row[rank].push_back(value<T>(rank, other, i));
            from[rank].assign(row[rank].begin(), row[rank].begin() + long(count));
            for (auto& result : to[rank]) result.resize(ranks * count);
            to[rank][0] = from[rank];
            to[rank][8] = from[rank];
            // Blocks in the other order, a gap of one before each.
            uint64_t at = 0;
            tables[rank][1].resize(ranks);
            for (uint64_t other = 0; other < ranks; ++other) tables[rank][0].push_back({other * count * sizeof(T), length(rank, other) * sizeof(T)});
            for (uint64_t other = ranks; other-- > 0;) {
                tables[rank][1][other] = {++at * sizeof(T), length(other, rank) * sizeof(T)};
                at += length(other, rank);
            }
            to[rank][9].resize(at + ranks);
        }
        world.all(blocks, threads, [&](const mp::Collective& collective, mp::Part part) {
            const auto group = mp::block();
            const uint64_t me = collective.rank, bytes = count * sizeof(T);
            auto& mine = to[me];
            const T* all = row[me].data();
            const T* one = from[me].data();
            CHECK(!mp::broadcast(group, collective, root, mine[0].data(), bytes, part).failed());
            CHECK(!mp::all_gather(group, collective, one, mine[1].data(), bytes, part).failed());
            CHECK(!mp::gather(group, collective, root, one, mine[2].data(), bytes, part).failed());
            CHECK(!mp::scatter(group, collective, root, all, mine[3].data(), bytes, part).failed());
            if (part.index == 0) CHECK(!mp::barrier(group, collective).failed());
            CHECK(!mp::all_to_all(group, collective, all, mine[4].data(), bytes, part).failed());
            CHECK(!mp::reduce(group, collective, root, one, mine[5].data(), count, operation, part).failed());
            CHECK(!mp::reduce_scatter(group, collective, all, mine[6].data(), count, operation, part).failed());
            CHECK(!mp::scan(group, collective, one, mine[7].data(), count, operation, part).failed());
            CHECK(!mp::all_reduce(group, collective, mine[8].data(), mine[8].data(), count, operation, part).failed());
            CHECK(!mp::all_to_all_v(group, collective, all, tables[me][0].data(), mine[9].data(), tables[me][1].data(), part).failed());
        });
        for (uint64_t me = 0; me < ranks; ++me) {
            unsigned wrong[10] = {};
            for (uint64_t i = 0; i < count; ++i) {
                T whole = from[0][i], mine = row[0][me * count + i], upto = whole;
                for (uint64_t rank = 1; rank < ranks; ++rank) {
                    whole = operation(whole, from[rank][i]);
                    if (rank <= me) upto = whole;
                    mine = operation(mine, row[rank][me * count + i]);
                }
                wrong[0] += !same(to[me][0][i], from[root][i]);
                wrong[3] += !same(to[me][3][i], row[root][me * count + i]);
                wrong[5] += !same(to[me][5][i], me == root ? whole : T{});
                wrong[6] += !same(to[me][6][i], mine);
                wrong[7] += !same(to[me][7][i], upto);
                wrong[8] += !same(to[me][8][i], whole);
                for (uint64_t rank = 0; rank < ranks; ++rank) {
                    wrong[1] += !same(to[me][1][rank * count + i], from[rank][i]);
                    wrong[2] += !same(to[me][2][rank * count + i], me == root ? from[rank][i] : T{});
                    wrong[4] += !same(to[me][4][rank * count + i], row[rank][me * count + i]);
                }
            }
            for (uint64_t rank = 0; rank < ranks; ++rank) {
                const mp::Extent block = tables[me][1][rank];
                for (uint64_t i = 0; i < length(rank, me); ++i) wrong[9] += !same(to[me][9][block.at / sizeof(T) + i], row[rank][me * count + i]);
                wrong[9] += !same(to[me][9][block.at / sizeof(T) - 1], T{});
            }
            for (unsigned kind = 0; kind < 10; ++kind)
                if (wrong[kind] != 0)
                    check::fail(__FILE__, __LINE__, "kind " + std::to_string(kind) + ": " + std::to_string(wrong[kind]) + " elements of " +
                                                        std::to_string(count) + " on rank " + std::to_string(me) + " of " + std::to_string(ranks));
        }
    }
    for (const auto& report : world.reports) CHECK_THAT(report.status, ==, 0u);
}

}  // namespace

CASE(every_kind_of_collective_by_packets) {
    for (const uint64_t count : {1, 2, 4}) {
        Ranks world(count, 104, 104);
        every_kind<double>(world, 1, 3, 13, mp::sum_t{});
        every_kind<float>(world, 1, 2, 7, mp::min_t{});
        every_kind<mp::f16>(world, 1, 1, 5, mp::sum_t{});
        every_kind<mp::bf16>(world, 1, 4, 11, mp::prod_t{});
        every_kind<std::int32_t>(world, 1, 3, 1, mp::max_t{});
        every_kind<std::uint32_t>(world, 1, 3, 26, mp::bit_and);
        every_kind<std::int64_t>(world, 1, 2, 3, mp::prod_t{});
        every_kind<uint64_t>(world, 1, 5, 6, mp::bit_xor);
        CHECK_THAT(world.states[0].ring.runs, >, 10u);
    }
}

// Shares of a block's words by rings, all of which are used or some; other numbers of blocks of threads on each rank than rings.
CASE(every_kind_of_collective_by_several_rings) {
    for (const uint64_t count : {1, 2, 3}) {
        Ranks world(count, 4 * 8 * mp::least_share, 8 * mp::least_share, 0, 0, 4);
        every_kind<double>(world, 1, 3, 3 * mp::least_share + 7, mp::sum_t{});
        every_kind<float>(world, 3, 2, 3 * mp::least_share, mp::prod_t{});
        every_kind<uint64_t>(world, 5, 3, 4 * mp::least_share, mp::bit_or);
        // Small ones in between, by the first.
        every_kind<std::int32_t>(world, 1, 2, 4, mp::min_t{});
        every_kind<mp::f16>(world, 2, 4, 5 * mp::least_share + 3, mp::sum_t{});
        CHECK_THAT(world.states[0].ring.runs, >, world.behind_first[0][2].runs);
        CHECK_THAT(world.behind_first[0][2].runs, >, 10u);
    }
}

// Pieces of few bytes, so that slots come round; blocks of odd lengths; other numbers of blocks of threads on each rank.
CASE(every_kind_of_collective_by_lanes) {
    for (const uint64_t count : {1, 2, 3}) {
        Ranks world(count, 4096, 16, 3, 32);
        every_kind<double>(world, 1, 2, 71, mp::sum_t{});
        every_kind<float>(world, 3, 2, 127, mp::prod_t{});
        every_kind<mp::f16>(world, 2, 1, 33, mp::sum_t{});
        every_kind<uint64_t>(world, 2, 3, 512, mp::bit_or);
        // Packets in between.
        every_kind<std::int32_t>(world, 1, 2, 4, mp::min_t{});
        every_kind<std::int32_t>(world, 2, 2, 300, mp::min_t{});
        // Pieces that a run makes smaller than there is room for, and more than one round of them.
        Ranks wide(count, 1 << 16, 16, 3, 4096);
        every_kind<double>(wide, 2, 3, 700, mp::sum_t{});
        every_kind<double>(wide, 3, 2, 3000, mp::sum_t{});
    }
}

// The kernel of streams by several rings, of two runs: fewer blocks of threads than rings, and others on each rank.
CASE(two_halves_of_an_all_reduce_by_several_rings) {
    constexpr uint64_t count = 3, len = 3 * count * mp::least_share - 40;
    Ranks ranks(count, 8 * len, 8 * mp::least_share, 0, 0, 3);
    std::vector<std::vector<double>> values(count);
    std::vector<double> expected(len);
    for (uint64_t rank = 0; rank < count; ++rank)
        for (uint64_t i = 0; i < len; ++i) {
            values[rank].push_back(value<double>(rank, 0, i));
            expected[i] = rank == 0 ? values[0][i] : expected[i] + values[rank][i];
        }
    std::vector<std::jthread> running;
    for (uint64_t rank = 0; rank < count; ++rank)
        running.emplace_back([&, rank] {
            const mp::impl::AllReduceHalves halves(ranks.of(rank), values[rank].data(), values[rank].data(), 8 * len);
            const mp::CollectiveRun first = {halves.apart, halves.mine, mp::element_f64, mp::reduction_sum};
            const mp::CollectiveRun second = {halves.combined, halves.whole, 0, mp::no_reduction};
            mp::host::launch(1 + unsigned(rank), 4, mp_collective_rings, ranks.of(rank), first, second, halves.apart.bytes);
        });
    running.clear();
    for (const auto& got : values) CHECK(got == expected);
}

// The kernels of streams: an operation that is known when they run.
CASE(an_all_reduce_gives_every_rank_the_same) {
    for (const uint64_t count : {1, 2, 4}) {
        Ranks ranks(count, 400, 48, 2, 64);
        std::vector<std::vector<double>> values(count, std::vector<double>(50));
        std::vector<std::vector<std::int32_t>> words(count, std::vector<std::int32_t>(12));
        for (std::uint32_t round = 0; round < 30; ++round) {
            for (uint64_t rank = 0; rank < count; ++rank) {
                for (uint64_t i = 0; i < 50; ++i) values[rank][i] = 0.1 * static_cast<double>((rank + 1) * (i + 1) + round);
                for (uint64_t i = 0; i < 12; ++i) words[rank][i] = std::int32_t((rank * 7 + i * 3 + round) % 5) - 2;
            }
            std::vector<double> expected = values[0];
            std::vector<std::int32_t> largest = words[0];
            for (uint64_t rank = 1; rank < count; ++rank) {
                for (uint64_t i = 0; i < 50; ++i) expected[i] += values[rank][i];
                for (uint64_t i = 0; i < 12; ++i) largest[i] = std::max(largest[i], words[rank][i]);
            }
            {
                std::vector<std::jthread> running;
                for (uint64_t rank = 0; rank < count; ++rank)
                    running.emplace_back([&, rank] {
                        const auto whole = [&](void* memory, uint64_t bytes) { return mp::impl::one_block(memory, bytes, 0, count); };
                        mp::Blocks doubles = whole(values[rank].data(), 48), ints = whole(words[rank].data(), 44);
                        const mp::CollectiveRun sum = {doubles, doubles, mp::element_f64, mp::reduction_sum};
                        const mp::CollectiveRun max = {ints, ints, mp::element_i32, mp::reduction_max};
                        mp::host::launch(1, 4, mp_collective, ranks.of(rank), sum, uint64_t{48});
                        mp::host::launch(1, 2, mp_collective, ranks.of(rank), max, uint64_t{44});
                        mp::Blocks rest = whole(values[rank].data() + 6, 352);
                        const mp::CollectiveRun large = {rest, rest, mp::element_f64, mp::reduction_sum}, none = {};
                        mp::host::launch(2, 2, mp_collective_lanes, ranks.of(rank), large, none, uint64_t{352});
                    });
            }
            for (uint64_t rank = 0; rank < count; ++rank) {
                CHECK(values[rank] == expected);
                for (uint64_t i = 0; i < 11; ++i) CHECK_THAT(words[rank][i], ==, largest[i]);
            }
        }
    }
}

CASE(more_than_a_collective_has_room_for_is_refused_by_every_thread) {
    Ranks ranks(1, 32, 32);
    std::array<mp::WaitStatus, 3> status;
    double values[5] = {};
    mp::host::launch(1, 3, +[](mp::Collective collective, double* values, mp::WaitStatus* status) {
        status[mp::thread_rank()] = mp::all_reduce(mp::block(), collective, values, 5, mp::sum_t{}).status;
    }, ranks.of(0), values, status.data());
    for (const mp::WaitStatus one : status) CHECK_THAT(one, ==, mp::out_of_range);
    CHECK_THAT(ranks.reports[0].status, ==, static_cast<std::uint32_t>(mp::out_of_range));
    CHECK(ranks.reports[0].waited_ns == 40 && ranks.reports[0].seen == 32 && ranks.states[0].ring.runs == 0);
}

CASE(a_collective_whose_partner_does_not_come_reports_and_ends) {
    // By packets, by lanes, and where only one gives, when the ring has come round.
    Ranks ranks(2, 1024, 16, 2, 32);
    std::vector<uint64_t> values(128);
    CHECK_THAT(mp::all_reduce(mp::thread(), ranks.of(0, 1'000'000), values.data(), 2, mp::sum_t{}).status, ==, mp::timed_out);
    CHECK_THAT(ranks.reports[0].expected, ==, 1u);
    Ranks large(2, 1024, 16, 2, 32);
    CHECK_THAT(mp::all_reduce(mp::thread(), large.of(0, 1'000'000), values.data(), 128, mp::sum_t{}).status, ==, mp::timed_out);
    CHECK_THAT(large.reports[0].status, ==, static_cast<std::uint32_t>(mp::timed_out));
    Ranks root(2, 1024, 16, 2, 32);
    const auto give = [&](uint64_t rank, uint64_t bytes) { return mp::broadcast(mp::thread(), root.of(rank, 1'000'000), 0, values.data(), bytes).status; };
    for (const uint64_t bytes : {8, 16, 8}) CHECK_THAT(give(0, bytes), ==, mp::ok);
    CHECK_THAT(give(0, 8), ==, mp::timed_out);
    CHECK(root.reports[0].expected == 3 && root.states[0].ring.position == 4);
    // What has been taken may be overwritten, and no more.
    CHECK_THAT(give(1, 8), ==, mp::ok);
    CHECK_THAT(give(0, 8), ==, mp::ok);
    CHECK_THAT(give(0, 8), ==, mp::timed_out);
}

// All 2^16 numbers there and back, and what lies between two of them.
CASE(numbers_of_16_bits_are_rounded_to_nearest_even) {
    unsigned wrong = 0;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const mp::f16 half = {static_cast<std::uint16_t>(bits)};
        const mp::bf16 brain = {static_cast<std::uint16_t>(bits)};
        const float one = mp::impl::wide(half), other = mp::impl::wide(brain);
        const bool nan = (bits & 0x7fff) > 0x7c00;
        wrong += nan ? !std::isnan(one) || !std::isnan(mp::impl::wide(mp::impl::Narrow<mp::f16>::of(one))) : mp::impl::Narrow<mp::f16>::of(one).bits != bits;
        wrong += std::isnan(other) ? !std::isnan(mp::impl::wide(mp::impl::Narrow<mp::bf16>::of(other))) : mp::impl::Narrow<mp::bf16>::of(other).bits != bits;
        if ((bits & 0x7fff) >= 0x7bff) continue;
        // Half way to the next one away from zero, and a little to both sides.
        const mp::f16 next = {static_cast<std::uint16_t>(bits + 1)};
        const float middle = one + (mp::impl::wide(next) - one) / 2;
        wrong += mp::impl::Narrow<mp::f16>::of(middle).bits != bits + (bits & 1);
        wrong += mp::impl::Narrow<mp::f16>::of(std::nextafter(middle, 2 * middle)).bits != bits + 1;
        wrong += mp::impl::Narrow<mp::f16>::of(std::nextafter(middle, 0.0f)).bits != bits;
    }
    CHECK_THAT(wrong, ==, 0u);
    CHECK_THAT(mp::impl::wide(mp::f16{0x3555}), ==, 0x1.554p-2f);
    CHECK_THAT(mp::impl::Narrow<mp::f16>::of(65520.0f).bits, ==, 0x7c00);
    CHECK_THAT(mp::impl::Narrow<mp::bf16>::of(1.01f).bits, ==, 0x3f81);
}

// Between other runs of the collective, which count on from there.
CASE(barriers_that_are_met_at_again_and_again_are_runs_like_others) {
    Ranks ranks(3, 64, 64);
    std::vector<std::jthread> running;
    for (uint64_t rank = 0; rank < 3; ++rank)
        running.emplace_back([&ranks, rank] {
            mp::host::launch(1, 2, +[](mp::Collective collective, uint64_t rank) {
                static uint64_t values[3][1];
                for (uint64_t round = 0; round < 10; ++round) {
                    mp::Barrier barrier(mp::block(), collective);
                    for (uint64_t i = 0; i < round; ++i)
                        CHECK(!(i % 2 == 0 ? barrier.wait(mp::block()) : barrier.wait(mp::block(), mp::sync_only)).failed());
                    barrier.close(mp::block());
                    if (mp::thread_rank() == 0) values[rank][0] = rank + round;
                    CHECK(!mp::all_reduce(mp::block(), collective, values[rank], 1, mp::sum_t{}).failed());
                    CHECK_THAT(values[rank][0], ==, 3 + 3 * round);
                    // Of a run in which not all hear all a rank tells the others when it has taken.
                    CHECK(!mp::broadcast(mp::block(), collective, 0, values[rank], 8).failed());
                }
            }, ranks.of(rank), rank);
        });
    running.clear();
    for (const auto& state : ranks.states) CHECK(state.ring.runs == 20 && state.met == 45);
}

CASE(a_barrier_orders_what_the_ranks_wrote_before) {
    // More ranks than the handle has addresses of; by stores, and by additions.
    for (const auto& [count, adds] : {std::pair<uint64_t, uint64_t>{1, 0}, {2, 0}, {9, 0}, {2, 1}, {3, 1}, {9, 1}}) {
        Ranks ranks(count, 8, 8);
        ranks.adds = adds;
        static std::vector<uint64_t> written;
        written.assign(count, 0);
        std::vector<std::jthread> running;
        for (uint64_t rank = 0; rank < count; ++rank)
            running.emplace_back([&ranks, rank] {
                mp::host::launch(1, 2, +[](mp::Collective collective) {
                    // Many threads that wait on few cores take long.
                    const uint64_t rounds = collective.ranks > 3 ? 5 : 40;
                    for (uint64_t round = 1; round <= rounds; ++round) {
                        if (mp::thread_rank() == 1) written[collective.rank] = round;
                        CHECK(!mp::barrier(mp::block(), collective).failed());
                        for (const uint64_t seen : written) CHECK_THAT(seen, ==, round);
                        CHECK(!mp::barrier(mp::block(), collective).failed());
                    }
                }, ranks.of(rank));
            });
    }
}

CASE(a_barrier_that_ended_without_all_is_come_to_again) {
    for (const uint64_t adds : {0, 1}) {
        Ranks ranks(2, 8, 8);
        ranks.adds = adds;
        const auto come = [&](uint64_t rank, uint64_t timeout_ns) { return mp::barrier(mp::thread(), ranks.of(rank, timeout_ns)).status; };
        for (uint64_t number = 1; number <= 3; ++number) {
            CHECK_THAT(come(0, 1'000'000), ==, mp::timed_out);
            CHECK_THAT(come(0, 1'000'000), ==, mp::timed_out);
            CHECK_THAT(ranks.reports[0].expected, ==, number);
            CHECK_THAT(ranks.reports[0].seen, ==, number - 1);
            ranks.reports[0] = {};
            mp::WaitStatus other = mp::timed_out;
            std::jthread there([&] { other = come(1, minute_ns); });
            CHECK_THAT(come(0, minute_ns), ==, mp::ok);
            there.join();
            CHECK_THAT(other, ==, mp::ok);
            CHECK(ranks.states[0].met == number && ranks.states[1].met == number);
        }
    }
}

CASE(a_barrier_without_order_still_waits_for_all) {
    Ranks ranks(2, 8, 8);
    mp::PingPongTime times[2] = {};
    std::jthread other([&] {
        mp::host::launch(1, 1, mp_perf_barrier, ranks.of(0), uint64_t{5}, uint64_t{50}, 0u, &times[0]);
    });
    mp::host::launch(1, 1, mp_perf_barrier, ranks.of(1), uint64_t{5}, uint64_t{50}, 0u, &times[1]);
    other.join();
    CHECK_THAT(ranks.states[0].met, ==, 55u);
    CHECK_THAT(mp::barrier(mp::thread(), ranks.of(0, 1'000'000), mp::sync_only).status, ==, mp::timed_out);
    CHECK_THAT(ranks.reports[0].expected, ==, 56u);
}
