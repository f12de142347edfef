// The horizontal diffusion of COSMO, simplified: four stencils in three phases, each of which needs a line of what the phase before made from
// a neighbour. Lines of all levels; a rank has consecutive lines of every level, and the first and last of a device have a halo line beyond.
// The borders of the domain stay as they are. The limiter of the full model is left out.
#pragma once

#include "common.cuh"

namespace programs {

// A rank's lines. Fields lie one behind the other: columns, then lines, then levels.
class Patch {
public:
    enum Field { one, laplace, flux_i, flux_j, other };

    MP_DEVICE Patch(const Stencil& all, uint64_t local)
        : all_(all), plane_((all.ranks * all.lines + 2) * all.columns), local_(local) {}

    MP_DEVICE uint64_t lines() const { return all_.lines; }
    // Of a device's part.
    MP_DEVICE uint64_t plane() const { return plane_; }
    // Where a line is: -1 is the halo before the rank's own, lines() the one behind them.
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

    // Gives the neighbours the lines of a field that they have as halo, and waits for theirs: `down` the first line to the rank before, `up` the
    // last one to the rank behind. Lines of the same device are in place, and nothing is copied.
    MP_DEVICE bool exchange(const Rank& self, uint32_t window, uint32_t field, bool down, bool up) const {
        const auto last = static_cast<int64_t>(all_.lines) - 1;
        const bool has_before = self.rank > 0, has_behind = self.rank + 1 < mp::size_of(self, mp::Team::world);
        if (down && has_before && !give(self, window, field, self.rank - 1, 0, all_.lines + 1)) return false;
        if (up && has_behind && !give(self, window, field, self.rank + 1, last, 0)) return false;
        const uint32_t from = (down && has_behind) + (up && has_before);
        const uint32_t count = from * (all_.halo == each_level ? static_cast<uint32_t>(all_.levels) : 1);
        const bool came = !mp::wait_notifications(self, {window, mp::any_source, mp::any_tag}, count).failed();
        mp::block().sync();
        return came;
    }

private:
    // A line of every level.
    MP_DEVICE bool give(const Rank& self, uint32_t window, uint32_t field, uint32_t to, int64_t from, uint64_t halo) const {
        const uint64_t bytes = all_.columns * sizeof(double), step = plane_ * sizeof(double);
        if (all_.halo == all_levels) {
            const mp::Rows rows = {bytes, all_.levels, step, step};
            return !mp::put_notify(self, window, to, halo * bytes, line(field, 0, from), rows, 0).failed();
        }
        for (uint64_t level = 0; level < all_.levels; ++level) {
            const double* source = line(field, level, from);
            const uint64_t place = level * step + halo * bytes;
            if (all_.halo == each_level || level + 1 == all_.levels) {
                if (mp::put_notify(self, window, to, place, source, bytes, static_cast<uint32_t>(level)).failed()) return false;
            } else if (mp::put(self, window, to, place, source, bytes) != mp::ok) {
                return false;
            }
        }
        return true;
    }

    const Stencil& all_;
    uint64_t plane_;
    uint64_t local_;
};

}  // namespace programs

// The whole run by ranks. Windows 0 to 3: the one field, its Laplacian, the flux along j, the other field.
DCUDA_KERNEL dcuda_stencil(mp::Ranks ranks, programs::Stencil all) {
    using programs::Patch;
    const mp::Rank self = mp::join(ranks);
    const Patch patch(all, self.local);
    for (std::uint64_t turn = 0; turn < all.turns; ++turn) {
        patch.compute(0, turn);
        if (!patch.exchange(self, 1, Patch::laplace, true, false)) return;
        patch.compute(1, turn);
        if (!patch.exchange(self, 2, Patch::flux_j, false, true)) return;
        patch.compute(2, turn);
        const std::uint32_t out = Patch::result(turn);
        if (!patch.exchange(self, out == Patch::one ? 0 : 3, out, true, true)) return;
    }
    mp::finish(self);
}

// One phase of iteration `turns`, for the form on streams.
DCUDA_KERNEL dcuda_stencil_phase(programs::Stencil all) {
    programs::Patch(all, mp::block_rank()).compute(all.phase, all.turns);
}
