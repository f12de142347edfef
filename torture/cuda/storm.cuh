// A storm's messages in kernels: every group of threads plays one end of one channel, again and again, with its own kind of
// group, size and count; a receiver compares every word with the model (mp::pattern of the channel's name and the round).
// For nvcc and for the host's compiler alike. Which channels there are is decided by src/storm/device.rs.
#pragma once

#include <mp/mp.cuh>

namespace storm {
using mp::Message;
}

#include "layout.cuh"

namespace storm {

// Word `index` of what is sent under a name (splitmix64's finaliser, as mp_kernels::pattern); the twin of `word`.
MP_HOST_DEVICE std::uint32_t word(std::uint64_t name, std::uint64_t index) {
    std::uint64_t z = name * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<std::uint32_t>(z ^ (z >> 31));
}

MP_COLD void mismatch(Tally* tally, const End& end, std::uint64_t round, std::uint64_t index, std::uint32_t found,
                      std::uint32_t expected) {
    if (mp::fetch(&tally->claimed, mp::replace, std::uint64_t{1}, mp::gpu, mp::relaxed) != 0) return;
    tally->channel = end.number;
    tally->round = round;
    tally->index = index;
    tally->found = found;
    tally->expected = expected;
}

template <class Group>
MP_DEVICE void send(Group group, const End& end, std::uint64_t first, Tally* tally) {
    const mp::Send handle{end.message};
    mp::Sender sender(group, handle);
    auto* words = mp::buffer_of<std::uint32_t>(handle);
    const std::uint64_t count = end.message.len / 4;
    std::uint64_t done = 0;
    for (; done < end.count; ++done) {
        const std::uint64_t name = end.name + first + done;
        for (std::uint64_t i = group.rank(); i < count; i += group.size()) words[i] = word(name, i);
        group.sync();
        if (sender.send(group).failed()) {
            if (group.leads()) mp::add(&tally->failures, std::uint64_t{1}, mp::relaxed, mp::gpu);
            break;
        }
        group.sync();  // all of it has been read: it may be written again
    }
    sender.close(group);
    if (group.leads()) mp::add(&tally->sent, done, mp::relaxed, mp::gpu);
}

template <class Group>
MP_DEVICE void recv(Group group, const End& end, std::uint64_t first, Tally* tally) {
    const mp::Recv handle{end.message};
    mp::Receiver receiver(group, handle);
    const auto* words = mp::buffer_of<std::uint32_t>(handle);
    const std::uint64_t count = end.message.len / 4;
    std::uint64_t done = 0;
    std::uint64_t wrong = 0;
    for (; done < end.count; ++done) {
        const std::uint64_t round = first + done;
        receiver.post(group);
        if (receiver.recv(group).failed()) {
            if (group.leads()) mp::add(&tally->failures, std::uint64_t{1}, mp::relaxed, mp::gpu);
            break;
        }
        group.sync();  // of packets, each thread has written those that it took
        for (std::uint64_t i = group.rank(); i < count; i += group.size()) {
            const std::uint32_t found = words[i], expected = word(end.name + round, i);
            if (found != expected) {
                ++wrong;
                mismatch(tally, end, round, i, found, expected);
            }
        }
        group.sync();
    }
    receiver.close(group);
    if (wrong != 0) mp::add(&tally->mismatches, wrong, mp::relaxed, mp::gpu);
    if (group.leads()) {
        mp::add(&tally->received, done, mp::relaxed, mp::gpu);
        mp::add(&tally->words, done * count, mp::relaxed, mp::gpu);
    }
}

// One end in the `launch`-th launch.
template <class Group>
MP_DEVICE void play(Group group, const End& end, std::uint64_t launch, Tally* tally) {
    const std::uint64_t first = launch * end.count;
    if (end.sends != 0)
        send(group, end, first, tally);
    else
        recv(group, end, first, tally);
}

}  // namespace storm
