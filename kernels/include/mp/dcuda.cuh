// The names of the dCUDA paper (Gysi, Bär, Hoefler, SC16) for ranks.cuh: lengths and offsets in elements, the context in shared memory, every
// call by all threads of the block. Its Figure 2 compiles as it is printed.
//
// Calls give back 0, or a WaitStatus. A program that does not look, as in the paper, ends all the same: when a call of a rank has failed,
// its later calls give that status back at once.
#pragma once

#include "ranks.cuh"

#if !defined(__CUDACC__)
// Each OS thread that plays a GPU thread has a context of its own.
#define __shared__
namespace mp::host {
struct ThreadIndex {
    struct Number {
        operator unsigned() const { return thread_rank(); }
    } x;
};
}  // namespace mp::host
inline constexpr mp::host::ThreadIndex threadIdx = {};
#endif

using dcuda_param = mp::Ranks;
using dcuda_comm = mp::Team;
using dcuda_win = std::uint32_t;

constexpr dcuda_comm DCUDA_COMM_WORLD = mp::Team::world, DCUDA_COMM_DEVICE = mp::Team::device;
constexpr int DCUDA_ANY_SOURCE = -1, DCUDA_ANY_TAG = -1;
constexpr dcuda_win DCUDA_ANY_WINDOW = mp::any_window;

struct dcuda_context {
    mp::Rank rank;
};

namespace mp::impl {

// Of what failed before, or `call` gives.
template <class Call>
MP_DEVICE int unless_broken(const dcuda_context& context, const Call& call) {
    RankState* state = state_of(context.rank);
    std::uint32_t status = block().leads() ? static_cast<std::uint32_t>(state->broken) : 0;
    if (block().any(status != 0)) return static_cast<int>(block().broadcast(status));
    const WaitResult result = call(context.rank);
    // The leader reads it next.
    if (result.failed() && block().leads()) state->broken = result.status;
    return static_cast<int>(result.status);
}

// Bytes of so many elements; what is too much for a word stays too much.
template <class T>
MP_DEVICE std::uint64_t bytes_of(std::uint64_t elements) {
    return elements > ~std::uint64_t{0} / sizeof(T) ? ~std::uint64_t{0} : elements * sizeof(T);
}

}  // namespace mp::impl

MP_DEVICE void dcuda_init(const dcuda_param& param, dcuda_context& context) {
    const mp::Rank rank = mp::join(param);
#if defined(__CUDACC__)
    if (mp::block().leads())
#endif
        context.rank = rank;
    mp::block().sync();
}

MP_DEVICE void dcuda_comm_size(const dcuda_context& context, dcuda_comm comm, int* size) {
    *size = static_cast<int>(mp::size_of(context.rank, comm));
}
MP_DEVICE void dcuda_comm_rank(const dcuda_context& context, dcuda_comm comm, int* rank) {
    *rank = static_cast<int>(mp::rank_in(context.rank, comm));
}

// `length` elements from `base` on.
template <class T>
MP_DEVICE int dcuda_win_create(dcuda_context& context, dcuda_comm comm, T* base, std::uint64_t length, dcuda_win* window) {
    return mp::impl::unless_broken(context, [&](const mp::Rank& rank) {
        return mp::win_create(rank, comm, base, mp::impl::bytes_of<T>(length), *window);
    });
}
MP_DEVICE int dcuda_win_free(dcuda_context& context, dcuda_win window) {
    return mp::impl::unless_broken(context, [&](const mp::Rank& rank) { return mp::win_free(rank, window); });
}

template <class T>
MP_DEVICE int dcuda_put(dcuda_context& context, dcuda_win window, int target, std::uint64_t offset, std::uint64_t count, const T* from) {
    return mp::impl::unless_broken(context, [&](const mp::Rank& rank) {
        const auto status = mp::put(rank, window, static_cast<std::uint32_t>(target), mp::impl::bytes_of<T>(offset), from, mp::impl::bytes_of<T>(count));
        return mp::WaitResult{status, 0, 0};
    });
}
template <class T>
MP_DEVICE int dcuda_get(dcuda_context& context, dcuda_win window, int target, std::uint64_t offset, std::uint64_t count, T* to) {
    return mp::impl::unless_broken(context, [&](const mp::Rank& rank) {
        const auto status = mp::get(rank, window, static_cast<std::uint32_t>(target), mp::impl::bytes_of<T>(offset), to, mp::impl::bytes_of<T>(count));
        return mp::WaitResult{status, 0, 0};
    });
}
template <class T>
MP_DEVICE int dcuda_put_notify(dcuda_context& context, dcuda_win window, int target, std::uint64_t offset, std::uint64_t count,
                               const T* from, int tag) {
    return mp::impl::unless_broken(context, [&](const mp::Rank& rank) {
        return mp::put_notify(rank, window, static_cast<std::uint32_t>(target), mp::impl::bytes_of<T>(offset), from, mp::impl::bytes_of<T>(count),
                              static_cast<std::uint32_t>(tag));
    });
}
template <class T>
MP_DEVICE int dcuda_get_notify(dcuda_context& context, dcuda_win window, int target, std::uint64_t offset, std::uint64_t count, T* to,
                               int tag) {
    return mp::impl::unless_broken(context, [&](const mp::Rank& rank) {
        return mp::get_notify(rank, window, static_cast<std::uint32_t>(target), mp::impl::bytes_of<T>(offset), to, mp::impl::bytes_of<T>(count),
                              static_cast<std::uint32_t>(tag));
    });
}

MP_DEVICE int dcuda_wait_notifications(dcuda_context& context, dcuda_win window, int source, int tag, int count) {
    return mp::impl::unless_broken(context, [&](const mp::Rank& rank) {
        const mp::Wanted wanted = {window, static_cast<std::uint32_t>(source), static_cast<std::uint32_t>(tag)};
        return mp::wait_notifications(rank, wanted, static_cast<std::uint32_t>(count));
    });
}
// How many were taken: `count`, or 0.
MP_DEVICE int dcuda_test_notifications(dcuda_context& context, dcuda_win window, int source, int tag, int count) {
    const mp::Wanted wanted = {window, static_cast<std::uint32_t>(source), static_cast<std::uint32_t>(tag)};
    const mp::WaitResult result = mp::test_notifications(context.rank, wanted, static_cast<std::uint32_t>(count));
    return !result.failed() && result.seen == static_cast<std::uint64_t>(count) ? count : 0;
}

MP_DEVICE int dcuda_win_flush(dcuda_context& context, dcuda_win) {
    return mp::impl::unless_broken(context, [](const mp::Rank& rank) { return mp::flush(rank); });
}
MP_DEVICE int dcuda_barrier(dcuda_context& context, dcuda_comm comm) {
    return mp::impl::unless_broken(context, [&](const mp::Rank& rank) { return mp::barrier(rank, comm); });
}
MP_DEVICE void dcuda_finish(dcuda_context& context) { mp::finish(context.rank); }
