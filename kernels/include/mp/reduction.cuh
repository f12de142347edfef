// What the ranks' values are combined with: the operations of collectives, and the two floating-point types of 16 bits.
// Words, not elements: values travel in words of 8 bytes, which hold one to four of them. It moves nothing.
//
// f16 and bf16 are combined as float and rounded to nearest even at each step, which is what their own arithmetic would give:
// a float holds the exact sum and product of two of them, or rounds it without changing the second rounding.
#pragma once

#include "layout.cuh"
#include "platform.cuh"

namespace mp {

// Bits of an IEEE 754 number of 16 bits, as __half and _Float16. No arithmetic: programs have their own type for that.
struct f16 {
    std::uint16_t bits;
};
// The upper half of the bits of a float, as __nv_bfloat16.
struct bf16 {
    std::uint16_t bits;
};

namespace impl {

template <class To, class From>
MP_HOST_DEVICE To same_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    union {
        From from;
        To to;
    } both = {value};
    return both.to;
}

// The value of a number as it is compared and computed with.
template <class T>
MP_HOST_DEVICE T wide(T value) {
    return value;
}
MP_HOST_DEVICE float wide(bf16 value) { return same_bits<float>(std::uint32_t{value.bits} << 16); }
MP_HOST_DEVICE float wide(f16 value) {
#if defined(__CUDA_ARCH__)
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
#else
    const std::uint32_t sign = (value.bits & 0x8000u) << 16, rest = value.bits & 0x7fffu;
    if (rest >= 0x7c00u) return same_bits<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);  // infinite, or NaN
    if (rest >= 0x400u) return same_bits<float>(sign | ((rest << 13) + 0x38000000u));
    const float small = float(rest) * 0x1p-24f;  // exact
    return sign != 0 ? -small : small;
#endif
}

template <class T>
struct Narrow {
    template <class Value>
    MP_HOST_DEVICE static T of(Value value) {
        return static_cast<T>(value);
    }
};
template <>
struct Narrow<bf16> {
    MP_HOST_DEVICE static bf16 of(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        bf16 narrow;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
        return narrow;
#else
        const auto bits = same_bits<std::uint32_t>(value);
        if (value != value) return {static_cast<std::uint16_t>(bits >> 16 | 0x40u)};
        return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
#endif
    }
};
template <>
struct Narrow<f16> {
    MP_HOST_DEVICE static f16 of(float value) {
#if defined(__CUDA_ARCH__)
        f16 narrow;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
        return narrow;
#else
        const auto bits = same_bits<std::uint32_t>(value);
        const std::uint32_t sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
        if (rest > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u | (rest >> 13 & 0x3ffu))};
        if (rest >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
        if (rest < 0x38800000u) {
            // Subnormal: adding 0.5, whose last bit is worth as much as the smallest of them, rounds.
            const float shifted = same_bits<float>(rest) + 0.5f;
            return {static_cast<std::uint16_t>(sign | (same_bits<std::uint32_t>(shifted) - 0x3f000000u))};
        }
        const std::uint32_t rounded = rest - 0x38000000u + 0xfffu + (rest >> 13 & 1);
        return {static_cast<std::uint16_t>(sign | rounded >> 13)};
#endif
    }
};

template <class T>
constexpr bool is_float = static_cast<T>(0.5) != T(0);
template <>
constexpr bool is_float<f16> = true;
template <>
constexpr bool is_float<bf16> = true;

// The bits of a value, in the lower bits of a word.
template <class T>
MP_DEVICE std::uint64_t bits_of(T value) {
    static_assert(sizeof(T) <= 8 && 8 % sizeof(T) == 0, "collectives: elements of 2, 4 or 8 bytes");
    union {
        std::uint64_t bits;
        T value;
    } both = {0};
    both.value = value;
    return both.bits;
}
template <class T>
MP_DEVICE T from_bits(std::uint64_t bits) {
    union {
        std::uint64_t bits;
        T value;
    } both = {bits};
    return both.value;
}

// Whether `left` is the larger; of floating-point zeros +0 is.
template <class T>
MP_DEVICE bool is_larger(T left, T right) {
    if constexpr (is_float<T>)
        return left > right || (left == right && bits_of(left) < bits_of(right));
    else
        return left > right;
}

}  // namespace impl

// What collectives combine with, as ReduceOp of libmp, beside bit_and, bit_or and bit_xor of integers (platform.cuh). Ranks are
// combined in rank order, so all get the same bits. Sums and products of integers wrap around.
struct sum_t {
    template <class T>
    MP_DEVICE T operator()(T left, T right) const {
        if constexpr (impl::is_float<T>)
            return impl::Narrow<T>::of(impl::sum_of(impl::wide(left), impl::wide(right)));
        else
            return impl::sum_of(left, right);
    }
};
struct prod_t {
    template <class T>
    MP_DEVICE T operator()(T left, T right) const {
        if constexpr (impl::is_float<T>)
            return impl::Narrow<T>::of(impl::wide(left) * impl::wide(right));
        else
            return static_cast<T>(static_cast<std::uint64_t>(left) * static_cast<std::uint64_t>(right));
    }
};
// A NaN of any rank is the result; -0 is smaller than +0.
struct min_t {
    template <class T>
    MP_DEVICE T operator()(T left, T right) const {
        const auto one = impl::wide(left), other = impl::wide(right);
        if (one != one) return left;
        return other != other || impl::is_larger(one, other) ? right : left;
    }
};
struct max_t {
    template <class T>
    MP_DEVICE T operator()(T left, T right) const {
        const auto one = impl::wide(left), other = impl::wide(right);
        if (one != one) return left;
        return other != other || impl::is_larger(other, one) ? right : left;
    }
};
namespace impl {

// Combines the elements in words.
template <class T, class Operation>
struct Combine {
    using Element = T;
    static constexpr bool places = false;
    Operation operation;

    MP_DEVICE std::uint64_t operator()(std::uint64_t left, std::uint64_t right) const {
        if constexpr (sizeof(T) == 8) {
            return bits_of(operation(from_bits<T>(left), from_bits<T>(right)));
        } else {
            constexpr unsigned bits = 8 * sizeof(T);
            std::uint64_t combined = 0;
            MP_UNROLL
            for (unsigned at = 0; at < 64; at += bits)
                combined |= bits_of(operation(from_bits<T>(left >> at), from_bits<T>(right >> at))) << at;
            return combined;
        }
    }
};
// Nothing is combined: words are bytes.
struct PlaceBytes {
    using Element = unsigned char;
    static constexpr bool places = true;
};

// Calls `use` with the Combine of an mp::Element and an mp::Reduction. What wraps around does so without a sign, too.
template <class T, class Use>
MP_DEVICE auto with_reduction(std::uint32_t reduction, const Use& use) {
    if (reduction == reduction_sum) return use(Combine<T, sum_t>{});
    if constexpr (!is_float<T>) {
        if (reduction == reduction_and) return use(Combine<T, bit_and_t>{});
        if (reduction == reduction_or) return use(Combine<T, bit_or_t>{});
        if (reduction == reduction_xor) return use(Combine<T, bit_xor_t>{});
    }
    if (reduction == reduction_min) return use(Combine<T, min_t>{});
    if (reduction == reduction_prod) return use(Combine<T, prod_t>{});
    return use(Combine<T, max_t>{});
}
template <class Signed, class Unsigned, class Use>
MP_DEVICE auto with_sign(std::uint32_t reduction, const Use& use) {
    if (reduction == reduction_min) return use(Combine<Signed, min_t>{});
    if (reduction == reduction_max) return use(Combine<Signed, max_t>{});
    return with_reduction<Unsigned>(reduction, use);
}
template <class Use>
MP_DEVICE auto with_combine(std::uint32_t element, std::uint32_t reduction, const Use& use) {
    // The first is what is asked for most.
    if (element == element_f64) return with_reduction<double>(reduction, use);
    switch (element) {
    case element_f32: return with_reduction<float>(reduction, use);
    case element_f16: return with_reduction<f16>(reduction, use);
    case element_bf16: return with_reduction<bf16>(reduction, use);
    case element_i64: return with_sign<std::int64_t, std::uint64_t>(reduction, use);
    case element_i32: return with_sign<std::int32_t, std::uint32_t>(reduction, use);
    case element_u32: return with_reduction<std::uint32_t>(reduction, use);
    default: return with_reduction<std::uint64_t>(reduction, use);
    }
}

// An operation that is known when the kernel runs. Called, it is chosen for each word: some cycles, which a wait does not feel, and one copy
// of the code that waits. Who has several words at once chooses it for all of them, by with_combine.
struct AnyCombine {
    using Element = unsigned char;
    static constexpr bool places = false;
    std::uint32_t element, reduction;

    MP_DEVICE std::uint64_t operator()(std::uint64_t left, std::uint64_t right) const {
        return with_combine(element, reduction, [left, right](auto chosen) { return chosen(left, right); });
    }
};

}  // namespace impl
}  // namespace mp
