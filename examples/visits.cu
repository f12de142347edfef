// Visits that come in fragments of messages, added up: the device side of visits.rs.
#include <mp/host/launch.hpp>
#include <mp/mp.cuh>

// What a visit of a person adds to a place, so many rounds long: the sum depends on no order.
MP_DEVICE std::uint64_t visit_of(std::uint32_t person, std::uint32_t place, std::uint64_t rounds) {
    std::uint64_t value = std::uint64_t(person) << 32 | place;
    for (std::uint64_t round = 0; round < rounds; ++round) value = (value ^ value >> 31) * 0x9e3779b97f4a7c15u + round;
    return value;
}

// ANCHOR: kernel
// One block. A fragment begins with how many visits are in it, each a person and a place. The number is taken out: behind a message without
// visits this finds none.
MP_KERNEL void visits(std::uint32_t* fragment, std::uint64_t* places, std::uint64_t rounds) {
    const std::uint32_t count = fragment[0];
    mp::block().sync();  // all have read it
    if (mp::thread_rank() == 0) fragment[0] = 0;
    for (std::uint32_t visit = mp::thread_rank(); visit < count; visit += mp::block_threads()) {
        const std::uint32_t person = fragment[1 + 2 * visit], place = fragment[2 + 2 * visit];
        mp::add(places + place, visit_of(person, place, rounds), mp::relaxed, mp::gpu);
    }
}
// ANCHOR_END: kernel
MP_HOST_KERNEL(visits)
