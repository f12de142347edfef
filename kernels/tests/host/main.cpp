// Runs the cases of the host build of the device headers:  host-headers [--list | CASE...]
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "check.hpp"

int main(int count, char** words) {
    std::vector<check::Case> chosen;
    auto& all = check::cases();
    std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return std::strcmp(a.name, b.name) < 0; });
    if (count == 2 && std::strcmp(words[1], "--list") == 0) {
        for (const auto& each : all) std::puts(each.name);
        return EXIT_SUCCESS;
    }
    for (int i = 1; i < count; ++i) {
        const auto named = [&](auto& each) { return std::strcmp(each.name, words[i]) == 0; };
        const auto found = std::find_if(all.begin(), all.end(), named);
        if (found == all.end()) {
            std::fprintf(stderr, "there is no case '%s'; --list names them\n", words[i]);
            return 2;
        }
        chosen.push_back(*found);
    }
    if (count == 1) chosen = all;
    int failed = 0;
    for (const auto& each : chosen) {
        check::failures = 0;
        each.body();
        failed += check::failures != 0;
        std::printf("%s %s\n", check::failures == 0 ? "ok    " : "FAILED", each.name);
        std::fflush(stdout);
    }
    std::printf("%zu cases, %d failed\n", chosen.size(), failed);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
