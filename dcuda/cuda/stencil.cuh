// The stencil program by ranks, which give each other lines of all levels; a rank has consecutive lines of every level, and the first and last of a
// device have a halo line beyond.
#pragma once

#include "common.cuh"
#include "patch.cuh"

namespace programs {

// A line of every level.
MP_DEVICE bool give(const Rank& self, const Patch& patch, uint32_t window, uint32_t field, uint32_t to, int64_t from, uint64_t halo) {
    const Stencil& all = patch.all();
    const uint64_t bytes = all.columns * sizeof(double), step = patch.plane() * sizeof(double);
    if (all.halo == all_levels) {
        const mp::Rows rows = {bytes, all.levels, step, step};
        return !mp::put_notify(self, window, to, halo * bytes, patch.line(field, 0, from), rows, 0).failed();
    }
    for (uint64_t level = 0; level < all.levels; ++level) {
        const double* source = patch.line(field, level, from);
        const uint64_t place = level * step + halo * bytes;
        if (all.halo == each_level || level + 1 == all.levels) {
            if (mp::put_notify(self, window, to, place, source, bytes, static_cast<uint32_t>(level)).failed()) return false;
        } else if (mp::put(self, window, to, place, source, bytes) != mp::ok) {
            return false;
        }
    }
    return true;
}

// Gives the neighbours the lines of a field that they have as halo, and waits for theirs: `down` the first line to the rank before, `up` the
// last one to the rank behind. Lines of the same device are in place, and nothing is copied.
MP_DEVICE bool exchange(const Rank& self, const Patch& patch, uint32_t window, uint32_t field, bool down, bool up) {
    const Stencil& all = patch.all();
    const auto last = static_cast<int64_t>(all.lines) - 1;
    const bool has_before = self.rank > 0, has_behind = self.rank + 1 < mp::size_of(self, mp::Team::world);
    if (down && has_before && !give(self, patch, window, field, self.rank - 1, 0, all.lines + 1)) return false;
    if (up && has_behind && !give(self, patch, window, field, self.rank + 1, last, 0)) return false;
    const uint32_t from = (down && has_behind) + (up && has_before);
    const uint32_t count = from * (all.halo == each_level ? static_cast<uint32_t>(all.levels) : 1);
    const bool came = !mp::wait_notifications(self, {window, mp::any_source, mp::any_tag}, count).failed();
    mp::block().sync();
    return came;
}

}  // namespace programs

// The whole run by ranks. Windows 0 to 3: the one field, its Laplacian, the flux along j, the other field.
DCUDA_KERNEL dcuda_stencil(mp::Ranks ranks, programs::Stencil all) {
    using programs::Patch;
    const mp::Rank self = mp::join(ranks);
    const Patch patch(all, self.local);
    for (std::uint64_t turn = 0; turn < all.turns; ++turn) {
        patch.compute(0, turn);
        if (!programs::exchange(self, patch, 1, Patch::laplace, true, false)) return;
        patch.compute(1, turn);
        if (!programs::exchange(self, patch, 2, Patch::flux_j, false, true)) return;
        patch.compute(2, turn);
        const std::uint32_t out = Patch::result(turn);
        if (!programs::exchange(self, patch, out == Patch::one ? 0 : 3, out, true, true)) return;
    }
    mp::finish(self);
}

// One phase of iteration `turns`, for the form on streams.
DCUDA_KERNEL dcuda_stencil_phase(programs::Stencil all) {
    programs::Patch(all, mp::block_rank()).compute(all.phase, all.turns);
}
