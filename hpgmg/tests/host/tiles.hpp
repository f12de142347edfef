// What cuda/tiles.cuh wants of a GPU that copies tiles by itself, on the host: barriers in shared memory (mbarrier), and copies of tiles, which
// are done when they are started. A tensor map is a HostMap there.
#pragma once
#include "cuda.hpp"

namespace emulated {

// Shared memory that a launch asks for: no number before the block has written there.
constexpr std::size_t DYNAMIC = 232448;
inline double* dynamic() {
    alignas(128) static thread_local double values[DYNAMIC / 8];
    return values;
}
inline char* at_shared(unsigned at) { return reinterpret_cast<char*>(dynamic()) + at; }

// In place of a CUtensorMap: an array, its dimensions, the distances of its rows, and the tile.
struct HostMap {
    std::uint64_t address, rank, dims[4], strides[3], tile[4], unused[3];
};
static_assert(sizeof(HostMap) == 128);

// A barrier, in its eight bytes.
struct Bar {
    std::int32_t bytes;  // that are still to come
    std::uint16_t count : 15, phase : 1, pending;

    void check() {
        if (pending != 0 || bytes != 0) return;
        phase ^= 1;
        pending = count;
    }
    static Bar& at(unsigned bar) { return *reinterpret_cast<Bar*>(at_shared(bar)); }
};
static_assert(sizeof(Bar) == 8);

template <std::size_t RANK>
void copy_tile(unsigned to, const HostMap& map, const int (&from)[RANK], unsigned bar) {
    double* out = reinterpret_cast<double*>(at_shared(to));
    std::uint64_t count = 1;
    for (std::size_t m = 0; m < RANK; m++) count *= map.tile[m];
    for (std::uint64_t item = 0; item < count; item++) {
        std::uint64_t rest = item, place = 0;
        bool inside = map.rank == RANK;
        for (std::size_t m = 0; m < RANK; m++) {
            const std::int64_t at = from[m] + std::int64_t(rest % map.tile[m]);
            rest /= map.tile[m];
            inside = inside && at >= 0 && at < std::int64_t(map.dims[m]);
            place += at * (m == 0 ? 1 : map.strides[m - 1]);
        }
        out[item] = inside ? reinterpret_cast<const double*>(map.address)[place] : 0.0;
    }
    Bar& waited = Bar::at(bar);
    waited.bytes -= 8 * std::int32_t(count);
    waited.check();
}

}  // namespace emulated

namespace hpgmg {
struct TensorMap;

inline unsigned shared_at(const void* p) { return static_cast<const char*>(p) - reinterpret_cast<const char*>(emulated::dynamic()); }
inline void bar_init(unsigned bar, int count) { emulated::Bar::at(bar) = {0, std::uint16_t(count), 0, std::uint16_t(count)}; }
inline void bars_ready() {}
inline void bar_arrive(unsigned bar) {
    emulated::Bar& at = emulated::Bar::at(bar);
    --at.pending;
    at.check();
}
inline void bar_expect(unsigned bar, int bytes) {
    emulated::Bar::at(bar).bytes += bytes;
    bar_arrive(bar);
}
inline void bar_wait(unsigned bar, int parity) {
    while (int(emulated::Bar::at(bar).phase) == parity) emulated::yield();
}
inline void copy_tile(unsigned to, const TensorMap* map, int x, int y, int z, unsigned bar) {
    const int from[] = {x, y, z};
    emulated::copy_tile(to, *reinterpret_cast<const emulated::HostMap*>(map), from, bar);
}
inline void copy_tile(unsigned to, const TensorMap* map, int x, int c, int y, int z, unsigned bar) {
    const int from[] = {x, c, y, z};
    emulated::copy_tile(to, *reinterpret_cast<const emulated::HostMap*>(map), from, bar);
}
inline void to_async() {}
inline void from_others() {}
template <int ID, int COUNT>
void meet() {
    static thread_local emulated::Meeting meeting{COUNT};
    emulated::meet(meeting);
}
}  // namespace hpgmg

#define HPGMG_TILES_SHARED(name) double* const name = emulated::dynamic()
