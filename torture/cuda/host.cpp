// The storm's kernel on the CPU: a thread for every end, or several ends to a thread, which plays them in turn. For machines
// without a GPU.
#include <deque>
#include <mp/host/launch.hpp>
#include <optional>
#include <system_error>

#include "storm.cuh"

namespace {

// An end that shares its thread with others: of each message its parts one by one, and what storm::play checks.
class Turn {
public:
    Turn(const storm::End& end, std::uint64_t launch)
        : end_(end), first_(launch * end.count), send_{end.message}, recv_{end.message} {
        if (end.sends != 0)
            sender_.emplace(mp::thread(), send_);
        else
            receiver_.emplace(mp::thread(), recv_);
    }

    bool sends(std::uint64_t round) const { return sender_ && round < end_.count; }
    bool receives(std::uint64_t round) const { return receiver_ && round < end_.count; }

    void post() { receiver_->post(mp::thread()); }

    bool send(std::uint64_t round) {
        auto* words = mp::buffer_of<std::uint32_t>(send_);
        const std::uint64_t name = end_.name + first_ + round;
        for (std::uint64_t i = 0; i < end_.message.len / 4; ++i) words[i] = storm::word(name, i);
        if (sender_->send(mp::thread()).failed()) return false;
        ++done_;
        return true;
    }

    bool recv(std::uint64_t round, storm::Tally* tally) {
        if (receiver_->recv(mp::thread()).failed()) return false;
        const auto* words = mp::buffer_of<std::uint32_t>(recv_);
        const std::uint64_t name = end_.name + first_ + round;
        for (std::uint64_t i = 0; i < end_.message.len / 4; ++i) {
            const std::uint32_t found = words[i], expected = storm::word(name, i);
            if (found == expected) continue;
            ++wrong_;
            storm::mismatch(tally, end_, first_ + round, i, found, expected);
        }
        ++done_;
        return true;
    }

    void close(storm::Tally* tally) {
        if (sender_) {
            sender_->close(mp::thread());
            mp::add(&tally->sent, done_, mp::relaxed, mp::gpu);
        } else {
            receiver_->close(mp::thread());
            mp::add(&tally->received, done_, mp::relaxed, mp::gpu);
            mp::add(&tally->words, done_ * (end_.message.len / 4), mp::relaxed, mp::gpu);
            if (wrong_ != 0) mp::add(&tally->mismatches, wrong_, mp::relaxed, mp::gpu);
        }
    }

private:
    const storm::End& end_;
    const std::uint64_t first_;
    const mp::Send send_;
    const mp::Recv recv_;
    std::optional<mp::Sender> sender_;
    std::optional<mp::Receiver> receiver_;
    std::uint64_t done_ = 0;
    std::uint64_t wrong_ = 0;
};

// Ends `thread`, `thread + threads`, ... in one thread: in every round it posts all, then sends all, then receives all. A
// thread that is in the earliest round of all can go on, so none waits for ever.
void play_in_turn(const storm::End* ends, std::uint64_t count, std::uint64_t thread, std::uint64_t threads,
                  std::uint64_t launch, storm::Tally* tally) {
    std::deque<Turn> turns;  // which do not move: their sender or receiver refers to their handle
    std::uint64_t rounds = 0;
    for (std::uint64_t i = thread; i < count; i += threads) {
        turns.emplace_back(ends[i], launch);
        if (rounds < ends[i].count) rounds = ends[i].count;
    }
    bool well = true;
    for (std::uint64_t round = 0; well && round < rounds; ++round) {
        for (Turn& turn : turns)
            if (turn.receives(round)) turn.post();
        for (Turn& turn : turns)
            if (turn.sends(round)) well = well && turn.send(round);
        for (Turn& turn : turns)
            if (turn.receives(round)) well = well && turn.recv(round, tally);
    }
    for (Turn& turn : turns) turn.close(tally);
    if (!well) mp::add(&tally->failures, std::uint64_t{1}, mp::relaxed, mp::gpu);
}

}  // namespace

// Plays all ends at once in so many threads and returns when they are done; 1 if the machine has not enough threads, and
// then nothing ran.
extern "C" int torture_storm_on_host(const storm::End* ends, std::uint64_t count, std::uint64_t threads,
                                     std::uint64_t launch, storm::Tally* tally) {
    const auto kernel = [=] {
        if (threads == count)
            storm::play(mp::thread(), ends[mp::block_rank()], launch, tally);
        else
            play_in_turn(ends, count, mp::block_rank(), threads, launch, tally);
    };
    try {
        mp::host::launch(static_cast<unsigned>(threads), 1, kernel);
        return 0;
    } catch (const std::system_error&) {
        return 1;
    }
}
