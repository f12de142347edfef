// C++ threads as ranks: one aborts the world while the other waits for it, and the other hears why.
#include <mp.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

int main() {
    mp_world *worlds[2];
    if (mp_init_threads(2, worlds) != MP_OK) {
        std::fprintf(stderr, "%s\n", mp_last_error());
        return 1;
    }
    mp_status status = MP_OK;
    std::string text;
    std::thread waiting([&] {
        status = mp_barrier(mp_world_comm(worlds[0]));
        text = mp_last_error();
    });
    const mp_status aborted = mp_abort(worlds[1], "the plate is on fire");
    waiting.join();
    const bool heard = status == MP_ERR_ABORTED && text.find("the plate is on fire") != std::string::npos;
    const bool over = mp_finish(worlds[0]) == MP_ERR_ABORTED && mp_finish(worlds[1]) == MP_ERR_ABORTED;
    std::printf("%s: %s\n", mp_status_name(status), text.c_str());
    return aborted == MP_OK && heard && over ? 0 : 1;
}
