// What a kernel needs of the machine: scoped atomics, fences, barriers, ids, clocks. One spelling for nvcc and for
// the host C++ compiler, where OS threads play GPU threads (host/launch.hpp), so that a protocol written with it
// is tested, and checked by ThreadSanitizer, on a machine without a GPU. It is no portability layer for numerics:
// there is nothing here that communication does not need.
//
// This file is the contract. impl/platform_cuda.cuh and impl/platform_host.hpp fulfil it: the first with inline
// PTX (ISA 6.0 memory model, sm_70 and newer), the second with the compiler's __atomic builtins.
//
// Order and scope are arguments, never defaults: mp::load(word, mp::acquire, mp::system).
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define MP_DEVICE __device__ __forceinline__
// Out of line: what is rarely run should not lie between the instructions of what is waited for.
#define MP_COLD inline __device__ __noinline__
#define MP_HOST_DEVICE __host__ __device__ __forceinline__
#define MP_KERNEL extern "C" __global__
#define MP_BLOCK_OF(threads) __launch_bounds__(threads, 1)
#define MP_UNROLL _Pragma("unroll")
#define MP_NO_UNROLL _Pragma("unroll 1")
#else
#define MP_DEVICE inline
#define MP_COLD inline
#define MP_HOST_DEVICE inline
#define MP_KERNEL inline
#define MP_BLOCK_OF(threads)
#define __grid_constant__
#define MP_UNROLL
#define MP_NO_UNROLL
#endif
// A condition that is rarely true: what the other way works with stays in registers.
#define MP_RARELY(condition) __builtin_expect(!!(condition), 0)

namespace mp {

namespace impl {

// The sum; of integers it wraps around.
template <class T>
MP_HOST_DEVICE T sum_of(T one, T other) {
    if constexpr (T(0.5) != T(0))
        return one + other;
    else
        return static_cast<T>(static_cast<std::uint64_t>(one) + static_cast<std::uint64_t>(other));
}

}  // namespace impl

// Memory orders, as in C++ and PTX. Each is a type of its own with one value, so that a wrong combination (a load
// that releases) does not compile, and no variable has to exist in device memory.
enum relaxed_t { relaxed };
enum acquire_t { acquire };
enum release_t { release };
enum acq_rel_t { acq_rel };  // of a change that gives back what the word held: acquire and release

// Scopes: who is certain to see it. `gpu`: threads of this GPU. `system`: also other GPUs, CPUs and NICs, whether
// the word is in this GPU's memory, in a peer's or in pinned host memory.
enum gpu_t { gpu };
enum system_t { system };

// ---- words in memory ------------------------------------------------------------------------------------------
// T is std::uint32_t or std::uint64_t, naturally aligned; each access is single-copy atomic. The pointer may
// point to device, peer or registered host memory.

// Reads the word. relaxed: orders nothing. acquire: reads and writes after it in this thread see everything that
// came before the release that wrote the value, if that release had a scope that includes this thread.
// Order: relaxed_t, acquire_t. Scope: gpu_t, system_t.
template <class T, class Order, class Scope>
MP_DEVICE T load(const T* word, Order, Scope);

// Writes the word. relaxed: orders nothing. release: whoever acquires this value sees everything this thread wrote or
// saw before (so, after a barrier, also what the other threads of its block wrote). A release at system scope
// over NVLink waits for the earlier writes to arrive: about the time of a round trip.
// Order: relaxed_t, release_t. Scope: gpu_t, system_t.
template <class T, class Order, class Scope>
MP_DEVICE void store(T* word, T value, Order, Scope);

// Adds to the word and gives nothing back, so the thread does not wait for the memory. Orders: relaxed_t (nothing),
// release_t (as store). Scope: gpu_t, system_t; system on host memory only where the link has native atomics.
template <class T, class Order, class Scope>
MP_DEVICE void add(T* word, T value, Order, Scope);

// How an atomic operation changes a word. Called with what the word holds and a value, each says what it holds then.
#define MP_CHANGE(name, expression)                               \
    struct name##_t {                                             \
        template <class T>                                        \
        MP_HOST_DEVICE T operator()(T held, T value) const {      \
            return expression;                                    \
        }                                                         \
    };                                                            \
    constexpr name##_t name = {};
MP_CHANGE(plus, impl::sum_of(held, value))
MP_CHANGE(bit_and, held & value)
MP_CHANGE(bit_or, held | value)
MP_CHANGE(bit_xor, held ^ value)
MP_CHANGE(lesser, value < held ? value : held)
MP_CHANGE(greater, value > held ? value : held)
MP_CHANGE(replace, (void(held), value))
#undef MP_CHANGE

// Changes the word and returns what it held, as one step for everybody in the scope. acq_rel: what came before in this thread is
// seen by whoever acquires the new value, and what came before the old value was released is seen after. relaxed: orders nothing.
// T: std::uint32_t, std::uint64_t, std::int32_t, std::int64_t; float and double with plus. Integers wrap around. Scope: gpu_t,
// system_t, as for add.
template <class T, class Kind, class Scope, class Order = acq_rel_t>
MP_DEVICE T fetch(T* word, Kind, T value, Scope, Order = {});
// The same without what it held: the thread does not wait for the memory. Order: release_t, relaxed_t. Not replace, which is store.
template <class T, class Kind, class Scope, class Order = release_t>
MP_DEVICE void change(T* word, Kind, T value, Scope, Order = {});
// Replaces the word if it holds `expected`; for the rest as fetch, of integers.
template <class T, class Scope, class Order = acq_rel_t>
MP_DEVICE T compare_swap(T* word, T expected, T value, Scope, Order = {});

template <class T, class Scope, class Order = acq_rel_t>
MP_DEVICE T fetch_add(T* word, T value, Scope scope, Order order = {}) {
    return fetch(word, plus, value, scope, order);
}

// Eight bytes of data and the epoch they belong to, written and read in one piece: a reader that sees the epoch has the
// data, with no fence between them. It orders nothing else.
struct alignas(16) Packet {
    std::uint64_t data;
    std::uint64_t epoch;
};
// At system scope, relaxed; whole (PTX promises single-copy atomicity of .b128). The pointer may point to device or peer
// memory. A slot must not be written again before its reader is done with it.
MP_DEVICE void store_packet(Packet* slot, Packet packet);
MP_DEVICE Packet load_packet(const Packet* slot);

// Orders this thread's reads and writes before it against those after it, as seen from the scope: makes a relaxed store behind it a
// release, a relaxed load before it an acquire, or both (acq_rel). A release waits for what has been written, an acquire only
// empties the multiprocessor's cache. A release store does this by itself; a fence of its own is for what is published by something
// else, such as a packet or a doorbell. Order: acquire_t, release_t, acq_rel_t. Scope: gpu_t, system_t.
template <class Order, class Scope>
MP_DEVICE void fence(Order, Scope);

// fenced: the order of a store or addition that a release fence is ahead of, so that several need one fence. relaxed; on the CPU release,
// which costs nothing more there, and which ThreadSanitizer understands.

// ---- threads --------------------------------------------------------------------------------------------------

MP_DEVICE unsigned thread_rank();  // in its block, x fastest, 0 … block_threads() - 1; orders nothing
MP_DEVICE unsigned block_threads();  // threads of the block; orders nothing
MP_DEVICE unsigned block_rank();  // in its grid, x fastest, 0 … grid_blocks() - 1; orders nothing
MP_DEVICE unsigned grid_blocks();  // blocks of the grid; orders nothing
MP_DEVICE unsigned lane();  // thread_rank() modulo 32; orders nothing
MP_DEVICE unsigned multiprocessor();  // the number of the one that the block is on; 0 on the CPU; orders nothing

// The beginning of a kernel of one dimension that its stream may launch while the one in front of it runs: waits until that has ended, whose
// writes are seen from here on. If it is one block, the next such kernel may be launched: waiting, it takes a block's place from nobody who
// needs all of them.
MP_DEVICE void begin_in_turn();
// Every thread of the block waits for all others. What each wrote before is seen by all after, in the block only.
MP_DEVICE void block_barrier();
// The same, and says to all whether any thread came with `true`.
MP_DEVICE bool block_any(bool mine);
// The same two for the 32 threads of a full warp, all of which must call.
MP_DEVICE void warp_barrier();
MP_DEVICE bool warp_any(bool mine);

// Every thread gets the value that thread 0 of the block, or lane 0 of the warp, came with. Orders like the barrier.
// Value: at most 64 bytes, trivially copyable. Meant for rare events: it is two barriers, or a shuffle a word.
template <class Value>
MP_DEVICE Value block_broadcast(const Value& of_thread_0);
template <class Value>
MP_DEVICE Value warp_broadcast(const Value& of_lane_0);
// Memory of the block's own, near the processor, for a Value: at each call the same for all its threads, until the kernel ends. Nothing has been
// written there yet. Value: at most 1 KiB, trivially destructible.
template <class Value>
MP_DEVICE Value* block_memory();

// ---- time -----------------------------------------------------------------------------------------------------

// Nanoseconds of one clock for the whole machine (%globaltimer on the GPU; on some GPUs it ticks only once a
// microsecond). Not free to read: for deadlines and for timing many rounds. Orders nothing.
MP_DEVICE std::uint64_t clock_ns();
// Cycles of this multiprocessor's clock (no two multiprocessors agree); nanoseconds on the host. Cheap. Orders nothing.
MP_DEVICE std::uint64_t clock_cycles();
// Between two polls. On the GPU nothing: the load is the wait, and sleeping would add to the latency. On the host the
// CPU goes to another thread, which may be the one being waited for. Orders nothing.
MP_DEVICE void pause();
// Between two polls of whoever has waited long: so much sleep on the GPU, up to twice as long or not at all; as pause on the host.
MP_DEVICE void doze(unsigned ns);

// For a thread that must not go on, and cannot say so: the kernel fails. On the host the thread stays here until whoever finds out why
// ends the process.
[[noreturn]] MP_DEVICE void halt();

namespace impl {
// Numbers of the platform. `polls_between_clocks`: polls of a wait between two reads of the cycle counter;
// `polls_of_shares`: polls for a message that comes in shares (message.cuh) before its wait is one with clocks and bounds;
// `aborts_by_relay`: whether what aborts (WaitBounds) is an AbortRelay.

// A word of a table that the host wrote before the launch and nobody writes while the kernel runs: one read of it may serve several
// uses, whatever was written or acquired between.
template <class T>
MP_DEVICE T fixed(const T& word);
// Has the compiler keep what was worked out, a pointer or 32 bits, instead of working it out again where it is needed.
template <class T>
MP_DEVICE void keep(T& value);
// What is the same in all threads of a warp, as the compiler cannot know: then it has none wait for the others behind a branch. By all
// threads of the warp that have not ended.
MP_DEVICE bool uniform(bool same);
// Whether no other thread of the warp is here at this moment.
MP_DEVICE bool is_alone();
}  // namespace impl

}  // namespace mp

#if defined(__CUDACC__)
#include "impl/platform_cuda.cuh"
#else
#include "impl/platform_host.hpp"
#endif
