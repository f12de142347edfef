// Copying boxes: rows of consecutive bytes in planes, on both sides at distances of their own. Not to be included by itself.
#pragma once

#include "../copy.cuh"
#include "../layout.cuh"

namespace mp {
namespace impl {

// Goes through every stride-th word of a box, without a division between two of them.
template <class Word>
class BoxWalk {
public:
    MP_DEVICE BoxWalk(const ExchangeCopy& box, std::uint64_t first, std::uint64_t stride)
        : row_(box.row / sizeof(Word)), rows_(box.rows), x_(first % row_), y_(first / row_ % rows_), step_x_(stride % row_),
          step_y_(stride / row_ % rows_) {
        const std::uint64_t plane = first / row_ / rows_, planes = stride / row_ / rows_;
        const auto side = [&](std::uint64_t begin, std::uint64_t to_row, std::uint64_t to_plane) {
            const std::uint64_t here = begin + x_ * sizeof(Word) + y_ * to_row + plane * to_plane;
            const std::uint64_t step = step_x_ * sizeof(Word) + step_y_ * to_row + planes * to_plane;
            return Side{here, step, to_row - box.row, to_plane - rows_ * to_row};
        };
        from_ = side(box.from, box.from_row, box.from_plane);
        to_ = side(box.to, box.to_row, box.to_plane);
    }

    // Copies so many; all loads before the first store.
    template <int count>
    MP_DEVICE void copy() {
        Word held[count];
        std::uint64_t there[count];
        MP_UNROLL
        for (int k = 0; k < count; ++k) {
            held[k] = *at<const Word>(from_.here);
            there[k] = to_.here;
            advance();
        }
        MP_UNROLL
        for (int k = 0; k < count; ++k) *at<Word>(there[k]) = held[k];
    }

private:
    // An address, and what is added to it for a step, and behind the end of a row and of a plane.
    struct Side {
        std::uint64_t here, step, row_end, plane_end;

        MP_DEVICE void advance(bool row_ends, bool plane_ends) {
            here += step;
            if (row_ends) here += row_end;
            if (plane_ends) here += plane_end;
        }
    };
    MP_DEVICE void advance() {
        x_ += step_x_;
        const bool row_ends = x_ >= row_;
        if (row_ends) x_ -= row_;
        y_ += step_y_ + row_ends;
        const bool plane_ends = y_ >= rows_;
        if (plane_ends) y_ -= rows_;
        from_.advance(row_ends, plane_ends);
        to_.advance(row_ends, plane_ends);
    }

    std::uint64_t row_, rows_, x_, y_, step_x_, step_y_;
    Side from_, to_;
};

// Words first, first + stride, … of a box, several under way.
template <class Word>
MP_COLD void copy_words(const ExchangeCopy& box, std::uint64_t first, std::uint64_t stride) {
    const std::uint64_t count = box.row / sizeof(Word) * box.rows * box.planes;
    if (first >= count) return;
    BoxWalk<Word> walk(box, first, stride);
    std::uint64_t left = (count - first - 1) / stride + 1;
    MP_NO_UNROLL
    for (; left >= copies_in_flight; left -= copies_in_flight) walk.template copy<copies_in_flight>();
    MP_NO_UNROLL
    for (; left > 0; --left) walk.template copy<1>();
}

// The same one after another, for kernels that would keep what they work with in memory if this took more registers.
template <class Word>
MP_COLD void copy_words_singly(const ExchangeCopy& box, std::uint64_t first, std::uint64_t stride) {
    const std::uint64_t row = box.row / sizeof(Word);
    for (std::uint64_t i = first; i < row * box.rows * box.planes; i += stride) {
        const std::uint64_t x = i % row * sizeof(Word), y = i / row % box.rows, z = i / row / box.rows;
        *at<Word>(box.to + x + y * box.to_row + z * box.to_plane) = *at<const Word>(box.from + x + y * box.from_row + z * box.from_plane);
    }
}

// Of which words a box is: all that is copied begins and ends at multiples of so many bytes.
MP_DEVICE std::uint64_t steps_of(const ExchangeCopy& box) {
    return box.from | box.to | box.row | box.from_row | box.from_plane | box.to_row | box.to_plane;
}

// Calls `copy` with a word of the widest type up to 8 bytes in which all steps are whole.
template <class Copy>
MP_DEVICE void by_words(std::uint64_t steps, const Copy& copy) {
    if (steps % 8 == 0)
        copy(std::uint64_t{});
    else if (steps % 4 == 0)
        copy(std::uint32_t{});
    else
        copy(static_cast<unsigned char>(0));
}

// A part of a box, word by word. Orders nothing.
template <class Group>
MP_DEVICE void copy_singly(Group group, const ExchangeCopy& box, const Part& part) {
    const Turn turn = turn_of(group, part);
    by_words(steps_of(box), [&](auto word) { copy_words_singly<decltype(word)>(box, turn.first, turn.stride); });
}

// A part of a box. Orders nothing.
template <class Group>
MP_DEVICE void copy_box(Group group, const ExchangeCopy& box, Part part) {
    if (box.rows == 1 && box.planes == 1) return copy(group, at<void>(box.to), at<const void>(box.from), box.row, part);
    const Turn turn = turn_of(group, part);
    const std::uint64_t steps = steps_of(box);
    if (steps % sizeof(Wide) == 0) return copy_words<Wide>(box, turn.first, turn.stride);
    by_words(steps, [&](auto word) { copy_words<decltype(word)>(box, turn.first, turn.stride); });
}

// Copies rows by loads and stores.
template <class Group>
MP_COLD void copy_rows(Group group, std::uint64_t to, std::uint64_t to_row, std::uint64_t from, std::uint64_t from_row,
                       const Rows rows, const Part part) {
    copy_box(group, ExchangeCopy{from, to, rows.bytes, rows.count, 1, from_row, 0, to_row, 0}, part);
}

}  // namespace impl
}  // namespace mp
