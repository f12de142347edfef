// Waves in an elastic solid, velocities and stresses on a staggered grid: the device side of seismic.rs. Each field has a ghost cell around;
// a box is cut along x, so a face is one cell of each row.
#include <mp/host/launch.hpp>
#include <mp/mp.cuh>

// Grid of seismic.rs: cells of this rank, where they begin in the whole box along x, and the length of that.
struct Grid {
    std::uint64_t nx, ny, nz, first, all;
};

// One of the nine fields; a place (x, y, z) of it may be a ghost.
struct Waves {
    double* fields;
    Grid grid;

    MP_DEVICE std::uint64_t cells() const { return (grid.nx + 2) * (grid.ny + 2) * (grid.nz + 2); }
    MP_DEVICE double* field(unsigned number) const { return fields + number * cells(); }
    MP_DEVICE std::uint64_t at(std::uint64_t x, std::uint64_t y, std::uint64_t z) const {
        return (x + 1) + (grid.nx + 2) * ((y + 1) + (grid.ny + 2) * (z + 1));
    }
};

enum Field : unsigned { vx, vy, vz, sxx, syy, szz, sxy, sxz, syz };

// How much of a wave is left near the border of the whole box, where it is absorbed.
MP_DEVICE double kept(const Grid& grid, std::uint64_t x, std::uint64_t y, std::uint64_t z) {
    const std::uint64_t global = grid.first + x, sides[3][2] = {{global, grid.all}, {y, grid.ny}, {z, grid.nz}};
    double left = 1.0;
    for (const auto& side : sides) {
        const std::uint64_t beyond = side[1] - 1 - side[0], near = side[0] < beyond ? side[0] : beyond;
        if (near < 8) left *= 1.0 - 0.001 * double((8 - near) * (8 - near));
    }
    return left;
}

// Calls `each` with every cell of this rank, shared among all threads of the launch.
template <class Each>
MP_DEVICE void every_cell(const Grid& grid, Each each) {
    const std::uint64_t count = grid.nx * grid.ny * grid.nz, step = std::uint64_t(mp::grid_blocks()) * mp::block_threads();
    for (std::uint64_t cell = std::uint64_t(mp::block_rank()) * mp::block_threads() + mp::thread_rank(); cell < count; cell += step)
        each(cell % grid.nx, cell / grid.nx % grid.ny, cell / grid.nx / grid.ny);
}

// Velocities, half a step later. The ghosts have sxx of the right neighbour, and sxy and sxz of the left one.
MP_KERNEL void seismic_velocity(double* fields, Grid grid) {
    const Waves waves = {fields, grid};
    const std::uint64_t row = grid.nx + 2, layer = row * (grid.ny + 2);
    const double *xx = waves.field(sxx), *yy = waves.field(syy), *zz = waves.field(szz);
    const double *xy = waves.field(sxy), *xz = waves.field(sxz), *yz = waves.field(syz);
    every_cell(grid, [&](std::uint64_t x, std::uint64_t y, std::uint64_t z) {
        const std::uint64_t at = waves.at(x, y, z);
        const double left = kept(grid, x, y, z);
        double &u = waves.field(vx)[at], &v = waves.field(vy)[at], &w = waves.field(vz)[at];
        u = left * (u + 0.3 * ((xx[at + 1] - xx[at]) + (xy[at] - xy[at - row]) + (xz[at] - xz[at - layer])));
        v = left * (v + 0.3 * ((xy[at] - xy[at - 1]) + (yy[at + row] - yy[at]) + (yz[at] - yz[at - layer])));
        w = left * (w + 0.3 * ((xz[at] - xz[at - 1]) + (yz[at] - yz[at - row]) + (zz[at + layer] - zz[at])));
    });
}

// Stresses, the other half; `pulse` is added in the middle of the box. The ghosts have vx of the left neighbour, and vy and vz of the right one.
MP_KERNEL void seismic_stress(double* fields, Grid grid, double pulse) {
    const Waves waves = {fields, grid};
    const std::uint64_t row = grid.nx + 2, layer = row * (grid.ny + 2);
    const double *u = waves.field(vx), *v = waves.field(vy), *w = waves.field(vz);
    every_cell(grid, [&](std::uint64_t x, std::uint64_t y, std::uint64_t z) {
        const std::uint64_t at = waves.at(x, y, z);
        const double left = kept(grid, x, y, z);
        const bool middle = grid.first + x == grid.all / 2 && y == grid.ny / 2 && z == grid.nz / 2;
        const double ex = u[at] - u[at - 1], ey = v[at] - v[at - row], ez = w[at] - w[at - layer];
        const double all = 0.3 * (ex + ey + ez) + (middle ? pulse : 0.0);
        double &xx = waves.field(sxx)[at], &yy = waves.field(syy)[at], &zz = waves.field(szz)[at];
        double &xy = waves.field(sxy)[at], &xz = waves.field(sxz)[at], &yz = waves.field(syz)[at];
        xx = left * (xx + all + 0.4 * ex);
        yy = left * (yy + all + 0.4 * ey);
        zz = left * (zz + all + 0.4 * ez);
        xy = left * (xy + 0.2 * ((u[at + row] - u[at]) + (v[at + 1] - v[at])));
        xz = left * (xz + 0.2 * ((u[at + layer] - u[at]) + (w[at + 1] - w[at])));
        yz = left * (yz + 0.2 * ((v[at + layer] - v[at]) + (w[at + row] - w[at])));
    });
}

// ANCHOR: face
// Copies the cells at `x` (a ghost, if it is nx, or -1 in a word) of `count` fields from `first` on into a face that lies in one piece or, with
// `back`, from there.
MP_KERNEL void seismic_face(double* fields, Grid grid, double* face, std::uint64_t x, std::uint64_t first, std::uint64_t count,
                            std::uint64_t back) {
    const Waves waves = {fields, grid};
    every_cell({count, grid.ny, grid.nz, 0, 0}, [&](std::uint64_t field, std::uint64_t y, std::uint64_t z) {
        double& cell = waves.field(unsigned(first + field))[waves.at(x, y, z)];
        double& there = face[(field * grid.nz + z) * grid.ny + y];
        if (back != 0)
            cell = there;
        else
            there = cell;
    });
}
// ANCHOR_END: face
MP_HOST_KERNEL(seismic_velocity)
MP_HOST_KERNEL(seismic_stress)
MP_HOST_KERNEL(seismic_face)
