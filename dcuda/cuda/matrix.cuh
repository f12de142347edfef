// A sparse matrix times a vector, and a barrier. The devices have square parts of the matrix, in rows and columns; each rank has rows of its
// device's part. The input goes down the columns, the parts of the result along the rows to the first column, both along binary trees of devices.
#pragma once

#include "common.cuh"

namespace programs {

// A rank's rows.
class Rows {
public:
    // Sums that a row is split into, whoever makes them.
    static constexpr uint64_t lanes = 32;

    MP_DEVICE Rows(const Matrix& all, uint64_t local) : all_(all), first_(local * all.rows) {}

    MP_DEVICE void multiply() const {
        const double *input = at(all_.input), *values = at(all_.values);
        const auto* starts = at<uint64_t>(all_.starts);
        const auto* columns = at<uint32_t>(all_.columns);
        double* sums = at(all_.sums) + first_ * lanes;
        each(all_.rows * lanes, [&](uint64_t i) {
            const uint64_t row = first_ + i / lanes, end = starts[row + 1];
            double sum = 0.0;
            for (uint64_t entry = starts[row] + i % lanes; entry < end; entry += lanes) sum += values[entry] * input[columns[entry]];
            sums[i] = sum;
        });
        mp::block().sync();
        each(all_.rows, [&](uint64_t row) {
            double sum = 0.0;
            for (uint64_t lane = 0; lane < lanes; ++lane) sum += sums[row * lanes + lane];
            result()[row] = sum;
        });
        mp::block().sync();
    }

    // What came from so many devices further along the row.
    MP_DEVICE void add(uint64_t count) const {
        for (uint64_t other = 0; other < count; ++other) each(all_.rows, [&](uint64_t row) { result()[row] += others(other)[row]; });
        mp::block().sync();
    }

    MP_DEVICE double* result() const { return at(all_.result) + first_; }
    MP_DEVICE double* others(uint64_t which) const { return at(all_.others) + which * all_.rows * all_.ranks + first_; }

private:
    const Matrix& all_;
    uint64_t first_;
};

// Nodes of a binary tree below one, of so many.
MP_DEVICE uint32_t children(uint64_t node, uint64_t count) {
    const uint64_t first = 2 * node + 1;
    return first >= count ? 0 : first + 1 < count ? 2 : 1;
}

// The input comes from above in the tree and goes on, between the first ranks of the devices of a column. Within a device it is in place: its ranks meet
// once it is there, as it is from the beginning on those of the first row.
MP_DEVICE bool broadcast(const Rank& self, const Matrix& all) {
    const uint64_t across = all.across, row = all.device / across, column = all.device % across;
    if (self.local == 0) {
        if (row != 0 && mp::wait_notifications(self, {0, mp::any_source, mp::any_tag}, 1).failed()) return false;
        const uint64_t bytes = all.rows * all.ranks * sizeof(double);
        for (uint32_t i = 0; i < children(row, all.down); ++i) {
            const uint64_t device = (2 * row + 1 + i) * across + column;
            if (mp::put_notify(self, 0, static_cast<uint32_t>(device * all.ranks), 0, at(all.input), bytes, 0).failed()) return false;
        }
    }
    return row == 0 || !mp::barrier(self, mp::Team::device).failed();
}

// The sums of a rank's rows come from the same rank of devices further along, and go on toward the first column.
MP_DEVICE bool reduce(const Rank& self, const Matrix& all, const Rows& rows) {
    const uint64_t row = all.device / all.across, column = all.device % all.across;
    const uint32_t count = children(column, all.across);
    for (uint32_t i = 0; i < count; ++i)
        if (mp::wait_notifications(self, {1 + i, mp::any_source, mp::any_tag}, 1).failed()) return false;
    rows.add(count);
    if (column == 0) return true;
    const uint64_t device = row * all.across + (column - 1) / 2;
    const auto to = static_cast<uint32_t>(device * all.ranks + self.local), window = static_cast<uint32_t>(1 + (column - 1) % 2);
    return !mp::put_notify(self, window, to, 0, rows.result(), all.rows * sizeof(double), 0).failed();
}

}  // namespace programs

// The whole run by ranks. Windows: the input, which all ranks of a device share; of each rank's rows what the one and the other device adds.
DCUDA_KERNEL dcuda_matrix(mp::Ranks ranks, programs::Matrix all) {
    const mp::Rank self = mp::join(ranks);
    const programs::Rows rows(all, self.local);
    for (std::uint64_t turn = 0; turn < all.turns; ++turn) {
        if (!programs::broadcast(self, all)) return;
        rows.multiply();
        if (!programs::reduce(self, all, rows)) return;
        if (mp::barrier(self, mp::Team::world).failed()) return;
    }
    mp::finish(self);
}

// One stage, for the form on streams: 0: the product; from 1 on: what came from so many devices is added.
DCUDA_KERNEL dcuda_matrix_stage(programs::Matrix all) {
    const programs::Rows rows(all, mp::block_rank());
    if (all.stage == 0)
        rows.multiply();
    else
        rows.add(all.stage);
}
