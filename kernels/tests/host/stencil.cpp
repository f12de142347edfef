// The kernels of examples/stencil.cu on host threads, three ranks side by side, against the plate computed in one
// piece; and the roles of its blocks.
#include <array>
#include <mp/host/launch.hpp>
#include <memory>
#include <thread>

#include "../../../examples/stencil.cu"
#include "check.hpp"

using std::uint64_t;

namespace {

// One direction between two ranks, for one of the two plates.
struct Way {
    mp::MessageState sender = {}, receiver = {};
    mp::WaitReport reports[2] = {};
    uint64_t credit = 0, arrival = 0;
    std::vector<mp::Packet> inbox;

    mp::Message end(uint64_t bytes, const double* memory) {
        mp::Message end = {};
        end.len = bytes;
        end.memory = address(memory);
        end.timeout_ns = 60'000'000'000;
        end.inbox = inbox.empty() ? 0 : address(inbox.data());
        return end;
    }
    // From `row` to `ghost`, as packets or straight.
    void join(Halo& from, Halo& to, const double* row, double* ghost, uint64_t bytes, bool packets) {
        if (packets) inbox.resize(mp::packet_slots * mp::packets_of(bytes));
        from.send.message = end(bytes, row);
        from.send.message.target = packets ? 0 : address(ghost);
        from.send.message.mine = address(&credit);
        from.send.message.theirs = address(&arrival);
        from.send.message.state = address(&sender);
        from.send.message.report = address(&reports[0]);
        to.recv.message = end(bytes, ghost);
        to.recv.message.mine = address(&arrival);
        to.recv.message.theirs = address(&credit);
        to.recv.message.state = address(&receiver);
        to.recv.message.report = address(&reports[1]);
        from.there = to.there = 1;
    }
};

void plate(uint64_t side, unsigned ranks, bool packets) {
    const unsigned steps = 6;
    std::vector<double> whole((side + 2) * side), next;
    for (uint64_t i = side; i < (side + 1) * side; ++i) whole[i] = static_cast<double>(i * i % 17);
    std::vector<std::array<std::vector<double>, 2>> strips(ranks);
    std::vector<std::array<std::array<Halo, 2>, 2>> halos(ranks);
    std::vector<uint64_t> first(ranks + 1);
    for (unsigned rank = 0; rank <= ranks; ++rank) first[rank] = rank * side / ranks;
    for (unsigned rank = 0; rank < ranks; ++rank) {
        for (auto& strip : strips[rank]) strip.resize((first[rank + 1] - first[rank] + 2) * side);
        std::copy(whole.begin() + (first[rank] + 1) * side, whole.begin() + (first[rank + 1] + 1) * side,
                  strips[rank][0].begin() + side);
        for (auto& turn : halos[rank]) turn = {};
    }
    std::vector<std::unique_ptr<Way>> ways;
    for (unsigned upper = 0; upper + 1 < ranks; ++upper)
        for (unsigned turn = 0; turn < 2; ++turn) {
            double* above = strips[upper][turn].data();
            double* below = strips[upper + 1][turn].data();
            const uint64_t rows = first[upper + 1] - first[upper];
            for (int i = 0; i < 2; ++i) ways.push_back(std::make_unique<Way>());
            Halo& down = halos[upper][turn][1];
            Halo& up = halos[upper + 1][turn][0];
            ways[ways.size() - 2]->join(down, up, above + rows * side, below, 8 * side, packets);
            ways[ways.size() - 1]->join(up, down, below + side, above + (rows + 1) * side, 8 * side, packets);
        }
    std::vector<std::jthread> running;
    for (unsigned rank = 0; rank < ranks; ++rank)
        running.emplace_back([&, rank] {
            for (unsigned step = 0; step < steps; ++step) {
                const auto& halo = halos[rank][step % 2];
                const double* from = strips[rank][step % 2].data();
                mp::host::launch(5, 2, stencil, halo[0], halo[1], from, strips[rank][(step + 1) % 2].data(),
                                 first[rank + 1] - first[rank], side);
            }
        });
    running.clear();
    for (unsigned step = 0; step < steps; ++step) {
        next = whole;
        for (uint64_t row = 1; row <= side; ++row) stencil_row(whole.data(), next.data(), row, side);
        whole = next;
    }
    for (unsigned rank = 0; rank < ranks; ++rank)
        for (uint64_t i = side; i < strips[rank][0].size() - side; ++i)
            CHECK(strips[rank][steps % 2][i] == whole[first[rank] * side + i]);
}

}  // namespace

CASE(a_plate_in_strips_is_the_plate_in_one_piece) {
    for (const bool packets : {true, false}) {
        plate(9, 3, packets);
        // Strips of one row, and one strip.
        plate(3, 3, packets);
        plate(4, 1, packets);
    }
}

CASE(every_block_has_one_duty_and_senders_come_first) {
    const mp::Roles roles = {2, 3, 1};
    CHECK_THAT(roles.blocks(), ==, 6u);
    std::uint32_t last = 0;
    unsigned counts[3] = {};
    for (std::uint32_t turn = 0; turn < roles.blocks(); ++turn) {
        const mp::Duty duty = roles.of(turn);
        const auto role = static_cast<std::uint32_t>(duty.role);
        CHECK(role >= last);
        CHECK_THAT(duty.part.index, ==, counts[role]++);
        CHECK_THAT(duty.part.count, ==, (role == 0 ? 2u : role == 1 ? 3u : 1u));
        last = role;
    }
}

CASE(blocks_take_turns_in_the_order_in_which_they_start) {
    static uint64_t started;
    static std::vector<std::atomic<unsigned>> taken(4);
    started = 0;
    for (unsigned launch = 1; launch <= 3; ++launch) {
        mp::host::launch(4, 2, +[](uint64_t* started) { ++taken[mp::turn_of_block(started)]; }, &started);
        for (auto& count : taken) CHECK_THAT(count.load(), ==, 2 * launch);
    }
}
