// Lines that device ranks write into the log of their device. Not to be included by itself.
#pragma once

#include "ranks_meet.cuh"

namespace mp {
namespace impl {

template <class T>
MP_DEVICE void set_value(LogLine* line, unsigned& which, T value) {
    static_assert(std::is_arithmetic_v<T>, "print: values are numbers");
    std::uint64_t bits = 0, kind = 0;
    if constexpr (std::is_floating_point_v<T>) {
        const double wide = value;
        memcpy(&bits, &wide, sizeof bits);
        kind = 2;
    } else {
        bits = static_cast<std::uint64_t>(value);  // with its sign
        kind = std::is_signed_v<T> ? 1 : 0;
    }
    line->values[which] = bits;
    line->kinds |= static_cast<std::uint32_t>(kind) << (8 + 2 * which);
    ++which;
}

template <class... Values>
MP_DEVICE void write_line(const Rank& self, const char* text, Values... values) {
    const Ranks& all = *self.all;
    std::uint64_t* head = meeting_of(all, log_head);
    std::uint64_t ticket = load(head, relaxed, gpu);
    for (;;) {
        if (ticket - load(at<const std::uint64_t>(all.log_read), acquire, system) >= all.log_lines) {
            add(meeting_of(all, log_lost), std::uint64_t{1}, relaxed, gpu);
            return;
        }
        const std::uint64_t seen = compare_swap(head, ticket, ticket + 1, gpu);
        if (seen == ticket) break;
        ticket = seen;
    }
    LogLine* line = at<LogLine>(all.log) + (ticket & (all.log_lines - 1));
    line->rank = self.rank;
    line->kinds = sizeof...(values);
    auto* to = reinterpret_cast<char*>(line->text);
    unsigned length = 0;
    for (; length + 1 < sizeof line->text && text[length] != 0; ++length) to[length] = text[length];
    to[length] = 0;
    unsigned which = 0;
    (set_value(line, which, values), ...);
    (void)which;
    store(&line->number, ticket + 1, release, system);
}

}  // namespace impl
}  // namespace mp
