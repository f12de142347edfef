// Device ranks on the host: the kernels of dranks/tests, a block of OS threads for each rank, and several devices as launches that run at
// once, each with control memory of its own.
#include <algorithm>
#include <functional>
#include <memory>
#include <mp/host/launch.hpp>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "../../../dranks/tests/kernels/kernels.cu"
#include "check.hpp"
#include "window.hpp"

using std::uint32_t;
using std::uint64_t;

namespace {

struct Shape {
    uint32_t devices = 1, ranks = 4, threads = 1;
    uint32_t slots = 16, spill = 256;
    uint64_t words = 64;
    uint64_t first = 0;  // ticket
    uint64_t timeout_ns = 60'000'000'000;
    uint32_t lines = 0;
};

// A world in this process.
class RanksWorld {
public:
    explicit RanksWorld(const Shape& shape) : shape_(shape), controls_(shape.devices), memories_(shape.devices), results_(shape.devices) {
        const uint64_t devices = shape.devices, ranks = shape.ranks, all = devices * ranks;
        uint64_t end = 0;
        const auto room = [&end](uint64_t bytes) {
            const uint64_t at = end;
            end += (bytes + 63) / 64 * 64;
            return at;
        };
        mp::Ranks common = {};
        common.rings = room(ranks * devices * shape.slots * sizeof(mp::Packet));
        common.tails = room(8 * all);
        common.heads = room(8 * all);
        common.arrived = room(8 * devices);
        common.meetings = room(6 * mp::signal_stride);
        common.states = room(ranks * sizeof(mp::RankState));
        common.positions = room(ranks * devices * sizeof(mp::RankPosition));
        common.queues = room(8 * ranks * shape.spill);
        common.parts = room(2 * mp::rank_windows * all * sizeof(mp::RankPart));
        common.calls = room(8 * 2 * mp::rank_windows);
        common.report = room(sizeof(mp::RankReport));
        nowhere_ = room(8 * all);
        common.abort = address(&abort);
        common.timeout_ns = shape.timeout_ns;
        common.devices = shape.devices;
        common.per_device = shape.ranks;
        common.size = shape.devices * shape.ranks;
        common.slots = shape.slots;
        common.spill = shape.spill;
        common.log_lines = shape.lines;
        lines.resize(shape.lines);
        for (uint32_t device = 0; device < shape.devices; ++device) {
            controls_[device].resize(end / sizeof(mp::Packet));
            memories_[device].resize((ranks + 1) * shape.words + 1);
            results_[device].resize(ranks);
            mp::Ranks& mine = ranks_.emplace_back(common);
            mine.control = address(controls_[device].data());
            mine.memory = address(memories_[device].data());
            mine.bytes = 8 * memories_[device].size();
            mine.device = device;
            mine.first = device * shape.ranks;
            firsts_.push_back(mine.first);
            control_parts_.push_back(mapped(mine.control, end));
            memory_parts_.push_back(mapped(mine.memory, mine.bytes));
            if (shape.lines != 0) mine.log = address(lines.data()), mine.log_read = address(&read);
        }
        firsts_.push_back(common.size);
        for (uint32_t device = 0; device < shape.devices; ++device) {
            begin_at(device, shape.first);
            ranks_[device].controls = address(control_parts_.data());
            ranks_[device].memories = address(memory_parts_.data());
            ranks_[device].firsts = address(firsts_.data());
        }
    }

    // All devices at once. No rank may have found anything wrong, if they are to be right.
    void run(void (*kernel)(mp::Ranks, Check), uint64_t rounds, uint64_t flavour = 0, uint64_t words = 0) {
        {
            std::vector<std::jthread> devices;
            for (uint32_t device = 0; device < shape_.devices; ++device)
                devices.emplace_back([=, this] {
                    const Check check = {ranks_[device].memory, words == 0 ? shape_.words : words, rounds, address(results_[device].data()), flavour};
                    mp::host::launch(shape_.ranks, shape_.threads, kernel, ranks_[device], check);
                });
        }
        for (uint32_t device = 0; device < shape_.devices; ++device)
            for (uint32_t rank = 0; rank < shape_.ranks; ++rank)
                if (results_[device][rank] != 0)
                    check::fail("dranks/tests/kernels/kernels.cu", static_cast<int>(results_[device][rank]),
                                "rank " + std::to_string(device * shape_.ranks + rank) + " of " + std::to_string(shape_.devices) + " x " +
                                    std::to_string(shape_.ranks) + ", " + std::to_string(shape_.threads) + " threads");
    }
    // And nothing may have been reported.
    void pass(void (*kernel)(mp::Ranks, Check), uint64_t rounds, uint64_t flavour = 0) {
        run(kernel, rounds, flavour);
        for (uint32_t device = 0; device < shape_.devices; ++device) CHECK_THAT(report(device).status, ==, 0u);
    }

    // What this device says of how far it has read goes nowhere.
    void lose_credits(uint32_t device) {
        ranks_[device].tails = nowhere_;
    }

    uint64_t* memory(uint32_t device) { return memories_[device].data(); }
    const mp::RankReport& report(uint32_t device) const {
        return *mp::impl::at<const mp::RankReport>(ranks_[device].control + ranks_[device].report);
    }
    uint64_t lost(uint32_t device) const { return *mp::impl::meeting_of(ranks_[device], mp::log_lost); }

    uint64_t abort = 0;
    uint64_t read = 0;
    std::vector<mp::LogLine> lines;

private:
    // As if so many notifications had gone through every ring.
    void begin_at(uint32_t device, uint64_t first) {
        const mp::Ranks& all = ranks_[device];
        const uint64_t rings = uint64_t{all.per_device} * all.devices, ranks = uint64_t{all.per_device} * all.devices;
        for (uint64_t i = 0; i < rings * all.slots; ++i) mp::impl::at<mp::Packet>(all.control + all.rings)[i].epoch = first;
        for (uint64_t i = 0; i < ranks; ++i) {
            mp::impl::at<uint64_t>(all.control + all.heads)[i] = first;
            mp::impl::at<uint64_t>(all.control + all.tails)[i] = first;
        }
        for (uint64_t i = 0; i < rings; ++i) mp::impl::at<mp::RankPosition>(all.control + all.positions)[i] = {first, first};
    }

    Shape shape_;
    uint64_t nowhere_ = 0;  // words that nobody reads
    std::vector<std::vector<mp::Packet>> controls_;
    std::vector<std::vector<uint64_t>> memories_, results_;
    std::vector<mp::WindowPart> control_parts_, memory_parts_;
    std::vector<uint32_t> firsts_;
    std::vector<mp::Ranks> ranks_;
};

// Worlds of several shapes; blocks of one, some and many threads.
std::vector<Shape> shapes(uint32_t spill = 256, uint64_t words = 64) {
    std::vector<Shape> all;
    for (auto [devices, ranks, threads] : {std::tuple{1u, 1u, 1u}, {1u, 7u, 1u}, {2u, 1u, 1u}, {2u, 3u, 2u}, {3u, 2u, 1u}, {1u, 3u, 32u}, {1u, 2u, 128u}}) {
        Shape shape;
#if defined(__SANITIZE_THREAD__)
        // Nothing crosses more threads that does not cross 32, and it takes minutes.
        if (threads > 32) continue;
#endif
        shape.devices = devices, shape.ranks = ranks, shape.threads = threads, shape.spill = spill, shape.words = words;
        all.push_back(shape);
    }
    return all;
}
void pass_all(const std::vector<Shape>& shapes, void (*kernel)(mp::Ranks, Check), uint64_t rounds) {
    for (const Shape& shape : shapes) RanksWorld(shape).pass(kernel, rounds);
}

void with_slots(std::vector<Shape> shapes, uint32_t slots, void (*kernel)(mp::Ranks, Check), uint64_t rounds) {
    for (Shape& shape : shapes) shape.slots = slots;
    pass_all(shapes, kernel, rounds);
}

}  // namespace

CASE(device_ranks_know_their_numbers) { pass_all(shapes(), ranks_numbers, 1); }

CASE(device_ranks_open_windows_of_any_kind_and_use_their_numbers_again) { pass_all(shapes(), ranks_windows, 40); }

CASE(device_ranks_open_no_more_windows_than_there_are_numbers) {
    RanksWorld world(Shape{});
    world.run(ranks_window_numbers, 1);
    CHECK_THAT(world.report(0).status, ==, static_cast<uint32_t>(mp::no_room));
    CHECK_THAT(world.report(0).call, ==, static_cast<uint32_t>(mp::rank_create));
}

CASE(device_ranks_refuse_what_lies_outside_and_write_and_notify_nothing) {
    for (const Shape& shape : shapes()) {
        RanksWorld world(shape);
        world.run(ranks_refusals, 1);
        CHECK_THAT(world.report(0).status, ==, static_cast<uint32_t>(mp::bad_argument));
    }
}

CASE(device_ranks_put_and_get_any_bytes_from_and_to_any_place) { pass_all(shapes(64, 64), ranks_transfers, 1); }

CASE(device_ranks_put_and_get_rows_of_any_width_between_arrays_of_any) { pass_all(shapes(64, 64), ranks_rows, 1); }

CASE(device_ranks_put_and_get_much) {
    Shape shape;
    shape.devices = 2, shape.ranks = 1, shape.threads = 4, shape.words = 1 << 16;
    RanksWorld(shape).pass(ranks_puts, 4);
}

CASE(device_ranks_hear_of_collectives_that_nobody_waits_in) { pass_all(shapes(), ranks_collectives, 20); }

CASE(device_ranks_answer_the_questions_of_fompi_na) { pass_all(shapes(1024), ranks_fompi, 10); }

CASE(device_ranks_read_what_another_block_wrote_in_place) { pass_all(shapes(), ranks_beside, 40); }

CASE(device_ranks_overwrite_nothing_when_no_credit_comes) {
    Shape shape;
    shape.devices = 2, shape.ranks = 1, shape.slots = 4, shape.timeout_ns = 1'000'000'000;
    RanksWorld world(shape);
    world.lose_credits(1);
    world.run(ranks_no_credit, 1);
    const mp::RankReport& report = world.report(0);
    CHECK_THAT(report.status, ==, static_cast<uint32_t>(mp::timed_out));
    CHECK_THAT(report.call, ==, static_cast<uint32_t>(mp::rank_notify));
    CHECK_THAT(report.peer, ==, 1u);
    CHECK_THAT(report.tag, ==, 4u);
    CHECK_THAT(world.report(1).status, ==, 0u);
}

CASE(device_ranks_are_not_left_waiting_for_threads_that_have_ended) {
    Shape shape;
    shape.devices = 2, shape.ranks = 2, shape.threads = 4, shape.timeout_ns = 1'000'000'000;
    RanksWorld(shape).run(ranks_half, 1);
}

CASE(device_ranks_copy_nothing_where_source_and_target_are_one) { pass_all(shapes(4096), ranks_in_place, 200); }

CASE(device_ranks_see_what_was_put_before_a_notification) { pass_all(shapes(), ranks_puts, 40); }

CASE(device_ranks_see_what_those_saw_that_notify_them) { pass_all(shapes(), ranks_chains, 40); }

CASE(device_ranks_meet_in_barriers_and_none_laps) { pass_all(shapes(), ranks_barriers, 60); }

CASE(device_ranks_match_notifications_by_window_source_and_tag) { pass_all(shapes(512), ranks_matching, 1); }

CASE(device_ranks_count_past_the_end_of_a_word) {
    for (const uint64_t before : {1, 5, 90}) {
        Shape shape;
        shape.devices = 2, shape.ranks = 2, shape.spill = 512, shape.first = 0 - before;
        RanksWorld(shape).pass(ranks_matching, 1);
    }
}

CASE(device_ranks_wait_for_more_than_a_ring_holds) {
    Shape shape;
    shape.slots = 64, shape.spill = 16384, shape.ranks = 2;
    RanksWorld(shape).pass(ranks_many, 10'000);
    shape.devices = 2, shape.ranks = 1;
    RanksWorld(shape).pass(ranks_many, 10'000);
}

CASE(device_ranks_of_a_step_ahead_count_only_if_windows_are_any) {
    Shape shape;
    RanksWorld(shape).pass(ranks_steps, 100);
    shape.devices = 2, shape.ranks = 2, shape.threads = 3;
    RanksWorld(shape).pass(ranks_steps, 30);
}

CASE(device_ranks_keep_what_nobody_waits_for_and_say_when_there_is_no_room) {
    for (Shape shape : shapes(64)) {
        RanksWorld world(shape);
        world.run(ranks_kept, 1);
        const mp::RankReport& report = world.report(0);
        CHECK_THAT(report.status, ==, static_cast<uint32_t>(mp::no_room));
        CHECK_THAT(report.call, ==, static_cast<uint32_t>(mp::rank_wait));
        CHECK_THAT(report.tag, ==, 1000u);
        CHECK_THAT(report.peer, ==, (report.rank + shape.devices * shape.ranks - 1) % (shape.devices * shape.ranks));
    }
}

CASE(device_ranks_that_send_to_each_other_before_they_wait_get_on) {
    for (const uint32_t slots : {1, 2, 16}) with_slots(shapes(512), slots, ranks_flood, 60);
}

CASE(device_ranks_in_a_crowd_lose_nothing) {
    for (const uint32_t slots : {1, 16}) {
        Shape shape;
        shape.ranks = 9, shape.slots = slots, shape.spill = 16;
        RanksWorld(shape).pass(ranks_crowd, 300);
        shape.devices = 2, shape.ranks = 4;
        RanksWorld(shape).pass(ranks_crowd, 300);
    }
}

CASE(device_ranks_that_send_to_one_that_sleeps_are_held_back_and_the_others_are_not) {
    Shape shape;
    shape.ranks = 9, shape.slots = 4, shape.spill = 16;
    RanksWorld(shape).pass(ranks_crowd, 300, 50'000'000);
    shape.devices = 2, shape.ranks = 4;
    RanksWorld(shape).pass(ranks_crowd, 300, 50'000'000);
}

CASE(device_ranks_put_to_each_other_in_random_pairs) { pass_all(shapes(), ranks_pairs, 40); }

// How far rings were read is at hand for the first devices alone, and in the devices' memory for all: also for the next kernel.
CASE(device_ranks_of_more_devices_than_a_desk_has_room_for) {
    for (const uint32_t slots : {1, 16}) {
        Shape shape;
        shape.devices = mp::impl::desk_devices + 1, shape.ranks = 1, shape.slots = slots, shape.spill = 512;
        RanksWorld world(shape);
        for (int kernel = 0; kernel < 2; ++kernel) {
            world.pass(ranks_flood, 3);
            world.pass(ranks_matching, 1);
            world.pass(ranks_crowd, 5);
        }
    }
}

CASE(device_ranks_wait_for_one_that_starts_late) { pass_all(shapes(), ranks_late, 50'000'000); }

CASE(device_ranks_take_nothing_when_they_are_too_late) {
    Shape shape;
    RanksWorld(shape).pass(ranks_deadline, 1);
    shape.ranks = 1, shape.devices = 2, shape.threads = 32;
    RanksWorld(shape).pass(ranks_deadline, 1);
}

CASE(device_ranks_name_the_one_that_does_not_come) {
    for (auto [devices, flavour, absent] : {std::tuple{1u, 0u, 0u}, {1u, 1u, 3u}, {2u, 0u, 3u}, {2u, 1u, 0u}}) {
        Shape shape;
        shape.devices = devices, shape.ranks = 4 / devices, shape.timeout_ns = flavour == 0 ? 500'000'000 : 2'000'000'000;
        RanksWorld world(shape);
        world.run(ranks_absent, absent, flavour);
        for (uint32_t device = 0; device < devices; ++device) {
            const mp::RankReport& report = world.report(device);
            CHECK_THAT(report.status, ==, static_cast<uint32_t>(mp::timed_out));
            CHECK_THAT(report.call, ==, static_cast<uint32_t>(flavour == 0 ? mp::rank_barrier : mp::rank_wait));
            CHECK_THAT(report.missing, ==, absent);
            CHECK_THAT(report.phase, ==, static_cast<uint32_t>(mp::rank_finished));
            if (flavour == 1) CHECK_THAT(report.wanted, ==, 3u);
            CHECK_THAT(report.waited_ns, >=, shape.timeout_ns);
        }
    }
}

CASE(device_ranks_of_a_lost_world_end) {
    for (const uint32_t devices : {1, 2}) {
        Shape shape;
        shape.devices = devices, shape.ranks = 6 / devices, shape.slots = 2, shape.spill = 4;
        RanksWorld world(shape);
        std::jthread lose([&] {
            for (uint32_t device = 0; device < devices; ++device)
                for (uint32_t rank = 0; rank < shape.ranks; ++rank)
                    while (mp::load(world.memory(device) + rank * shape.words + 1, mp::relaxed, mp::system) == 0) sched_yield();
            mp::store(&world.abort, uint64_t{1}, mp::release, mp::system);
        });
        world.run(ranks_aborted, 1);
        CHECK_THAT(world.report(0).status, ==, static_cast<uint32_t>(mp::aborted));
    }
}

CASE(device_ranks_write_lines_whole_and_never_wait_for_a_reader) {
    Shape shape;
    shape.ranks = 20, shape.lines = 1024;
    RanksWorld world(shape);
    // Nobody reads while they run: what is more than the log holds is lost, and counted.
    world.pass(ranks_log, 100);
    CHECK_THAT(world.lost(0), ==, 20u * 100 - 1024);
    std::set<std::pair<uint32_t, uint64_t>> seen;
    for (uint64_t i = 0; i < world.lines.size(); ++i) {
        const mp::LogLine& line = world.lines[i];
        CHECK_THAT(line.number, ==, i + 1);
        CHECK_THAT(line.kinds & 0xff, ==, 4u);
        CHECK_THAT(std::string(reinterpret_cast<const char*>(line.text)), ==, "line {} of {}: {}, {}");
        CHECK_THAT(line.values[1], ==, line.rank);
        CHECK_THAT(static_cast<int64_t>(line.values[2]), ==, -1);
        double half = 0;
        std::memcpy(&half, &line.values[3], sizeof half);
        CHECK_THAT(half, ==, 0.5 * static_cast<double>(line.values[0]));
        CHECK(seen.insert({line.rank, line.values[0]}).second);
    }
}

CASE(device_ranks_all_hear_of_one_put) { pass_all(shapes(), ranks_notify_all, 30); }

CASE(the_stencil_of_the_dcuda_paper_is_the_one_computed_alone) {
    for (auto [devices, ranks, threads] : {std::tuple{1u, 1u, 4u}, {1u, 7u, 2u}, {2u, 3u, 5u}, {1u, 64u, 1u}, {4u, 2u, 3u}}) {
        constexpr uint64_t lines = 3, steps = 12;
        const uint64_t len = lines * threads, all = ranks * len + 2 * threads, whole = devices * ranks * len + 2 * threads;
        const auto start = [](uint64_t i) { return static_cast<double>(i * 2654435761u % 1000) / 7; };
        Shape shape;
        // Twice `all` words, which is more than what each rank has.
        shape.devices = devices, shape.ranks = ranks, shape.threads = threads, shape.words = 2 * all;
        RanksWorld world(shape);
        std::vector<double> now(whole), next(whole);
        for (uint64_t i = 0; i < whole; ++i) now[i] = next[i] = start(i);
        for (uint32_t device = 0; device < devices; ++device)
            for (uint64_t i = 0; i < all; ++i) {
                const double value = start(device * ranks * len + i);
                std::memcpy(world.memory(device) + i, &value, sizeof value);
                std::memcpy(world.memory(device) + all + i, &value, sizeof value);
            }
        for (uint64_t step = 0; step < steps; ++step, std::swap(now, next))
            for (uint64_t i = threads; i < whole - threads; ++i)
                next[i] = -4.0 * now[i] + now[i + 1] + now[i - 1] + now[i + threads] + now[i - threads];
        world.run(dcuda_figure_2, steps, 0, lines);
        uint64_t differing = 0;
        for (uint32_t device = 0; device < devices; ++device) {
            CHECK_THAT(world.report(device).status, ==, 0u);
            for (uint64_t i = threads; i < all - threads; ++i) {
                double value = 0;
                std::memcpy(&value, world.memory(device) + steps % 2 * all + i, sizeof value);
                differing += value != now[device * ranks * len + i];
            }
        }
        CHECK_THAT(differing, ==, 0u);
    }
}

CASE(a_thousand_device_ranks_turn_a_ring) {
    Shape shape;
    shape.ranks = 1056, shape.words = 8, shape.slots = 4, shape.spill = 16;
#if defined(__SANITIZE_THREAD__)
    shape.ranks = 208;
#endif
    RanksWorld(shape).pass(ranks_late, 0);
}
