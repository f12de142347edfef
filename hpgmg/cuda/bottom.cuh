// One block working on a level that is small enough for it: passes, ghosts, sums, and the Krylov solvers. Everything is
// ordered by barriers of the block; the levels stay in the first-level cache. Sums are formed row by row and then over
// the rows, as on the CPU (vectors.rs).
#pragma once
#include "pass.cuh"
#include "resident.cuh"
#include "transfer.cuh"

namespace hpgmg {

// Functions that are calls are given the parameter of the kernel and the number of a level, and make their own `L` of that
// level: of that only the fields that they use are loaded, into registers. A level as a parameter (and a reference to one, of
// which the compiler makes a value again) would be 232 bytes of every thread's stack, for each call.

__shared__ double shared_rows[RESIDENT_DIM * RESIDENT_DIM];
__shared__ double shared_sum;
__shared__ unsigned long long shared_max;

// Division by a small number, exact for the numbers of cells here (below 4096, by at most 16).
struct Divisor {
    unsigned by, factor;
    __device__ __forceinline__ explicit Divisor(int by) : by(by), factor(65536u / by + 1) {}
    __device__ __forceinline__ int quotient(int x) const { return static_cast<unsigned>(x) * factor >> 16; }
    __device__ __forceinline__ int divide(int& x) const {
        const int q = quotient(x);
        x -= q * by;
        return q;
    }
};

// Calls f(i, j, k) for every cell.
template <class L, class F>
__device__ __forceinline__ void each_cell(const L& level, F f) {
    const int n = level.n;
    const Divisor side(n);
    for (int cell = threadIdx.x; cell < n * n * n; cell += RESIDENT_THREADS) {
        int i = cell, j = side.divide(i);
        const int k = side.divide(j);
        f(i, j, k);
    }
    __syncthreads();
}

// All ghosts to `depth`, by `rule`: along i, then j, then k.
template <class L>
__device__ __forceinline__ void fill_box(const L& level, double* x, int rule, int depth) {
    const int n = level.n, wide = n + 2 * depth;
    for (int axis = 0; axis < 3; axis++) {
        const int across = axis > 0 ? wide : n, up = axis > 1 ? wide : n;
        const int shift_a = axis > 0 ? depth : 0, shift_b = axis > 1 ? depth : 0;
        for (int item = threadIdx.x; item < 2 * depth * across * up; item += RESIDENT_THREADS) {
            const int a = item % across - shift_a, b = item / across % up - shift_b, layer = item / (across * up);
            const int outside = layer < depth ? -1 - layer : n + layer - depth;
            auto at = [&](int c) { return x + (axis == 0 ? level.at(c, a, b) : axis == 1 ? level.at(a, c, b) : level.at(a, b, c)); };
            const Taps taps(outside, n, rule);
            double sum = 0.0;
            for (int m = 0; m < cells_of(rule); m++) sum += taps.weight(m) * *at(taps.first + m * taps.step);
            *at(outside) = sum;
        }
        __syncthreads();
    }
}

// All ghosts to `depth`, where the domain wraps around.
template <class L>
__device__ __forceinline__ void wrap_box(const L& level, double* x, int depth) {
    const int n = level.n, wide = n + 2 * depth;
    for (int item = threadIdx.x; item < wide * wide * wide; item += RESIDENT_THREADS) {
        const int i = item % wide - depth, j = item / wide % wide - depth, k = item / (wide * wide) - depth;
        if (level.has(i) && level.has(j) && level.has(k)) continue;
        x[level.at(i, j, k)] = x[level.at((i + n) % n, (j + n) % n, (k + n) % n)];
    }
    __syncthreads();
}

// The ghosts that the operator reads.
template <int OPERATOR, class L>
__device__ __forceinline__ void fill(const L& level, double* x) {
    if (wraps(OPERATOR)) return wrap_box(level, x, reach_of(OPERATOR));
    if (OPERATOR == P27) return fill_box(level, x, level.boundary, 1);
    const int n = level.n, face = n * n;
    const Divisor by(n);
    for (int item = threadIdx.x; item < 6 * face; item += RESIDENT_THREADS) {
        int a = item, b = by.divide(a);
        const int side = by.divide(b), axis = side >> 1, inward = (side & 1) ? -1 : 1;
        const int near = (side & 1) ? n : -1;
        auto at = [&](int m) {
            const int c = near + m * inward;
            return x + (axis == 0 ? level.at(c, a, b) : axis == 1 ? level.at(a, c, b) : level.at(a, b, c));
        };
        const double x1 = *at(1), x2 = n > 1 ? *at(2) : 0.0;
        const bool deep = level.boundary == QUARTIC;
        const double x3 = deep ? *at(3) : 0.0, x4 = deep ? *at(4) : 0.0;
        *at(0) = ghost(level.boundary, 0, x1, x2, x3, x4);
        if (OPERATOR == FV4) *at(-1) = ghost(level.boundary, 1, x1, x2, x3, x4);
    }
    __syncthreads();
    if (OPERATOR == FV4) {
        for (int item = threadIdx.x; item < 12 * n; item += RESIDENT_THREADS) {
            int along = item;
            const int edge = by.divide(along), axis = edge >> 2;
            const int a = (edge & 1) ? n : -1, b = (edge & 2) ? n : -1;
            // Along k, or for an edge along k, along j.
            const int inward = (edge & 2) ? -1 : 1;
            auto at = [&](int m) {
                const int c = b + m * inward;
                return x + (axis == 0 ? level.at(along, a, c) : axis == 1 ? level.at(a, along, c) : level.at(a, c, along));
            };
            const bool deep = level.boundary == QUARTIC;
            *at(0) = ghost(level.boundary, 0, *at(1), n > 1 ? *at(2) : 0.0, deep ? *at(3) : 0.0, deep ? *at(4) : 0.0);
        }
        __syncthreads();
    }
}

// A pass over the level; the ghosts of x are filled first.
template <int OPERATOR, int STEP, bool ZERO, class L>
__device__ __forceinline__ void pass_block(const L& level, const Pass& pass) {
    if (!ZERO) fill<OPERATOR>(level, const_cast<double*>(pass.x));
    const int n = level.n, pairs = (n + 1) / 2;
    if (STEP == GSRB) {
        const Divisor by_pairs(pairs), by_rows(n);
        for (int item = threadIdx.x; item < pairs * n * n; item += RESIDENT_THREADS) {
            int t = item, j = by_pairs.divide(t);
            const int k = by_rows.divide(j);
            double even, odd;
            pair<OPERATOR, GSRB, ZERO, false, Inside>(level, pass, t, j, k, even, odd);
            pass.out[level.at(2 * t, j, k)] = even;
            if (2 * t + 1 < n) pass.out[level.at(2 * t + 1, j, k)] = odd;
        }
        __syncthreads();
    } else {
        each_cell(level, [&](int i, int j, int k) {
            const Point p(level, i >> 1, i & 1, j, k);
            pass.out[p.own] = update<OPERATOR, STEP, ZERO, false, Inside>(level, pass, p);
        });
    }
}

__device__ __forceinline__ double broadcast(double value) {
    if (threadIdx.x == 0) shared_sum = value;
    __syncthreads();
    const double sum = shared_sum;
    __syncthreads();
    return sum;
}

// The sum of `value(at)` over all cells, whose places are `at`.
template <class L, class F>
__device__ __forceinline__ double sum_of_cells(const L& level, F value) {
    const int rows = level.n * level.n;
    const Divisor side(level.n);
    for (int row = threadIdx.x; row < rows; row += RESIDENT_THREADS) {
        int j = row;
        const int k = side.divide(j);
        double sum = 0.0;
        for (int i = 0; i < level.n; i++) {
            sum += value(level.at(i, j, k));
        }
        shared_rows[row] = sum;
    }
    __syncthreads();
    double sum = 0.0;
    if (threadIdx.x == 0) {
        for (int row = 0; row < rows; row++) sum += shared_rows[row];
    }
    return broadcast(sum);
}

template <class L>
__device__ double dot(const L& level, const double* x, const double* y) {
    return sum_of_cells(level, [&](int at) { return x[at] * y[at]; });
}

// Makes the mean of x zero where the operator does not see it.
template <int OPERATOR, class L>
__device__ void remove_mean(const L& level, double* x) {
    if (!wraps(OPERATOR) || level.alpha) return;
    const int n = level.n;
    const double mean = sum_of_cells(level, [&](int at) { return x[at]; }) / (n * n * n);
    each_cell(level, [&](int i, int j, int k) { x[level.at(i, j, k)] += -mean; });
}

template <class L>
__device__ double norm(const L& level, const double* x) {
    if (threadIdx.x == 0) shared_max = 0;
    __syncthreads();
    unsigned long long mine = 0;
    const int cells = level.n * level.n * level.n;
    const Divisor side(level.n);
    for (int cell = threadIdx.x; cell < cells; cell += RESIDENT_THREADS) {
        int i = cell, j = side.divide(i);
        const int k = side.divide(j);
        mine = max(mine, static_cast<unsigned long long>(__double_as_longlong(fabs(x[level.at(i, j, k)]))));
    }
    if ((threadIdx.x & ~31) < cells) {
        for (int step = 16; step > 0; step /= 2) mine = max(mine, __shfl_xor_sync(~0u, mine, step));
        if (threadIdx.x % 32 == 0) atomicMax(&shared_max, mine);
    }
    __syncthreads();
    const double largest = __longlong_as_double(shared_max);
    __syncthreads();
    return largest;
}

template <class L>
__device__ void set(const L& level, double* x, const double* from) {
    each_cell(level, [&](int i, int j, int k) {
        const int at = level.at(i, j, k);
        x[at] = from ? from[at] : 0.0;
    });
}

// y = b y + a x
template <class L>
__device__ void axpby(const L& level, double* y, double b, const double* x, double a) {
    each_cell(level, [&](int i, int j, int k) {
        const int at = level.at(i, j, k);
        y[at] = b * y[at] + a * x[at];
    });
}

// out = x + a y
template <class L>
__device__ void sum_of(const L& level, double* out, const double* x, double a, const double* y) {
    each_cell(level, [&](int i, int j, int k) {
        const int at = level.at(i, j, k);
        out[at] = x[at] + a * y[at];
    });
}

template <class L>
__device__ void multiply(const L& level, double* out, const double* x, const double* y) {
    each_cell(level, [&](int i, int j, int k) {
        const int at = level.at(i, j, k);
        out[at] = x[at] * y[at];
    });
}

template <int OPERATOR, class L>
__device__ __forceinline__ void apply_block(const L& level, double* out, const double* x) {
    pass_block<OPERATOR, APPLY, false>(level, Pass{x, out, nullptr, nullptr, 0.0, 0.0, 0, 0, 1, 0});
}

template <int OPERATOR, class L>
__device__ __forceinline__ void residual_block(const L& level, double* out, const double* x, const double* rhs) {
    pass_block<OPERATOR, RESIDUAL, false>(level, Pass{x, out, rhs, nullptr, 0.0, 0.0, 0, 0, 1, 0});
}

// Passes of one call of a smoother, as in smoothers.rs.
template <int OPERATOR>
__device__ __forceinline__ int passes_of(unsigned smoother) {
    constexpr bool OF_POINTS = stencil_of(OPERATOR) == P7 || stencil_of(OPERATOR) == P27;
    return OF_POINTS && (smoother == SMOOTH_GSRB || smoother == SMOOTH_CHEBYSHEV) ? 4 : 6;
}

// One call of the smoother on level `l`; with `zero` x is taken as zero, whatever it holds.
template <int OPERATOR, class L>
__device__ __noinline__ void smooth_block(const Resident& r, int l, const double* rhs, bool zero) {
    const L level(r.levels[l]);
    for (int sweep = 0; sweep < passes_of<OPERATOR>(r.smoother); sweep++) {
        Pass pass{sweep % 2 ? level.temp : level.u, sweep % 2 ? level.u : level.temp, rhs, level.dinv, 2.0 / 3.0, 0.0, sweep, 0, 1, 0};
        const bool from_zero = zero && sweep == 0;
        switch (r.smoother) {
            case SMOOTH_GSRB:
                if (from_zero) {
                    pass_block<OPERATOR, GSRB, true>(level, pass);
                } else {
                    pass_block<OPERATOR, GSRB, false>(level, pass);
                }
                break;
            case SMOOTH_CHEBYSHEV:
                // The second step reads the start again.
                if (from_zero) set(level, level.u, nullptr);
                pass.scale = r.levels[l].c2[sweep];
                pass.last = r.levels[l].c1[sweep];
                pass_block<OPERATOR, CHEBYSHEV, false>(level, pass);
                break;
            default:
                if (r.smoother == SMOOTH_L1_JACOBI) {
                    pass.weight = level.l1inv;
                    pass.scale = 1.0;
                }
                if (from_zero) {
                    pass_block<OPERATOR, WEIGHTED, true>(level, pass);
                } else {
                    pass_block<OPERATOR, WEIGHTED, false>(level, pass);
                }
        }
    }
}

template <int OPERATOR, class L>
__device__ __noinline__ void residual_in_temp(const Resident& r, int l, const double* rhs) {
    const L level(r.levels[l]);
    residual_block<OPERATOR>(level, level.temp, level.u, rhs);
}

// The solvers of krylov/*.rs; x = u of level `l`. Each returns its iterations.

template <int OPERATOR, class L>
__device__ __noinline__ int bicgstab(const Resident& resident, int l, const double* rhs) {
    const L level(resident.levels[l]);
    double* const x = level.u;
    auto work = [&](int v) { return level.krylov + v * level.volume; };
    double *const r0 = work(0), *const r = work(1), *const p = work(2), *const q = work(3);
    double *const s = work(4), *const t = work(5), *const ap = work(6), *const as = work(7);
    residual_block<OPERATOR>(level, r0, x, rhs);
    remove_mean<OPERATOR>(level, r0);
    set(level, r, r0);
    set(level, p, r0);
    double r_r0 = dot(level, r, r0);
    const double start = norm(level, r);
    if (r_r0 == 0.0 || start == 0.0) return 0;
    auto converged = [&](double norm) { return norm == 0.0 || norm < resident.reduction * start; };
    for (int iteration = 1; iteration <= resident.max_iterations; iteration++) {
        multiply(level, q, level.dinv, p);
        apply_block<OPERATOR>(level, ap, q);
        const double ap_r0 = dot(level, ap, r0);
        const double alpha = r_r0 / ap_r0;
        if (ap_r0 == 0.0 || isinf(alpha)) return iteration;
        axpby(level, x, 1.0, q, alpha);
        sum_of(level, s, r, -alpha, ap);
        remove_mean<OPERATOR>(level, s);
        if (converged(norm(level, s))) return iteration;
        multiply(level, t, level.dinv, s);
        apply_block<OPERATOR>(level, as, t);
        const double as_as = dot(level, as, as);
        const double omega = dot(level, as, s) / as_as;
        if (as_as == 0.0 || omega == 0.0 || isinf(omega)) return iteration;
        axpby(level, x, 1.0, t, omega);
        sum_of(level, r, s, -omega, as);
        remove_mean<OPERATOR>(level, r);
        if (converged(norm(level, r))) return iteration;
        const double next = dot(level, r, r0);
        const double beta = (next / r_r0) * (alpha / omega);
        if (next == 0.0 || isinf(beta)) return iteration;
        axpby(level, p, 1.0, ap, -omega);
        axpby(level, p, beta, r, 1.0);
        r_r0 = next;
    }
    return resident.max_iterations;
}

template <int OPERATOR, class L>
__device__ __noinline__ int conjugate_gradients(const Resident& resident, int l, const double* rhs) {
    const L level(resident.levels[l]);
    double* const x = level.u;
    auto work = [&](int v) { return level.krylov + v * level.volume; };
    double *const r = work(0), *const p = work(1), *const ap = work(2), *const z = work(3);
    residual_block<OPERATOR>(level, r, x, rhs);
    remove_mean<OPERATOR>(level, r);
    const double start = norm(level, r);
    if (start == 0.0) return 0;
    multiply(level, z, level.dinv, r);
    set(level, p, z);
    double r_z = dot(level, r, z);
    if (r_z == 0.0) return 0;
    for (int iteration = 1; iteration <= resident.max_iterations; iteration++) {
        apply_block<OPERATOR>(level, ap, p);
        const double ap_p = dot(level, ap, p);
        const double alpha = r_z / ap_p;
        if (ap_p == 0.0 || isinf(alpha)) return iteration;
        axpby(level, x, 1.0, p, alpha);
        axpby(level, r, 1.0, ap, -alpha);
        remove_mean<OPERATOR>(level, r);
        const double size = norm(level, r);
        if (size == 0.0 || size < resident.reduction * start) return iteration;
        multiply(level, z, level.dinv, r);
        const double next = dot(level, r, z);
        const double beta = next / r_z;
        if (next == 0.0 || isinf(beta)) return iteration;
        axpby(level, p, beta, z, 1.0);
        r_z = next;
    }
    return resident.max_iterations;
}

template <int OPERATOR, class L>
__device__ __noinline__ int relaxation(const Resident& resident, int l, const double* rhs) {
    const L level(resident.levels[l]);
    residual_block<OPERATOR>(level, level.temp, level.u, rhs);
    remove_mean<OPERATOR>(level, level.temp);
    const double start = norm(level, level.temp);
    if (start == 0.0) return 0;
    for (int iteration = 1; iteration <= resident.max_iterations; iteration++) {
        smooth_block<OPERATOR, L>(resident, l, rhs, false);
        remove_mean<OPERATOR>(level, level.u);
        residual_block<OPERATOR>(level, level.temp, level.u, rhs);
        const double size = norm(level, level.temp);
        if (size == 0.0 || size < resident.reduction * start) return iteration;
    }
    return resident.max_iterations;
}

}  // namespace hpgmg
