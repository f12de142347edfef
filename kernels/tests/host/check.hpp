// The test program's frame: named cases, CHECK, and a main that runs all of them or the one named. A case is a function
// CASE(a_sentence_about_what_holds). Checks work from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

inline std::uint64_t address(const void* what) { return reinterpret_cast<std::uint64_t>(what); }

namespace check {

struct Case {
    const char* name;
    void (*body)();
};

inline std::vector<Case>& cases() {
    static std::vector<Case> all;
    return all;
}

inline std::atomic<int> failures = 0;

inline void fail(const char* file, int line, const std::string& what) {
    failures.fetch_add(1);
    std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}

struct Register {
    Register(const char* name, void (*body)()) { cases().push_back({name, body}); }
};

template <class Left, class Right>
std::string values(const Left& left, const Right& right) {
    std::ostringstream text;
    text << left << " and " << right;
    return text.str();
}

}  // namespace check

#define CASE(name)                                    \
    static void name();                               \
    static check::Register register_##name(#name, name); \
    static void name()

#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition)) check::fail(__FILE__, __LINE__, "not so: " #condition); \
    } while (false)

// The same with both values in the message.
#define CHECK_THAT(left, relation, right)                                                                          \
    do {                                                                                                           \
        const auto left_value = (left);                                                                            \
        const auto right_value = (right);                                                                          \
        if (!(left_value relation right_value))                                                                    \
            check::fail(__FILE__, __LINE__,                                                                        \
                        "not so: " #left " " #relation " " #right ": " + check::values(left_value, right_value)); \
    } while (false)
