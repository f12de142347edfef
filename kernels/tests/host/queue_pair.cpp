// The send queue of a kernel against the NIC of nic.hpp. gdsync tests the same kernels against the software NIC; here
// ThreadSanitizer sees both sides.
#include <atomic>
#include <cstring>
#include <memory>
#include <mp/host/launch.hpp>
#include <thread>
#include <vector>

#include "../cuda/queue_pair.cu"
#include "check.hpp"
#include "nic.hpp"

using std::uint16_t;
using std::uint32_t;
using std::uint64_t;

namespace {

constexpr uint64_t millisecond_ns = 1'000'000;
constexpr mp::WaitBounds minute = {.abort = 0, .timeout_ns = 60'000 * millisecond_ns};
constexpr mp::WaitBounds short_while = {.abort = 0, .timeout_ns = 20 * millisecond_ns};
mp::Posted post_nop(const mp::QueuePair& qp, const mp::WaitBounds& bounds) {
    const auto nop = [](mp::SendRing ring, uint16_t index) { mp::encode_nop(ring, index, mp::notify_always); };
    return mp::post(mp::thread(), qp, 1, nop, bounds);
}

void every_word_arrives(uint32_t flavour, unsigned blocks, unsigned threads, uint32_t count) {
    const uint32_t all = blocks * threads * count;
    Nic nic(512);
    std::vector<uint64_t> target(all);
    const mp::QueuePair qp = nic.view();
    std::vector<uint32_t> results(blocks * threads, 99);
    mp::host::launch(blocks, threads, mp_qp_write_words, qp, mp::RemoteAddress{address(target.data()), 1}, uint64_t{5}, count, flavour,
                     minute, results.data());
    for (const uint32_t result : results) CHECK_THAT(result, ==, 0u);
    const mp::Posted last = post_nop(qp, minute);
    CHECK_THAT(last.position, ==, all);
    CHECK(mp::wait_completed(mp::thread(), qp, last.position, minute) == mp::PostStatus::ok);
    CHECK_THAT(nic.executed.load(), ==, all + 1);
    for (uint32_t word = 0; word < all; ++word) CHECK_THAT(target[word], ==, mp::pattern(5, word));
    CHECK_THAT(nic.state[0].rings, <=, uint64_t{all} + 1);
}

}  // namespace

CASE(what_threads_post_arrives_once_and_in_place) { every_word_arrives(mp::post_by_thread, 4, 16, 200); }

CASE(what_warps_post_arrives_once_and_in_place) { every_word_arrives(mp::post_by_warp, 2, 64, 100); }

CASE(what_blocks_post_arrives_once_and_in_place) { every_word_arrives(mp::post_by_block, 3, 40, 100); }

CASE(positions_go_on_past_the_16_bits_of_a_completion) { every_word_arrives(mp::post_by_warp, 1, 64, 1100); }

CASE(one_doorbell_serves_many_that_are_ready) {
    Nic nic(64);
    const mp::QueuePair qp = nic.view();
    std::vector<uint32_t> results(1);
    // The first entry is the CPU's and not rung: what is posted behind it waits.
    nic.reserved = 1;
    mp::encode_nop(mp::send_ring(qp), 0, mp::notify_always);
    std::vector<std::jthread> posters;
    for (int k = 0; k < 8; ++k) {
        posters.emplace_back([&] { CHECK(post_nop(qp, minute).status == mp::PostStatus::ok); });
    }
    while (mp::load(&nic.reserved, mp::relaxed, mp::system) < 9) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK_THAT(nic.executed.load(), ==, 0u);
    mp_qp_ring(qp, 0, 1, minute, results.data());
    posters.clear();
    CHECK(mp::wait_completed(mp::thread(), qp, 8, minute) == mp::PostStatus::ok);
    CHECK_THAT(nic.executed.load(), ==, 9u);
    CHECK_THAT(nic.state[0].rings, <, 9u);
}

CASE(entries_that_the_cpu_rings_are_passed_over) {
    Nic nic(64);
    const mp::QueuePair qp = nic.view();
    for (uint64_t round = 0; round < 300; ++round) {
        // The CPU's turn: reserve, write, ring as GpuQueuePair::post does.
        const uint64_t mine = mp::load(&nic.reserved, mp::relaxed, mp::system);
        mp::store(&nic.reserved, mine + 1, mp::relaxed, mp::system);
        mp::encode_nop(mp::send_ring(qp), uint16_t(mine), mp::notify_always);
        std::jthread cpu([&] {
            while (mp::load(&nic.published, mp::acquire, mp::system) != mine) std::this_thread::yield();
            mp::store(&nic.record, mp::doorbell_record_word(uint16_t(mine + 1)), mp::release, mp::system);
            mp::store(&nic.doorbell, mp::doorbell_value(nic.qpn, uint16_t(mine + 1)), mp::release, mp::system);
            mp::store(&nic.published, mine + 1, mp::release, mp::system);
        });
        const mp::Posted posted = post_nop(qp, minute);
        CHECK(posted.status == mp::PostStatus::ok);
        CHECK_THAT(posted.position, ==, 2 * round + 1);
        // So that the CPU has room in its turn.
        CHECK(mp::wait_completed(mp::thread(), qp, posted.position, minute) == mp::PostStatus::ok);
    }
    CHECK_THAT(nic.executed.load(), ==, 600u);
}

CASE(a_full_queue_holds_back_who_posts_until_the_nic_goes_on) {
    Nic nic(32);
    const mp::QueuePair qp = nic.view();
    nic.paused = true;
    for (int k = 0; k < 32; ++k) CHECK(post_nop(qp, minute).status == mp::PostStatus::ok);
    std::jthread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        nic.paused = false;
    });
    CHECK(post_nop(qp, minute).status == mp::PostStatus::ok);
    CHECK_THAT(nic.executed.load(), >=, 1u);
}

CASE(a_full_queue_whose_nic_never_goes_on_ends_by_the_deadline) {
    Nic nic(32);
    const mp::QueuePair qp = nic.view();
    nic.paused = true;
    for (int k = 0; k < 32; ++k) CHECK(post_nop(qp, minute).status == mp::PostStatus::ok);
    CHECK(post_nop(qp, short_while).status == mp::PostStatus::timed_out);
}

CASE(a_wait_for_a_completion_ends_by_deadline_and_by_abort) {
    Nic nic(32);
    const mp::QueuePair qp = nic.view();
    nic.paused = true;
    const mp::Posted posted = post_nop(qp, minute);
    CHECK(mp::wait_completed(mp::thread(), qp, posted.position, short_while) == mp::PostStatus::timed_out);
    const uint64_t abort = 1;
    const mp::WaitBounds aborted = {.abort = address(&abort), .timeout_ns = minute.timeout_ns};
    CHECK(mp::wait_completed(mp::thread(), qp, posted.position, aborted) == mp::PostStatus::aborted);
    nic.paused = false;
    CHECK(mp::wait_completed(mp::thread(), qp, posted.position, minute) == mp::PostStatus::ok);
}

CASE(a_failed_request_fails_and_those_before_it_are_complete) {
    Nic nic(64);
    const mp::QueuePair qp = nic.view();
    nic.fails_at = 3;
    for (int k = 0; k < 4; ++k) CHECK(post_nop(qp, minute).status == mp::PostStatus::ok);
    CHECK(mp::wait_completed(mp::thread(), qp, 3, minute) == mp::PostStatus::failed);
    CHECK(mp::wait_completed(mp::thread(), qp, 2, minute) == mp::PostStatus::ok);
    CHECK(nic.state[0].failure == (0x100 | uint64_t(mp::Syndrome::remote_access)));
}

CASE(requests_that_are_flushed_make_no_request_before_them_complete) {
    Nic nic(64);
    const mp::QueuePair qp = nic.view();
    for (int k = 0; k < 2; ++k) CHECK(post_nop(qp, minute).status == mp::PostStatus::ok);
    CHECK(mp::wait_completed(mp::thread(), qp, 1, minute) == mp::PostStatus::ok);
    nic.paused = true;
    nic.fails_at = 3;
    for (int k = 2; k < 6; ++k) CHECK(post_nop(qp, minute).status == mp::PostStatus::ok);
    nic.paused = false;
    while (nic.flushed < 2) std::this_thread::yield();
    // Number 2 has happened, too, but nothing says so any more.
    for (uint64_t k = 2; k < 6; ++k)
        CHECK(mp::wait_completed(mp::thread(), qp, k, minute) == mp::PostStatus::failed);
    for (uint64_t k = 0; k < 2; ++k) CHECK(mp::wait_completed(mp::thread(), qp, k, minute) == mp::PostStatus::ok);
    CHECK(nic.state[0].failure == (0x100 | uint64_t(mp::Syndrome::flushed)));
    // What is posted to a queue that has failed is flushed, too.
    CHECK(post_nop(qp, minute).status != mp::PostStatus::too_large);
    CHECK(mp::wait_completed(mp::thread(), qp, 6, minute) == mp::PostStatus::failed);
}

CASE(more_blocks_than_the_queue_can_free_are_refused) {
    Nic nic(32);
    const mp::QueuePair qp = nic.view();
    const auto nothing = [](mp::SendRing, uint16_t) {};
    CHECK(mp::post(mp::thread(), qp, 18, nothing, minute).status == mp::PostStatus::too_large);
    CHECK_THAT(nic.reserved, ==, 0u);
}
