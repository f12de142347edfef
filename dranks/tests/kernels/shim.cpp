// The kernels of kernels.cu as OS threads, for the tests of this crate: each by its name.
#include <mp/host/launch.hpp>
#include <cstring>

#include "kernels.cu"

extern "C" bool shim_ranks(const char* name, const mp::Ranks* ranks, const Check* check, std::uint32_t threads) {
    struct Named {
        const char* name;
        void (*kernel)(mp::Ranks, Check);
    };
#define NAMED(kernel) {#kernel, kernel}
    static const Named all[] = {
        NAMED(ranks_numbers), NAMED(ranks_windows),  NAMED(ranks_refusals), NAMED(ranks_window_numbers), NAMED(ranks_transfers), NAMED(ranks_rows),
        NAMED(ranks_in_place), NAMED(ranks_puts),    NAMED(ranks_chains),   NAMED(ranks_barriers),       NAMED(ranks_matching),
        NAMED(ranks_many),    NAMED(ranks_steps),    NAMED(ranks_kept),     NAMED(ranks_flood),          NAMED(ranks_crowd),
        NAMED(ranks_late),    NAMED(ranks_deadline), NAMED(ranks_absent),   NAMED(ranks_aborted),        NAMED(ranks_log),
        NAMED(ranks_notify_all), NAMED(ranks_script), NAMED(ranks_declared), NAMED(dcuda_figure_2),
        NAMED(ranks_ping_pong), NAMED(ranks_with_hosts), NAMED(ranks_collectives), NAMED(ranks_fompi),
        NAMED(ranks_beside), NAMED(ranks_no_credit), NAMED(ranks_half),      NAMED(ranks_pairs),          NAMED(dense_crowd),
        NAMED(dense_pairs),   NAMED(dense_barriers), NAMED(dense_late),
    };
    for (const Named& one : all)
        if (std::strcmp(one.name, name) == 0) {
            mp::host::launch(ranks->per_device, threads, one.kernel, *ranks, *check);
            return true;
        }
    return false;
}
