// The smallest NIC there can be, one queue pair: a thread that looks at the doorbell, takes the entries that the doorbell record
// covers, executes them in order on this process's memory, whatever the keys say, and overwrites one completion.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mp/copy.cuh>
#include <mp/qp.cuh>
#include <thread>
#include <vector>

#include "check.hpp"
#include "window.hpp"

struct Nic {
    static constexpr std::uint32_t qpn = 0x77;

    // What kernels, CPU and NIC share.
    std::vector<mp::Octoword> queue;
    alignas(64) std::uint64_t completion[8];
    alignas(64) std::uint32_t record = 0;
    alignas(64) std::uint64_t doorbell = 0;
    std::uint64_t reserved = 0, published = 0, completed = 0;
    std::vector<mp::QueuePairState> state;

    // The NIC's own.
    std::atomic<bool> paused = false, stop = false;
    std::atomic<std::uint64_t> executed = 0, doorbells = 0;
    std::atomic<std::uint64_t> fails_at = ~std::uint64_t{0}, flushed = 0;
    std::jthread engine;

    explicit Nic(std::uint32_t blocks) : queue(blocks * mp::block_octowords), state(1 + (blocks * 8 + 127) / 128) {
        std::memset(completion, 0xff, sizeof completion);
        completion[7] = mp::big_endian(std::uint64_t{0xfffff0});  // index 0xffff, opcode invalid
        engine = std::jthread([this] { run(); });
    }
    ~Nic() { stop = true; }

    mp::QueuePair view() {
        return {
            .send_queue = address(queue.data()),
            .completion = address(completion),
            .send_record = address(&record),
            .doorbell = address(&doorbell),
            .reserved = address(&reserved),
            .published = address(&published),
            .completed = address(&completed),
            .state = address(state.data()),
            .blocks = std::uint32_t(queue.size() / mp::block_octowords),
            .qpn = qpn,
        };
    }

    const mp::Octoword& octoword(std::uint64_t at) const { return queue[at & (queue.size() - 1)]; }

    void fail(mp::Syndrome syndrome, std::uint16_t index) {
        const std::uint64_t word = std::uint64_t(syndrome) << 56;
        mp::store(&completion[mp::cqe_error_offset / 8], word, mp::relaxed, mp::system);
        complete(mp::CqeOpcode::request_error, index);
    }

    void complete(mp::CqeOpcode opcode, std::uint16_t index) {
        const std::uint64_t tail = std::uint64_t{qpn} << 32 | std::uint64_t{index} << 16 | std::uint64_t(opcode) << 4;
        mp::store(&completion[7], mp::big_endian(tail), mp::release, mp::system);
    }

    static std::uint64_t both(std::uint32_t high, std::uint32_t low) {
        return std::uint64_t{mp::big_endian(high)} << 32 | mp::big_endian(low);
    }

    // A word is written whole, and released: it may be a signal.
    static void write(std::uint64_t to, const void* from, std::uint64_t bytes) {
        if (bytes == 8 && to % 8 == 0) {
            std::uint64_t value;
            std::memcpy(&value, from, 8);
            mp::store(mp::impl::at<std::uint64_t>(to), value, mp::release, mp::system);
        } else {
            std::memcpy(mp::impl::at<void>(to), from, bytes);
        }
    }

    void execute(mp::WqeOpcode opcode, std::uint64_t first, unsigned octowords) const {
        if (opcode == mp::WqeOpcode::nop) return;
        const mp::Octoword remote = octoword(first + 1);
        std::uint64_t there = both(remote.word[0], remote.word[1]);
        if (opcode == mp::WqeOpcode::fetch_add || opcode == mp::WqeOpcode::compare_swap) {
            const mp::Octoword operands = octoword(first + 2), into = octoword(first + 3);
            const std::uint64_t value = both(operands.word[0], operands.word[1]);
            auto* word = mp::impl::at<std::uint64_t>(there);
            std::uint64_t before = both(operands.word[2], operands.word[3]);
            if (opcode == mp::WqeOpcode::fetch_add)
                before = __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
            else
                __atomic_compare_exchange_n(word, &before, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
            write(both(into.word[2], into.word[3]), &before, 8);
            return;
        }
        for (unsigned k = 2; k < octowords; ++k) {
            const mp::Octoword data = octoword(first + k);
            const std::uint32_t head = mp::big_endian(data.word[0]), bytes = head & 0x7fffffff;
            if (head >> 31 != 0) {
                std::vector<unsigned char> inlined(16 * std::size_t{octowords - k});
                for (unsigned o = 0; k + o < octowords; ++o) std::memcpy(&inlined[16 * o], &octoword(first + k + o), 16);
                write(there, &inlined[4], bytes);
                return;
            }
            const std::uint64_t here = both(data.word[2], data.word[3]);
            if (opcode == mp::WqeOpcode::read)
                write(here, mp::impl::at<const void>(there), bytes);
            else
                write(there, mp::impl::at<const void>(here), bytes);
            there += bytes;
        }
    }

    void run() {
        std::uint64_t next = 0, filled = 0;
        while (!stop) {
            if (paused || mp::load(&doorbell, mp::relaxed, mp::system) == 0) {
                std::this_thread::yield();
                continue;
            }
            __atomic_exchange_n(&doorbell, std::uint64_t{0}, __ATOMIC_ACQ_REL);
            doorbells.fetch_add(1);
            const std::uint32_t word = mp::load(&record, mp::acquire, mp::system);
            filled += std::uint16_t(std::uint16_t(mp::big_endian(word)) - std::uint16_t(filled));
            CHECK_THAT(filled - next, <=, queue.size() / mp::block_octowords);
            while (next < filled) {
                const mp::Octoword ctrl = octoword(4 * next);
                const std::uint32_t head = mp::big_endian(ctrl.word[0]), size = mp::big_endian(ctrl.word[1]);
                CHECK_THAT(std::uint16_t(head >> 8), ==, std::uint16_t(next));
                CHECK_THAT(size >> 8, ==, qpn);
                // The first fails, and all after it are flushed: each overwrites the completion.
                if (next >= fails_at) {
                    const bool first = next == fails_at;
                    fail(first ? mp::Syndrome::remote_access : mp::Syndrome::flushed, std::uint16_t(next));
                    if (!first) flushed.fetch_add(1);
                    next += mp::wqe_blocks(size & 0x3f);
                    continue;
                }
                execute(mp::WqeOpcode(head & 0xff), 4 * next, size & 0x3f);
                // Who hears of the completion may look at the count.
                executed.fetch_add(1);
                if (mp::big_endian(ctrl.word[2]) & mp::notify_always) complete(mp::CqeOpcode::request, std::uint16_t(next));
                next += mp::wqe_blocks(size & 0x3f);
            }
        }
    }
};
