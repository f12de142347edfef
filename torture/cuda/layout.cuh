// What Rust and device code share. GENERATED from torture/src/storm/launch.rs, which declares it; to change it, change it there and
// run MP_REGENERATE=1 cargo test -p mp-torture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mp/layout.cuh>

namespace storm {

// One end of a channel.
struct End {
    // Its handle; the length of a message is a multiple of 4.
    Message message;
    // What the words of its messages follow from.
    std::uint64_t name;
    // Messages of a launch.
    std::uint64_t count;
    // 1: this is the sender's end.
    std::uint32_t sends;
    // The channel.
    std::uint32_t number;
};
static_assert(sizeof(End) == 112 && alignof(End) == 8);
static_assert(offsetof(End, message) == 0);
static_assert(offsetof(End, name) == 88);
static_assert(offsetof(End, count) == 96);
static_assert(offsetof(End, sends) == 104);
static_assert(offsetof(End, number) == 108);

// What launches came to. In memory of the device, zero before.
struct Tally {
    // Messages sent.
    std::uint64_t sent;
    // Messages received and compared.
    std::uint64_t received;
    // Words of 32 bits compared.
    std::uint64_t words;
    // Words that were not as the model says.
    std::uint64_t mismatches;
    // Waits that gave up.
    std::uint64_t failures;
    // Not 0 once somebody writes the first mismatch.
    std::uint64_t claimed;
    // The first mismatch: its channel, …
    std::uint64_t channel;
    // … its round, …
    std::uint64_t round;
    // … which word, …
    std::uint64_t index;
    // … what was found, …
    std::uint64_t found;
    // … and what was expected.
    std::uint64_t expected;
};
static_assert(sizeof(Tally) == 88 && alignof(Tally) == 8);
static_assert(offsetof(Tally, sent) == 0);
static_assert(offsetof(Tally, received) == 8);
static_assert(offsetof(Tally, words) == 16);
static_assert(offsetof(Tally, mismatches) == 24);
static_assert(offsetof(Tally, failures) == 32);
static_assert(offsetof(Tally, claimed) == 40);
static_assert(offsetof(Tally, channel) == 48);
static_assert(offsetof(Tally, round) == 56);
static_assert(offsetof(Tally, index) == 64);
static_assert(offsetof(Tally, found) == 72);
static_assert(offsetof(Tally, expected) == 80);

}  // namespace storm
