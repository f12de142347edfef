// What the kernels of hpgmg want of CUDA, on the host: one thread plays a grid, block after block, with a fiber for each thread of a
// block. Barriers, shuffles and shared memory are there; what is an instruction of the GPU alone (asynchronous copies, clusters) is not.
// The exchange of mp/exchange.cuh works, between ranks that are threads.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <mp/mp.cuh>

struct dim3 {
    unsigned x, y, z;
};

namespace emulated {

struct Dims {
    dim3 grid, block;
};

// Threads that meet.
struct Meeting {
    unsigned live = 0, arrived = 0, phase = 0;

    bool complete() {
        if (arrived < live || arrived == 0) return false;
        arrived = 0;
        ++phase;
        return true;
    }
};

struct Warp : Meeting {
    std::uint64_t slots[32] = {};
};

constexpr std::size_t STACK = 64 << 10;

struct Fiber {
    std::unique_ptr<char[]> stack{new char[STACK]};
    ucontext_t context;
    jmp_buf at;
    bool begun = false, done = false;
    dim3 place;
    mp::host::Thread self;
};

struct Block {
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    Meeting all;
    unsigned current = 0;
    jmp_buf scheduler;
    void (*call)(void*) = nullptr;
    void* argument = nullptr;

    Warp& warp() { return warps[current / 32]; }
    unsigned lane() const { return current % 32; }
};

inline thread_local Block block;
inline thread_local dim3 thread_index, block_index, block_dims, grid_dims;

// Lets the other threads of the block go on.
inline void yield() {
    Fiber& fiber = block.fibers[block.current];
    fiber.self = mp::host::this_thread;
    if (_setjmp(fiber.at) == 0) _longjmp(block.scheduler, 1);
}

inline void meet(Meeting& meeting) {
    ++meeting.arrived;
    if (meeting.complete()) return;
    for (const unsigned phase = meeting.phase; meeting.phase == phase;) yield();
}

inline void begin() {
    block.call(block.argument);
    block.fibers[block.current].done = true;
    block.warp().slots[block.lane()] = 0;
    for (Meeting* meeting : {static_cast<Meeting*>(&block.warp()), &block.all}) {
        --meeting->live;
        meeting->complete();
    }
    _longjmp(block.scheduler, 1);
}

inline void resume(unsigned number) {
    Fiber& fiber = block.fibers[number];
    block.current = number;
    thread_index = fiber.place;
    mp::host::this_thread = fiber.self;
    if (_setjmp(block.scheduler) != 0) return;
    if (fiber.begun) _longjmp(fiber.at, 1);
    fiber.begun = true;
    setcontext(&fiber.context);
}

// Calls `call(argument)` as every thread of the grid.
inline void run(const Dims& dims, void (*call)(void*), void* argument) {
    const unsigned threads = dims.block.x * dims.block.y * dims.block.z;
    block.call = call;
    block.argument = argument;
    grid_dims = dims.grid;
    block_dims = dims.block;
    if (block.fibers.size() < threads) block.fibers = std::vector<Fiber>(threads);
    const unsigned blocks = dims.grid.x * dims.grid.y * dims.grid.z;
    mp::host::fibers = [] { meet(block.all); };
    for (unsigned number = 0; number < blocks; ++number) {
        block_index = {number % dims.grid.x, number / dims.grid.x % dims.grid.y, number / dims.grid.x / dims.grid.y};
        mp::host::Block shared(threads);
        block.all = {threads};
        block.warps.assign((threads + 31) / 32, {});
        for (unsigned thread = 0; thread < threads; ++thread) {
            ++block.warps[thread / 32].live;
            Fiber& fiber = block.fibers[thread];
            fiber.begun = fiber.done = false;
            fiber.place = {thread % dims.block.x, thread / dims.block.x % dims.block.y, thread / dims.block.x / dims.block.y};
            fiber.self = {thread, threads, number, blocks, &shared};
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.get();
            fiber.context.uc_stack.ss_size = STACK;
            fiber.context.uc_link = nullptr;
            makecontext(&fiber.context, begin, 0);
        }
        while (block.all.live > 0) {
            for (unsigned thread = 0; thread < threads; ++thread)
                if (!block.fibers[thread].done) resume(thread);
        }
    }
    mp::host::fibers = nullptr;
    mp::host::this_thread = {};
}

// As mp::host::call, with the dimensions as one more argument.
template <class... Params, std::size_t... number>
int launch(void (*kernel)(Params...), void* const* arguments, std::size_t* sizes, std::index_sequence<number...>) {
    if (arguments == nullptr) {
        ((sizes[number] = sizeof(Params)), ...);
        sizes[sizeof...(Params)] = sizeof(Dims);
        return sizeof...(Params) + 1;
    }
    auto call = [&] { kernel(*static_cast<const Params*>(arguments[number])...); };
    const Dims dims = *static_cast<const Dims*>(arguments[sizeof...(Params)]);
    run(dims, [](void* call_as) { (*static_cast<decltype(call)*>(call_as))(); }, &call);
    return 0;
}
template <class... Params>
int launch(void (*kernel)(Params...), void* const* arguments, std::size_t* sizes) {
    return launch(kernel, arguments, sizes, std::index_sequence_for<Params...>());
}

template <class T>
T of_lane(T value, unsigned from) {
    static_assert(sizeof(T) == 8);
    Warp& warp = block.warp();
    std::memcpy(&warp.slots[block.lane()], &value, 8);
    meet(warp);
    if (from < 32) std::memcpy(&value, &warp.slots[from], 8);
    meet(warp);
    return value;
}

}  // namespace emulated

#define __device__
#define __host__
#define __global__
#define __constant__ static const
#define __shared__ static thread_local
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define threadIdx emulated::thread_index
#define blockIdx emulated::block_index
#define blockDim emulated::block_dims
#define gridDim emulated::grid_dims

using std::isinf;
template <class A, class B>
auto min(A a, B b) {
    using T = std::common_type_t<A, B>;
    return std::min<T>(a, b);
}
template <class A, class B>
auto max(A a, B b) {
    using T = std::common_type_t<A, B>;
    return std::max<T>(a, b);
}
inline double __ldg(const double* at) { return *at; }
inline long long __double_as_longlong(double value) {
    long long bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline double __longlong_as_double(long long bits) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline void atomicMax(unsigned long long* word, unsigned long long value) { *word = std::max(*word, value); }
inline void __syncthreads() { emulated::meet(emulated::block.all); }
inline void __syncwarp() { emulated::meet(emulated::block.warp()); }
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned by) {
    return emulated::of_lane(value, emulated::block.lane() + by);
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned by) {
    const unsigned lane = emulated::block.lane();
    return emulated::of_lane(value, lane < by ? 32 : lane - by);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, unsigned by) {
    return emulated::of_lane(value, emulated::block.lane() ^ by);
}
inline bool __any_sync(unsigned, bool mine) {
    emulated::Warp& warp = emulated::block.warp();
    warp.slots[emulated::block.lane()] = mine;
    emulated::meet(warp);
    bool any = false;
    for (const std::uint64_t slot : warp.slots) any = any || slot != 0;
    emulated::meet(warp);
    return any;
}
