// platform.cuh on the host: an OS thread for each GPU thread. Not to be included by itself; the contract is in
// platform.cuh. Both scopes are the same here. All atomics are __atomic builtins, which ThreadSanitizer models.
#pragma once

#if __cplusplus < 202002L
#error "mp: the host build of the device headers needs C++20; nvcc needs C++17"
#endif

#include <sched.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <type_traits>

#include "../host/thread.hpp"
#include "../platform.cuh"

namespace mp {
namespace impl {

constexpr int order_of(relaxed_t) { return __ATOMIC_RELAXED; }
constexpr int order_of(acquire_t) { return __ATOMIC_ACQUIRE; }
constexpr int order_of(release_t) { return __ATOMIC_RELEASE; }
constexpr int order_of(acq_rel_t) { return __ATOMIC_ACQ_REL; }

template <class T, class Scope>
constexpr void check_word() {
    static_assert(std::is_same_v<T, std::uint32_t> || std::is_same_v<T, std::uint64_t>, "a word has 32 or 64 bits");
    static_assert(std::is_same_v<Scope, gpu_t> || std::is_same_v<Scope, system_t>, "scopes are gpu and system");
}

inline std::uint64_t steady_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// The count of `true` votes only grows; `seen` is what this thread saw of it after its last vote, so nobody has to
// reset it. The second barrier keeps a fast thread's next vote out of a slow thread's reading of this one.
inline bool any(host::Meeting& meeting, unsigned& seen, bool mine) {
    if (mine) meeting.votes.fetch_add(1, std::memory_order_relaxed);
    meeting.barrier.arrive_and_wait();
    const unsigned before = seen;
    seen = meeting.votes.load(std::memory_order_relaxed);
    meeting.barrier.arrive_and_wait();
    return seen != before;
}

template <class Value>
Value broadcast(host::Meeting& meeting, bool leader, const Value& mine) {
    static_assert(sizeof(Value) <= sizeof meeting.slot && std::is_trivially_copyable_v<Value>);
    if (leader) std::memcpy(meeting.slot, &mine, sizeof mine);
    meeting.barrier.arrive_and_wait();
    Value value;
    std::memcpy(&value, meeting.slot, sizeof value);
    meeting.barrier.arrive_and_wait();
    return value;
}

inline host::Meeting* my_block() {
    return host::this_thread.block ? &host::this_thread.block->all : nullptr;
}
inline host::Meeting* my_warp() {
    return host::this_thread.block ? host::this_thread.block->warps[host::this_thread.rank / 32].get() : nullptr;
}

}  // namespace impl

template <class T, class Order, class Scope>
MP_DEVICE T load(const T* word, Order order, Scope) {
    impl::check_word<T, Scope>();
    static_assert(!std::is_same_v<Order, release_t>, "a load cannot release");
    return __atomic_load_n(word, impl::order_of(order));
}

template <class T, class Order, class Scope>
MP_DEVICE void store(T* word, T value, Order order, Scope) {
    impl::check_word<T, Scope>();
    static_assert(!std::is_same_v<Order, acquire_t>, "a store cannot acquire");
    __atomic_store_n(word, value, impl::order_of(order));
}

template <class T, class Order, class Scope>
MP_DEVICE void add(T* word, T value, Order order, Scope) {
    impl::check_word<T, Scope>();
    static_assert(!std::is_same_v<Order, acquire_t>, "add gives nothing back to acquire");
    __atomic_fetch_add(word, value, impl::order_of(order));
}

template <class T, class Kind, class Scope, class Order>
MP_DEVICE T fetch(T* word, Kind kind, T value, Scope, Order order) {
    const int how = impl::order_of(order);
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    static_assert(sizeof(T) == sizeof(Bits), "a word has 32 or 64 bits");
    auto* bits = reinterpret_cast<Bits*>(word);
    if constexpr (std::is_same_v<Kind, plus_t> && std::is_integral_v<T>)
        return static_cast<T>(__atomic_fetch_add(bits, static_cast<Bits>(value), how));
    Bits before = __atomic_load_n(bits, __ATOMIC_RELAXED);
    T held, after;
    Bits next;
    do {
        std::memcpy(&held, &before, sizeof held);
        after = kind(held, value);
        std::memcpy(&next, &after, sizeof next);
    } while (!__atomic_compare_exchange_n(bits, &before, next, true, how, __ATOMIC_RELAXED));
    return held;
}

template <class T, class Kind, class Scope, class Order>
MP_DEVICE void change(T* word, Kind kind, T value, Scope scope, Order order) {
    (void)fetch(word, kind, value, scope, order);
}

template <class T, class Scope, class Order>
MP_DEVICE T compare_swap(T* word, T expected, T value, Scope, Order order) {
    constexpr int failed = std::is_same_v<Order, acq_rel_t> ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED;
    __atomic_compare_exchange_n(word, &expected, value, false, impl::order_of(order), failed);
    return expected;
}

// There is no 128-bit atomic store to rely on here. The epoch is released after the data instead, which gives a reader of
// the epoch the same data; that slots are not written too early is checked as well, since the data is accessed on its own.
MP_DEVICE void store_packet(Packet* slot, Packet packet) {
    __atomic_store_n(&slot->data, packet.data, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->epoch, packet.epoch, __ATOMIC_RELEASE);
}

MP_DEVICE Packet load_packet(const Packet* slot) {
    Packet packet;
    packet.epoch = __atomic_load_n(&slot->epoch, __ATOMIC_ACQUIRE);
    packet.data = __atomic_load_n(&slot->data, __ATOMIC_RELAXED);
    return packet;
}

#if defined(__SANITIZE_THREAD__)
namespace impl {
// One for fences of every order and scope.
inline std::uint64_t fences = 0;
}  // namespace impl
#endif

template <class Order, class Scope>
MP_DEVICE void fence([[maybe_unused]] Order order, Scope) {
    static_assert(!std::is_same_v<Order, relaxed_t>, "a fence orders something");
#if defined(__SANITIZE_THREAD__)
    // ThreadSanitizer does not model fences. A read-modify-write of one common word orders any two fences as two real
    // ones that synchronise would be; it cannot order a fence with an acquire or release of another word.
    __atomic_fetch_add(&impl::fences, std::uint64_t{1}, __ATOMIC_ACQ_REL);
#else
    __atomic_thread_fence(impl::order_of(order));
#endif
}
constexpr release_t fenced = release;

MP_DEVICE unsigned thread_rank() { return host::this_thread.rank; }
MP_DEVICE unsigned block_threads() { return host::this_thread.block_threads; }
MP_DEVICE unsigned block_rank() { return host::this_thread.block_rank; }
MP_DEVICE unsigned grid_blocks() { return host::this_thread.grid_blocks; }
MP_DEVICE unsigned lane() { return host::this_thread.rank % 32; }
MP_DEVICE unsigned multiprocessor() { return 0; }

MP_DEVICE void begin_in_turn() {}
MP_DEVICE void block_barrier() {
    if (host::Meeting* meeting = impl::my_block()) meeting->barrier.arrive_and_wait();
}
MP_DEVICE bool block_any(bool mine) {
    host::Meeting* meeting = impl::my_block();
    return meeting ? impl::any(*meeting, host::this_thread.block_votes, mine) : mine;
}
MP_DEVICE void warp_barrier() {
    if (host::Meeting* meeting = impl::my_warp()) meeting->barrier.arrive_and_wait();
}
MP_DEVICE bool warp_any(bool mine) {
    host::Meeting* meeting = impl::my_warp();
    return meeting ? impl::any(*meeting, host::this_thread.warp_votes, mine) : mine;
}

template <class Value>
MP_DEVICE Value block_broadcast(const Value& of_thread_0) {
    host::Meeting* meeting = impl::my_block();
    return meeting ? impl::broadcast(*meeting, thread_rank() == 0, of_thread_0) : of_thread_0;
}
template <class Value>
MP_DEVICE Value* block_memory() {
    static_assert(sizeof(Value) <= 1024 && std::is_trivially_destructible_v<Value>);
    static thread_local Value alone;
    host::Block* block = host::this_thread.block;
    return block ? reinterpret_cast<Value*>(block->memory.data()) : &alone;
}
template <class Value>
MP_DEVICE Value warp_broadcast(const Value& of_lane_0) {
    host::Meeting* meeting = impl::my_warp();
    return meeting ? impl::broadcast(*meeting, lane() == 0, of_lane_0) : of_lane_0;
}

MP_DEVICE std::uint64_t clock_ns() { return impl::steady_ns(); }
MP_DEVICE std::uint64_t clock_cycles() { return impl::steady_ns(); }
MP_DEVICE void pause() {
    sched_yield();
    if (host::fibers != nullptr) host::fibers->pause();
}
MP_DEVICE void doze(unsigned) { pause(); }
MP_DEVICE void halt() {
    for (;;) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

namespace impl {
// Each poll gives the CPU away, on a busy machine for milliseconds.
constexpr int polls_between_clocks = 1;
constexpr int polls_of_shares = 1;
constexpr bool aborts_by_relay = false;

template <class T>
MP_DEVICE T fixed(const T& word) {
    return word;
}
template <class T>
MP_DEVICE void keep(T&) {}
MP_DEVICE bool uniform(bool same) { return same; }
MP_DEVICE bool is_alone() { return true; }
}  // namespace impl

}  // namespace mp
