// A x at one cell, for every operator. The order of the additions is that of the CPU's code (operators/fv4.rs,
// operators/second_order.rs, operators/p27.rs); compiled without fused multiply-add the results are the same bits.
#pragma once
#include "boundary.cuh"

namespace hpgmg {

// Which stencil, and whether the domain wraps around: one of the first four, or one of them | WRAPS. 7pt has the stencil of fv2, and
// other ghosts, transfers and numbers of sweeps.
enum Operator { P7 = 1, FV2 = 2, P27 = 3, FV4 = 4, WRAPS = 8 };

__host__ __device__ constexpr int stencil_of(int op) { return op & ~WRAPS; }
__host__ __device__ constexpr bool wraps(int op) { return op & WRAPS; }
// Cells on either side that it reads.
__host__ __device__ constexpr int reach_of(int op) { return stencil_of(op) == FV4 ? 2 : 1; }

// Offsets of a cell and of its neighbours in any vector of the level.
struct Point {
    int i, j, k;
    int own;    // the cell itself
    int other;  // the cell of the other colour that shares its place in the row
    int odd;    // i % 2
    int pitch, plane;

    // Cell 2t + odd of row (j, k).
    template <class L>
    __device__ __forceinline__ Point(const L& level, int t, int odd, int j, int k)
        : i(2 * t + odd), j(j), k(k), odd(odd), pitch(level.pitch()), plane(level.plane()) {
        const int row = level.row(j, k) + t;
        const int colour = (i + j + k) & 1;
        own = row + colour * level.half;
        other = row + (1 - colour) * level.half;
    }

    // `di` to `dk` are constants: nothing of the choice is left at run time but one addition.
    __device__ __forceinline__ int at(int di, int dj, int dk) const {
        const int shift = di == 0 ? 0 : di == 2 ? 1 : di == -2 ? -1 : di == 1 ? odd : odd - 1;
        return (((di + dj + dk) & 1) ? other : own) + shift + dj * pitch + dk * plane;
    }
};

// x around a cell all of whose neighbours in j and k lie in the grid; ghosts along i are in memory.
template <bool READ_ONLY>
struct Inside {
    const double* x;
    const Point& p;
    template <class L>
    __device__ __forceinline__ Inside(const L&, const double* x, const Point& p) : x(x), p(p) {}
    __device__ __forceinline__ double operator()(int di, int dj, int dk) const {
        return load<READ_ONLY>(x + p.at(di, dj, dk));
    }
};

// x around any cell of a level of at least four cells a side. Every neighbour along j or k is a sum of `CELLS` cells, as many as the
// operator's rule beyond the boundary reads, without a branch, so that all loads are under way together.
template <bool READ_ONLY, int CELLS>
struct BesideOf {
    const Level& level;
    const double* x;
    const Point& p;
    __device__ __forceinline__ BesideOf(const Level& level, const double* x, const Point& p) : level(level), x(x), p(p) {}

    __device__ __forceinline__ double cell(int di, int dj, int dk) const {
        const int shift = di == 0 ? 0 : di == 2 ? 1 : di == -2 ? -1 : di == 1 ? p.odd : p.odd - 1;
        const int base = ((di + dj + dk) & 1) ? p.other : p.own;
        return load<READ_ONLY>(x + base + shift + dj * p.pitch + dk * p.plane);
    }

    // `di` to `dk` are constants.
    __device__ __forceinline__ double operator()(int di, int dj, int dk) const {
        if (dj == 0 && dk == 0) return cell(di, 0, 0);
        const Taps along_j(p.j + dj, level.n, level.boundary), along_k(p.k + dk, level.n, level.boundary);
        double sum = 0.0;
#pragma unroll
        for (int c = 0; c < (dk == 0 ? 1 : CELLS); c++) {
            const int k = dk == 0 ? 0 : along_k.first + c * along_k.step - p.k;
            double row = 0.0;
#pragma unroll
            for (int b = 0; b < (dj == 0 ? 1 : CELLS); b++) {
                const int j = dj == 0 ? 0 : along_j.first + b * along_j.step - p.j;
                row += dj == 0 ? cell(di, j, k) : along_j.weight(b) * cell(di, j, k);
            }
            sum += dk == 0 ? row : along_k.weight(c) * row;
        }
        return sum;
    }
};

template <bool READ_ONLY>
using Beside = BesideOf<READ_ONLY, 4>;
template <bool READ_ONLY>
using BesideOfTwo = BesideOf<READ_ONLY, 2>;

// x around any cell of a domain that wraps around and has an even number of cells a side: so colours go on beyond its end.
// READ_ONLY: all planes of the level are here; else ghost planes are in memory.
template <bool READ_ONLY>
struct Wrapped : BesideOf<READ_ONLY, 1> {
    using BesideOf<READ_ONLY, 1>::BesideOf;

    // What to add to a distance along j or k that leads to cell `at`.
    __device__ __forceinline__ int around(int at) const {
        return at < 0 ? this->level.n : at >= this->level.n ? -this->level.n : 0;
    }
    // `di` to `dk` are constants.
    __device__ __forceinline__ double operator()(int di, int dj, int dk) const {
        return this->cell(di, dj + around(this->p.j + dj), READ_ONLY ? dk + around(this->p.k + dk) : dk);
    }
};

__device__ __forceinline__ double straight(double beta, double far_low, double low, double high, double far_high) {
    return beta * (15.0 * (high - low) - (far_high - far_low));
}

// Of the slope of a coefficient along a face, and of x beside the face.
__device__ __forceinline__ double along(double slope, double low_m, double high_m, double low_p, double high_p) {
    return slope * ((high_p - low_p) - (high_m - low_m));
}

// The faces of a cell: its axis, and which of the two.
enum Side { LOW, HIGH };

// Coefficients around a cell, from GPU memory: nothing writes them while a kernel runs.
template <class L>
struct Coefficients {
    const L& level;
    const Point& p;
    __device__ __forceinline__ double operator()(int axis, int di, int dj, int dk) const {
        return __ldg(level.beta[axis] + p.at(di, dj, dk));
    }
};

// What the operators read of them: `beta(axis, di, dj, dk)` is that of the lower face of a cell. All arguments are constants.
template <class B>
struct Faces {
    const B& beta;
    // Of the face itself.
    __device__ __forceinline__ double straight(int axis, Side side) const {
        const int shift = side == HIGH;
        return beta(axis, axis == 0 ? shift : 0, axis == 1 ? shift : 0, axis == 2 ? shift : 0);
    }
    // Of the face after it, less that of the face before it, along one of the two other axes, in their order.
    __device__ __forceinline__ double slope(int axis, Side side, int across) const {
        const int shift = side == HIGH, other = across + (across >= axis);
        const int i = axis == 0 ? shift : 0, j = axis == 1 ? shift : 0, k = axis == 2 ? shift : 0;
        const int di = other == 0, dj = other == 1, dk = other == 2;
        return beta(axis, i + di, j + dj, k + dk) - beta(axis, i - di, j - dj, k - dk);
    }
};

// The same of a cell that a thread works on again and again: in its registers.
struct HeldFaces {
    double straights[3][2], slopes[3][2][2];

    // Slopes only where the operator reads them.
    template <class B>
    __device__ __forceinline__ HeldFaces(const B& beta, bool with_slopes) {
        const Faces<B> faces{beta};
#pragma unroll
        for (int axis = 0; axis < 3; axis++) {
#pragma unroll
            for (int side = 0; side < 2; side++) {
                straights[axis][side] = faces.straight(axis, Side(side));
#pragma unroll
                for (int across = 0; across < 2; across++)
                    slopes[axis][side][across] = with_slopes ? faces.slope(axis, Side(side), across) : 0.0;
            }
        }
    }
    __device__ __forceinline__ double straight(int axis, Side side) const { return straights[axis][side]; }
    __device__ __forceinline__ double slope(int axis, Side side, int across) const { return slopes[axis][side][across]; }
};

// The flux of fv4 through a face of a cell, from x in the cells below and above the face and in those beyond them; and from the
// neighbours of these two along the two other axes, on the lower side and on the upper. That through the upper face of a cell is, bit by
// bit, that through the lower face of the next.
template <class F>
__device__ __forceinline__ double flux_fv4(const F& face, int axis, Side side, double far_low, double low, double high, double far_high,
                                           double low_m0, double high_m0, double low_p0, double high_p0, double low_m1, double high_m1,
                                           double low_p1, double high_p1) {
    return straight(face.straight(axis, side), far_low, low, high, far_high) +
           0.25 * (along(face.slope(axis, side, 0), low_m0, high_m0, low_p0, high_p0) +
                   along(face.slope(axis, side, 1), low_m1, high_m1, low_p1, high_p1));
}

template <class L, class X, class F>
__device__ __forceinline__ double divergence_fv4(const L& level, const X& x, const F& face) {
    const double c = x(0, 0, 0);
    const double im = x(-1, 0, 0), ip = x(1, 0, 0), imm = x(-2, 0, 0), ipp = x(2, 0, 0);
    const double jm = x(0, -1, 0), jp = x(0, 1, 0), jmm = x(0, -2, 0), jpp = x(0, 2, 0);
    const double km = x(0, 0, -1), kp = x(0, 0, 1), kmm = x(0, 0, -2), kpp = x(0, 0, 2);
    const double imjm = x(-1, -1, 0), ipjm = x(1, -1, 0), imjp = x(-1, 1, 0), ipjp = x(1, 1, 0);
    const double imkm = x(-1, 0, -1), ipkm = x(1, 0, -1), imkp = x(-1, 0, 1), ipkp = x(1, 0, 1);
    const double jmkm = x(0, -1, -1), jpkm = x(0, 1, -1), jmkp = x(0, -1, 1), jpkp = x(0, 1, 1);

    const double i_low = flux_fv4(face, 0, LOW, imm, im, c, ip, imjm, jm, imjp, jp, imkm, km, imkp, kp);
    const double i_high = flux_fv4(face, 0, HIGH, im, c, ip, ipp, jm, ipjm, jp, ipjp, km, ipkm, kp, ipkp);
    const double j_low = flux_fv4(face, 1, LOW, jmm, jm, c, jp, imjm, im, ipjm, ip, jmkm, km, jmkp, kp);
    const double j_high = flux_fv4(face, 1, HIGH, jm, c, jp, jpp, im, imjp, ip, ipjp, km, jpkm, kp, jpkp);
    const double k_low = flux_fv4(face, 2, LOW, kmm, km, c, kp, imkm, im, ipkm, ip, jmkm, jm, jpkm, jp);
    const double k_high = flux_fv4(face, 2, HIGH, km, c, kp, kpp, im, imkp, ip, ipkp, jm, jmkp, jp, jpkp);
    return level.scale * ((i_high - i_low) + (j_high - j_low) + (k_high - k_low));
}

template <class L, class X, class F>
__device__ __forceinline__ double divergence_fv2(const L& level, const X& x, const F& face) {
    const double c = x(0, 0, 0);
    return level.scale * (face.straight(0, HIGH) * (x(1, 0, 0) - c) + face.straight(0, LOW) * (x(-1, 0, 0) - c) +
                          face.straight(1, HIGH) * (x(0, 1, 0) - c) + face.straight(1, LOW) * (x(0, -1, 0) - c) +
                          face.straight(2, HIGH) * (x(0, 0, 1) - c) + face.straight(2, LOW) * (x(0, 0, -1) - c));
}

template <class L, class X>
__device__ __forceinline__ double divergence_p27(const L& level, const X& x) {
    const double corner = x(-1, -1, -1) + x(1, -1, -1) + x(-1, 1, -1) + x(1, 1, -1) + x(-1, -1, 1) + x(1, -1, 1) +
                          x(-1, 1, 1) + x(1, 1, 1);
    const double edge = x(0, -1, -1) + x(-1, -1, 0) + x(1, -1, 0) + x(0, -1, 1) + x(-1, 0, -1) + x(1, 0, -1) + x(-1, 0, 1) +
                        x(1, 0, 1) + x(0, 1, -1) + x(-1, 1, 0) + x(1, 1, 0) + x(0, 1, 1);
    const double face = x(0, 0, -1) + x(0, -1, 0) + x(-1, 0, 0) + x(1, 0, 0) + x(0, 1, 0) + x(0, 0, 1);
    return level.scale *
           ((1.0 / 30.0) * corner + (3.0 / 30.0) * edge + (14.0 / 30.0) * face + (-128.0 / 30.0) * x(0, 0, 0));
}

// A x without its identity term.
template <int OPERATOR, class L, class X, class F>
__device__ __forceinline__ double divergence(const L& level, const X& x, const F& face) {
    if (stencil_of(OPERATOR) == P27) return divergence_p27(level, x);
    return stencil_of(OPERATOR) == FV4 ? divergence_fv4(level, x, face) : divergence_fv2(level, x, face);
}

// A x at `p`.
template <int OPERATOR, class L, class X>
__device__ __forceinline__ double apply(const L& level, const Point& p, const X& x) {
    const Coefficients<L> beta{level, p};
    double ax = divergence<OPERATOR>(level, x, Faces<Coefficients<L>>{beta});
    if (level.alpha) ax += level.a * __ldg(level.alpha + p.own) * x(0, 0, 0);
    return ax;
}

// Layers around a row that the operator reads.
template <int OPERATOR, class L>
__device__ __forceinline__ bool is_inside(const L& level, int j, int k) {
    constexpr int reach = reach_of(OPERATOR);
    return j >= reach && j < level.n - reach && k >= reach && k < level.n - reach;
}

}  // namespace hpgmg
