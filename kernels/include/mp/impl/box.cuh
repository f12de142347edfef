// Copying boxes: rows of consecutive bytes in planes, on both sides at distances of their own. Not to be included by itself.
#pragma once

#include "../copy.cuh"
#include "../layout.cuh"

namespace mp {
namespace impl {

// Words first, first + stride, … of a box.
template <class Word>
MP_COLD void copy_words(const ExchangeCopy& box, std::uint64_t first, std::uint64_t stride) {
    const std::uint64_t row = box.row / sizeof(Word);
    for (std::uint64_t i = first; i < row * box.rows * box.planes; i += stride) {
        const std::uint64_t x = i % row * sizeof(Word), y = i / row % box.rows, z = i / row / box.rows;
        *at<Word>(box.to + x + y * box.to_row + z * box.to_plane) = *at<const Word>(box.from + x + y * box.from_row + z * box.from_plane);
    }
}

// A part of a box, word by word. Orders nothing.
template <class Group>
MP_DEVICE void copy_by_words(Group group, const ExchangeCopy& box, const Part& part) {
    const std::uint64_t stride = std::uint64_t{group.size()} * part.count;
    const std::uint64_t first = std::uint64_t{group.size()} * part.index + group.rank();
    const std::uint64_t steps = box.from | box.to | box.row | box.from_row | box.from_plane | box.to_row | box.to_plane;
    if (steps % 8 == 0)
        copy_words<std::uint64_t>(box, first, stride);
    else if (steps % 4 == 0)
        copy_words<std::uint32_t>(box, first, stride);
    else
        copy_words<unsigned char>(box, first, stride);
}

// A part of a box. Orders nothing.
template <class Group>
MP_DEVICE void copy_box(Group group, const ExchangeCopy& box, Part part) {
    if (box.rows == 1 && box.planes == 1)
        copy(group, at<void>(box.to), at<const void>(box.from), box.row, part);
    else
        copy_by_words(group, box, part);
}

// Copies rows by loads and stores.
template <class Group>
MP_COLD void copy_rows(Group group, std::uint64_t to, std::uint64_t to_row, std::uint64_t from, std::uint64_t from_row,
                       const Rows rows, const Part part) {
    copy_box(group, ExchangeCopy{from, to, rows.bytes, rows.count, 1, from_row, 0, to_row, 0}, part);
}

}  // namespace impl
}  // namespace mp
