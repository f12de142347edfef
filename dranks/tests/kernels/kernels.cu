// Kernels of the tests of device ranks: each checks itself. On the host by kernels/tests/host/ranks.cpp, also under ThreadSanitizer, and by
// shim.cpp; for a GPU compiled by
//   nvcc -std=c++17 -arch=native -fatbin -I kernels/include -o FOLDER/dranks.fatbin dranks/tests/kernels/kernels.cu
// and found in the folder that TEST_KERNELS names.
#include <mp/dcuda.cuh>

// What a kernel is given besides the world.
struct Check {
    std::uint64_t memory;   // of the device: `words` for each rank of it, and as many again for all together
    std::uint64_t words;
    std::uint64_t rounds;
    std::uint64_t results;  // a word for each rank of the device: the line of the first check that failed
    std::uint64_t flavour;
};

namespace test {

using mp::Rank;
using mp::Team;
using mp::Wanted;
using std::uint32_t;
using std::uint64_t;

struct Tester {
    Rank self;
    Check check;
    uint64_t* mine;    // this rank's words
    uint64_t* shared;  // those of the device

    MP_DEVICE Tester(const mp::Ranks& ranks, const Check& check)
        : self(mp::join(ranks)), check(check), mine(mp::impl::at<uint64_t>(check.memory) + self.local * check.words),
          shared(mp::impl::at<uint64_t>(check.memory) + ranks.per_device * check.words) {}

    MP_DEVICE void wrong(uint64_t line) const {
        auto* result = mp::impl::at<uint64_t>(check.results) + self.local;
        (void)mp::compare_swap(result, uint64_t{0}, line, mp::gpu);
    }
    MP_DEVICE uint32_t size() const { return mp::size_of(self, Team::world); }
    MP_DEVICE uint32_t right(uint32_t by = 1) const { return (self.rank + by) % size(); }
    MP_DEVICE uint32_t left(uint32_t by = 1) const { return (self.rank + size() - by % size()) % size(); }
    MP_DEVICE bool open(uint32_t& window) const { return !mp::win_create(self, Team::world, mine, 8 * check.words, window).failed(); }
    MP_DEVICE bool meet() const { return !mp::barrier(self, Team::world).failed(); }
    // `word` is what this rank's word `i` of a round is.
    MP_DEVICE static uint64_t word(uint64_t rank, uint64_t round, uint64_t i) {
        return (rank + 1) * 0x9e3779b97f4a7c15u + round * 1000003u + i;
    }
    template <class Do>
    MP_DEVICE void each(uint64_t count, const Do& what) const {
        for (uint64_t i = mp::thread_rank(); i < count; i += mp::block_threads()) what(i);
    }
    MP_DEVICE void fill(uint64_t* words, uint64_t count, uint64_t rank, uint64_t round) const {
        each(count, [=](uint64_t i) { words[i] = word(rank, round, i); });
    }
    MP_DEVICE bool holds(const uint64_t* words, uint64_t count, uint64_t rank, uint64_t round) const {
        uint64_t differing = 0;
        each(count, [&](uint64_t i) { differing += words[i] != word(rank, round, i); });
        return !mp::block_any(differing != 0);
    }
    MP_DEVICE bool tell(uint32_t window, uint32_t target, uint32_t tag) const {
        return !mp::put_notify(self, window, target, 0, mine, 0, tag).failed();
    }
    MP_DEVICE bool hear(uint32_t window, uint32_t source, uint32_t tag, uint32_t count = 1) const {
        return !mp::wait_notifications(self, {window, source, tag}, count).failed();
    }
    // Word `i` of a rank's share as it is now, by a copy in word 2 of one's own if that rank is behind a NIC.
    MP_DEVICE uint64_t word_of(uint32_t window, uint32_t rank, uint64_t i) const {
        const auto* word = static_cast<const uint64_t*>(mp::address_in(self, window, rank, 8 * i, 8));
        if (word == nullptr) {
            if (mp::get(self, window, rank, 8 * i, mine + 2, 8) != mp::ok || mp::flush(self).failed()) wrong(__LINE__);
            word = mine + 2;
        }
        const uint64_t seen = mp::load(word, mp::relaxed, mp::system);
        mp::block().sync();
        return seen;
    }
    // Notifications that are there.
    MP_DEVICE uint64_t there(const Wanted& wanted, uint32_t count) const {
        return mp::test_notifications(self, wanted, count).seen;
    }
};

}  // namespace test

#define EXPECT(condition)                  \
    do {                                   \
        if (!(condition)) wrong(__LINE__); \
    } while (false)

// A kernel whose body is a method of Tester.
#define TEST(name)                                                    \
    namespace test {                                                  \
    struct name##_test : Tester {                                     \
        using Tester::Tester;                                         \
        MP_DEVICE void run() const;                                   \
    };                                                                \
    }                                                                 \
    MP_KERNEL void name(mp::Ranks ranks, Check check) {               \
        const test::name##_test tester(ranks, check);                 \
        tester.run();                                                 \
        mp::finish(tester.self);                                      \
    }                                                                 \
    MP_DEVICE void test::name##_test::run() const

// The same kernel once more, in 64 registers: of 64 threads 16 blocks fit into a multiprocessor, of 32 threads 32 (S1, Q1).
#if defined(__CUDACC__)
#define DENSE __launch_bounds__(64, 16)
#else
#define DENSE
#endif
#define TEST_DENSE(name, dense)                               \
    MP_KERNEL void DENSE dense(mp::Ranks ranks, Check check) { \
        const test::name##_test tester(ranks, check);         \
        tester.run();                                         \
        mp::finish(tester.self);                              \
    }

// F2
TEST(ranks_numbers) {
    const uint32_t devices = self.all->devices, each = self.all->per_device;
    EXPECT(size() == devices * each);
    EXPECT(mp::size_of(self, Team::device) == each && each == mp::grid_blocks());
    EXPECT(mp::rank_in(self, Team::device) == mp::block_rank());
    EXPECT(mp::rank_in(self, Team::world) == self.all->device * each + mp::block_rank());
    EXPECT(meet());
}

// F3
TEST(ranks_windows) {
    uint32_t empty = 0, growing = 0, whole = 0, nested = 0, twin = 0, line = 0;
    EXPECT(!mp::win_create(self, Team::world, nullptr, 0, empty).failed());
    const uint64_t own = 8 * (1 + self.rank % 4);
    EXPECT(!mp::win_create(self, Team::world, mine, own, growing).failed());
    EXPECT(!mp::win_create(self, Team::world, mine, 8 * check.words, whole).failed());
    EXPECT(!mp::win_create(self, Team::world, mine + 2, 16, nested).failed());
    EXPECT(!mp::win_create(self, Team::world, mine, 8 * check.words, twin).failed());
    // Together with the first word of whoever is next in memory.
    EXPECT(!mp::win_create(self, Team::world, mine, 8 * check.words + 8, line).failed());
    EXPECT(empty == 0 && growing == 1 && whole == 2 && nested == 3 && twin == 4 && line == 5);
    fill(mine, check.words, self.rank, 0);
    EXPECT(meet());

    EXPECT(mp::put(self, empty, right(), 0, mine, 0) == mp::ok);
    const uint64_t theirs = 8 * (1 + right() % 4);
    // What is behind a NIC has no address here.
    const bool near = mp::address_in(self, whole, right(), 0, 0) != nullptr;
    EXPECT(near || self.all->far != 0);
    EXPECT((mp::address_in(self, growing, right(), theirs - 8, 8) != nullptr) == near);
    EXPECT((mp::address_in(self, growing, right(), theirs, 0) != nullptr) == near);
    EXPECT(mp::address_in(self, growing, right(), theirs, 1) == nullptr);
    EXPECT(mp::address_in(self, growing, right(), 1, ~uint64_t{0}) == nullptr);
    EXPECT(mp::address_in(self, 63, right(), 0, 0) == nullptr && mp::address_in(self, 1u << 20, 0, 0, 0) == nullptr);
    EXPECT(mp::address_in(self, whole, size(), 0, 0) == nullptr);
    // The same memory under four names.
    uint64_t* way = mine + check.words - 1;
    if (mp::block().leads()) *way = 4711 + self.rank;
    EXPECT(!mp::put_notify(self, nested, right(), 8, way, 8, 1).failed());
    EXPECT(hear(nested, left(), 1));
    const auto* seen = static_cast<const uint64_t*>(mp::address_in(self, twin, self.rank, 24, 8));
    EXPECT(seen == mine + 3 && *seen == 4711 + left());
    if (self.local + 1 < self.all->per_device)
        EXPECT(mp::address_in(self, line, self.rank, 8 * check.words, 8) == mp::address_in(self, whole, self.rank + 1, 0, 8));
    EXPECT(meet());

    // Numbers are used again, and what was sent in a window that is closed is gone.
    EXPECT(tell(twin, right(), 9));
    EXPECT(!mp::win_free(self, twin).failed());
    for (uint64_t round = 0; round < check.rounds; ++round) {
        uint32_t again = 0;
        EXPECT(!mp::win_create(self, Team::world, mine + round % check.words, 8, again).failed());
        EXPECT(again == twin);
        EXPECT(mp::address_in(self, again, self.rank, 0, 8) == mine + round % check.words);
        EXPECT(there({again, mp::any_source, mp::any_tag}, 1) == 0);
        EXPECT(!mp::win_free(self, again).failed());
        EXPECT(mp::address_in(self, again, self.rank, 0, 0) == nullptr);
    }
    // By one device, while the others do not.
    if (self.all->device == 0) {
        uint32_t here = 0;
        EXPECT(!mp::win_create(self, Team::device, mine, 8, here).failed());
        EXPECT(here == mp::rank_windows);
        const uint32_t next = (self.local + 1) % self.all->per_device;
        EXPECT(tell(here, next, 3));
        EXPECT(hear(here, mp::any_source, 3));
        EXPECT(!mp::win_free(self, here).failed());
    }
    EXPECT(meet());
}

// F3: windows that the host has declared: the whole share, and a word that all ranks of a device have in common.
TEST(ranks_declared) {
    constexpr uint32_t whole = 0, common = 1;
    uint32_t next = 0;
    EXPECT(mp::address_in(self, whole, self.rank, 0, 8 * check.words) == mine);
    EXPECT(mp::address_in(self, common, self.rank, 0, 8) == shared && mp::address_in(self, common, right(), 8, 8) == nullptr);
    EXPECT(open(next) && next == 2);
    fill(mine, check.words, self.rank, 3);
    EXPECT(meet());
    EXPECT(mp::get(self, whole, right(), 0, mine + check.words / 2, 4 * check.words) == mp::ok || size() == 1);
    EXPECT(tell(whole, right(), 1) && hear(whole, left(), 1));
    EXPECT(!mp::win_free(self, common).failed());
    EXPECT(mp::address_in(self, common, self.rank, 0, 0) == nullptr);
}

// F3: what is refused.
TEST(ranks_refusals) {
    uint32_t window = 0, bad = 0;
    EXPECT(open(window));
    fill(mine, check.words, self.rank, 7);
    EXPECT(meet());
    const uint64_t bytes = 8 * check.words;
    const auto refused = [](mp::WaitStatus status) { return status == mp::bad_argument; };
    EXPECT(refused(mp::put(self, window, right(), bytes - 8, shared, 9)));
    EXPECT(refused(mp::put(self, window, right(), bytes + 1, shared, 0)));
    EXPECT(refused(mp::put(self, window, right(), ~uint64_t{0}, shared, 8)));
    EXPECT(refused(mp::put(self, window, size(), 0, shared, 8)));
    EXPECT(refused(mp::put(self, 5, right(), 0, shared, 8)));
    EXPECT(refused(mp::get(self, window, right(), bytes, shared, 1)));
    EXPECT(refused(mp::put_notify(self, window, right(), bytes, shared, 1, 3).status));
    EXPECT(refused(mp::put_notify(self, window, right(), 0, shared, 8, 1u << 24).status));
    EXPECT(refused(mp::get_notify(self, window, right(), 0, shared, bytes + 1, 3).status));
    EXPECT(refused(mp::barrier_notify(self, 1000, 3).status) && refused(mp::barrier_notify(self, window, 1u << 24).status));
    EXPECT(refused(mp::broadcast_notify(self, window, bytes, shared, 1, 3).status));
    EXPECT(refused(mp::wait_notifications(self, {window, size(), 0}, 1).status));
    EXPECT(refused(mp::wait_notifications(self, {window, 0, 1u << 24}, 1).status));
    EXPECT(refused(mp::wait_notifications(self, {200, 0, 0}, 1).status));
    EXPECT(refused(mp::wait_notifications(self, {}, self.all->spill + 1).status));
    EXPECT(refused(mp::win_free(self, 9).status));
    EXPECT(refused(mp::win_free(self, 1000).status));
    // F7
    EXPECT(refused(mp::put(self, window, self.rank, 8, mine, 16)));
    EXPECT(refused(mp::get(self, window, self.rank, 8, mine, 16)));
    EXPECT(mp::put(self, window, self.rank, 16, mine, 0) == mp::ok);
    // Rows that overlap each other, those they are copied from, or the end of the share.
    const uint64_t all = 8 * check.words;
    const mp::Rows columns = {8, 2, 16, 16};
    EXPECT(refused(mp::put(self, window, right(), 0, mine, mp::Rows{8, 2, 7, 8})));
    EXPECT(refused(mp::put(self, window, self.rank, 4, mine, columns)));
    EXPECT(refused(mp::put(self, window, self.rank, 8, mine, mp::Rows{8, 2, 24, 16})));
    EXPECT(refused(mp::put(self, window, right(), 0, mine, mp::Rows{8, all / 8 + 1, 8, 8})));
    EXPECT(refused(mp::get(self, window, right(), 0, mine, mp::Rows{8, ~uint64_t{0} / 4, 8, 8})));
    EXPECT(refused(mp::put_notify(self, window, right(), 0, mine, columns, 1u << 24).status));
    EXPECT(refused(mp::win_create(self, Team::world, mine, ~uint64_t{0}, bad).status));
    EXPECT(mp::put(self, bad, right(), 0, mine, 0) == mp::ok && refused(mp::put(self, bad, right(), 0, mine, 1)));
    EXPECT(meet());
    // Nothing was written, nobody notified.
    EXPECT(holds(mine, check.words, self.rank, 7));
    EXPECT(there({}, 1) == 0);
    EXPECT(meet());
}

// All windows of a team are open.
TEST(ranks_window_numbers) {
    uint32_t window = 0;
    for (uint32_t i = 0; i < mp::rank_windows; ++i) {
        EXPECT(open(window));
        EXPECT(window == i);
    }
    EXPECT(mp::win_create(self, Team::world, mine, 8, window).status == mp::no_room);
    EXPECT(!mp::win_free(self, 17).failed());
    EXPECT(open(window) && window == 17);
}

// F4, F5: puts and gets of so many bytes from and to any place, notified, and not: then the puts end with a barrier.
TEST(ranks_transfers) {
    uint32_t window = 0;
    EXPECT(open(window));
    auto* bytes = reinterpret_cast<unsigned char*>(mine);
    const uint64_t half = 4 * check.words;
    const uint64_t lengths[] = {0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33, 127, half - 49, half - 48, half - 47, half - 32};
    const auto byte = [](uint64_t rank, uint64_t i) { return static_cast<unsigned char>(rank * 31 + i * 7 + i / 256 + 1); };
    for (const uint64_t length : lengths) {
        if (length + 32 > half) continue;
        for (uint64_t shift = 0; shift < 18; shift += 1 + shift % 5) {
            // What is sent is in the first half, what comes in the second, by put and by get.
            for (uint32_t way = 0; way < 4; ++way) {
                each(half, [&](uint64_t i) { bytes[i] = byte(self.rank, i), bytes[half + i] = 0; });
                EXPECT(meet());
                const uint32_t source = way % 2 == 0 ? left() : right();
                if (way == 2) {
                    EXPECT(mp::put(self, window, right(), half + shift, bytes + shift / 2, length) == mp::ok);
                    EXPECT(meet());
                } else if (way == 3) {
                    EXPECT(mp::get(self, window, right(), shift / 2, bytes + half + shift, length) == mp::ok);
                    EXPECT(!mp::flush(self).failed());
                } else if (way == 0) {
                    EXPECT(!mp::put_notify(self, window, right(), half + shift, bytes + shift / 2, length, 5).failed());
                    EXPECT(hear(window, left(), 5));
                } else {
                    EXPECT(!mp::get_notify(self, window, right(), shift / 2, bytes + half + shift, length, 6).failed());
                    EXPECT(!mp::flush(self).failed());
                    EXPECT(hear(window, left(), 6));
                }
                uint64_t differing = 0;
                each(half, [&](uint64_t i) {
                    const bool inside = i >= shift && i < shift + length;
                    differing += bytes[half + i] != (inside ? byte(source, i - shift + shift / 2) : 0);
                });
                EXPECT(!mp::block_any(differing != 0));
                EXPECT(meet());
            }
        }
    }
}

// Rows of so many bytes, from columns of one array to those of another, which is not as wide.
TEST(ranks_rows) {
    uint32_t window = 0;
    EXPECT(open(window));
    auto* bytes = reinterpret_cast<unsigned char*>(mine);
    const uint64_t half = 4 * check.words, wide = 24, narrow = 17, count = half / wide;
    const auto byte = [](uint64_t rank, uint64_t i) { return static_cast<unsigned char>(rank * 29 + i * 5 + i / 256 + 1); };
    for (const uint64_t width : {1, 4, 8, 16, 17}) {
        for (uint64_t rows = 0; rows <= count; rows += 1 + rows) {
            for (uint32_t way = 0; way < 2; ++way) {
                each(half, [&](uint64_t i) { bytes[i] = byte(self.rank, i), bytes[half + i] = 0; });
                EXPECT(meet());
                const uint64_t column = (24 - width) / 8 * 8;
                if (way == 0) {
                    const mp::Rows moved = {width, rows, narrow, wide};
                    EXPECT(!mp::put_notify(self, window, right(), half, bytes + column, moved, 5).failed());
                } else {
                    const mp::Rows moved = {width, rows, wide, narrow};
                    EXPECT(!mp::get_notify(self, window, left(), column, bytes + half, moved, 5).failed());
                    EXPECT(!mp::flush(self).failed());
                }
                EXPECT(hear(window, way == 0 ? left() : right(), 5));
                uint64_t differing = 0;
                each(half, [&](uint64_t i) {
                    const uint64_t row = i / narrow, at = i % narrow;
                    const bool inside = row < rows && at < width;
                    differing += bytes[half + i] != (inside ? byte(left(), row * wide + column + at) : 0);
                });
                EXPECT(!mp::block_any(differing != 0));
                EXPECT(meet());
            }
        }
    }
    // One column to the one beside it, and where it is already.
    const mp::Rows columns = {8, count, wide, wide};
    EXPECT(mp::put(self, window, self.rank, 8, bytes, columns) == mp::ok);
    EXPECT(mp::put(self, window, self.rank, 16, bytes + 16, columns) == mp::ok);
    uint64_t differing = 0;
    mp::block().sync();
    each(count * wide, [&](uint64_t i) { differing += bytes[i] != byte(self.rank, i % wide / 8 == 1 ? i - 8 : i); });
    EXPECT(!mp::block_any(differing != 0));
    EXPECT(mp::get(self, window, self.rank, 0, bytes + 8, mp::Rows{8, 1, 0, 0}) == mp::ok);
    EXPECT(meet());
}

// F6: where source and destination are the same there is no copy, or it would undo what another rank adds meanwhile.
TEST(ranks_in_place) {
    uint32_t window = 0;
    EXPECT(!mp::win_create(self, Team::world, shared, 8, window).failed());
    const uint32_t first = self.all->first;
    if (mp::block().leads() && self.local == 0) mp::store(shared, uint64_t{0}, mp::relaxed, mp::gpu);
    EXPECT(meet());
    for (uint64_t round = 0; round < check.rounds; ++round) {
        if (self.local == 0) {
            if (mp::block().leads()) (void)mp::fetch_add(shared, uint64_t{1}, mp::gpu);
        } else {
            EXPECT(!mp::put_notify(self, window, first, 0, shared, 8, 2).failed());
            EXPECT(mp::get(self, window, first, 0, shared, 8) == mp::ok);
        }
    }
    if (self.local == 0) EXPECT(hear(window, mp::any_source, 2, static_cast<uint32_t>(check.rounds * (self.all->per_device - 1))));
    EXPECT(meet());
    EXPECT(mp::load(shared, mp::relaxed, mp::gpu) == check.rounds);
}

// F8: what was put may be written again after flush. O1: who has waited sees it; O2 and O3 with several puts before one notification. To the
// rank that is `flavour` further, or to the next.
TEST(ranks_puts) {
    uint32_t window = 0;
    EXPECT(open(window));
    const auto by = static_cast<uint32_t>(check.flavour == 0 ? 1 : check.flavour);
    const uint32_t to = right(by), from = left(by);
    const uint64_t half = check.words / 2, line = half / 26;
    for (uint64_t round = 0; round < check.rounds; ++round) {
        fill(mine, half, self.rank, round);
        if (round % 3 == 0) {
            EXPECT(!mp::put_notify(self, window, to, 8 * half, mine, 8 * half, 1).failed());
        } else {
            mp::block().sync();
            for (uint64_t level = 0; level < 26; ++level)
                EXPECT(mp::put(self, window, to, 8 * (half + level * line), mine + level * line, 8 * line) == mp::ok);
            EXPECT(mp::put(self, window, to, 8 * (half + 26 * line), mine + 26 * line, 8 * (half - 26 * line)) == mp::ok);
            EXPECT(tell(window, to, 1));
        }
        EXPECT(!mp::flush(self).failed());
        each(half, [&](uint64_t i) { mine[i] = ~uint64_t{0}; });
        EXPECT(hear(window, from, 1));
        EXPECT(holds(mine + half, half, from, round));
        each(half, [&](uint64_t i) { mine[half + i] = 0; });
        // It may come again.
        EXPECT(tell(window, from, 2));
        EXPECT(hear(window, to, 2));
    }
}

// O4: who is notified by one that was notified sees what that one saw. O5: what is overwritten after get_notify has been read.
TEST(ranks_chains) {
    uint32_t window = 0;
    EXPECT(open(window));
    if (size() < 3) return;
    const uint64_t half = check.words / 2;
    for (uint64_t round = 0; round < check.rounds; ++round) {
        fill(mine, half, self.rank, round);
        // To the middle; from there to the end, which takes the beginning's words itself.
        EXPECT(tell(window, right(), 1));
        EXPECT(hear(window, left(), 1));
        EXPECT(tell(window, right(), 2));
        EXPECT(hear(window, left(), 2));
        EXPECT(!mp::get_notify(self, window, left(2), 0, mine + half, 8 * half, 3).failed());
        EXPECT(!mp::flush(self).failed());
        EXPECT(hear(window, right(2), 3));
        // It has been read.
        each(half, [&](uint64_t i) { mine[i] = ~round; });
        EXPECT(holds(mine + half, half, left(2), round));
        mp::block().sync();
    }
}

// F9: who leaves a barrier finds that all have come, and none is two ahead.
TEST(ranks_barriers) {
    uint32_t window = 0;
    EXPECT(open(window));
    if (mp::block().leads()) mp::store(mine, uint64_t{0}, mp::relaxed, mp::system);
    EXPECT(meet());
    for (uint64_t round = 1; round <= check.rounds; ++round) {
        const Team team = round % 3 == 0 ? Team::device : Team::world;
        if (mp::block().leads()) mp::store(mine, round, mp::relaxed, mp::system);
        EXPECT(!mp::barrier(self, team).failed());
        uint64_t lap = 0;
        for (uint32_t i = 0; i < mp::size_of(self, team); ++i) {
            const uint32_t rank = team == Team::world ? i : self.all->first + i;
            const uint64_t seen = word_of(window, rank, 0);
            lap += seen < round || seen > round + 1;
        }
        EXPECT(lap == 0);
        EXPECT(!mp::barrier(self, Team::world).failed());
    }
}
TEST_DENSE(ranks_barriers, dense_barriers)

// M1 to M7, M11, M13: what has come is taken by window, source and tag, or any, the earliest first.
TEST(ranks_matching) {
    uint32_t one = 0, two = 0;
    EXPECT(open(one) && open(two));
    constexpr uint32_t tags = 64;
    // Both neighbours send in both windows.
    for (uint32_t tag = 0; tag < tags; ++tag) {
        EXPECT(tell(one, right(), tag) && tell(two, right(), tag));
        EXPECT(tell(two, left(), tag));
    }
    EXPECT(meet());
    const uint32_t from = left(), other = right();
    const uint32_t of_one = tags, of_two = 2 * tags;
    EXPECT(there({one, from, mp::any_tag}, 0) == 0);                    // M6
    EXPECT(!mp::wait_notifications(self, {}, 0).failed());
    EXPECT(there({one, mp::any_source, mp::any_tag}, of_one + 1) == of_one);  // M11: too many, so none
    EXPECT(there({two, mp::any_source, mp::any_tag}, of_two + 1) == of_two);
    EXPECT(meet());  // or what is sent again below might have been counted above
    EXPECT(there({one, other, 0}, 1) == (from == other ? 1u : 0u));
    if (from == other) EXPECT(tell(one, right(), 0));  // again, as it was taken
    for (uint32_t tag = tags; tag-- > 40;) EXPECT(hear(one, from, tag));  // M1, M7
    for (uint32_t tag = 0; tag < 8; ++tag) EXPECT(hear(one, mp::any_source, tag));  // M2
    mp::Notification got[4] = {};
    EXPECT(!mp::wait_notifications(self, {one, from, mp::any_tag}, 4, got).failed());  // M3
    if (mp::block().leads())
        for (uint32_t i = 0; i < 4; ++i) EXPECT(got[i].window == one && got[i].source == from && got[i].tag == 8 + i);
    EXPECT(there({mp::any_window, from, 12}, 9) == (from == other ? 3u : 2u));
    EXPECT(!mp::wait_notifications(self, {mp::any_window, from, 12}, 1, got).failed());  // M4: the one in `one` came first
    if (mp::block().leads() && from != other) EXPECT(got[0].window == one);
    EXPECT(!mp::wait_notifications(self, {two, mp::any_source, 63}, 2, got).failed());
    if (mp::block().leads()) EXPECT((got[0].source == from && got[1].source == other) || (got[0].source == other && got[1].source == from));
    // M5: all that is left, in order for each source.
    const uint64_t left_over = there({}, 3 * tags);
    EXPECT(left_over == 3 * tags - 24 - 8 - 4 - 1 - 2);
    uint32_t last_one = 0, last_two[2] = {0, 0};
    for (uint64_t i = 0; i < left_over; ++i) {
        EXPECT(!mp::wait_notifications(self, {}, 1, got).failed());
        if (!mp::block().leads() || from == other) continue;
        uint32_t& last = got[0].window == one ? last_one : last_two[got[0].source == from];
        EXPECT(got[0].tag >= last);
        last = got[0].tag;
    }
    EXPECT(there({}, 1) == 0);
    EXPECT(meet());
}

// M8: more than a ring holds.
TEST(ranks_many) {
    uint32_t window = 0;
    EXPECT(open(window));
    for (uint64_t i = 0; i < check.rounds; ++i) EXPECT(tell(window, right(), static_cast<uint32_t>(i % 7)));
    EXPECT(hear(window, left(), mp::any_tag, static_cast<uint32_t>(check.rounds)));
    EXPECT(there({}, 1) == 0);
}

// M9: a neighbour that is a step ahead counts for one that is not, if windows are any; and does not if they are not.
TEST(ranks_steps) {
    uint32_t now = 0, next = 0;
    EXPECT(open(now) && open(next));
    const uint32_t hasty = 0, late = size() - 1, middle = 1;
    if (size() < 3) return;
    for (uint64_t step = 0; step < check.rounds; ++step) {
        if (self.rank == hasty) EXPECT(tell(now, middle, 1) && tell(next, middle, 1));
        EXPECT(meet());
        if (self.rank == middle) {
            EXPECT(there({now, mp::any_source, 1}, 2) == 1);
            EXPECT(there({mp::any_window, mp::any_source, 1}, 2) == 2);  // both of the hasty one: the late one's data are not there
        }
        EXPECT(meet());
        if (self.rank == late) EXPECT(tell(now, middle, 1));
        if (self.rank == middle) EXPECT(hear(now, late, 1));
        EXPECT(meet());
    }
}

// M10, Q3: as many that nobody waits for as the queue holds, and one behind them. What is waited for is found behind all but one of them.
TEST(ranks_kept) {
    uint32_t window = 0;
    EXPECT(open(window));
    const uint32_t held = self.all->spill;
    const auto tag = [](uint32_t i) { return i % 997; };
    for (uint32_t i = 0; i + 1 < held; ++i) EXPECT(tell(window, right(), tag(i)));
    EXPECT(tell(window, right(), 1000));
    EXPECT(hear(window, left(), 1000));
    EXPECT(tell(window, right(), tag(held - 1)));
    EXPECT(meet());
    EXPECT(mp::test_notifications(self, {window, left(), 1000}, 1).status == mp::ok);
    EXPECT(meet());
    EXPECT(tell(window, right(), 1000));
    mp::WaitResult result = mp::wait_notifications(self, {window, left(), 1000}, 1);
    EXPECT(result.status == mp::no_room && result.seen == 0);
    mp::Notification got = {};
    for (uint32_t i = 0; i < held; ++i) {
        EXPECT(!mp::wait_notifications(self, {window, left(), mp::any_tag}, 1, &got).failed());
        if (mp::block().leads()) EXPECT(got.tag == tag(i));
    }
    EXPECT(hear(window, left(), 1000));
    EXPECT(there({}, 1) == 0);
}

// Q2, Q5: everybody sends to everybody, itself too, more than rings hold, before anybody waits.
TEST(ranks_flood) {
    uint32_t window = 0;
    EXPECT(open(window));
    for (uint64_t round = 0; round < check.rounds; ++round)
        for (uint32_t to = 0; to < size(); ++to) EXPECT(tell(window, right(to), static_cast<uint32_t>(round)));
    for (uint64_t round = check.rounds; round-- > 0;) EXPECT(hear(window, mp::any_source, static_cast<uint32_t>(round), size()));
    EXPECT(there({}, 1) == 0);
}

// Q1: all send to the last, which takes what comes in portions of all sizes, from each in the order in which it was sent. With a `flavour` the
// last does nothing for so many nanoseconds first: who sends to it is held back, and ranks 0 and 1, which send to it later, get on meanwhile.
TEST(ranks_crowd) {
    uint32_t window = 0;
    const uint32_t target = size() - 1, each_device = self.all->per_device;
    const bool sleeps = check.flavour != 0 && size() > 3;
    // Words of a share: how many this rank has sent, whether ranks 0 and 1 are through, and from the third on how many came of a rank.
    const auto came_of = [&](uint32_t source) {
        return mp::impl::at<uint64_t>(check.memory) + source % each_device * check.words + 3 + source / each_device;
    };
    if (self.rank == target) each(target, [&](uint64_t source) { *came_of(static_cast<uint32_t>(source)) = 0; });
    if (mp::block().leads()) {
        mp::store(mine, uint64_t{0}, mp::relaxed, mp::system);
        mp::store(mine + 1, uint64_t{0}, mp::relaxed, mp::system);
    }
    EXPECT(open(window));
    if (self.rank != target) {
        if (sleeps && self.rank < 2) {
            if (self.rank == 0) EXPECT(hear(window, target, 0));
            for (uint32_t round = 0; round < 100; ++round) {
                if (self.rank == 1) EXPECT(hear(window, 0, round));
                EXPECT(tell(window, 1 - self.rank, round));
                if (self.rank == 0) EXPECT(hear(window, 1, round));
            }
            if (mp::block().leads()) mp::store(mine + 1, uint64_t{1}, mp::relaxed, mp::system);
        }
        for (uint64_t round = 0; round < check.rounds; ++round) {
            const bool sent = tell(window, target, static_cast<uint32_t>(round));
            EXPECT(sent);
            if (!sent) return;
            if (sleeps && mp::block().leads()) mp::store(mine, round + 1, mp::relaxed, mp::system);
        }
        EXPECT(there({}, 1) == 0);
        return;
    }
    if (sleeps) {
        for (const uint64_t since = mp::clock_ns(); mp::clock_ns() - since < check.flavour;) mp::pause();
        uint64_t sent = 0;
        for (uint32_t rank = 0; rank < target; ++rank) sent += word_of(window, rank, 0);
        // What rings hold, and what may have come in before this rank had left the barrier.
        EXPECT(sent <= uint64_t{self.all->devices} * self.all->slots + self.all->spill);
        EXPECT(tell(window, 0, 0));
        bool through = false;
        for (const uint64_t since = mp::clock_ns(); !through && !mp::block_any(mp::clock_ns() - since > self.all->timeout_ns);)
            through = mp::block_any(word_of(window, 0, 1) != 0 && word_of(window, 1, 1) != 0);
        EXPECT(through);
    }
    auto* got = reinterpret_cast<mp::Notification*>(shared);
    const uint64_t all = check.rounds * target, most = 8 * check.words / sizeof(mp::Notification);
    for (uint64_t turn = 0, taken = 0; taken < all; ++turn) {
        uint64_t count = 1 + turn % (most < self.all->spill ? most : self.all->spill);
        if (count > all - taken) count = all - taken;
        const bool came = !mp::wait_notifications(self, {window, mp::any_source, mp::any_tag}, static_cast<uint32_t>(count), got).failed();
        EXPECT(came);
        if (!came) return;
        uint64_t differing = 0;
        each(count, [&](uint64_t i) {
            uint64_t expected = *came_of(got[i].source);
            for (uint64_t j = 0; j < i; ++j) expected += got[j].source == got[i].source;
            differing += got[i].tag != expected;
        });
        EXPECT(!mp::block_any(differing != 0));
        each(count, [&](uint64_t i) {
            bool last = true;
            for (uint64_t j = i + 1; j < count; ++j) last = last && got[j].source != got[i].source;
            if (last) *came_of(got[i].source) = got[i].tag + uint64_t{1};
        });
        mp::block().sync();
        taken += count;
    }
    EXPECT(there({}, 1) == 0);
}
TEST_DENSE(ranks_crowd, dense_crowd)

// S1: in each round all ranks are in pairs, who with whom by a number that all compute, some with themselves.
TEST(ranks_pairs) {
    uint32_t window = 0;
    EXPECT(open(window));
    const uint64_t half = check.words / 2;
    for (uint64_t round = 0; round < check.rounds; ++round) {
        const uint64_t sum = ((round + 1) * 0x9e3779b97f4a7c15u >> 32) % size();
        const auto other = static_cast<uint32_t>((sum + size() - self.rank) % size());
        const auto tag = static_cast<uint32_t>(2 * round % (1u << 24));
        // What came in the last round has been read.
        const bool ready = tell(window, other, tag) && hear(window, other, tag);
        EXPECT(ready);
        if (!ready) return;
        fill(mine, half, self.rank, round);
        mp::block().sync();
        EXPECT(!mp::put_notify(self, window, other, 8 * half, mine, 8 * half, tag + 1).failed());
        EXPECT(hear(window, other, tag + 1));
        EXPECT(holds(mine + half, half, other, round));
        EXPECT(!mp::flush(self).failed());
    }
    EXPECT(there({}, 1) == 0);
}
TEST_DENSE(ranks_pairs, dense_pairs)

// S5: who is late, by so many nanoseconds, is waited for.
TEST(ranks_late) {
    if (self.rank == size() - 1)
        for (const uint64_t since = mp::clock_ns(); mp::clock_ns() - since < check.rounds;) mp::pause();
    uint32_t window = 0;
    EXPECT(open(window));
    if (self.rank == 0) EXPECT(tell(window, right(), 0));
    EXPECT(hear(window, left(), 0));
    if (self.rank != 0) EXPECT(tell(window, right(), 0));
}
TEST_DENSE(ranks_late, dense_late)

// K4: a wait that is too late takes nothing, and a later one has it.
TEST(ranks_deadline) {
    uint32_t window = 0;
    EXPECT(open(window));
    if (self.rank == 0) {
        EXPECT(tell(window, 0, 1));
        const mp::WaitResult result = mp::wait_notifications(self, {window, mp::any_source, 1}, 2, {self.all->abort, 1'000'000});
        EXPECT(result.status == mp::timed_out && result.seen == 1 && result.waited_ns >= 1'000'000);
        EXPECT(tell(window, right(), 2));
    }
    if (self.rank == 1 % size()) {
        EXPECT(hear(window, 0, 2));
        EXPECT(tell(window, 0, 1));
    }
    if (self.rank == 0) EXPECT(hear(window, mp::any_source, 1, 2));
    EXPECT(there({}, 1) == 0);
}

// K3: one rank does not come. Every other one ends, and the report names it.
TEST(ranks_absent) {
    const auto absent = static_cast<uint32_t>(check.rounds);
    if (check.flavour == 0) {
        if (self.rank != absent) EXPECT(mp::barrier(self, Team::world).status == mp::timed_out);
        if (self.rank != absent) EXPECT(mp::barrier(self, Team::world).status == mp::timed_out);
        return;
    }
    uint32_t window = 0;
    EXPECT(open(window));
    if (self.rank != absent) EXPECT(mp::wait_notifications(self, {window, absent, 4}, 3).status == mp::timed_out);
}

// A world that is lost ends what waits, and nothing is taken.
TEST(ranks_aborted) {
    uint32_t window = 0;
    EXPECT(open(window));
    if (mp::block().leads()) mp::store(mine + 1, uint64_t{1}, mp::relaxed, mp::system);
    switch (self.rank % 3) {
    case 0: EXPECT(mp::wait_notifications(self, {window, mp::any_source, 0}, 1).status == mp::aborted); break;
    case 1: EXPECT(mp::barrier(self, Team::world).status == mp::aborted); break;
    default:
        // Until the ring is full, which nobody reads.
        mp::WaitResult result = {mp::ok, 0, 0};
        while (!result.failed()) result = mp::put_notify(self, window, left(), 0, mine, 0, 1);
        EXPECT(result.status == mp::aborted);
    }
}

// F10
TEST(ranks_log) {
    for (uint64_t i = 0; i < check.rounds; ++i) mp::print(self, "line {} of {}: {}, {}", i, self.rank, -1, 0.5 * static_cast<double>(i));
}

// F12: one put, and all ranks of the device know.
TEST(ranks_notify_all) {
    uint32_t window = 0;
    EXPECT(!mp::win_create(self, Team::world, shared, 8 * check.words, window).failed());
    const uint32_t devices = self.all->devices;
    for (uint64_t round = 0; round < check.rounds; ++round) {
        // The first rank of each device to the next device.
        if (self.local == 0) {
            fill(mine, check.words, self.all->device, round);
            const uint32_t target = (self.all->device + 1) % devices * self.all->per_device;
            EXPECT(!mp::put_notify_all(self, window, target, 0, mine, 8 * check.words, 6).failed());
        }
        EXPECT(hear(window, mp::any_source, 6));
        EXPECT(holds(shared, check.words, (self.all->device + devices - 1) % devices, round));
        EXPECT(meet());
    }
}

// M13: the three stages of foMPI-NA's test of notifications without data – exact, any source, any tag –, two puts whose notifications are
// waited for in the other order, and a get that the target hears of; as that library's tests put the questions, written anew.
TEST(ranks_fompi) {
    uint32_t window = 0;
    EXPECT(open(window));
    const uint32_t others = size() - 1;
    for (uint64_t round = 0; round < check.rounds; ++round) {
        // Everybody tells everybody else three times; a tag says whose it is and which stage it is for.
        for (uint32_t stage = 1; stage <= 3; ++stage)
            for (uint32_t to = 0; to < size(); ++to)
                if (to != self.rank) EXPECT(tell(window, to, stage == 2 ? 2 : stage * 1000 + self.rank));
        for (uint32_t from = size(); from-- > 0;)  // 1: source and tag, the last first
            if (from != self.rank) EXPECT(hear(window, from, 1000 + from));
        EXPECT(hear(window, mp::any_source, 2, others));  // 2: as many as there are, whoever sent them
        for (uint32_t from = 0; from < size(); ++from) {  // 3: what one sent, whatever it is
            if (from == self.rank) continue;
            mp::Notification got = {};
            EXPECT(!mp::wait_notifications(self, {window, from, mp::any_tag}, 1, &got).failed());
            if (mp::block().leads()) EXPECT(got.source == from && got.tag == 3000 + from);
        }
        EXPECT(there({}, 1) == 0);
        EXPECT(meet());
        // Two puts, waited for in the other order: both have arrived with the second.
        const uint64_t part = check.words / 4;
        fill(mine, 2 * part, self.rank, round);
        mp::block().sync();
        EXPECT(!mp::put_notify(self, window, right(), 16 * part, mine, 8 * part, 5).failed());
        EXPECT(!mp::put_notify(self, window, right(), 24 * part, mine + part, 8 * part, 6).failed());
        EXPECT(hear(window, left(), 6));
        EXPECT(holds(mine + 2 * part, 2 * part, left(), round));
        EXPECT(hear(window, left(), 5));
        EXPECT(meet());
        // A get: the target may write again what has been read.
        EXPECT(!mp::get_notify(self, window, right(), 0, mine + 2 * part, 8 * part, 7).failed());
        EXPECT(!mp::flush(self).failed());
        EXPECT(hear(window, left(), 7));
        each(part, [&](uint64_t i) { mine[i] = ~uint64_t{0}; });
        EXPECT(holds(mine + 2 * part, part, right(), round));
        EXPECT(meet());
    }
    EXPECT(there({}, 1) == 0);
}

// O7: another block than the one that was there before reads what lies in place: the share begins with what the rank before wrote, and nothing is copied.
TEST(ranks_beside) {
    uint32_t window = 0;
    const bool has_left = self.local > 0, has_right = self.local + 1 < self.all->per_device;
    uint64_t* base = has_left ? mine - check.words : mine;
    EXPECT(!mp::win_create(self, Team::device, base, 8 * (mine + check.words - base), window).failed());
    for (uint64_t round = 0; round < check.rounds; ++round) {
        // Into this multiprocessor's cache, before they change.
        if (has_left) EXPECT(holds(base, check.words, self.rank - 1, round - 1) || round == 0);
        EXPECT(!mp::barrier(self, Team::device).failed());
        fill(mine, check.words, self.rank, round);
        mp::block().sync();
        if (has_right) EXPECT(!mp::put_notify(self, window, self.rank + 1, 0, mine, 8 * check.words, 1).failed());
        if (has_left) {
            EXPECT(hear(window, self.rank - 1, 1));
            EXPECT(holds(base, check.words, self.rank - 1, round));
        }
        EXPECT(!mp::barrier(self, Team::device).failed());
    }
}

// Q4: rank 0 sends one more than a ring holds to the last rank, whose device never says how far it has read: the last is too late, and has
// overwritten nothing.
TEST(ranks_no_credit) {
    uint32_t window = 0;
    EXPECT(open(window));
    const uint32_t slots = self.all->slots;
    if (self.rank == 0) {
        for (uint32_t i = 0; i < slots; ++i) EXPECT(tell(window, size() - 1, i));
        EXPECT(mp::put_notify(self, window, size() - 1, 0, mine, 0, slots).status == mp::timed_out);
    } else if (self.rank == size() - 1) {
        for (uint32_t i = 0; i < slots; ++i) {
            mp::Notification got = {};
            EXPECT(!mp::wait_notifications(self, {window, 0, mp::any_tag}, 1, &got).failed());
            if (mp::block().leads()) EXPECT(got.tag == i);
        }
        EXPECT(there({}, 1) == 0);
    }
}

// K7: one half of the block does not call. Nothing is promised but that the others are not left waiting for threads that have ended.
TEST(ranks_half) {
    if (mp::thread_rank() >= (mp::block_threads() + 1) / 2) return;
    (void)mp::barrier(self, Team::world);
    (void)mp::put_notify(self, 0, self.rank, 0, mine, 0, 1);
}

// Collectives that notify, in a window of the world, and of the device, on shares of their own and on one for all of a device.
TEST(ranks_collectives) {
    uint32_t windows[3] = {0, 0, 0};
    EXPECT(open(windows[0]));
    EXPECT(!mp::win_create(self, Team::world, shared, 8 * check.words, windows[1]).failed());
    EXPECT(!mp::win_create(self, Team::device, mine, 8 * check.words, windows[2]).failed());
    const uint32_t devices = self.all->devices;
    for (uint64_t round = 0; round < check.rounds; ++round) {
        for (const uint32_t window : windows) {
            const bool world = window < mp::rank_windows;
            const uint32_t parts = mp::parts_of(self, window), ranks = mp::size_of(self, world ? Team::world : Team::device);
            const uint32_t first = world ? 0 : self.all->first, root = first + static_cast<uint32_t>(round % ranks);
            EXPECT(parts == (world ? devices : 1));
            // A barrier: what each rank wrote before is there.
            if (window != windows[1]) {
                if (mp::block().leads()) mine[1] = word(self.rank, round, window);
                EXPECT(!mp::barrier_notify(self, window, 3).failed());
                EXPECT(hear(window, mp::any_source, 3, parts));
                EXPECT(mp::get(self, window, first + (self.rank - first + 1) % ranks, 8, mine + 2, 8) == mp::ok && !mp::flush(self).failed());
                EXPECT(mine[2] == word(first + (self.rank - first + 1) % ranks, round, window));
                // All have read it.
                EXPECT(!mp::barrier_notify(self, window, 4).failed());
                EXPECT(hear(window, mp::any_source, 4, parts));
            }
            // One gives to all.
            uint64_t* there = window == windows[1] ? shared : mine;
            if (self.rank == root) {
                fill(mine + 8, 5, root, round);
                mp::block().sync();
                EXPECT(!mp::broadcast_notify(self, window, 8 * 16, mine + 8, 40, 5).failed());
            }
            EXPECT(hear(window, root, 5));
            EXPECT(holds(there + 16, 5, root, round));
            // Numbers of all, two of each; in the shares that are one for a device there is one operand.
            const bool one = window == windows[1];
            if (!one || self.local == 0) each(2, [&](uint64_t i) { there[24 + i] = (one ? self.all->device : self.rank) * 10 + i + round; });
            mp::block().sync();
            EXPECT(!mp::barrier(self, world ? Team::world : Team::device).failed());
            EXPECT(!mp::reduce_notify<uint64_t>(self, window, 8 * 24, 8 * 32, 2, mp::sum_t{}, 6).failed());
            EXPECT(hear(window, mp::any_source, 6, parts));
            uint64_t sums[2] = {0, 0}, expected[2] = {0, 0};
            for (uint32_t part = 0; part < parts; ++part)
                for (uint32_t i = 0; i < 2; ++i) sums[i] += there[32 + 2 * part + i];
            for (uint32_t rank = first; rank < first + ranks; ++rank)
                for (uint32_t i = 0; i < 2; ++i) expected[i] += (one ? mp::impl::device_of(*self.all, rank) : rank) * 10 + i + round;
            EXPECT(sums[0] == expected[0] && sums[1] == expected[1]);
            EXPECT(meet());
        }
    }
    EXPECT(there({}, 1) == 0);
}

// F11: rounds with `flavour` host ranks, the last of the world; their part is in dranks/tests/ranks.rs. The first half of a share is what a
// rank puts, and the other half has a part for each of the others' kind.
TEST(ranks_with_hosts) {
    uint32_t window = 0;
    EXPECT(open(window));
    const auto hosts = static_cast<uint32_t>(check.flavour);
    const uint32_t first = size() - hosts;
    const uint64_t half = check.words / 2, part = half / hosts;
    for (uint64_t round = 0; round < check.rounds; ++round) {
        const auto tag = static_cast<uint32_t>(round % 100);
        fill(mine, half, self.rank, round);
        mp::block().sync();
        for (uint32_t host = first; host < size(); ++host)
            EXPECT(!mp::put_notify(self, window, host, 8 * (half + self.rank * part), mine, 8 * part, tag).failed());
        for (uint32_t host = size(); host-- > first;) {
            EXPECT(hear(window, host, tag));
            EXPECT(holds(mine + half + (host - first) * part, part, host, round));
            // What the host has put to the others it has in its share, too.
            uint64_t* scratch = mine + half + (host - first) * part;
            EXPECT(!mp::get_notify(self, window, host, 0, scratch, 8 * part, 101).failed());
            EXPECT(!mp::flush(self).failed());
            EXPECT(holds(scratch, part, host, round));
        }
        // All have read what this rank has put.
        EXPECT(hear(window, mp::any_source, 102, hosts));
        EXPECT(meet());
    }
    EXPECT(there({}, 1) == 0);
    EXPECT(!mp::win_free(self, window).failed());
}

// P1: notified puts of `flavour >> 32` bytes from rank 0 to rank `flavour` and back. The first word of rank 0 is how many nanoseconds all
// rounds but the first few took.
TEST(ranks_ping_pong) {
    uint32_t window = 0;
    EXPECT(open(window));
    const auto partner = static_cast<uint32_t>(check.flavour);
    const uint64_t bytes = check.flavour >> 32, warm = 10, there = 8 + bytes;
    uint64_t began = 0;
    for (uint64_t round = 0; round < check.rounds + warm && (self.rank == 0 || self.rank == partner); ++round) {
        const uint32_t other = self.rank == 0 ? partner : 0;
        if (round == warm) began = mp::clock_ns();
        if (self.rank != 0) EXPECT(hear(window, other, 1));
        EXPECT(!mp::put_notify(self, window, other, there, mine + 1, bytes, 1).failed());
        if (self.rank == 0) EXPECT(hear(window, other, 1));
    }
    const uint64_t ended = mp::clock_ns();
    EXPECT(meet());
    if (self.rank == 0 && mp::block().leads()) mine[0] = ended - began;
}

// M12: what a script says, by one rank. Each step is three words: what, a label or what is wanted, and how many. What is taken is written
// behind the script: for each step how many, and their labels.
TEST(ranks_script) {
    const uint64_t* script = mine;
    uint64_t* out = mine + 4 * check.rounds;
    for (uint64_t step = 0; step < check.rounds; ++step) {
        const uint64_t what = script[4 * step], count = script[4 * step + 3];
        const auto source = static_cast<uint32_t>(script[4 * step + 1]);
        const auto window = static_cast<uint32_t>(script[4 * step + 2] >> 32), tag = static_cast<uint32_t>(script[4 * step + 2]);
        if (what == 0) {
            // In the name of any rank.
            mp::WaitResult sent = {mp::ok, 0, 0};
            if (mp::block().leads())
                sent = mp::impl::notify_one(self, self.all->device, self.local, mp::impl::label_of(source, window, tag));
            EXPECT(!mp::block().broadcast(sent).failed());
            continue;
        }
        // Straight into the output, its fields word by word.
        auto* got = reinterpret_cast<mp::Notification*>(out + 1);
        const auto wanted = static_cast<uint32_t>(count);
        const mp::WaitResult taken = mp::test_notifications(self, {window, source, tag}, wanted, got);
        EXPECT(!taken.failed());
        const bool all = taken.seen == count;
        if (mp::block().leads()) out[0] = all ? count : ~taken.seen;
        out += 1 + (all ? (count * sizeof(mp::Notification) + 7) / 8 : 0);
        mp::block().sync();
    }
}

// F1: Figure 2 of the paper as printed, with what it leaves to the reader around it.
template <class T>
MP_DEVICE void swap(T& one, T& other) {
    const T held = one;
    one = other;
    other = held;
}

// `words` lines a rank of as many cells as the block has threads. Each device has its lines and one before and behind them, twice.
MP_KERNEL void dcuda_figure_2(mp::Ranks param, Check check) {
    const int jstride = static_cast<int>(mp::block_threads());
    const int len = static_cast<int>(check.words) * jstride, steps = static_cast<int>(check.rounds), tag = 42;
    const std::uint64_t all = static_cast<std::uint64_t>(param.per_device) * len + 2 * jstride;
    double* in = mp::impl::at<double>(check.memory) + mp::block_rank() * static_cast<std::uint64_t>(len);
    double* out = in + all;
    int size, rank;

    __shared__ dcuda_context ctx;
    dcuda_init(param, ctx);
    dcuda_comm_size(ctx, DCUDA_COMM_WORLD, &size);
    dcuda_comm_rank(ctx, DCUDA_COMM_WORLD, &rank);

    dcuda_win win, wout;
    dcuda_win_create(ctx, DCUDA_COMM_WORLD, &in[0], len + 2 * jstride, &win);
    dcuda_win_create(ctx, DCUDA_COMM_WORLD, &out[0], len + 2 * jstride, &wout);

    bool lsend = rank - 1 >= 0;
    bool rsend = rank + 1 < size;

    int from = threadIdx.x + jstride;
    int to = from + len;
    for (int i = 0; i < steps; ++i) {
        for (int idx = from; idx < to; idx += jstride)
            out[idx] = -4.0 * in[idx] + in[idx + 1] + in[idx - 1] + in[idx + jstride] + in[idx - jstride];

        if (lsend) dcuda_put_notify(ctx, wout, rank - 1, len + jstride, jstride, &out[jstride], tag);
        if (rsend) dcuda_put_notify(ctx, wout, rank + 1, 0, jstride, &out[len], tag);

        dcuda_wait_notifications(ctx, wout, DCUDA_ANY_SOURCE, tag, lsend + rsend);

        swap(in, out);
        swap(win, wout);
    }

    dcuda_win_free(ctx, win);
    dcuda_win_free(ctx, wout);
    dcuda_finish(ctx);
}
