// Windows in kernels: put, get and signals on the memory of any rank, freely addressed or prepared by the host. The host opens the
// window (libmp, Window), and a kernel takes its handle as `const __grid_constant__ mp::Window`: then it reads it from its constants, and
// has no copy of it in local memory. Signals lie in the memory of the GPU that waits for them, and are those of the host and of streams.
// Not here: atomic operations (atomic.cuh), and messages, which are matched and need no addresses.
//
// Offsets are bytes and checked against the peer's size: an access outside does nothing and returns false. Ranks and signals
// are checked likewise. The window's report says what was refused, and the host's next synchronisation fails with it.
//
// Puts, gets and signals do not wait for what they have started. `flush` does for this side: what was put may be written again,
// what was got is there. `quiet` does for both: what was put, signalled and added has happened at the rank. Over mapped memory
// most of that is so when the call returns; what is written for flush and quiet runs on every path.
//
// A rank behind a NIC is reached by requests (impl/nic_window.cuh) of several queues, which blocks take in turns. Those of one
// block are executed in order: what it put to a rank comes before its signal to that rank. What different blocks, or launches,
// put is in no order but by quiet. A put from this rank's own share, and of up to 512 bytes from anywhere, is one request; of more,
// one for each 512 bytes. A call whose request cannot be posted returns false; of a request that fails the next flush or quiet of
// the rank says so. The window's report says why.
#pragma once

#include "copy.cuh"
#include "impl/box.cuh"
#include "impl/nic_window.cuh"
#include "message.cuh"

namespace mp {

// The share of a rank; null if there is no such rank.
MP_DEVICE const WindowPart* part_of(const Window& window, std::uint64_t rank) {
    return rank < window.ranks ? impl::at<const WindowPart>(window.parts) + rank : nullptr;
}

// The word of 64 bits at byte `at` of a share, a multiple of 8, where a signal is named by its number: it is raised, added to and
// waited for like one.
struct WordAt {
    std::uint64_t at;
};
MP_DEVICE WordAt word(std::uint64_t at) { return {at}; }

namespace impl {

// What loads and stores reach of a rank's share, all zeros if that is nothing. Of the first ranks the handle says it, of the others
// the table. What is not found here is looked for anew by what is called then: behind a NIC, or nowhere.
MP_DEVICE MappedPart mapped_part(const Window& window, std::uint64_t rank) {
    if (rank < near_ranks) return window.near[rank];
    if (rank >= window.ranks) return {};
    // Asked for at once, so that a loop of calls asks once.
    const WindowPart* part = at<const WindowPart>(window.parts) + rank;
    if (fixed(part->nic) != 0) return {};
    const std::uint64_t signals = fixed(part->signals);
    return {fixed(part->memory), fixed(part->bytes), signals, fixed(part->atomic_bytes), fixed(part->atomic_nic) == 0 ? signals : 0};
}
// What this GPU's atomic operations may change of it: what a NIC changes, only the NIC does.
MP_DEVICE MappedPart atomic_part(const Window& window, std::uint64_t rank) {
    const MappedPart part = mapped_part(window, rank);
    return {part.memory, part.atomic_bytes, part.atomic_signals, part.atomic_bytes, part.atomic_signals};
}
// Whether requests to a NIC may be on their way to the rank.
MP_DEVICE bool is_told_by_nic(const Window& window, std::uint64_t rank) {
    const MappedPart part = mapped_part(window, rank);
    return part.memory == 0 || part.atomic_bytes != part.bytes || part.atomic_signals != part.signals;
}
// All of it, all zeros if there is no such rank.
MP_DEVICE WindowPart whole_part(const Window& window, std::uint64_t rank) {
    const WindowPart* part = part_of(window, rank);
    return part != nullptr ? *part : WindowPart{};
}
// The same as atomic operations that are not this GPU's own go there.
MP_DEVICE WindowPart whole_atomic_part(const Window& window, std::uint64_t rank) {
    WindowPart part = whole_part(window, rank);
    part.nic = part.atomic_nic;
    return part;
}

// A place in a rank's share, if there is one: an address of this GPU, or of the rank if the share is behind a NIC.
struct Place {
    std::uint64_t address;
    bool is_there;
};
template <class Share>
MP_DEVICE Place range_in(const Share& share, std::uint64_t at, std::uint64_t bytes) {
    return {share.memory + at, share.memory != 0 && bytes <= share.bytes && at <= share.bytes - bytes};
}
// The word of `bytes` bytes, a power of two, at byte `at`, a multiple of them.
template <class Share>
MP_DEVICE Place word_in(const Share& share, std::uint64_t at, std::uint64_t bytes) {
    const std::uint64_t last = bytes - 1;
    return {share.memory + at, ((share.memory | at) & last) == 0 && (at | last) < share.bytes};
}
// The same as loads and stores reach it. The address is worked out beside the checks, not behind them.
MP_DEVICE Place mapped_word(const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t bytes) {
    Place word = word_in(mapped_part(window, rank), at, bytes);
    keep(word.address);
    return word;
}
// The same for atomic operations.
MP_DEVICE Place atomic_word(const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t bytes) {
    Place word = word_in(atomic_part(window, rank), at, bytes);
    keep(word.address);
    return word;
}
template <class Share>
MP_DEVICE Place signal_place_in(const Window& window, const Share& share, std::uint64_t signal) {
    return {share.signals + signal * signal_stride, share.signals != 0 && signal < window.signals};
}
template <class Share>
MP_DEVICE Place signal_place_in(const Window&, const Share& share, WordAt word) {
    return word_in(share, word.at, 8);
}
// What chooses the context of a put that blocks share.
MP_DEVICE std::uint64_t number_of(std::uint64_t signal) { return signal; }
MP_DEVICE std::uint64_t number_of(WordAt word) { return word.at / 8; }

// A call for which there is no place. True if it has nothing to do; what was refused goes into the window's report.
template <class Group>
MP_COLD bool no_place(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t bytes) {
    const WindowPart* part = part_of(window, rank);
    const bool inside = part != nullptr && at <= part->bytes && bytes <= part->bytes - at;
    if (part == nullptr)
        (void)refuse(group, window.report, no_such_rank, rank, 1, window.ranks);
    else if (!inside)
        (void)refuse(group, window.report, out_of_range, at, bytes, part->bytes);
    return inside && bytes == 0;
}
template <class Group>
MP_COLD WaitStatus no_signal(Group group, const Window& window, std::uint64_t rank, std::uint64_t signal) {
    if (part_of(window, rank) == nullptr) return refuse(group, window.report, no_such_rank, rank, 1, window.ranks).status;
    return refuse(group, window.report, no_such_signal, signal, 1, window.signals).status;
}
MP_COLD bool no_word(const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t bytes) {
    if (!range_in(whole_part(window, rank), at, bytes).is_there) return no_place(thread(), window, rank, at, bytes);
    (void)refuse(thread(), window.report, not_atomic, at, bytes, 0);
    return false;
}
template <class Group>
MP_COLD WaitStatus no_signal(Group group, const Window& window, std::uint64_t rank, WordAt word) {
    if (group.leads()) (void)no_word(window, rank, word.at, 8);
    if (part_of(window, rank) == nullptr) return no_such_rank;
    return range_in(whole_part(window, rank), word.at, 8).is_there ? not_atomic : out_of_range;
}

}  // namespace impl

// Where bytes `at` … `at + bytes` of a rank's share are; null if they are not all in it, or behind a NIC. Loads and stores
// through it are ordered by signals only.
MP_DEVICE void* address_in(const Window& window, std::uint64_t rank, std::uint64_t at, std::uint64_t bytes) {
    const impl::Place place = impl::range_in(impl::mapped_part(window, rank), at, bytes);
    return place.is_there ? impl::at<void>(place.address) : nullptr;
}

// Signal number `signal` of a rank; null if there is none, or it is behind a NIC.
MP_DEVICE std::uint64_t* signal_in(const Window& window, std::uint64_t rank, std::uint64_t signal) {
    const impl::Place place = impl::signal_place_in(window, impl::mapped_part(window, rank), signal);
    return place.is_there ? impl::at<std::uint64_t>(place.address) : nullptr;
}

namespace impl {

// A word that one thread copies, asked for before it is known where to.
class WordAhead {
public:
    template <class Group>
    MP_DEVICE WordAhead(Group group, const void* from, std::uint64_t bytes)
        : is_one_(group.size() == 1 && bytes == sizeof word_ && address_of(from) % sizeof word_ == 0) {
        if (is_one_) word_ = *static_cast<const std::uint64_t*>(from);
    }
    // False if it is none, or not one there.
    MP_DEVICE bool store(std::uint64_t to) const {
        if (!is_one_ || to % sizeof word_ != 0) return false;
        *at<std::uint64_t>(to) = word_;
        return true;
    }

private:
    bool is_one_;
    std::uint64_t word_ = 0;
};

// The rows of a part.
MP_DEVICE Rows rows_of(const Rows& rows, const Span& span) { return {rows.bytes, span.bytes, rows.there, rows.here}; }

}  // namespace impl

namespace impl {

// A put that is not short, or by a NIC, or refused.
template <class Group>
MP_COLD bool put_rest(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, const void* from, std::uint64_t bytes,
                      Part part) {
    const WindowPart share = whole_part(window, rank);
    const Place to = range_in(share, at, bytes);
    if (!to.is_there) return no_place(group, window, rank, at, bytes);
    if (share.nic != 0) {
        const Span span = span_of(bytes, part);
        const auto* first = static_cast<const unsigned char*>(from) + span.first;
        return put_by_nic(group, window, share, block_rank(), to.address + span.first, first, span.bytes, 0, 0);
    }
    copy_long(turn_of(group, part), impl::at<void>(to.address), from, bytes);
    return true;
}

// Rows by a NIC, or refused.
template <class Group>
MP_COLD bool put_rows_rest(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, const void* from, const Rows rows,
                           Part part) {
    const WindowPart share = whole_part(window, rank);
    const std::uint64_t extent = extent_of(rows.bytes, rows.count, rows.there);
    const Place to = range_in(share, at, extent);
    if (!to.is_there || extent == 0) return no_place(group, window, rank, at, extent);
    const Span span = span_of(rows.count, part);
    const auto* first = static_cast<const unsigned char*>(from) + span.first * rows.here;
    return put_rows_by_nic(group, window, share, to.address + span.first * rows.there, first, rows_of(rows, span));
}

}  // namespace impl

// Copies to a rank. Two puts are in no order; a signal after them (put_signal, signal) orders all of the group's. What `from`
// points to may be written again after `flush`, or, if it is up to 512 bytes or outside of this rank's share, when the call has
// returned in the threads that read it: after a barrier of the group. Blocks may share one put by parts.
template <class Group>
[[nodiscard]] MP_DEVICE bool put(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, const void* from,
                   std::uint64_t bytes, Part part = Part{}) {
    const impl::Place to = impl::range_in(impl::mapped_part(window, rank), at, bytes);
    if (to.is_there && impl::copy_short(impl::turn_of(group, part), impl::at<void>(to.address), from, bytes)) return true;
    return impl::put_rest(group, window, rank, at, from, bytes, part);
}

// The strided put: rows from `from` on, the first to byte `at` of the rank. Rows that overlap there are in no order. For the rest
// as put; through a NIC a row is one request, and many are posted at once.
template <class Group>
[[nodiscard]] MP_DEVICE bool put(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, const void* from,
                   const Rows& rows, Part part = Part{}) {
    const std::uint64_t extent = impl::extent_of(rows.bytes, rows.count, rows.there);
    const impl::Place to = impl::range_in(impl::mapped_part(window, rank), at, extent);
    if (MP_RARELY(!to.is_there)) return impl::put_rows_rest(group, window, rank, at, from, rows, part);
    impl::copy_rows(group, to.address, rows.there, impl::address_of(from), rows.here, rows, part);
    return true;
}

namespace impl {

// A get that is not short, or by a NIC, or refused.
template <class Group>
MP_COLD bool get_rest(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, void* to, std::uint64_t bytes, Part part) {
    const WindowPart share = whole_part(window, rank);
    const Place from = range_in(share, at, bytes);
    if (!from.is_there) return no_place(group, window, rank, at, bytes);
    if (share.nic != 0) {
        const Span span = span_of(bytes, part);
        auto* first = static_cast<unsigned char*>(to) + span.first;
        return get_by_nic(group, window, share, from.address + span.first, first, Rows{span.bytes, 1, 0, 0});
    }
    copy_long(turn_of(group, part), to, impl::at<const void>(from.address), bytes);
    return true;
}

// Rows by a NIC, or refused.
template <class Group>
MP_COLD bool get_rows_rest(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, void* to, const Rows rows, Part part) {
    const WindowPart share = whole_part(window, rank);
    const std::uint64_t extent = extent_of(rows.bytes, rows.count, rows.there);
    const Place from = range_in(share, at, extent);
    if (!from.is_there || extent == 0) return no_place(group, window, rank, at, extent);
    const Span span = span_of(rows.count, part);
    auto* first = static_cast<unsigned char*>(to) + span.first * rows.here;
    return get_by_nic(group, window, share, from.address + span.first * rows.there, first, rows_of(rows, span));
}

}  // namespace impl

// Copies from a rank: loads over the link, so slower than a put. The bytes are there after `flush`, or quiet, for the whole group;
// until then nothing may be done with `to`. Through a NIC into this rank's own share it is one request; elsewhere the bytes come by
// small buffers, and the call waits for them. What is signalled or put behind a get may happen before it: flush between them.
template <class Group>
[[nodiscard]] MP_DEVICE bool get(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, void* to,
                   std::uint64_t bytes, Part part = Part{}) {
    const impl::Place from = impl::range_in(impl::mapped_part(window, rank), at, bytes);
    if (from.is_there && impl::copy_short(impl::turn_of(group, part), to, impl::at<const void>(from.address), bytes)) return true;
    return impl::get_rest(group, window, rank, at, to, bytes, part);
}

// The strided get: rows to `to` and on, the first from byte `at` of the rank; they do not overlap in `to`. For the rest as get.
template <class Group>
[[nodiscard]] MP_DEVICE bool get(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, void* to,
                   const Rows& rows, Part part = Part{}) {
    const std::uint64_t extent = impl::extent_of(rows.bytes, rows.count, rows.there);
    const impl::Place from = impl::range_in(impl::mapped_part(window, rank), at, extent);
    if (MP_RARELY(!from.is_there)) return impl::get_rows_rest(group, window, rank, at, to, rows, part);
    impl::copy_rows(group, impl::address_of(to), rows.here, from.address, rows.there, rows, part);
    return true;
}

// Waits until what was put to a rank may be written again where it came from, and what was got from there is here, for every thread
// of the group: of this group, and of all groups of this GPU's kernels whose puts and gets it knows of by a barrier or a signal.
// Bounded as `wait`; a request that failed ends it with `path_failed`. After a failure nothing is ordered. The failure goes into
// the window's report.
template <class Group>
MP_DEVICE WaitResult flush(Group group, const Window& window, std::uint64_t rank) {
    if (MP_RARELY(rank >= window.ranks)) return impl::refuse(group, window.report, no_such_rank, rank, 1, window.ranks);
    if (MP_RARELY(impl::mapped_part(window, rank).memory == 0)) return impl::drain(group, window, rank, 1, 0, impl::Drain::in_use);
    group.sync();
    return {ok, 0, 0};
}
// The same of all ranks.
template <class Group>
MP_DEVICE WaitResult flush(Group group, const Window& window) {
    return impl::drain(group, window, 0, window.ranks, 0, impl::Drain::in_use);
}

// Waits until what was put to a rank, signalled or added there has happened, and as flush for gets: whoever hears by any way that
// the group is through sees it (release at system scope). Of whose puts, how bounded and how it fails: as flush.
template <class Group>
MP_DEVICE WaitResult quiet(Group group, const Window& window, std::uint64_t rank) {
    if (MP_RARELY(rank >= window.ranks)) return impl::refuse(group, window.report, no_such_rank, rank, 1, window.ranks);
    if (MP_RARELY(impl::is_told_by_nic(window, rank))) return impl::drain(group, window, rank, 1, 0, impl::Drain::posted);
    group.sync();
    if (group.leads()) fence(acq_rel, system);
    group.sync();
    return {ok, 0, 0};
}
// The same of all ranks.
template <class Group>
MP_DEVICE WaitResult quiet(Group group, const Window& window) {
    return impl::drain(group, window, 0, window.ranks, 0, impl::Drain::posted);
}

namespace impl {

// What is not one store or one load of a thread: through a NIC, at an odd place, refused.
template <class T>
MP_COLD bool put_bytes(const Window& window, std::uint64_t rank, std::uint64_t at, const T value) {
    return put(thread(), window, rank, at, &value, sizeof value);
}
template <class T>
MP_COLD bool get_bytes(const Window& window, std::uint64_t rank, std::uint64_t at, T& value) {
    return get(thread(), window, rank, at, &value, sizeof value) && !flush(thread(), window, rank).failed();
}

}  // namespace impl

// Puts a value of 1, 2, 4 or 8 bytes, by one thread. For the rest as put; it is out of the thread's hands when the call returns.
template <class T>
[[nodiscard]] MP_DEVICE bool put_value(const Window& window, std::uint64_t rank, std::uint64_t at, T value) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "a value has 1, 2, 4 or 8 bytes");
    const impl::Place to = impl::mapped_word(window, rank, at, sizeof(T));
    if (MP_RARELY(!to.is_there)) return impl::put_bytes(window, rank, at, value);
    *impl::at<T>(to.address) = value;
    return true;
}

// Gets a value of 1, 2, 4 or 8 bytes, by one thread, and waits for it: a look of its own at the rank's memory, which orders nothing.
template <class T>
[[nodiscard]] MP_DEVICE bool get_value(const Window& window, std::uint64_t rank, std::uint64_t at, T& value) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "a value has 1, 2, 4 or 8 bytes");
    const impl::Place from = impl::mapped_word(window, rank, at, sizeof(T));
    if (MP_RARELY(!from.is_there)) return impl::get_bytes(window, rank, at, value);
    value = *impl::at<const volatile T>(from.address);
    return true;
}

namespace impl {

// Signals, and puts with one, by a NIC, or refused.
template <class Group, class Signal>
MP_COLD bool signal_rest(Group group, const Window& window, std::uint64_t rank, Signal signal, std::uint64_t value) {
    const WindowPart share = whole_part(window, rank);
    const Place word = signal_place_in(window, share, signal);
    if (!word.is_there) return no_signal(group, window, rank, signal) == ok;
    return put_by_nic(group, window, share, block_rank(), 0, nullptr, 0, word.address, value);
}
template <class Group, class Signal>
MP_COLD bool signal_add_rest(Group group, const Window& window, std::uint64_t rank, Signal signal, std::uint64_t value) {
    const WindowPart share = whole_atomic_part(window, rank);
    const Place word = signal_place_in(window, share, signal);
    if (!word.is_there) return no_signal(group, window, rank, signal) == ok;
    return add_by_nic(group, window, share, word.address, value);
}

}  // namespace impl

// Raises a rank's signal, by number or `word`, to `value`, larger than what it holds. Release at system scope after a barrier of the group: who
// waits for it sees everything the group wrote before, wherever; through a NIC, everything the group put to that rank. One rank
// raises a signal, and through a NIC one block: another one's may be overtaken by it, unless quiet is between.
template <class Group, class Signal>
[[nodiscard]] MP_DEVICE bool signal(Group group, const Window& window, std::uint64_t rank, Signal signal,
                                    std::uint64_t value) {
    const impl::Place word = impl::signal_place_in(window, impl::mapped_part(window, rank), signal);
    if (MP_RARELY(!word.is_there)) return impl::signal_rest(group, window, rank, signal, value);
    mp::signal(group, impl::at<std::uint64_t>(word.address), value);
    return true;
}

// Adds `value` to a rank's signal, to which any number of ranks may add; nobody sets it. The order is that of `signal`: who has
// waited for the sum of all sees what each has written or put to that rank before.
template <class Group, class Signal>
[[nodiscard]] MP_DEVICE bool signal_add(Group group, const Window& window, std::uint64_t rank, Signal signal,
                                        std::uint64_t value) {
    const impl::Place word = impl::signal_place_in(window, impl::atomic_part(window, rank), signal);
    if (MP_RARELY(!word.is_there)) return impl::signal_add_rest(group, window, rank, signal, value);
    mp::signal_add(group, impl::at<std::uint64_t>(word.address), value);
    return true;
}

// put, then signal_add: who sees the sum sees the bytes. Nothing is done if either is out of range.
template <class Group, class Signal>
[[nodiscard]] MP_DEVICE bool put_signal_add(Group group, const Window& window, std::uint64_t rank, std::uint64_t at,
                                            const void* from, std::uint64_t bytes, Signal signal,
                                            std::uint64_t value) {
    if (MP_RARELY(!impl::signal_place_in(window, impl::whole_part(window, rank), signal).is_there))
        return impl::no_signal(group, window, rank, signal) == ok;
    return put(group, window, rank, at, from, bytes) && signal_add(group, window, rank, signal, value);
}

namespace impl {

template <class Group, class Signal>
MP_COLD bool put_signal_rest(Group group, const Window& window, std::uint64_t rank, std::uint64_t first, const void* from,
                             std::uint64_t bytes, Signal signal, std::uint64_t value) {
    const WindowPart share = whole_part(window, rank);
    const Place to = range_in(share, first, bytes), word = signal_place_in(window, share, signal);
    if (!word.is_there) return no_signal(group, window, rank, signal) == ok;
    if (!to.is_there && !no_place(group, window, rank, first, bytes)) return false;
    if (share.nic != 0)
        return put_by_nic(group, window, share, block_rank(), to.address, from, to.is_there ? bytes : 0, word.address, value);
    mp::signal(group, at<std::uint64_t>(word.address), value);
    return true;
}

// put_signal with the word of `from`, if it is one, asked for before.
template <class Group, class Signal>
MP_DEVICE bool put_signal(Group group, const Window& window, std::uint64_t rank, std::uint64_t at, const void* from, std::uint64_t bytes,
                          Signal signal, std::uint64_t value, const WordAhead& ahead) {
    const MappedPart share = mapped_part(window, rank);
    const Place to = range_in(share, at, bytes), word = signal_place_in(window, share, signal);
    if (MP_RARELY(!to.is_there || !word.is_there)) return put_signal_rest(group, window, rank, at, from, bytes, signal, value);
    if (!ahead.store(to.address)) copy(group, impl::at<void>(to.address), from, bytes);
    mp::signal(group, impl::at<std::uint64_t>(word.address), value);
    return true;
}

}  // namespace impl

// put, then signal: who sees the signal sees the bytes. Nothing is done if either is out of range.
template <class Group, class Signal>
[[nodiscard]] MP_DEVICE bool put_signal(Group group, const Window& window, std::uint64_t rank, std::uint64_t at,
                                        const void* from, std::uint64_t bytes, Signal signal, std::uint64_t value) {
    return impl::put_signal(group, window, rank, at, from, bytes, signal, value, impl::WordAhead(group, from, bytes));
}

namespace impl {

// A part that could not be put is never signalled.
template <class Signal>
MP_COLD bool put_signal_rest(Block group, const Window& window, std::uint64_t rank, std::uint64_t first, const void* from,
                             std::uint64_t bytes, Signal signal, std::uint64_t value, Part part, std::uint64_t* arrived) {
    const WindowPart share = whole_part(window, rank);
    const Place to = range_in(share, first, bytes), word = signal_place_in(window, share, signal);
    if (!word.is_there) return no_signal(group, window, rank, signal) == ok;
    const Span span = span_of(bytes, part);
    const auto* mine = static_cast<const unsigned char*>(from) + span.first;
    const bool put = to.is_there ? put_by_nic(group, window, share, number_of(signal), to.address + span.first, mine, span.bytes, 0, 0)
                                 : no_place(group, window, rank, first, bytes);
    if (!put || !last_block(arrived, part.count)) return put;
    if (share.nic != 0) return put_by_nic(group, window, share, number_of(signal), 0, nullptr, 0, word.address, value);
    if (group.leads()) store(at<std::uint64_t>(word.address), value, release, system);
    return true;
}

}  // namespace impl

// The same by several blocks with a part each; the last one signals. `arrived` as for last_block. Through a NIC all parts go by one
// queue, which the signal's number chooses: the signal is behind them, and not behind what the blocks put before.
template <class Signal>
[[nodiscard]] MP_DEVICE bool put_signal(Block group, const Window& window, std::uint64_t rank, std::uint64_t at,
                                        const void* from, std::uint64_t bytes, Signal signal, std::uint64_t value,
                                        Part part, std::uint64_t* arrived) {
    const MappedPart share = impl::mapped_part(window, rank);
    const impl::Place to = impl::range_in(share, at, bytes), word = impl::signal_place_in(window, share, signal);
    if (MP_RARELY(!to.is_there || !word.is_there))
        return impl::put_signal_rest(group, window, rank, at, from, bytes, signal, value, part, arrived);
    copy(group, impl::at<void>(to.address), from, bytes, part);
    if (last_block(arrived, part.count) && group.leads()) store(impl::at<std::uint64_t>(word.address), value, release, system);
    return true;
}

namespace impl {

// The end of a wait for this rank's own memory; a failure goes into the window's report.
template <class Group, class T>
MP_DEVICE WaitResult reported(Group group, const Window& window, T value, const WaitResult& result) {
    const auto expected = static_cast<std::uint64_t>(value);
    if (result.failed() && group.leads()) report(at<WaitReport>(window.report), expected, result);
    return result;
}

}  // namespace impl

// Waits until this rank's signal compares so with `value`, as mp::wait; a failure goes into the window's report. For a signal
// that does not exist nobody waits: `no_such_signal`.
template <class Group, class Compare>
MP_DEVICE WaitResult wait(Group group, const Window& window, std::uint64_t signal, Compare compare, std::uint64_t value) {
    const std::uint64_t* word = signal_in(window, window.rank, signal);
    if (MP_RARELY(word == nullptr)) return {impl::no_signal(group, window, window.rank, signal), window.signals, 0};
    return impl::reported(group, window, value, wait(group, word, compare, value, impl::bounds_of(window)));
}

// Waits until this rank's signal has reached `value`: the same with `ge`.
template <class Group>
MP_DEVICE WaitResult wait(Group group, const Window& window, std::uint64_t signal, std::uint64_t value) {
    return wait(group, window, signal, ge, value);
}

// The same for the word of 16, 32 or 64 bits, whichever the value has, at a place of this rank's share, a multiple of its size: any
// rank writes it by put, signal or an atomic operation. At another place nobody waits: `not_atomic`.
template <class Group, class Compare, class T>
MP_DEVICE WaitResult wait(Group group, const Window& window, WordAt at, Compare compare, T value) {
    const impl::Place word = impl::mapped_word(window, window.rank, at.at, sizeof(T));
    if (MP_RARELY(!word.is_there)) {
        if (group.leads()) (void)impl::no_word(window, window.rank, at.at, sizeof(T));
        const bool inside = impl::range_in(impl::whole_part(window, window.rank), at.at, sizeof(T)).is_there;
        return {inside ? not_atomic : out_of_range, window.ranks, 0};
    }
    const auto* there = impl::at<const T>(word.address);
    return impl::reported(group, window, value, wait(group, there, compare, value, impl::bounds_of(window)));
}

// This rank's signals `first` … `first + count` as words to wait for together; none if some of them do not exist.
MP_DEVICE Words<std::uint64_t> signals_in(const Window& window, std::uint64_t first, std::uint64_t count, std::uint64_t value) {
    const bool exist = first <= window.signals && count <= window.signals - first && count > 0;
    const std::uint64_t* word = exist ? signal_in(window, window.rank, first) : nullptr;
    return {word, exist ? count : 0, value, nullptr, signal_stride, nullptr};
}

// Waits for all, or one, of the words, as mp::wait_all and mp::wait_any; a failure goes into the window's report.
template <class Group, class T, class Compare>
MP_DEVICE WaitResult wait_all(Group group, const Window& window, const Words<T>& words, Compare compare) {
    return impl::reported(group, window, words.value, wait_all(group, words, compare, impl::bounds_of(window)));
}
template <class Group, class T, class Compare>
MP_DEVICE AnyResult wait_any(Group group, const Window& window, const Words<T>& words, Compare compare,
                             std::uint64_t from = 0) {
    const AnyResult any = wait_any(group, words, compare, impl::bounds_of(window), from);
    (void)impl::reported(group, window, words.value, any.result);
    return any;
}

namespace impl {

// A part of a prepared get through a NIC; the last one counts the start.
template <class Group>
MP_DEVICE WaitResult get_by_nic(Group group, const Message& message, Part part) {
    auto* state = at<MessageState>(message.state);
    group.sync();
    const std::uint64_t epoch = state->epoch + 1;
    const WaitStatus status = get_part_by_nic(group, message.nic, epoch, part);
    if (status == ok && (part.count == 1 || last_block(&state->arrived, part.count)) && group.leads()) state->epoch = epoch;
    return {status, epoch, 0};
}

}  // namespace impl

// ---- prepared by the host --------------------------------------------------------------------------------------
// The same objects the host and streams start, counted in this GPU's memory: start number n of a put raises its signal to n.
// Two starts of one object do not overlap.

// Puts the region, then raises the signal if there is one, which orders what the group put and wrote before. The region may be
// written again when the call has returned, in the group after a barrier.
template <class Group>
MP_DEVICE WaitResult put(Group group, const Put& put) {
    return send(group, put.send);
}
// The same by several blocks, each of which calls it with its part; the last one signals. As send.
MP_DEVICE WaitResult put(Block group, const Put& put, Part part) { return send(group, put.send, part); }

// Waits for the signal: wait number n until it is at least n. Acquire at system scope, as mp::wait.
template <class Group>
MP_DEVICE WaitResult wait(Group group, const SignalWait& wait) {
    return recv(group, wait.recv);
}

// Gets into the region what the rank's share holds. It is there for the group when the call has returned, after a barrier.
template <class Group>
MP_DEVICE WaitResult get(Group group, const Get& get) {
    const Message& message = get.send.message;
    if (MP_RARELY(message.nic != 0)) return impl::get_by_nic(group, message, Part{});
    return send(group, get.send);
}
// The same by several blocks, each of which calls it with its part; all of it is there after they have met.
MP_DEVICE WaitResult get(Block group, const Get& get, Part part) {
    const Message& message = get.send.message;
    if (MP_RARELY(message.nic != 0)) return impl::get_by_nic(group, message, part);
    return send(group, get.send, part);
}

}  // namespace mp
