// What the kernels of hpgmg want of CUDA, on the host: one thread plays a grid, block after block, with a fiber for each thread of a
// block; of a grid whose blocks meet, each goes on as far as it can before the next one does. Barriers, shuffles, shared memory and
// copies into it are there, done when they are started, and clusters.
// The exchange of mp/exchange.cuh works, between ranks that are threads.
#pragma once

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

    unsigned blocks() const { return grid.x * grid.y * grid.z; }
    unsigned threads() const { return block.x * block.y * block.z; }
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
    // In turn: who reads the values of one meeting is done before all meet for the next but one.
    std::uint64_t slots[2][32] = {};
    // Lanes that have ended, a bit each: their values are 0.
    std::uint32_t gone = 0;

    auto& values() {
        auto& now = slots[phase % 2];
        for (std::uint32_t rest = gone; rest != 0; rest &= rest - 1) now[__builtin_ctz(rest)] = 0;
        return now;
    }
};

constexpr std::size_t STACK = 80 << 10;

// Where a fiber goes on: place in the code, stack and frame.
using Place = void* [3];

struct Fiber {
    // Nowhere: has not begun.
    Place at = {};
    dim3 place;
    mp::host::Thread self;
    std::unique_ptr<char[]> stack{new char[STACK]};
};

// What a fiber waits for: until `*phase` is not `before`; apart from the fibers, since all of these are looked at again and again.
struct Wait {
    const unsigned* phase;
    unsigned before;

    bool over() const { return *phase != before; }
};
inline constexpr unsigned ONE = 1;
inline constexpr Wait NOTHING{&ONE, 0}, FOR_EVER{&ONE, 1};

struct Block {
    std::vector<Fiber> fibers;
    std::vector<Wait> waits;
    std::vector<Warp> warps;
    Meeting all;
    unsigned threads = 0, current = 0;
    Place caller;
    void (*call)(void*) = nullptr;
    void* argument = nullptr;
    // The first threads of it that meet by themselves.
    Meeting first;
};

// The block that this thread plays; a pointer, as what has a constructor would be looked for by a call wherever it is named.
inline thread_local Block* block = nullptr;
inline thread_local dim3 thread_index, block_index, block_dims, grid_dims;

inline Block& mine() {
    if (block == nullptr) {
        static thread_local Block one;
        block = &one;
    }
    return *block;
}
// Its shared memory where the kernel asks for it: so many values, of which none is a number before the block has written it.
inline double* blocks_shared(std::size_t count) {
    std::vector<unsigned char>& memory = mp::host::this_thread.block->memory;
    if (memory.size() < count * sizeof(double)) {
        memory.resize(count * sizeof(double));
        std::fill_n(reinterpret_cast<double*>(memory.data()), count, std::nan(""));
    }
    return reinterpret_cast<double*>(memory.data());
}
inline unsigned lane() { return block->current % 32; }
inline Warp& warp() { return block->warps[block->current / 32]; }

void begin();

#if !defined(__x86_64__)
#error "the fibers of the host build change stacks with instructions of x86-64"
#endif

// Leaves `from` and goes on at `to`, in the same function: no return address is pushed, so that the processor, which pairs calls with
// returns, foresees where each fiber returns to.
[[gnu::always_inline]] inline void change(Place& from, Place& to) {
    void* saved = from;
    void* other = to;
    asm volatile(
        "lea 1f(%%rip), %%rax\n"
        "mov %%rax, 0(%%rdi)\n"
        "mov %%rsp, 8(%%rdi)\n"
        "mov %%rbp, 16(%%rdi)\n"
        "mov 8(%%rsi), %%rsp\n"
        "mov 16(%%rsi), %%rbp\n"
        "jmp *0(%%rsi)\n"
        "1:"
        : "+D"(saved), "+S"(other)
        :
        : "memory", "cc", "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2", "xmm3",
          "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

// Goes on as the next fiber that is ready, or as the caller of all where none is left; what goes on here later has kept `here`.
[[gnu::always_inline]] inline void next(Place& here) {
    Block& of = *block;
    unsigned number = of.current;
    Place* there = &of.caller;
    while (of.all.live > 0) {
        number = number + 1 == of.threads ? 0 : number + 1;
        if (!of.waits[number].over()) continue;
        Fiber& fiber = of.fibers[number];
        of.current = number;
        thread_index = fiber.place;
        mp::host::this_thread = fiber.self;
        if (fiber.at[0] == nullptr) {
            // Stacks that began at the same place of a page would share the same lines of the cache. As after a call.
            char* top = fiber.stack.get() + STACK - number % 64 * 320;
            fiber.at[0] = reinterpret_cast<void*>(begin);
            fiber.at[1] = reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(top) / 16 * 16) - 8;
            fiber.at[2] = nullptr;
        }
        there = &fiber.at;
        break;
    }
    change(here, *there);
}

// The other threads of the block go on, and this one in its turn when what it waits for is over.
[[gnu::noinline]] inline void wait(Wait what) {
    Fiber& fiber = block->fibers[block->current];
    block->waits[block->current] = what;
    fiber.self = mp::host::this_thread;
    next(fiber.at);
}
inline void yield() { wait(NOTHING); }

inline void meet(Meeting& meeting) {
    const unsigned before = meeting.phase;
    ++meeting.arrived;
    if (!meeting.complete()) wait({&meeting.phase, before});
}

// A fiber plays one thread after the other, for as long as the thread that it belongs to lives.
inline void begin() {
    for (;;) {
        block->call(block->argument);
        warp().gone |= 1u << lane();
        warp().values();
        for (Meeting* meeting : {static_cast<Meeting*>(&warp()), &block->all}) {
            --meeting->live;
            meeting->complete();
        }
        wait(FOR_EVER);
    }
}

// Other blocks go on, and this thread when it is its turn again.
[[gnu::noinline]] inline void pause() {
    Fiber& fiber = block->fibers[block->current];
    block->waits[block->current] = NOTHING;
    fiber.self = mp::host::this_thread;
    change(fiber.at, block->caller);
}

// A block of the grid `dims`, with all of its threads at their beginning.
inline void set_up(Block& of, const Dims& dims, unsigned number, mp::host::Block& shared, void (*call)(void*), void* argument) {
    const unsigned threads = dims.threads();
    of.call = call;
    of.argument = argument;
    of.threads = threads;
    of.current = threads - 1;
    if (of.fibers.size() < threads) of.fibers = std::vector<Fiber>(threads);
    of.waits.assign(threads, NOTHING);
    of.all = {threads};
    of.warps.assign((threads + 31) / 32, {});
    for (unsigned thread = 0; thread < threads; ++thread) {
        ++of.warps[thread / 32].live;
        Fiber& fiber = of.fibers[thread];
        fiber.place = {thread % dims.block.x, thread / dims.block.x % dims.block.y, thread / dims.block.x / dims.block.y};
        const auto votes = [](const mp::host::Meeting& meeting) { return meeting.votes.load(std::memory_order_relaxed); };
        fiber.self = {thread, threads, number, dims.blocks(), &shared, votes(shared.all), votes(*shared.warps[thread / 32])};
    }
}

// Goes on with a block of the grid `dims` until it is done or waits for others.
[[gnu::noinline]] inline void play(Block& of, const Dims& dims, unsigned number) {
    block = &of;
    block_index = {number % dims.grid.x, number / dims.grid.x % dims.grid.y, number / dims.grid.x / dims.grid.y};
    next(of.caller);
}

// Calls `call(argument)` as every thread of the grid, whose blocks meet if they run `together`.
inline void run(const Dims& dims, void (*call)(void*), void* argument, bool together) {
    const unsigned blocks = dims.blocks();
    grid_dims = dims.grid;
    block_dims = dims.block;
    static constexpr mp::host::Fibers FIBERS = {[] { meet(block->all); }, pause};
    mp::host::fibers = &FIBERS;
    if (together) {
        std::vector<Block> all(blocks);
        mp::host::Cluster cluster(blocks, dims.threads());
        for (unsigned number = 0; number < blocks; ++number)
            set_up(all[number], dims, number, *cluster.blocks[number], call, argument);
        // In turn the first goes on first and the last does.
        const auto are_live = [&] { return std::any_of(all.begin(), all.end(), [](const Block& of) { return of.all.live > 0; }); };
        for (bool forward = true; are_live(); forward = !forward) {
            for (unsigned turn = 0; turn < blocks; ++turn) {
                const unsigned number = forward ? turn : blocks - 1 - turn;
                if (all[number].all.live > 0) play(all[number], dims, number);
            }
        }
        block = nullptr;
    } else {
        mp::host::Block shared(dims.threads());
        Block& of = mine();
        for (unsigned number = 0; number < blocks; ++number) {
            set_up(of, dims, number, shared, call, argument);
            while (of.all.live > 0) play(of, dims, number);
        }
    }
    mp::host::fibers = nullptr;
    mp::host::this_thread = {};
}

// As mp::host::call, with the dimensions as one more argument.
template <class... Params, std::size_t... number>
int launch(void (*kernel)(Params...), void* const* arguments, std::size_t* sizes, bool together, std::index_sequence<number...>) {
    if (arguments == nullptr) {
        ((sizes[number] = sizeof(Params)), ...);
        sizes[sizeof...(Params)] = sizeof(Dims);
        return sizeof...(Params) + 1;
    }
    auto call = [&] { kernel(*static_cast<const Params*>(arguments[number])...); };
    const Dims dims = *static_cast<const Dims*>(arguments[sizeof...(Params)]);
    run(dims, [](void* call_as) { (*static_cast<decltype(call)*>(call_as))(); }, &call, together);
    return 0;
}
template <class... Params>
int launch(void (*kernel)(Params...), void* const* arguments, std::size_t* sizes, bool together) {
    return launch(kernel, arguments, sizes, together, std::index_sequence_for<Params...>());
}

// Shows `value` to the other lanes of the warp: `read` sees those of all 32.
template <class Read>
auto exchanged(std::uint64_t value, Read read) {
    Warp& of = warp();
    auto& slots = of.values();
    slots[lane()] = value;
    meet(of);
    return read(slots);
}

template <class T>
T of_lane(T value, unsigned from) {
    static_assert(sizeof(T) == 8);
    std::uint64_t bits;
    std::memcpy(&bits, &value, 8);
    return exchanged(bits, [&](const std::uint64_t (&slots)[32]) {
        if (from < 32) std::memcpy(&value, &slots[from], 8);
        return value;
    });
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
inline void __syncthreads() { emulated::meet(emulated::block->all); }
inline void __syncwarp() { emulated::meet(emulated::warp()); }
namespace hpgmg {
inline void copy_one(double* shared, const double* global) { *shared = *global; }
inline void copy_two(double* shared, const double* global) { std::memcpy(shared, global, 16); }
inline void copied() {}
inline void started() {}
inline void copied_before_last() {}

// All that a block may have.
inline double* held_shared() { return emulated::blocks_shared(232448 / sizeof(double)); }
template <int THREADS>
void meet_first() {
    emulated::block->first.live = THREADS;
    emulated::meet(emulated::block->first);
}
}  // namespace hpgmg
#define HPGMG_BLOCKS_SHARED(name) double* const name = emulated::blocks_shared(S::BYTES / sizeof(double))
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned by) {
    return emulated::of_lane(value, emulated::lane() + by);
}
template <class T>
T __shfl_sync(unsigned, T value, unsigned from) {
    return emulated::of_lane(value, from % 32);
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned by) {
    const unsigned lane = emulated::lane();
    return emulated::of_lane(value, lane < by ? 32 : lane - by);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, unsigned by) {
    return emulated::of_lane(value, emulated::lane() ^ by);
}
inline bool __any_sync(unsigned, bool mine) {
    return emulated::exchanged(mine, [](const std::uint64_t (&slots)[32]) {
        return std::any_of(std::begin(slots), std::end(slots), [](std::uint64_t slot) { return slot != 0; });
    });
}
