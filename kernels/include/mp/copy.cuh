// Copying bytes by a group of threads: the plain loop under puts and large messages. It orders nothing and signals
// nothing; who reads the bytes elsewhere needs a signal or the end of the kernel.
#pragma once

#include "group.cuh"

namespace mp {
namespace impl {

// Sixteen bytes, the widest access of a thread.
struct alignas(16) Wide {
    std::uint64_t words[2];
};

// Loads in flight per thread before the first store: with a few hundred threads, enough to cover the latency of device memory.
// More delay the first store: with eight, 64 KiB and 256 KiB take 2 and 5 % longer to another GPU (512 threads, H200s).
constexpr int copies_in_flight = 4;

MP_DEVICE std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }
template <class T>
MP_DEVICE T* at(std::uint64_t address) {
    return reinterpret_cast<T*>(address);
}

// Elements from `i` on in rounds of `flight`, all loads of a round before its first store; where it stopped.
template <int flight, class Element>
MP_DEVICE std::uint64_t copy_rounds(Element* to, const Element* from, std::uint64_t count, std::uint64_t i,
                                    std::uint64_t stride) {
    for (; i + (flight - 1) * stride < count; i += flight * stride) {
        Element held[flight];
        MP_UNROLL
        for (int k = 0; k < flight; ++k) held[k] = from[i + k * stride];
        MP_UNROLL
        for (int k = 0; k < flight; ++k) to[i + k * stride] = held[k];
    }
    return i;
}

// count elements, this thread every stride-th from `i` on. Only wide elements are worth many loads in flight.
MP_DEVICE void copy_elements(Wide* to, const Wide* from, std::uint64_t count, std::uint64_t i, std::uint64_t stride) {
    i = copy_rounds<copies_in_flight>(to, from, count, i, stride);
    i = copy_rounds<2>(to, from, count, i, stride);
    copy_rounds<1>(to, from, count, i, stride);
}
template <class Element>
MP_DEVICE void copy_elements(Element* to, const Element* from, std::uint64_t count, std::uint64_t i,
                             std::uint64_t stride) {
    i = copy_rounds<2>(to, from, count, i, stride);
    copy_rounds<1>(to, from, count, i, stride);
}

// What neither end's alignment nor its length lets go faster.
MP_COLD void copy_bytes(void* to, const void* from, std::uint64_t count, std::uint64_t i, std::uint64_t stride) {
    for (; i < count; i += stride) static_cast<unsigned char*>(to)[i] = static_cast<const unsigned char*>(from)[i];
}

// The elements that fit into what is left of `bytes` after `done`; how many bytes are done then.
template <class Element>
MP_DEVICE std::uint64_t copy_whole(void* to, const void* from, std::uint64_t bytes, std::uint64_t done,
                                   std::uint64_t first, std::uint64_t stride) {
    const std::uint64_t count = (bytes - done) / sizeof(Element);
    if (count == 0) return done;
    auto* target = reinterpret_cast<Element*>(static_cast<unsigned char*>(to) + done);
    const auto* source = reinterpret_cast<const Element*>(static_cast<const unsigned char*>(from) + done);
    if (count <= stride) {  // the latency of a short one counts, and the rounds of a long one are many tests
        if (first < count) target[first] = source[first];
    } else {
        copy_elements(target, source, count, first, stride);
    }
    return done + count * sizeof(Element);
}

// Bytes from the beginning of the first row to the end of the last; the largest number if they are more than that.
MP_DEVICE std::uint64_t extent_of(std::uint64_t bytes, std::uint64_t count, std::uint64_t step) {
    if (bytes == 0 || count == 0) return 0;
    if (count > 1 && step > (~std::uint64_t{0} - bytes) / (count - 1)) return ~std::uint64_t{0};
    return (count - 1) * step + bytes;
}

}  // namespace impl

// One of several equal parts of a copy: part `index` of `count`, for blocks that share one.
struct Part {
    unsigned index = 0;
    unsigned count = 1;
};

// Rows of consecutive bytes, for strided puts and gets.
struct Rows {
    std::uint64_t bytes;  // of a row
    std::uint64_t count;  // rows
    std::uint64_t there;  // bytes from row to row in the other rank's memory …
    std::uint64_t here;   // … and in this rank's
};

namespace impl {

// Which elements of a copy are a thread's: every stride-th from the first on.
struct Turn {
    std::uint64_t first;
    std::uint64_t stride;
};
template <class Group>
MP_DEVICE Turn turn_of(Group group, Part part) {
    const std::uint64_t size = group.size();
    return {size * part.index + group.rank(), size * part.count};
}

// Copies what is no more than a word of each thread, whose latency counts. False if it is more.
MP_DEVICE bool copy_short(Turn turn, void* to, const void* from, std::uint64_t bytes) {
    constexpr std::uint64_t word = sizeof(std::uint64_t);
    if ((address_of(to) | address_of(from) | bytes) % word != 0 || bytes > word * turn.stride) return false;
    if (word * turn.first < bytes) static_cast<std::uint64_t*>(to)[turn.first] = static_cast<const std::uint64_t*>(from)[turn.first];
    return true;
}

// A copy that is not short.
MP_DEVICE void copy_long(Turn turn, void* to, const void* from, std::uint64_t bytes) {
    const std::uint64_t ends = address_of(to) | address_of(from);
    std::uint64_t done = 0;
    if (ends % sizeof(Wide) == 0) done = copy_whole<Wide>(to, from, bytes, done, turn.first, turn.stride);
    if (ends % sizeof(std::uint64_t) == 0) done = copy_whole<std::uint64_t>(to, from, bytes, done, turn.first, turn.stride);
    if (done < bytes)
        copy_bytes(static_cast<unsigned char*>(to) + done, static_cast<const unsigned char*>(from) + done, bytes - done, turn.first,
                   turn.stride);
}

}  // namespace impl

// Copies `bytes` bytes; the two ranges do not overlap. All threads of the group (of every part) share the work, in 16-byte
// accesses where both ends allow it. Orders nothing: a barrier of the group makes the bytes visible in it, a signal
// elsewhere.
template <class Group>
MP_DEVICE void copy(Group group, void* to, const void* from, std::uint64_t bytes, Part part = Part{}) {
    const impl::Turn turn = impl::turn_of(group, part);
    if (!impl::copy_short(turn, to, from, bytes)) impl::copy_long(turn, to, from, bytes);
}

}  // namespace mp
