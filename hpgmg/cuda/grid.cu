// Kernels over one level, a warp per 32 pairs of cells of a row, blocks marching through planes. Bytes of a GSRB
// half-sweep of fv4 per cell: x 8, coefficients 24, right-hand side and diagonal of one colour 4 + 4, result 8: 48.
#include "pass.cuh"
#include "transfer.cuh"

namespace hpgmg {

// Largest magnitude, as bits: those of non-negative numbers are ordered as the numbers are, and those of NaN above all.
__device__ __forceinline__ unsigned long long bits(double value) { return __double_as_longlong(fabs(value)); }

__device__ __forceinline__ void raise(unsigned long long* largest, unsigned long long mine) {
    for (int step = 16; step > 0; step /= 2) mine = max(mine, __shfl_xor_sync(~0u, mine, step));
    if (threadIdx.x == 0 && mine > *static_cast<volatile unsigned long long*>(largest)) atomicMax(largest, mine);
}

struct Place {
    int t, j, k, end;
    __device__ __forceinline__ Place(int n, int planes)
        : t(blockIdx.x * 32 + threadIdx.x), j(blockIdx.y * blockDim.y + threadIdx.y), k(blockIdx.z * planes),
          end(min(n, k + planes)) {}
};

template <int OPERATOR, int STEP, bool ZERO>
__device__ __forceinline__ void pass_level(const Level& level, const Pass& pass) {
    const Place p(level.n, pass.planes);
    const bool mine = 2 * p.t < level.n && p.j < level.n;
    for (int k = p.k; k < p.end; k++) {
        double even = 0.0, odd = 0.0;
        if (mine) any_pair<OPERATOR, STEP, ZERO>(level, pass, p.t, p.j, k, even, odd);
        store_row(level, pass.out, p.t, p.j, k, even, odd);
    }
}

// Means of the residuals onto the coarser level: pass.out is a vector of it. A thread does eight cells.
template <int OPERATOR>
__device__ __forceinline__ void residual_restrict(const Level& level, const Level& coarse, const Pass& pass) {
    const Place p(coarse.n, pass.planes);
    if (p.t >= coarse.n || p.j >= coarse.n) return;
    for (int k = p.k; k < p.end; k++) {
        double plane[2];
#pragma unroll 1
        for (int b = 0; b < 2; b++) {
            double row[2];
#pragma unroll 1
            for (int a = 0; a < 2; a++) {
                double even, odd;
                any_pair<OPERATOR, RESIDUAL, false>(level, pass, p.t, 2 * p.j + a, 2 * k + b, even, odd);
                (a ? row[1] : row[0]) = even + odd;
            }
            (b ? plane[1] : plane[0]) = row[0] + row[1];
        }
        pass.out[coarse.at(p.t, p.j, k)] = 0.125 * (plane[0] + plane[1]);
    }
}

// max |residual|.
template <int OPERATOR>
__device__ __forceinline__ void residual_norm(const Level& level, const Pass& pass, unsigned long long* largest) {
    const Place p(level.n, pass.planes);
    unsigned long long mine = 0;
    if (2 * p.t < level.n && p.j < level.n) {
        for (int k = p.k; k < p.end; k++) {
            double even, odd;
            any_pair<OPERATOR, RESIDUAL, false>(level, pass, p.t, p.j, k, even, odd);
            mine = max(mine, max(bits(even), bits(odd)));
        }
    }
    raise(largest, mine);
}

// fine = P coarse, or fine += P coarse.
template <int REACH, bool ADD>
__device__ __forceinline__ void prolong(const Level& coarse, const Level& fine, const double* from, double* to, int planes) {
    const Place p(coarse.n, planes);
    const bool mine = p.t < coarse.n && p.j < coarse.n;
    for (int k = p.k; k < p.end; k++) {
        double children[2][2][2] = {};
        if (mine) {
            interpolate<REACH, true>(coarse, from, ADD || REACH == 1 ? coarse.correct : coarse.replace, p.t, p.j, k, children);
        }
#pragma unroll
        for (int pk = 0; pk < 2; pk++) {
#pragma unroll
            for (int pj = 0; pj < 2; pj++) {
                double even = children[pk][pj][0], odd = children[pk][pj][1];
                const int j = 2 * p.j + pj, kk = 2 * k + pk;
                if (ADD && mine) {
                    const int at = fine.row(j, kk) + p.t, q = (j + kk) & 1;
                    even = to[at + q * fine.half] + even;
                    odd = to[at + (1 - q) * fine.half] + odd;
                }
                store_row(fine, to, p.t, j, kk, even, odd);
            }
        }
    }
}

}  // namespace hpgmg

using namespace hpgmg;

#define HPGMG_PASS(name, OPERATOR, STEP, ZERO)                                                              \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                    \
        hpgmg_##name(const __grid_constant__ Level level, const __grid_constant__ Pass pass) {              \
        pass_level<OPERATOR, STEP, ZERO>(level, pass);                                                      \
    }
#define HPGMG_OPERATOR(name, OPERATOR)                                                                      \
    HPGMG_PASS(name##_gsrb, OPERATOR, GSRB, false)                                                          \
    HPGMG_PASS(name##_gsrb_zero, OPERATOR, GSRB, true)                                                      \
    HPGMG_PASS(name##_weighted, OPERATOR, WEIGHTED, false)                                                  \
    HPGMG_PASS(name##_weighted_zero, OPERATOR, WEIGHTED, true)                                              \
    HPGMG_PASS(name##_chebyshev, OPERATOR, CHEBYSHEV, false)                                                \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                    \
        hpgmg_##name##_residual_restrict(const __grid_constant__ Level level,                               \
                                         const __grid_constant__ Level coarse,                              \
                                         const __grid_constant__ Pass pass) {                               \
        residual_restrict<OPERATOR>(level, coarse, pass);                                                   \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                    \
        hpgmg_##name##_residual_norm(const __grid_constant__ Level level,                                   \
                                     const __grid_constant__ Pass pass, unsigned long long* largest) {      \
        residual_norm<OPERATOR>(level, pass, largest);                                                      \
    }

HPGMG_OPERATOR(fv4, FV4)
HPGMG_OPERATOR(fv2, FV2)

extern "C" __global__ void __launch_bounds__(256, 2)
    hpgmg_correct(const __grid_constant__ Level coarse, const __grid_constant__ Level fine, const double* from, double* to,
                  int planes) {
    prolong<1, true>(coarse, fine, from, to, planes);
}

extern "C" __global__ void __launch_bounds__(256, 2)
    hpgmg_replace_quadratic(const __grid_constant__ Level coarse, const __grid_constant__ Level fine, const double* from,
                            double* to, int planes) {
    prolong<1, false>(coarse, fine, from, to, planes);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    hpgmg_replace_quartic(const __grid_constant__ Level coarse, const __grid_constant__ Level fine, const double* from,
                          double* to, int planes) {
    prolong<2, false>(coarse, fine, from, to, planes);
}

// to = means of from; where `largest` is given also max |from|.
extern "C" __global__ void __launch_bounds__(256)
    hpgmg_restrict(const __grid_constant__ Level fine, const __grid_constant__ Level coarse, const double* from, double* to,
                   int planes, unsigned long long* largest) {
    const Place p(coarse.n, planes);
    unsigned long long mine = 0;
    if (p.t < coarse.n && p.j < coarse.n) {
        for (int k = p.k; k < p.end; k++) {
            double sums[2][2];
#pragma unroll
            for (int b = 0; b < 2; b++) {
#pragma unroll
                for (int a = 0; a < 2; a++) {
                    const double* at = from + fine.row(2 * p.j + a, 2 * k + b) + p.t;
                    const double red = __ldg(at), black = __ldg(at + fine.half);
                    mine = max(mine, max(bits(red), bits(black)));
                    sums[b][a] = red + black;
                }
            }
            to[coarse.at(p.t, p.j, k)] = 0.125 * ((sums[0][0] + sums[0][1]) + (sums[1][0] + sums[1][1]));
        }
    }
    if (largest) raise(largest, mine);
}

// max |x|, or max |x - means of fine| where `fine` is given (a vector of level `finer`).
extern "C" __global__ void __launch_bounds__(256)
    hpgmg_norm(const __grid_constant__ Level level, const __grid_constant__ Level finer, const double* x, const double* fine,
               int planes, unsigned long long* largest) {
    const Place p(level.n, planes);
    unsigned long long mine = 0;
    if (p.j < level.n) {
        for (int k = p.k; k < p.end; k++) {
            for (int i = 2 * p.t; i < min(level.n, 2 * p.t + 2); i++) {
                double value = __ldg(x + level.at(i, p.j, k));
                if (fine) value = value - mean_of_eight<true>(finer, fine, i, p.j, k);
                mine = max(mine, bits(value));
            }
        }
    }
    raise(largest, mine);
}
