// A rank's lines of the stencil program, and what it computes from them: the horizontal diffusion of COSMO, simplified: four stencils in three
// phases, each of which needs a line of what the phase before made from a neighbour. The borders of the domain stay as they are. The limiter of
// the full model is left out. No communication.
#pragma once

#include "threads.cuh"

namespace programs {

// A rank's lines. Fields lie one behind the other: columns, then lines, then levels.
class Patch {
public:
    enum Field { one, laplace, flux_i, flux_j, other };

    MP_DEVICE Patch(const Stencil& all, uint64_t local)
        : all_(all), plane_((all.ranks * all.lines + 2) * all.columns), local_(local) {}

    MP_DEVICE const Stencil& all() const { return all_; }
    // Of a device's part.
    MP_DEVICE uint64_t plane() const { return plane_; }
    // Where a line is: -1 is the halo before the rank's own, all().lines the one behind them.
    MP_DEVICE double* line(uint32_t field, uint64_t level, int64_t line) const {
        const uint64_t of_device = local_ * all_.lines + static_cast<uint64_t>(line + 1);
        return at(all_.fields) + (field * all_.levels + level) * plane_ + of_device * all_.columns;
    }
    // What is read and what is written in an iteration.
    MP_DEVICE static uint32_t source(uint64_t turn) { return turn % 2 == 0 ? one : other; }
    MP_DEVICE static uint32_t result(uint64_t turn) { return turn % 2 == 0 ? other : one; }

    MP_DEVICE void compute(uint64_t phase, uint64_t turn) const {
        const uint32_t in = source(turn), out = result(turn);
        const uint64_t columns = all_.columns, height = all_.ranks * all_.devices * all_.lines;
        const uint64_t first = (all_.device * all_.ranks + local_) * all_.lines;
        for (uint64_t row = 0; row < all_.levels * all_.lines; ++row) {
            const uint64_t level = row / all_.lines, place = row % all_.lines, j = first + place;
            const auto here = static_cast<int64_t>(place);
            const double *u = line(in, level, here), *below = line(in, level, here - 1), *above = line(in, level, here + 1);
            double *lap = line(laplace, level, here), *fi = line(flux_i, level, here), *fj = line(flux_j, level, here);
            if (phase == 0) {
                const bool inside = j >= 1 && j + 1 < height;
                each(columns, [&](uint64_t i) {
                    const bool in_row = inside && i >= 1 && i + 1 < columns;
                    lap[i] = in_row ? u[i + 1] + u[i - 1] + above[i] + below[i] - 4.0 * u[i] : 0.0;
                });
            } else if (phase == 1) {
                const double* next = line(laplace, level, here + 1);
                each(columns, [&](uint64_t i) {
                    fi[i] = i + 1 < columns ? lap[i + 1] - lap[i] : 0.0;
                    fj[i] = j + 1 < height ? next[i] - lap[i] : 0.0;
                });
            } else {
                const double* before = line(flux_j, level, here - 1);
                double* to = line(out, level, here);
                const bool inside = j >= 2 && j + 2 < height;
                each(columns, [&](uint64_t i) {
                    const bool in_row = inside && i >= 2 && i + 2 < columns;
                    to[i] = in_row ? u[i] - 0.025 * (fi[i] - fi[i - 1] + fj[i] - before[i]) : u[i];
                });
            }
        }
    }

private:
    const Stencil& all_;
    uint64_t plane_;
    uint64_t local_;
};

}  // namespace programs
