// The residual of fv4 over a large level, restricted or its largest value. A block has a tile of 64 cells by ROWS rows and marches through
// planes of x and of the coefficients, which one warp has copied into rings in shared memory (tiles.cuh). A thread has two cells
// of each of two rows: what flows through a face between two cells is worked out once for both, that through an upper face along k
// is kept for the next plane, and the mean of eight cells needs no other thread. The sums are those of column.cuh, in the same order. For
// levels of a multiple of 64 cells a side, of at least 128.
//
// Step k reads planes k-1 to k+2 of x, k-1 to k+1 of the coefficients across the planes, and k+1 of that along k. The first step of a
// block is in front of its first plane and only finds what flows into that.
#pragma once
#include "tiles.cuh"

namespace hpgmg {

template <int ROWS_, int AHEAD_>
struct ResidualTiles {
    static constexpr int ROWS = ROWS_, PAIRS = 32, EACH = 2;  // of a tile; rows of a thread
    // Steps that copies are ahead.
    static constexpr int AHEAD = AHEAD_;
    // A warp for two rows, one that adds ghost rows, and one that copies.
    static constexpr int WARPS = ROWS / EACH, ALL_WARPS = WARPS + 2, THREADS = 32 * WARPS;
    // A row of one colour begins with pair -2: copies begin at multiples of 16 bytes in memory, too (else the GPU stops with an illegal
    // instruction). Rows in front of the tile: two of x, one of the coefficients, none of those between rows.
    static constexpr int SIDE = RESIDUAL_PAIRS, PITCH = 2 * SIDE;
    static constexpr int X_ROWS = ROWS + 2 * GHOSTS;
    __host__ __device__ static constexpr int front(int axis) { return axis != 1; }
    __host__ __device__ static constexpr int rows(int axis) { return ROWS + 1 + front(axis); }
    // Elements of a plane, to multiples of 128 bytes.
    __host__ __device__ static constexpr int plane(int rows) { return (rows * PITCH + 15) / 16 * 16; }
    static constexpr int X_PLANE = plane(X_ROWS), I_PLANE = plane(rows(0)), J_PLANE = plane(rows(1)), K_PLANE = plane(rows(2));
    static constexpr int X = 4 + AHEAD, ACROSS = 3 + AHEAD, ALONG = 1 + AHEAD;  // planes in the rings
    static constexpr int X_AT = 0, I_AT = X * X_PLANE, J_AT = I_AT + ACROSS * I_PLANE, K_AT = J_AT + ACROSS * J_PLANE,
                         END = K_AT + ALONG * K_PLANE;
    // Bytes that a step copies of x and of the coefficients.
    static constexpr int X_BYTES = 8 * PITCH * X_ROWS, ACROSS_BYTES = 8 * PITCH * (rows(0) + rows(1)), ALONG_BYTES = 8 * PITCH * rows(2);
    static constexpr int BYTES = 8 * END + 3 * PlaneBarriers::BYTES;
    static_assert(AHEAD >= 2 && AHEAD <= 6, "two ghost planes beside the four that they are sums of; eight barriers");
};

// x around the first cell of a thread's first pair, and the coefficients there: by the places in shared memory of the planes, of the
// pair among the cells of that cell's colour, and among the others. Offsets are constants.
template <class T>
struct TileX {
    const char* shared;
    const Turning<4, -1, T::X_PLANE>& planes;
    int same, other;
    __device__ __forceinline__ double operator()(int di, int dj, int dk) const {
        const int at = (di + dj + dk) & 1 ? other : same;
        return *reinterpret_cast<const double*>(shared + planes[dk] + at + 8 * ((di >> 1) + dj * T::PITCH));
    }
};
template <class T>
struct TileCoefficients {
    const char* shared;
    const Turning<3, -1, T::I_PLANE>& i_planes;
    const Turning<3, -1, T::J_PLANE>& j_planes;
    const Turning<1, 1, T::K_PLANE>& k_planes;
    int same, other;
    __device__ __forceinline__ double operator()(int axis, int di, int dj, int dk) const {
        const int plane = axis == 0 ? i_planes[dk] : axis == 1 ? j_planes[dk] : k_planes[dk];
        const int at = (di + dj + dk) & 1 ? other : same;
        return *reinterpret_cast<const double*>(shared + plane + at + 8 * ((di >> 1) + (dj + T::front(axis)) * T::PITCH));
    }
};

// The flux through the lower face along AXIS of the cell that far away.
template <int AXIS, class X, class B>
__device__ __forceinline__ double flux_below(const X& x, const B& beta, int di, int dj, int dk) {
    const auto seen = [&](int axis, int a, int b, int c) { return beta(axis, di + a, dj + b, dk + c); };
    // So many cells above the one below the face, and aside along one of the two other axes, in their order.
    const auto at = [&](int up, int across, int aside) {
        const int axis = across + (across >= AXIS);
        int off[3] = {di, dj, dk};
        off[AXIS] += up - 1;
        off[axis] += aside;
        return x(off[0], off[1], off[2]);
    };
    return flux_fv4(Faces<decltype(seen)>{seen}, AXIS, LOW, at(-1, 0, 0), at(0, 0, 0), at(1, 0, 0), at(2, 0, 0), at(0, 0, -1), at(1, 0, -1),
                    at(0, 0, 1), at(1, 0, 1), at(0, 1, -1), at(1, 1, -1), at(0, 1, 1), at(1, 1, 1));
}

template <class L, class T>
struct ResidualBlock : T {
    using T::AHEAD, T::EACH, T::PAIRS, T::ROWS, T::SIDE, T::PITCH;
    const L& level;
    const Pass& pass;
    double* const shared;
    const int t0, j0;           // first pair and row of the tile
    const int first, end;       // planes
    const bool low, high, beside;
    const PlaneBarriers bars;

    // Barriers of steps: copied; ghost rows added; done.
    enum { FULL, READY, DONE };

    __device__ __forceinline__ ResidualBlock(const L& level, const Pass& pass, double* shared, int first, int end)
        : level(level), pass(pass), shared(shared), t0(blockIdx.x * PAIRS), j0(blockIdx.y * ROWS), first(first), end(end), low(first == 0),
          high(end == level.n), beside(j0 == 0 || j0 + ROWS == level.n), bars{shared_at(shared + T::END), first - 1} {}

    __device__ __forceinline__ double* x_at(int k) const { return in_ring<T::X, T::X_PLANE>(shared + T::X_AT, k); }

    // The warp that copies: by one thread.
    __device__ __forceinline__ void copy(const TileMaps& maps) const {
        auto load_x = [&](int k, unsigned bar) { copy_tile(shared_at(x_at(k)), &maps.x, t0, 2 * j0, in_maps(pass, k), bar); };
        auto load_beta = [&](int axis, int k, unsigned bar) {
            double* const to = axis == 0   ? in_ring<T::ACROSS, T::I_PLANE>(shared + T::I_AT, k)
                               : axis == 1 ? in_ring<T::ACROSS, T::J_PLANE>(shared + T::J_AT, k)
                                           : in_ring<T::ALONG, T::K_PLANE>(shared + T::K_AT, k);
            copy_tile(shared_at(to), &maps.beta[axis], t0, 2 * (j0 - T::front(axis) + GHOSTS), in_maps(pass, k), bar);
        };
        auto load = [&](int s) {
            const unsigned at = bars.of(FULL, s);
            const bool with_x = s + 2 < level.n;
            bar_expect(at, T::ACROSS_BYTES + T::ALONG_BYTES + (with_x ? T::X_BYTES : 0));
            if (with_x) load_x(s + 2, at);
#pragma unroll
            for (int axis = 0; axis < 3; axis++) load_beta(axis, s + 1, at);
        };
        const unsigned at = bars.of(FULL, first - 1);
        bar_expect(at, 4 * T::X_BYTES + 2 * T::ACROSS_BYTES + T::ALONG_BYTES);
        for (int k = first - 2; k <= first + 1; k++) load_x(k, at);
        for (int axis = 0; axis < 3; axis++)
            for (int k = axis == 2 ? first : first - 1; k <= first; k++) load_beta(axis, k, at);
        for (int s = first; s < end; s++) {
            if (s - AHEAD > first - 1) bars.wait(DONE, s - AHEAD - 1);
            load(s);
        }
    }
    // The warp that adds the ghost rows beyond the domain to x, for blocks beside its ends.
    __device__ __forceinline__ void add_rows(int lane) const {
        const bool top = j0 != 0;
        const int row = ((top ? ROWS - 1 : 0) + GHOSTS) * PITCH, inward = top ? -PITCH : PITCH;
        for (int s = first - 1; s < end; s++) {
            bars.wait(FULL, s);
            for (int k = s < first ? s - 1 : s + 2; k <= s + 2; k++) {
                double* const x = x_at(k) + row;
                if (level.has(k)) extend_row<SIDE, 32>(level.boundary, x, x + SIDE, inward, lane);
            }
            to_async();
            __syncwarp();
            if (lane == 0) bars.arrive(READY, s);
        }
    }
    __device__ __forceinline__ void wait(int s) const {
        bars.wait(FULL, s);
        if (beside) bars.wait(READY, s);
    }
    // Ghost planes beyond the domain, before what reads them.
    __device__ __forceinline__ void add_planes(int k, int thread) const {
        const bool top = k >= 0;
        if (top ? !high || k != level.n - 2 : !low) return;
        if (!top) {
            wait(0);
            wait(1);
        }
        // Nobody is behind, whose planes these take the place of.
        meet<1, T::THREADS>();
        extend_planes<SIDE, T::X_PLANE, T::THREADS>(level.boundary, top ? level.n - 1 : 0, top ? -1 : 1, thread, [&](int k) { return x_at(k); });
        to_async();
        meet<1, T::THREADS>();
    }
    // Calls f(k, residual) for each plane, with the residuals of the thread's cells: of two rows, which have two each.
    template <class F>
    __device__ __forceinline__ void compute(int lane, int warp, F f) const {
        const int half = level.half, pitch = level.pitch(), t = t0 + lane, j = j0 + EACH * warp;
        Turning<4, -1, T::X_PLANE> x_planes(T::X_AT, T::X, first - 1);
        Turning<3, -1, T::I_PLANE> i_planes(T::I_AT, T::ACROSS, first - 1);
        Turning<3, -1, T::J_PLANE> j_planes(T::J_AT, T::ACROSS, first - 1);
        Turning<1, 1, T::K_PLANE> k_planes(T::K_AT, T::ALONG, first - 1);
        const char* const bytes = reinterpret_cast<const char*>(shared);
        const int place = 8 * (2 + lane + EACH * warp * PITCH);
        int there = level.row(j, first) + t;
        double next[EACH][2], below[EACH][2];
        // Of the cells of row r and plane k, those of the first cell's colour.
        auto prefetch = [&](int there, int k) {
#pragma unroll
            for (int r = 0; r < EACH; r++) {
#pragma unroll
                for (int o = 0; o < 2; o++) next[r][o] = __ldg(pass.rhs + there + r * pitch + ((o + j + r + k) & 1) * half);
            }
        };
        prefetch(there, first);
#pragma unroll 1
        for (int k = first - 1; k < end; k++) {
            wait(k);
            add_planes(k, lane + 32 * warp);
            const int colour = (j + k) & 1, same = place + 8 * colour * SIDE, other = place + 8 * (1 - colour) * SIDE;
            const TileX<T> x{bytes, x_planes, same + 8 * GHOSTS * PITCH, other + 8 * GHOSTS * PITCH};
            const TileCoefficients<T> beta{bytes, i_planes, j_planes, k_planes, same, other};
            double above[EACH][2];
#pragma unroll
            for (int r = 0; r < EACH; r++) {
#pragma unroll
                for (int o = 0; o < 2; o++) above[r][o] = flux_below<2>(x, beta, o, r, 1);
            }
            if (k >= first) {
                double rhs[EACH][2], residual[EACH][2], i_fluxes[EACH][3], j_fluxes[EACH + 1][2];
#pragma unroll
                for (int r = 0; r < EACH; r++) {
#pragma unroll
                    for (int o = 0; o < 2; o++) rhs[r][o] = next[r][o];
                }
                if (k + 1 < end) prefetch(there + level.plane(), k + 1);
#pragma unroll
                for (int r = 0; r < EACH; r++) {
#pragma unroll
                    for (int o = 0; o < 3; o++) i_fluxes[r][o] = flux_below<0>(x, beta, o, r, 0);
                }
#pragma unroll
                for (int r = 0; r <= EACH; r++) {
#pragma unroll
                    for (int o = 0; o < 2; o++) j_fluxes[r][o] = flux_below<1>(x, beta, o, r, 0);
                }
#pragma unroll
                for (int r = 0; r < EACH; r++) {
#pragma unroll
                    for (int o = 0; o < 2; o++) {
                        double ax = level.scale * ((i_fluxes[r][o + 1] - i_fluxes[r][o]) + (j_fluxes[r + 1][o] - j_fluxes[r][o]) +
                                                   (above[r][o] - below[r][o]));
                        if (level.alpha) {
                            const double alpha = __ldg(level.alpha + there + r * pitch + ((o + j + r + k) & 1) * half);
                            ax += level.a * alpha * x(o, r, 0);
                        }
                        residual[r][o] = rhs[r][o] - ax;
                    }
                }
                there += level.plane();
                __syncwarp();
                if (lane == 0) bars.arrive(DONE, k);
                f(k, residual);
            } else {
                __syncwarp();
                if (lane == 0) bars.arrive(DONE, k);
            }
#pragma unroll
            for (int r = 0; r < EACH; r++) {
#pragma unroll
                for (int o = 0; o < 2; o++) below[r][o] = above[r][o];
            }
            x_planes.next(T::X_AT, T::X);
            i_planes.next(T::I_AT, T::ACROSS);
            j_planes.next(T::J_AT, T::ACROSS);
            k_planes.next(T::K_AT, T::ALONG);
        }
    }
    // By all warps of the block.
    template <class F>
    __device__ __forceinline__ void run(const TileMaps& maps, F f) const {
        const int lane = threadIdx.x, warp = threadIdx.y;
        if (lane == 0 && warp == 0) {
            bars.init(FULL, 1);
            bars.init(READY, 1);
            bars.init(DONE, T::WARPS);
            bars_ready();
        }
        __syncthreads();
        if (warp < T::WARPS) {
            compute(lane, warp, f);
        } else if (warp == T::WARPS) {
            if (beside) add_rows(lane);
        } else if (lane == 0) {
            copy(maps);
        }
    }
};

// Means of the residuals of the planes [first, end), which are even, onto the coarser level. By all threads of the block, as what follows.
template <class T, class L>
__device__ __forceinline__ void tiled_residual_restrict(const L& level, const Level& coarse, const TileMaps& maps, const Pass& pass,
                                                        double* shared, int first, int end) {
    const ResidualBlock<L, T> block(level, pass, shared, first, end);
    double rows[2] = {};
    block.run(maps, [&](int k, const double (&residual)[2][2]) {
        const double now[2] = {residual[0][0] + residual[0][1], residual[1][0] + residual[1][1]};
        if (k & 1) {
            const int j = (block.j0 + 2 * threadIdx.y) / 2;
            pass.out[coarse.at(block.t0 + threadIdx.x, j, k / 2)] = 0.125 * ((rows[0] + rows[1]) + (now[0] + now[1]));
        }
        rows[0] = now[0];
        rows[1] = now[1];
    });
}

// max |residual|.
template <class T, class L>
__device__ __forceinline__ unsigned long long tiled_residual_largest(const L& level, const TileMaps& maps, const Pass& pass, double* shared,
                                                                     int first, int end) {
    unsigned long long mine = 0;
    ResidualBlock<L, T>(level, pass, shared, first, end).run(maps, [&](int, const double (&residual)[2][2]) {
#pragma unroll
        for (int r = 0; r < 2; r++) mine = max(mine, max(bits(residual[r][0]), bits(residual[r][1])));
    });
    return mine;
}
}  // namespace hpgmg
