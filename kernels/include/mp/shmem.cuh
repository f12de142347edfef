// What the kernel functions of OpenSHMEM's header `shmemg.h`, and of `nvshmem.h`, do, each of which calls one of these with its world: addresses of this PE's
// heap become places in the window of all heaps, PEs of a team or a context numbers of the world. The functions' names and types are
// not here, they come from a table (mp-shmem); and neither is anything that moves bytes.
//
// A handle is the address of a ShmemTeam, or one of the predefined numbers. All contexts share the queues: what one is quiet for, all are. What
// a call names that there is not goes into the window's report: the call does nothing, and the host's next barrier or quiet says so and
// ends the program. A wait that ends for another reason than its condition, when the world is lost, does not return.
//
// Order is that of window.cuh: a put of many threads is out of their hands when the call returns, quiet waits for what kernels of this GPU
// have put, and a fence orders what one thread block puts to one PE.
#pragma once

#include "atomic.cuh"
#include "collective.cuh"

namespace mp::shmem {

// The team of a handle, or the team that a context is of; without PEs if there is none.
MP_DEVICE ShmemTeam team_of(const ShmemWorld& world, const void* handle) {
    const std::uint64_t at = impl::address_of(handle);
    if (at == shmem_device_context || at == shmem_device_world) return world.all;
    if (at == shmem_device_shared) return world.shared;
    const bool made = at >= world.made && at < world.made_end && (at - world.made) % sizeof(ShmemTeam) == 0;
    return made ? *impl::at<const ShmemTeam>(at) : ShmemTeam{};
}

// The number in the world of a context's PE; of one that there is not, a number that no window has.
MP_DEVICE std::uint64_t pe_of(const ShmemWorld& world, const void* context, int pe) {
    const ShmemTeam team = team_of(world, context);
    const auto number = static_cast<std::uint64_t>(static_cast<std::int64_t>(pe));
    if (MP_RARELY(number >= team.pes)) {
        if (team.pes == 0)
            (void)impl::refuse(thread(), world.heap.report, no_such_team, impl::address_of(context), 1, 0);
        else
            (void)impl::refuse(thread(), world.heap.report, no_such_rank, number, 1, team.pes);
        return ~std::uint64_t{0};
    }
    return team.members == 0 ? number : impl::at<const std::uint64_t>(team.members)[number];
}

// Where an address of this PE's heap is in it; one outside is past its end.
MP_DEVICE std::uint64_t place_of(const ShmemWorld& world, const volatile void* address) {
    return reinterpret_cast<std::uint64_t>(address) - world.base;
}

MP_DEVICE int my_pe(const ShmemWorld& world) { return static_cast<int>(world.heap.rank); }
MP_DEVICE int n_pes(const ShmemWorld& world) { return static_cast<int>(world.heap.ranks); }

// Where the memory of another PE is mapped here; null behind a NIC.
MP_DEVICE void* ptr(const ShmemWorld& world, const void* dest, int pe) {
    return address_in(world.heap, pe_of(world, impl::at<const void>(shmem_device_context), pe), place_of(world, dest), 1);
}

// ---- puts and gets ---------------------------------------------------------------------------------------------
// Those without `nbi` have let go of this PE's memory when they return, for all threads of the group.

template <class Group>
MP_DEVICE void put_nbi(Group group, const ShmemWorld& world, const void* context, void* dest, const void* source, std::size_t bytes, int pe) {
    (void)mp::put(group, world.heap, pe_of(world, context, pe), place_of(world, dest), source, bytes);
}
template <class Group>
MP_DEVICE void put(Group group, const ShmemWorld& world, const void* context, void* dest, const void* source, std::size_t bytes, int pe) {
    const std::uint64_t rank = pe_of(world, context, pe);
    if (mp::put(group, world.heap, rank, place_of(world, dest), source, bytes)) (void)flush(group, world.heap, rank);
}
template <class Group>
MP_DEVICE void get_nbi(Group group, const ShmemWorld& world, const void* context, void* dest, const void* source, std::size_t bytes, int pe) {
    (void)mp::get(group, world.heap, pe_of(world, context, pe), place_of(world, source), dest, bytes);
}
template <class Group>
MP_DEVICE void get(Group group, const ShmemWorld& world, const void* context, void* dest, const void* source, std::size_t bytes, int pe) {
    const std::uint64_t rank = pe_of(world, context, pe);
    if (mp::get(group, world.heap, rank, place_of(world, source), dest, bytes)) (void)flush(group, world.heap, rank);
}

template <class T>
MP_DEVICE void p(const ShmemWorld& world, const void* context, T* dest, T value, int pe) {
    (void)put_value(world.heap, pe_of(world, context, pe), place_of(world, dest), value);
}
template <class T>
MP_DEVICE T g(const ShmemWorld& world, const void* context, const T* source, int pe) {
    T value = {};
    (void)get_value(world.heap, pe_of(world, context, pe), place_of(world, source), value);
    return value;
}

// ---- signals ---------------------------------------------------------------------------------------------------

// Nothing that is done to a signal: SHMEM_SIGNAL_SET and SHMEM_SIGNAL_ADD are 0 and 1.
template <class Group>
MP_COLD void no_signal_operation(Group group, const ShmemWorld& world, int op) {
    (void)impl::refuse(group, world.heap.report, bad_argument, static_cast<std::uint64_t>(op), 1, 2);
}

// Sets a signal, or adds to it, alone: what the group put to that PE before is seen by who sees it.
template <class Group>
MP_DEVICE void signal_op(Group group, const ShmemWorld& world, const void* context, std::uint64_t* signal, std::uint64_t value, int op,
                         int pe) {
    const std::uint64_t rank = pe_of(world, context, pe);
    const WordAt there = word(place_of(world, signal));
    if (op == 0)
        (void)mp::signal(group, world.heap, rank, there, value);
    else if (op == 1)
        (void)mp::signal_add(group, world.heap, rank, there, value);
    else
        no_signal_operation(group, world, op);
}

// Puts, and then sets the signal or adds to it: who sees it sees the bytes.
template <class Group>
MP_DEVICE void put_signal_nbi(Group group, const ShmemWorld& world, const void* context, void* dest, const void* source, std::size_t bytes,
                              std::uint64_t* signal, std::uint64_t value, int op, int pe) {
    // First, so that it comes while the rest is worked out.
    const mp::impl::WordAhead ahead(group, source, bytes);
    const std::uint64_t rank = pe_of(world, context, pe), at = place_of(world, dest);
    const WordAt there = word(place_of(world, signal));
    if (op == 0)
        (void)mp::impl::put_signal(group, world.heap, rank, at, source, bytes, there, value, ahead);
    else if (op == 1)
        (void)mp::put_signal_add(group, world.heap, rank, at, source, bytes, there, value);
    else
        no_signal_operation(group, world, op);
}
template <class Group>
MP_DEVICE void put_signal(Group group, const ShmemWorld& world, const void* context, void* dest, const void* source, std::size_t bytes,
                          std::uint64_t* signal, std::uint64_t value, int op, int pe) {
    put_signal_nbi(group, world, context, dest, source, bytes, signal, value, op, pe);
    (void)flush(group, world.heap, pe_of(world, context, pe));
}

MP_DEVICE std::uint64_t signal_fetch(const ShmemWorld&, const std::uint64_t* signal) { return read_signal(signal); }

// ---- waits -----------------------------------------------------------------------------------------------------

// A comparison that the program chooses at run time: SHMEM_CMP_EQ and the others, 1 to 6.
struct Compare {
    int number;

    template <class T>
    MP_HOST_DEVICE bool operator()(T word, T value) const {
        switch (number) {
            case 1: return word == value;
            case 2: return word != value;
            case 3: return word > value;
            case 4: return word >= value;
            case 5: return word < value;
            default: return word <= value;
        }
    }
};

namespace impl {

using namespace mp::impl;

// One that is no comparison is refused.
template <class Group>
MP_DEVICE bool is_comparison(Group group, const ShmemWorld& world, int number) {
    if (MP_RARELY(number < 1 || number > 6)) {
        (void)refuse(group, world.heap.report, bad_argument, static_cast<std::uint64_t>(number), 1, 6);
        return false;
    }
    return true;
}

// What was waited for does not come any more: whoever goes on would take it for there.
MP_DEVICE void unless_lost(const WaitResult& result) {
    if (MP_RARELY(result.status == aborted || result.status == timed_out || result.status == path_failed)) halt();
}

}  // namespace impl

// Waits for a word of this PE's heap, of 16, 32 or 64 bits; acquire, for all threads of the group. Gives what it held.
template <class Group, class T>
MP_DEVICE T wait_and_see(Group group, const ShmemWorld& world, const T* word, int comparison, T value) {
    if (!impl::is_comparison(group, world, comparison)) return value;
    const WaitResult result = mp::wait(group, world.heap, mp::word(place_of(world, word)), Compare{comparison}, value);
    impl::unless_lost(result);
    return static_cast<T>(group.broadcast(result.seen));
}
template <class Group, class T>
MP_DEVICE void wait_until(Group group, const ShmemWorld& world, const T* word, int comparison, T value) {
    if (!impl::is_comparison(group, world, comparison)) return;
    impl::unless_lost(mp::wait(group, world.heap, mp::word(place_of(world, word)), Compare{comparison}, value));
}
// The same for each of `count` words, but for those whose `status`, if there is one, is not 0.
template <class Group, class T>
MP_DEVICE void wait_until_all(Group group, const ShmemWorld& world, const T* words, std::size_t count, const int* status, int comparison,
                              T value) {
    if (!impl::is_comparison(group, world, comparison)) return;
    const Words<T> all = {words, count, value, nullptr, sizeof(T), status};
    impl::unless_lost(mp::wait_all(group, world.heap, all, Compare{comparison}));
}
// One look, which all threads of the group agree on.
template <class Group, class T>
MP_DEVICE int test(Group group, const ShmemWorld& world, const T* word, int comparison, T value) {
    if (!impl::is_comparison(group, world, comparison)) return 0;
    const bool met = group.leads() && mp::test(word, Compare{comparison}, value);
    return group.any(met) ? 1 : 0;
}

// ---- order -----------------------------------------------------------------------------------------------------

template <class Group>
MP_DEVICE void fence(Group group, const ShmemWorld&, const void* context) {
    if (context == nullptr) return;
    group.sync();
    mp::fence(mp::acq_rel, mp::system);
    group.sync();
}
template <class Group>
MP_DEVICE void quiet(Group group, const ShmemWorld& world, const void* context) {
    if (context != nullptr) impl::unless_lost(mp::quiet(group, world.heap));
}
namespace impl {

template <class Group>
MP_DEVICE int meet(Group group, const Collective& collective) {
    const WaitResult result = barrier(group, collective);
    unless_lost(result);
    return static_cast<int>(result.status);
}

}  // namespace impl

template <class Group>
MP_DEVICE int team_sync(Group group, const ShmemWorld& world, const void* handle) {
    const std::uint64_t at = impl::address_of(handle);
    if (at == shmem_device_world && world.all.collective != 0) return impl::meet(group, world.meeting);
    const ShmemTeam team = team_of(world, handle);
    if (MP_RARELY(team.collective == 0)) {
        (void)impl::refuse(group, world.heap.report, no_such_team, at, 1, 0);
        return -1;
    }
    return impl::meet(group, impl::at<const CollectiveState>(team.collective)->collective);
}
// Quiet, and then all PEs meet. What is stored in memory that is mapped the meeting orders by itself: only requests to a NIC are waited for.
template <class Group>
MP_DEVICE void barrier_all(Group group, const ShmemWorld& world) {
    if (MP_RARELY(world.meeting.nic != 0)) quiet(group, world, impl::at<const void>(shmem_device_context));
    (void)team_sync(group, world, impl::at<const void>(shmem_device_world));
}
template <class Group>
MP_DEVICE void sync_all(Group group, const ShmemWorld& world) {
    (void)team_sync(group, world, impl::at<const void>(shmem_device_world));
}

// ---- atomic operations -----------------------------------------------------------------------------------------
// On words of 32 and 64 bits, as atomic.cuh has them. They are done when the call returns, with and without `nbi`. They order nothing
// else, which a fence or quiet between does: a mapped word is changed without the round trip that an ordering change of it costs.

namespace impl {

// The type by which words are changed: C has several of one size.
template <class T>
using Word = std::conditional_t<!std::is_integral_v<T>, T,
                                std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>,
                                                   std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>>;

template <class T, class Kind>
MP_DEVICE T fetched(const ShmemWorld& world, const void* context, const T* dest, Kind kind, T value, int pe) {
    Word<T> before = {};
    (void)fetch_in<Word<T>>(world.heap, pe_of(world, context, pe), place_of(world, dest), kind, value, before, relaxed);
    return static_cast<T>(before);
}
template <class T, class Kind>
MP_DEVICE void changed(const ShmemWorld& world, const void* context, T* dest, Kind kind, T value, int pe) {
    (void)change_in<Word<T>>(world.heap, pe_of(world, context, pe), place_of(world, dest), kind, value, relaxed);
}

}  // namespace impl

// Each by its value alone, with what the word held, and with that put where the program wants it.
#define MP_SHMEM_ATOMIC(name, kind)                                                                                              \
    template <class T>                                                                                                           \
    MP_DEVICE T atomic_fetch_##name(const ShmemWorld& world, const void* context, T* dest, T value, int pe) {                    \
        return impl::fetched(world, context, dest, kind, value, pe);                                                             \
    }                                                                                                                            \
    template <class T>                                                                                                           \
    MP_DEVICE void atomic_##name(const ShmemWorld& world, const void* context, T* dest, T value, int pe) {                       \
        impl::changed(world, context, dest, kind, value, pe);                                                                    \
    }                                                                                                                            \
    template <class T>                                                                                                           \
    MP_DEVICE void atomic_fetch_##name##_nbi(const ShmemWorld& world, const void* context, T* fetch, T* dest, T value, int pe) { \
        *fetch = impl::fetched(world, context, dest, kind, value, pe);                                                           \
    }
MP_SHMEM_ATOMIC(add, plus)
MP_SHMEM_ATOMIC(and, bit_and)
MP_SHMEM_ATOMIC(or, bit_or)
MP_SHMEM_ATOMIC(xor, bit_xor)
MP_SHMEM_ATOMIC(set, replace)
#undef MP_SHMEM_ATOMIC

template <class T>
MP_DEVICE T atomic_fetch(const ShmemWorld& world, const void* context, const T* source, int pe) {
    impl::Word<T> held = {};
    (void)mp::atomic_fetch(world.heap, pe_of(world, context, pe), place_of(world, source), held, relaxed);
    return static_cast<T>(held);
}
template <class T>
MP_DEVICE void atomic_fetch_nbi(const ShmemWorld& world, const void* context, T* fetch, const T* source, int pe) {
    *fetch = atomic_fetch(world, context, source, pe);
}
template <class T>
MP_DEVICE T atomic_compare_swap(const ShmemWorld& world, const void* context, T* dest, T expected, T value, int pe) {
    impl::Word<T> before = {};
    (void)mp::compare_swap<impl::Word<T>>(world.heap, pe_of(world, context, pe), place_of(world, dest), expected, value, before, relaxed);
    return static_cast<T>(before);
}
template <class T>
MP_DEVICE void atomic_compare_swap_nbi(const ShmemWorld& world, const void* context, T* fetch, T* dest, T expected, T value, int pe) {
    *fetch = atomic_compare_swap(world, context, dest, expected, value, pe);
}
template <class T>
MP_DEVICE void atomic_inc(const ShmemWorld& world, const void* context, T* dest, int pe) {
    atomic_add(world, context, dest, T{1}, pe);
}
template <class T>
MP_DEVICE T atomic_fetch_inc(const ShmemWorld& world, const void* context, T* dest, int pe) {
    return atomic_fetch_add(world, context, dest, T{1}, pe);
}
template <class T>
MP_DEVICE void atomic_fetch_inc_nbi(const ShmemWorld& world, const void* context, T* fetch, T* dest, int pe) {
    *fetch = atomic_fetch_inc(world, context, dest, pe);
}

}  // namespace mp::shmem
