// Cooperating groups: which threads carry out one operation together. mp::thread(), mp::warp() and mp::block() are tags
// to pass as first argument, as in mp::wait(mp::block(), ...). Every thread of the group must make the call.
// Not cooperative_groups: no partitions, no grid-wide barrier.
#pragma once

#include "platform.cuh"

namespace mp {

// One thread by itself. sync() does nothing and orders nothing.
struct Thread {
    MP_DEVICE bool leads() const { return true; }
    MP_DEVICE unsigned rank() const { return 0; }
    MP_DEVICE unsigned size() const { return 1; }
    MP_DEVICE void sync() const {}
    MP_DEVICE bool any(bool mine) const { return mine; }
    MP_DEVICE bool any_uniform(bool mine) const { return mine; }
    template <class Value>
    MP_DEVICE Value broadcast(const Value& of_leader) const {
        return of_leader;
    }
};

// The 32 threads of a full warp; lane 0 leads. sync, any and broadcast order memory among them, at warp scope.
struct Warp {
    MP_DEVICE bool leads() const { return lane() == 0; }
    MP_DEVICE unsigned rank() const { return lane(); }
    MP_DEVICE unsigned size() const { return 32; }
    MP_DEVICE void sync() const { warp_barrier(); }
    MP_DEVICE bool any(bool mine) const { return warp_any(mine); }
    MP_DEVICE bool any_uniform(bool mine) const { return warp_any(mine); }
    template <class Value>
    MP_DEVICE Value broadcast(const Value& of_leader) const {
        return warp_broadcast(of_leader);
    }
};

// All threads of the block; thread 0 leads. sync, any and broadcast order memory among them, at block scope. any_uniform is any, and
// tells the compiler that all threads have the same answer: then it saves nothing around a long call behind it. It is a vote more, 15 ns.
struct Block {
    MP_DEVICE bool leads() const { return thread_rank() == 0; }
    MP_DEVICE unsigned rank() const { return thread_rank(); }
    MP_DEVICE unsigned size() const { return block_threads(); }
    MP_DEVICE void sync() const { block_barrier(); }
    MP_DEVICE bool any(bool mine) const { return block_any(mine); }
    MP_DEVICE bool any_uniform(bool mine) const { return impl::uniform(block_any(mine)); }
    template <class Value>
    MP_DEVICE Value broadcast(const Value& of_leader) const {
        return block_broadcast(of_leader);
    }
};

MP_DEVICE Thread thread() { return {}; }  // orders nothing, as the two below: a tag
MP_DEVICE Warp warp() { return {}; }
MP_DEVICE Block block() { return {}; }

}  // namespace mp
