// Waves in an elastic solid, velocities and stresses on a staggered grid: the device side of seismic.rs. Each field has a ghost cell around;
// a box is cut along x, so a face is one cell of each row. Near the border of the whole box a perfectly matched layer absorbs (Komatitsch and Martin,
// Geophysics 72, 2007): each derivative has a memory there, m <- b m + a d, and m is added to the derivative d. Elsewhere a is 0.
#include <mp/host/launch.hpp>
#include <mp/mp.cuh>

// Grid of seismic.rs: cells of this rank, where they begin in the whole box along x, and the length of that.
struct Grid {
    std::uint64_t nx, ny, nz, first, all;
};

// a and b of the layer at half a cell: of place p at 2 p, of p + 1/2 at 2 p + 1. The same along every axis of the whole box, a cube.
struct Layer {
    double a, b;
};

// One of the nine fields, or of the 18 memories behind them; a place (x, y, z) of it may be a ghost.
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

// A derivative with what the layer adds to it, whose memory this is.
MP_DEVICE double absorbed(double derivative, double& memory, const Layer& layer) {
    memory = layer.b * memory + layer.a * derivative;
    return derivative + memory;
}

// Calls `each` with every cell of this rank, shared among all threads of the launch.
template <class Each>
MP_DEVICE void every_cell(const Grid& grid, Each each) {
    const std::uint64_t count = grid.nx * grid.ny * grid.nz, step = std::uint64_t(mp::grid_blocks()) * mp::block_threads();
    for (std::uint64_t cell = std::uint64_t(mp::block_rank()) * mp::block_threads() + mp::thread_rank(); cell < count; cell += step)
        each(cell % grid.nx, cell / grid.nx % grid.ny, cell / grid.nx / grid.ny);
}

// Velocities, half a step later. The ghosts have sxx of the right neighbour, and sxy and sxz of the left one.
MP_KERNEL void seismic_velocity(double* fields, Grid grid, const Layer* layers) {
    const Waves waves = {fields, grid};
    const std::uint64_t row = grid.nx + 2, layer = row * (grid.ny + 2);
    const double *xx = waves.field(sxx), *yy = waves.field(syy), *zz = waves.field(szz);
    const double *xy = waves.field(sxy), *xz = waves.field(sxz), *yz = waves.field(syz);
    every_cell(grid, [&](std::uint64_t x, std::uint64_t y, std::uint64_t z) {
        const std::uint64_t at = waves.at(x, y, z);
        const Layer *lx = layers + 2 * (grid.first + x), *ly = layers + 2 * y, *lz = layers + 2 * z;
        const auto memory = [&](unsigned number) -> double& { return waves.field(9 + number)[at]; };
        double &u = waves.field(vx)[at], &v = waves.field(vy)[at], &w = waves.field(vz)[at];
        u += 0.3 * (absorbed(xx[at + 1] - xx[at], memory(0), lx[1]) + absorbed(xy[at] - xy[at - row], memory(1), ly[0]) +
                    absorbed(xz[at] - xz[at - layer], memory(2), lz[0]));
        v += 0.3 * (absorbed(xy[at] - xy[at - 1], memory(3), lx[0]) + absorbed(yy[at + row] - yy[at], memory(4), ly[1]) +
                    absorbed(yz[at] - yz[at - layer], memory(5), lz[0]));
        w += 0.3 * (absorbed(xz[at] - xz[at - 1], memory(6), lx[0]) + absorbed(yz[at] - yz[at - row], memory(7), ly[0]) +
                    absorbed(zz[at + layer] - zz[at], memory(8), lz[1]));
    });
}

// Stresses, the other half; `pulse` is added in the middle of the box. The ghosts have vx of the left neighbour, and vy and vz of the right one.
MP_KERNEL void seismic_stress(double* fields, Grid grid, const Layer* layers, double pulse) {
    const Waves waves = {fields, grid};
    const std::uint64_t row = grid.nx + 2, layer = row * (grid.ny + 2);
    const double *u = waves.field(vx), *v = waves.field(vy), *w = waves.field(vz);
    every_cell(grid, [&](std::uint64_t x, std::uint64_t y, std::uint64_t z) {
        const std::uint64_t at = waves.at(x, y, z);
        const Layer *lx = layers + 2 * (grid.first + x), *ly = layers + 2 * y, *lz = layers + 2 * z;
        const auto memory = [&](unsigned number) -> double& { return waves.field(18 + number)[at]; };
        const bool middle = grid.first + x == grid.all / 2 && y == grid.ny / 2 && z == grid.nz / 2;
        const double ex = absorbed(u[at] - u[at - 1], memory(0), lx[0]), ey = absorbed(v[at] - v[at - row], memory(1), ly[0]);
        const double ez = absorbed(w[at] - w[at - layer], memory(2), lz[0]);
        const double all = 0.3 * (ex + ey + ez) + (middle ? pulse : 0.0);
        waves.field(sxx)[at] += all + 0.4 * ex;
        waves.field(syy)[at] += all + 0.4 * ey;
        waves.field(szz)[at] += all + 0.4 * ez;
        waves.field(sxy)[at] += 0.2 * (absorbed(u[at + row] - u[at], memory(3), ly[1]) + absorbed(v[at + 1] - v[at], memory(4), lx[1]));
        waves.field(sxz)[at] += 0.2 * (absorbed(u[at + layer] - u[at], memory(5), lz[1]) + absorbed(w[at + 1] - w[at], memory(6), lx[1]));
        waves.field(syz)[at] += 0.2 * (absorbed(v[at + layer] - v[at], memory(7), lz[1]) + absorbed(w[at + row] - w[at], memory(8), ly[1]));
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
