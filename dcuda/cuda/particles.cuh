// Particles in a wide box that push each other away at short range, in cells along the box. An iteration: the cells at a rank's edges are
// given to its neighbours; forces and new places; who leaves a cell is sorted out; who leaves a rank's cells is given to the neighbour;
// who has come is taken in. A cell's particles keep an order that does not depend on who works on them, and so does every sum.
#pragma once

#include "common.cuh"

namespace programs {

// A device's memory: the number of particles that found no room; two sets, used in turn, of which each has counts, places and speeds of
// all cells; who goes from each cell to the one before, and to the one behind; room for new places and speeds, and for who goes where.
// A device has a cell more before and behind its own.
class Cells {
public:
    enum Way : uint64_t { down, up, stay };
    enum Part : uint64_t { count, x, y, speed_x, speed_y };
    // Doubles of a particle that is on its way.
    static constexpr uint64_t words = 4;

    MP_DEVICE Cells(const Particles& all, uint64_t local) : all_(all), first_(local * all.cells + 1), slots_(all.ranks * all.cells + 2) {}

    MP_DEVICE uint64_t edge_down() const { return first_; }
    MP_DEVICE uint64_t edge_up() const { return first_ + all_.cells - 1; }

    // A cell of a set: its count, or its first place or speed.
    MP_DEVICE uint64_t* counts(uint64_t set) const { return at<uint64_t>(all_.memory) + 1 + set * size_of_set(); }
    MP_DEVICE double* values(uint64_t set, Part part, uint64_t cell) const {
        return reinterpret_cast<double*>(counts(set)) + slots_ + ((part - x) * slots_ + cell) * all_.room;
    }
    // Who leaves a cell: how many, and the particles.
    MP_DEVICE uint64_t* leaving(Way way, uint64_t cell) const {
        return counts(2) + (way * slots_ + cell) * (1 + words * all_.room);
    }

    // Forces between particles of a cell and of its neighbours, new speeds and places, and who goes where.
    MP_DEVICE void move(uint64_t turn) const {
        const uint64_t set = turn % 2;
        for (uint64_t cell = first_; cell < first_ + all_.cells; ++cell) {
            double *new_x = fresh(cell, 0), *new_y = fresh(cell, 1), *new_speed_x = fresh(cell, 2), *new_speed_y = fresh(cell, 3);
            uint64_t* way = reinterpret_cast<uint64_t*>(fresh(cell, 4));
            const uint64_t global = all_.device * all_.ranks * all_.cells + cell - 1, last = all_.devices * all_.ranks * all_.cells - 1;
            const uint64_t here = counts(set)[cell];
            each(here, [&](uint64_t i) {
                double px = values(set, x, cell)[i], py = values(set, y, cell)[i], force_x = 0.0, force_y = 0.0;
                for (uint64_t other = cell - 1; other <= cell + 1; ++other) {
                    if ((other < cell && global == 0) || (other > cell && global == last)) continue;
                    const double *their_x = values(set, x, other), *their_y = values(set, y, other);
                    const uint64_t there = counts(set)[other];
                    for (uint64_t j = 0; j < there; ++j) {
                        const double along = px - their_x[j], across = py - their_y[j], square = along * along + across * across;
                        if (square >= all_.cutoff * all_.cutoff || square == 0.0) continue;
                        const double push = 1.0 / square - 1.0 / (all_.cutoff * all_.cutoff);
                        force_x += push * along;
                        force_y += push * across;
                    }
                }
                double vx = values(set, speed_x, cell)[i] + all_.step * force_x, vy = values(set, speed_y, cell)[i] + all_.step * force_y;
                // Nobody jumps over a cell.
                vx = bounded(vx), vy = bounded(vy);
                px += all_.step * vx, py += all_.step * vy;
                reflect(px, vx, static_cast<double>(last + 1));
                reflect(py, vy, 1.0);
                new_x[i] = px, new_y[i] = py, new_speed_x[i] = vx, new_speed_y[i] = vy;
                way[i] = px < static_cast<double>(global) ? down : px >= static_cast<double>(global + 1) ? up : stay;
            });
            mp::block().sync();
            sort_out(turn, cell, here);
        }
        mp::block().sync();
    }

    // Behind those that have stayed in a cell come those from the cell before, and then those from the one behind.
    MP_DEVICE void take_in(uint64_t turn) const {
        const uint64_t set = (turn + 1) % 2;
        for (uint64_t cell = first_; cell < first_ + all_.cells; ++cell) {
            uint64_t have = counts(set)[cell];
            const uint64_t global = all_.device * all_.ranks * all_.cells + cell - 1, last = all_.devices * all_.ranks * all_.cells - 1;
            // All have read the count before one writes it.
            mp::block().sync();
            if (global != 0) have = take_from(set, cell, have, leaving(up, cell - 1));
            if (global != last) have = take_from(set, cell, have, leaving(down, cell + 1));
            if (mp::block().leads()) counts(set)[cell] = have;
        }
        mp::block().sync();
    }

    // Gives a neighbour a cell at the edge, its places and count in windows of a set, with a notification.
    MP_DEVICE bool give_cell(const Rank& self, uint64_t turn, uint64_t cell, uint32_t to) const {
        const uint64_t set = turn % 2, place = place_at(self, to), bytes = counts(set)[cell] * sizeof(double);
        const auto window = static_cast<uint32_t>(3 * set);
        return mp::put(self, window + 1, to, place * all_.room * sizeof(double), values(set, x, cell), bytes) == mp::ok &&
               mp::put(self, window + 2, to, place * all_.room * sizeof(double), values(set, y, cell), bytes) == mp::ok &&
               !mp::put_notify(self, window, to, place * sizeof(double), &counts(set)[cell], sizeof(double), 0).failed();
    }
    // Gives a neighbour who has left toward it.
    MP_DEVICE bool give_leaving(const Rank& self, Way way, uint64_t cell, uint32_t to) const {
        const uint64_t* list = leaving(way, cell);
        const uint64_t place = place_at(self, to), bytes = (1 + words * list[0]) * sizeof(double);
        return !mp::put_notify(self, 6 + way, to, place * (1 + words * all_.room) * sizeof(double), list, bytes, 0).failed();
    }

private:
    MP_DEVICE uint64_t size_of_set() const { return slots_ * (1 + 4 * all_.room); }
    MP_DEVICE double* fresh(uint64_t cell, uint64_t part) const {
        return reinterpret_cast<double*>(leaving(stay, 0)) + (cell * 5 + part) * all_.room;
    }
    // A neighbour's window begins with the cell before its own.
    MP_DEVICE uint64_t place_at(const Rank& self, uint32_t to) const {
        return to < self.rank ? all_.cells + 1 : 0;
    }

    MP_DEVICE static double bounded(double speed) { return speed > 50.0 ? 50.0 : speed < -50.0 ? -50.0 : speed; }
    MP_DEVICE static void reflect(double& place, double& speed, double end) {
        if (place < 0.0) place = -place, speed = -speed;
        // Not the end itself, which is of no cell.
        if (place >= end) place = end - (place - end) - 1e-9, speed = -speed;
    }

    // Each goes behind those before it that go the same way.
    MP_DEVICE void sort_out(uint64_t turn, uint64_t cell, uint64_t here) const {
        const uint64_t set = (turn + 1) % 2;
        const double *new_x = fresh(cell, 0), *new_y = fresh(cell, 1), *new_speed_x = fresh(cell, 2), *new_speed_y = fresh(cell, 3);
        const uint64_t* way = reinterpret_cast<const uint64_t*>(fresh(cell, 4));
        each(here, [&](uint64_t i) {
            uint64_t before = 0;
            for (uint64_t j = 0; j < i; ++j) before += way[j] == way[i];
            if (way[i] == stay) {
                values(set, x, cell)[before] = new_x[i];
                values(set, y, cell)[before] = new_y[i];
                values(set, speed_x, cell)[before] = new_speed_x[i];
                values(set, speed_y, cell)[before] = new_speed_y[i];
            } else {
                auto* to = reinterpret_cast<double*>(leaving(static_cast<Way>(way[i]), cell) + 1) + words * before;
                to[0] = new_x[i], to[1] = new_y[i], to[2] = new_speed_x[i], to[3] = new_speed_y[i];
            }
        });
        each(3, [&](uint64_t which) {
            uint64_t number = 0;
            for (uint64_t i = 0; i < here; ++i) number += way[i] == which;
            (which == stay ? counts(set)[cell] : *leaving(static_cast<Way>(which), cell)) = number;
        });
    }

    MP_DEVICE uint64_t take_from(uint64_t set, uint64_t cell, uint64_t have, const uint64_t* list) const {
        const uint64_t come = list[0], fit = have + come <= all_.room ? come : all_.room - have;
        const auto* particles = reinterpret_cast<const double*>(list + 1);
        each(fit, [&](uint64_t i) {
            values(set, x, cell)[have + i] = particles[words * i];
            values(set, y, cell)[have + i] = particles[words * i + 1];
            values(set, speed_x, cell)[have + i] = particles[words * i + 2];
            values(set, speed_y, cell)[have + i] = particles[words * i + 3];
        });
        if (fit < come && mp::block().leads()) mp::add(at<uint64_t>(all_.memory), come - fit, mp::relaxed, mp::gpu);
        return have + fit;
    }

    const Particles& all_;
    uint64_t first_;
    uint64_t slots_;
};

}  // namespace programs

// The whole run by ranks. Windows: counts and both places of the one set, of the other, who goes to the cell before, who to the one behind.
DCUDA_KERNEL dcuda_particles(mp::Ranks ranks, programs::Particles all) {
    using programs::Cells;
    const mp::Rank self = mp::join(ranks);
    const Cells cells(all, self.local);
    const bool has_before = self.rank > 0, has_behind = self.rank + 1 < mp::size_of(self, mp::Team::world);
    for (std::uint64_t turn = 0; turn < all.turns; ++turn) {
        if (has_before && !cells.give_cell(self, turn, cells.edge_down(), self.rank - 1)) return;
        if (has_behind && !cells.give_cell(self, turn, cells.edge_up(), self.rank + 1)) return;
        const auto window = static_cast<std::uint32_t>(turn % 2 * 3);
        if (mp::wait_notifications(self, {window, mp::any_source, mp::any_tag}, has_before + has_behind).failed()) return;
        cells.move(turn);
        if (has_before && !cells.give_leaving(self, Cells::down, cells.edge_down(), self.rank - 1)) return;
        if (has_behind && !cells.give_leaving(self, Cells::up, cells.edge_up(), self.rank + 1)) return;
        // From the rank behind come those that go down.
        if (has_behind && mp::wait_notifications(self, {6 + Cells::down, self.rank + 1, mp::any_tag}, 1).failed()) return;
        if (has_before && mp::wait_notifications(self, {6 + Cells::up, self.rank - 1, mp::any_tag}, 1).failed()) return;
        cells.take_in(turn);
    }
    mp::finish(self);
}

// One stage of iteration `turns`, for the form on streams: 0: forces, places and who goes where; 1: who has come is taken in.
DCUDA_KERNEL dcuda_particles_stage(programs::Particles all) {
    const programs::Cells cells(all, mp::block_rank());
    if (all.stage == 0)
        cells.move(all.turns);
    else
        cells.take_in(all.turns);
}
