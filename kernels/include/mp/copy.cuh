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

// Loads in flight per thread before the first store: enough to cover the latency of device memory.
constexpr int copies_in_flight = 8;

MP_DEVICE std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

// count elements, this thread every stride-th from `first` on.
template <class Element>
MP_DEVICE void copy_elements(Element* to, const Element* from, std::uint64_t count, std::uint64_t first,
                             std::uint64_t stride) {
    std::uint64_t i = first;
    for (; i + (copies_in_flight - 1) * stride < count; i += copies_in_flight * stride) {
        Element held[copies_in_flight];
        MP_UNROLL
        for (int k = 0; k < copies_in_flight; ++k) held[k] = from[i + k * stride];
        MP_UNROLL
        for (int k = 0; k < copies_in_flight; ++k) to[i + k * stride] = held[k];
    }
    for (; i < count; i += stride) to[i] = from[i];
}

}  // namespace impl

// One of several equal parts of a copy: part `index` of `count`, for blocks that share one.
struct Part {
    unsigned index = 0;
    unsigned count = 1;
};

// Copies `bytes` bytes; the two ranges do not overlap. All threads of the group (of every part) share the work, in 16-byte
// accesses where both ends allow it. Orders nothing: a barrier of the group makes the bytes visible in it, a signal
// elsewhere.
template <class Group>
MP_DEVICE void copy(Group group, void* to, const void* from, std::uint64_t bytes, Part part = Part{}) {
    const std::uint64_t stride = std::uint64_t{group.size()} * part.count;
    const std::uint64_t first = std::uint64_t{group.size()} * part.index + group.rank();
    const std::uint64_t ends = impl::address_of(to) | impl::address_of(from);
    std::uint64_t done = 0;
    if (ends % sizeof(impl::Wide) == 0) {
        const std::uint64_t count = bytes / sizeof(impl::Wide);
        impl::copy_elements(static_cast<impl::Wide*>(to), static_cast<const impl::Wide*>(from), count, first, stride);
        done = count * sizeof(impl::Wide);
    } else if (ends % sizeof(std::uint64_t) == 0) {
        const std::uint64_t count = bytes / sizeof(std::uint64_t);
        impl::copy_elements(static_cast<std::uint64_t*>(to), static_cast<const std::uint64_t*>(from), count, first,
                            stride);
        done = count * sizeof(std::uint64_t);
    }
    impl::copy_elements(static_cast<unsigned char*>(to) + done, static_cast<const unsigned char*>(from) + done,
                        bytes - done, first, stride);
}

}  // namespace mp
