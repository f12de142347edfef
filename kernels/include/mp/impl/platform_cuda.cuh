// platform.cuh on the GPU, as inline PTX. Not to be included by itself; the contract is in platform.cuh.
// Every access is asm volatile with a memory clobber, so that nvcc moves nothing across it either.
#pragma once

#include "../platform.cuh"

namespace mp {
namespace impl {

// All that is communicated through lies in the global space; a generic access takes longer.
MP_DEVICE std::uint64_t global_address(const void* pointer) { return __cvta_generic_to_global(pointer); }

// PTX ISA 9.0, "Memory Consistency Model": ld/st/red/atom with .relaxed, .acquire, .release and .gpu, .sys.
#define MP_PTX_WORD(type, reg, bits, order, scope_tag, scope)                                                          \
    MP_DEVICE type load_word(const type* word, order##_t, scope_tag) {                                                 \
        type value;                                                                                                    \
        asm volatile("ld." #order "." #scope ".global.u" #bits " %0, [%1];"                                            \
                     : "=" reg(value)                                                                                  \
                     : "l"(global_address(word))                                                                       \
                     : "memory");                                                                                      \
        return value;                                                                                                  \
    }
MP_PTX_WORD(std::uint32_t, "r", 32, relaxed, gpu_t, gpu)
MP_PTX_WORD(std::uint32_t, "r", 32, acquire, gpu_t, gpu)
MP_PTX_WORD(std::uint32_t, "r", 32, relaxed, system_t, sys)
MP_PTX_WORD(std::uint32_t, "r", 32, acquire, system_t, sys)
MP_PTX_WORD(std::uint64_t, "l", 64, relaxed, gpu_t, gpu)
MP_PTX_WORD(std::uint64_t, "l", 64, acquire, gpu_t, gpu)
MP_PTX_WORD(std::uint64_t, "l", 64, relaxed, system_t, sys)
MP_PTX_WORD(std::uint64_t, "l", 64, acquire, system_t, sys)
#undef MP_PTX_WORD

#define MP_PTX_WORD(type, reg, bits, order, scope_tag, scope)                                                          \
    MP_DEVICE void store_word(type* word, type value, order##_t, scope_tag) {                                          \
        asm volatile("st." #order "." #scope ".global.u" #bits " [%0], %1;" ::"l"(global_address(word)), reg(value)    \
                     : "memory");                                                                                      \
    }                                                                                                                  \
    MP_DEVICE void add_word(type* word, type value, order##_t, scope_tag) {                                            \
        asm volatile("red." #order "." #scope ".global.add.u" #bits " [%0], %1;" ::"l"(global_address(word)),          \
                     reg(value)                                                                                        \
                     : "memory");                                                                                      \
    }
MP_PTX_WORD(std::uint32_t, "r", 32, relaxed, gpu_t, gpu)
MP_PTX_WORD(std::uint32_t, "r", 32, release, gpu_t, gpu)
MP_PTX_WORD(std::uint32_t, "r", 32, relaxed, system_t, sys)
MP_PTX_WORD(std::uint32_t, "r", 32, release, system_t, sys)
MP_PTX_WORD(std::uint64_t, "l", 64, relaxed, gpu_t, gpu)
MP_PTX_WORD(std::uint64_t, "l", 64, release, gpu_t, gpu)
MP_PTX_WORD(std::uint64_t, "l", 64, relaxed, system_t, sys)
MP_PTX_WORD(std::uint64_t, "l", 64, release, system_t, sys)
#undef MP_PTX_WORD

// `atom` gives back what the word held; `red` gives nothing, so the thread does not wait for the memory.
#define MP_PTX_FETCH(kind, operation, type, reg, scope_tag, scope, order_tag, order)                                   \
    MP_DEVICE type fetch_word(type* word, kind, type value, scope_tag, order_tag) {                                    \
        type before;                                                                                                   \
        asm volatile("atom." #order "." #scope ".global." operation " %0, [%1], %2;"                                   \
                     : "=" reg(before)                                                                                 \
                     : "l"(global_address(word)), reg(value)                                                           \
                     : "memory");                                                                                      \
        return before;                                                                                                 \
    }
#define MP_PTX_CHANGE(kind, operation, type, reg, scope_tag, scope)                                                    \
    MP_PTX_FETCH(kind, operation, type, reg, scope_tag, scope, acq_rel_t, acq_rel)                                     \
    MP_PTX_FETCH(kind, operation, type, reg, scope_tag, scope, relaxed_t, relaxed)
#define MP_PTX_CHANGE_ONLY(kind, operation, type, reg, scope_tag, scope)                                               \
    MP_PTX_CHANGE(kind, operation, type, reg, scope_tag, scope)                                                        \
    MP_DEVICE void change_word(type* word, kind, type value, scope_tag, release_t) {                                   \
        asm volatile("red.release." #scope ".global." operation " [%0], %1;" ::"l"(global_address(word)), reg(value)   \
                     : "memory");                                                                                      \
    }                                                                                                                  \
    MP_DEVICE void change_word(type* word, kind, type value, scope_tag, relaxed_t) {                                   \
        asm volatile("red.relaxed." #scope ".global." operation " [%0], %1;" ::"l"(global_address(word)), reg(value)   \
                     : "memory");                                                                                      \
    }
#define MP_PTX_SWAP(type, reg, bits, scope_tag, scope, order_tag, order)                                               \
    MP_DEVICE type compare_swap_word(type* word, type expected, type value, scope_tag, order_tag) {                    \
        type before;                                                                                                   \
        asm volatile("atom." #order "." #scope ".global.cas.b" bits " %0, [%1], %2, %3;"                               \
                     : "=" reg(before)                                                                                 \
                     : "l"(global_address(word)), reg(expected), reg(value)                                            \
                     : "memory");                                                                                      \
        return before;                                                                                                 \
    }
#define MP_PTX_BITS(type, reg, bits, ordered, scope_tag, scope)                                                        \
    MP_PTX_CHANGE_ONLY(bit_and_t, "and.b" bits, type, reg, scope_tag, scope)                                           \
    MP_PTX_CHANGE_ONLY(bit_or_t, "or.b" bits, type, reg, scope_tag, scope)                                             \
    MP_PTX_CHANGE_ONLY(bit_xor_t, "xor.b" bits, type, reg, scope_tag, scope)                                           \
    MP_PTX_CHANGE_ONLY(lesser_t, "min." ordered bits, type, reg, scope_tag, scope)                                     \
    MP_PTX_CHANGE_ONLY(greater_t, "max." ordered bits, type, reg, scope_tag, scope)                                    \
    MP_PTX_CHANGE_ONLY(plus_t, "add.u" bits, type, reg, scope_tag, scope)                                              \
    MP_PTX_CHANGE(replace_t, "exch.b" bits, type, reg, scope_tag, scope)                                               \
    MP_PTX_SWAP(type, reg, bits, scope_tag, scope, acq_rel_t, acq_rel)                                                 \
    MP_PTX_SWAP(type, reg, bits, scope_tag, scope, relaxed_t, relaxed)
#define MP_PTX_SCOPE(scope_tag, scope)                                                                                 \
    MP_PTX_BITS(std::uint32_t, "r", "32", "u", scope_tag, scope)                                                       \
    MP_PTX_BITS(std::int32_t, "r", "32", "s", scope_tag, scope)                                                        \
    MP_PTX_BITS(std::uint64_t, "l", "64", "u", scope_tag, scope)                                                       \
    MP_PTX_BITS(std::int64_t, "l", "64", "s", scope_tag, scope)                                                        \
    MP_PTX_CHANGE_ONLY(plus_t, "add.f32", float, "f", scope_tag, scope)                                                \
    MP_PTX_CHANGE_ONLY(plus_t, "add.f64", double, "d", scope_tag, scope)
MP_PTX_SCOPE(gpu_t, gpu)
MP_PTX_SCOPE(system_t, sys)
#undef MP_PTX_SCOPE
#undef MP_PTX_BITS
#undef MP_PTX_SWAP
#undef MP_PTX_CHANGE_ONLY
#undef MP_PTX_CHANGE
#undef MP_PTX_FETCH

// PTX ISA 8.6, sm_90: fences of one side. What is older has the one of both.
#if __CUDA_ARCH__ >= 900 && (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))
#define MP_PTX_ONE_SIDE(order) #order
#else
#define MP_PTX_ONE_SIDE(order) "acq_rel"
#endif
#define MP_PTX_FENCE(order, name, scope_tag, scope) \
    MP_DEVICE void fence_at(order##_t, scope_tag) { asm volatile("fence." name "." scope ";" ::: "memory"); }
MP_PTX_FENCE(acquire, MP_PTX_ONE_SIDE(acquire), gpu_t, "gpu")
MP_PTX_FENCE(release, MP_PTX_ONE_SIDE(release), gpu_t, "gpu")
MP_PTX_FENCE(acq_rel, "acq_rel", gpu_t, "gpu")
MP_PTX_FENCE(acquire, MP_PTX_ONE_SIDE(acquire), system_t, "sys")
MP_PTX_FENCE(release, MP_PTX_ONE_SIDE(release), system_t, "sys")
MP_PTX_FENCE(acq_rel, "acq_rel", system_t, "sys")
#undef MP_PTX_FENCE
#undef MP_PTX_ONE_SIDE

constexpr unsigned full_warp = 0xffffffffu;

}  // namespace impl

template <class T, class Order, class Scope>
MP_DEVICE T load(const T* word, Order order, Scope scope) {
    return impl::load_word(word, order, scope);
}

template <class T, class Order, class Scope>
MP_DEVICE void store(T* word, T value, Order order, Scope scope) {
    impl::store_word(word, value, order, scope);
}

template <class T, class Order, class Scope>
MP_DEVICE void add(T* word, T value, Order order, Scope scope) {
    impl::add_word(word, value, order, scope);
}

template <class T, class Kind, class Scope, class Order>
MP_DEVICE T fetch(T* word, Kind kind, T value, Scope scope, Order order) {
    return impl::fetch_word(word, kind, value, scope, order);
}

template <class T, class Kind, class Scope, class Order>
MP_DEVICE void change(T* word, Kind kind, T value, Scope scope, Order order) {
    impl::change_word(word, kind, value, scope, order);
}

template <class T, class Scope, class Order>
MP_DEVICE T compare_swap(T* word, T expected, T value, Scope scope, Order order) {
    return impl::compare_swap_word(word, expected, value, scope, order);
}

// PTX ISA 9.0, "Data Types" and "Memory Consistency Model": .b128 accesses are scalar, so performed in one piece; a vector
// access of two words is not.
#if __CUDACC_VER_MAJOR__ < 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 4)
#error "mp: packets need 128-bit scalar stores, which nvcc 12.4 and newer have"
#endif
MP_DEVICE void store_packet(Packet* slot, Packet packet) {
    asm volatile(
        "{\n\t.reg .b128 whole;\n\t"
        "mov.b128 whole, {%1, %2};\n\t"
        "st.relaxed.sys.global.b128 [%0], whole;\n\t}" ::"l"(impl::global_address(slot)),
        "l"(packet.data), "l"(packet.epoch)
        : "memory");
}

MP_DEVICE Packet load_packet(const Packet* slot) {
    Packet packet;
    asm volatile(
        "{\n\t.reg .b128 whole;\n\t"
        "ld.relaxed.sys.global.b128 whole, [%2];\n\t"
        "mov.b128 {%0, %1}, whole;\n\t}"
        : "=l"(packet.data), "=l"(packet.epoch)
        : "l"(impl::global_address(slot))
        : "memory");
    return packet;
}

template <class Order, class Scope>
MP_DEVICE void fence(Order order, Scope scope) {
    impl::fence_at(order, scope);
}
constexpr relaxed_t fenced = relaxed;

MP_DEVICE unsigned thread_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
MP_DEVICE unsigned block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
MP_DEVICE unsigned block_rank() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
MP_DEVICE unsigned grid_blocks() { return gridDim.x * gridDim.y * gridDim.z; }
MP_DEVICE unsigned lane() {
    unsigned id;
    asm("mov.u32 %0, %%laneid;" : "=r"(id));
    return id;
}
MP_DEVICE unsigned multiprocessor() {
    unsigned id;
    asm("mov.u32 %0, %%smid;" : "=r"(id));
    return id;
}

MP_DEVICE void block_barrier() { __syncthreads(); }
// PTX ISA 9.0, "griddepcontrol". Without the attribute of the launch (gdsync) the wait is over at once.
MP_DEVICE void begin_in_turn() {
    // Known, ranks of threads and blocks take no arithmetic.
    __builtin_assume(threadIdx.y == 0);
    __builtin_assume(threadIdx.z == 0);
    __builtin_assume(blockDim.y == 1);
    __builtin_assume(blockDim.z == 1);
    __builtin_assume(blockIdx.y == 0);
    __builtin_assume(blockIdx.z == 0);
    __builtin_assume(gridDim.y == 1);
    __builtin_assume(gridDim.z == 1);
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (grid_blocks() == 1) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
MP_DEVICE bool block_any(bool mine) { return __syncthreads_or(mine) != 0; }
// A vote orders no memory, so the barrier is needed beside it.
MP_DEVICE void warp_barrier() { __syncwarp(impl::full_warp); }
MP_DEVICE bool warp_any(bool mine) {
    __syncwarp(impl::full_warp);
    return __any_sync(impl::full_warp, mine) != 0;
}

template <class Value>
MP_DEVICE Value block_broadcast(const Value& of_thread_0) {
    static_assert(sizeof(Value) <= 64, "block_broadcast: the value is larger than 64 bytes");
    __shared__ alignas(16) unsigned char shared[64];
    if (thread_rank() == 0) *reinterpret_cast<Value*>(shared) = of_thread_0;
    __syncthreads();
    const Value value = *reinterpret_cast<const Value*>(shared);
    __syncthreads();  // the next broadcast must not overtake a slow reader
    return value;
}

template <class Value>
MP_DEVICE Value* block_memory() {
    static_assert(sizeof(Value) <= 1024, "block_memory: the value is larger than 1 KiB");
    __shared__ alignas(16) unsigned char memory[sizeof(Value)];
    return reinterpret_cast<Value*>(memory);
}

template <class Value>
MP_DEVICE Value warp_broadcast(const Value& of_lane_0) {
    static_assert(sizeof(Value) <= 64 && sizeof(Value) % 4 == 0, "warp_broadcast: at most 64 bytes, whole words");
    union {
        Value value;
        unsigned words[sizeof(Value) / 4];
    } copy = {of_lane_0};
    __syncwarp(impl::full_warp);
#pragma unroll
    for (unsigned i = 0; i < sizeof(Value) / 4; ++i)  // unrolled, or the union would live in local memory
        copy.words[i] = __shfl_sync(impl::full_warp, copy.words[i], 0);
    return copy.value;
}

MP_DEVICE std::uint64_t clock_ns() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

// All 64 bits, also where fewer would do: the 32-bit read may compile to S2UR, which stalls longer than CS2R.
MP_DEVICE std::uint64_t clock_cycles() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now));
    return now;
}

MP_DEVICE void pause() {}
MP_DEVICE void doze(unsigned ns) { __nanosleep(ns); }
MP_DEVICE void halt() {
    __trap();
    // The compiler does not know that nothing comes behind it.
    for (;;) doze(1000);
}

namespace impl {
// A poll is a load and a comparison; reading the counter at each of them costs 30 ns a wait on an H100.
constexpr int polls_between_clocks = 16;
// Some 20 µs.
constexpr int polls_of_shares = 64;
constexpr bool aborts_by_relay = true;

template <class T>
MP_DEVICE T fixed(const T& word) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "fixed: 32 or 64 bits");
    // Not __ldg: the compiler takes that for a load which any call may change, and asks again behind each.
    if constexpr (sizeof(T) == 4) {
        unsigned bits;
        asm("ld.global.nc.b32 %0, [%1];" : "=r"(bits) : "l"(&word));
        return static_cast<T>(bits);
    } else {
        unsigned long long bits;
        asm("ld.global.nc.b64 %0, [%1];" : "=l"(bits) : "l"(&word));
        return static_cast<T>(bits);
    }
}
MP_DEVICE bool uniform(bool same) { return __any_sync(full_warp, same) != 0; }
template <class T>
MP_DEVICE void keep(T& value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "keep: 32 or 64 bits");
    if constexpr (sizeof(T) == 4)
        asm volatile("" : "+r"(value));
    else
        asm volatile("" : "+l"(value));
}
MP_DEVICE bool is_alone() {
    const unsigned here = __activemask();
    return (here & (here - 1)) == 0;
}
}  // namespace impl

}  // namespace mp
