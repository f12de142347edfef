// How a kernel tells the host that a wait failed, or that a call was refused: a WaitReport that the host prepared (all zeros) and reads when an
// operation on the stream has failed. The first failure stays; later ones are dropped. No error text, no ranks: the
// host knows whose slot it is.
#pragma once

#include "layout.cuh"
#include "platform.cuh"
#include "signal.cuh"

namespace mp {

namespace impl {

// In place, for kernels that call nothing: a call costs what is around it registers, also where it is not made.
MP_DEVICE void write_report_here(WaitReport* slot, std::uint64_t expected, const WaitResult& result) {
    if (fetch(&slot->claimed, replace, std::uint32_t{1}, gpu, relaxed) != 0) return;
    store(&slot->expected, expected, relaxed, system);
    store(&slot->seen, result.seen, relaxed, system);
    store(&slot->waited_ns, result.waited_ns, relaxed, system);
    store(&slot->status, static_cast<std::uint32_t>(result.status), release, system);
}
MP_COLD void write_report(WaitReport* slot, std::uint64_t expected, const WaitResult result) { write_report_here(slot, expected, result); }

}  // namespace impl

// Writes a failed wait into the slot; does nothing for ok or for a null slot. To be called by one thread of the group that
// waited. `claimed` decides, relaxed at GPU scope, which of several failures of this GPU is kept: a slot belongs to one
// GPU. `status` is released last, at system scope, so a host thread that acquires a status other than 0 reads the
// numbers that belong to it.
MP_DEVICE void report(WaitReport* slot, std::uint64_t expected, const WaitResult& result) {
    if (slot != nullptr && result.failed()) impl::write_report(slot, expected, result);
}

namespace impl {

// A call that is refused, for `count` of something from `first` on of which there are `size`: reported by the leader, and every
// thread's result.
template <class Group>
MP_DEVICE WaitResult refuse(Group group, std::uint64_t slot, WaitStatus status, std::uint64_t first, std::uint64_t count,
                            std::uint64_t size) {
    if (group.leads()) report(reinterpret_cast<WaitReport*>(slot), first, {status, size, count});
    return {status, size, 0};
}

}  // namespace impl

}  // namespace mp
