// The blocks of a kernel on a host stream meet, by signals that the C interface gives; then one stays away, and the stream says so.
#include <mp.h>

#include <atomic>
#include <cstdio>

#include <mp/host/launch.hpp>
#include <mp/meeting.cuh>

namespace {

constexpr unsigned blocks = 3, turns = 50;

struct Game {
    mp::BlockSignals signals;
    std::uint32_t absent;
    std::atomic<unsigned> came[turns], wrong, failed;
};

void play(Game* game) {
    const auto all = [](std::uint32_t block) { return block; };
    mp::Meetings meetings(game->signals, blocks, all);
    if (mp::block_rank() == game->absent) return;
    for (unsigned turn = 0; turn < turns; ++turn) {
        if (mp::thread_rank() == 0) ++game->came[turn];
        if (!meetings.meet()) {
            if (mp::thread_rank() == 0) ++game->failed;
            return;
        }
        if (game->came[turn] != blocks) ++game->wrong;
    }
}

void launch(void* game) { mp::host::launch(blocks, 4, play, static_cast<Game*>(game)); }

int refused(const char* what) {
    std::fprintf(stderr, "%s: %s\n", what, mp_last_error());
    return 1;
}

}  // namespace

int main() {
    mp_world* world = nullptr;
    mp_stream* stream = nullptr;
    mp_block_signals* signals = nullptr;
    if (mp_init_threads(1, &world) != MP_OK) return refused("world");
    if (mp_stream_create(mp_world_comm(world), MP_HOST, &stream) != MP_OK) return refused("stream");
    if (mp_block_signals_create(stream, blocks, -1.0, &signals) != MP_ERR_ARGUMENT || signals != nullptr) return refused("timeout");
    if (mp_block_signals_create(stream, blocks, 60.0, &signals) != MP_OK) return refused("signals");
    Game game = {};
    if (mp_block_signals_handle(signals, &game.signals, 31) != MP_ERR_ARGUMENT) return refused("bytes");
    if (mp_block_signals_handle(signals, &game.signals, sizeof game.signals) != MP_OK) return refused("handle");
    game.absent = blocks;
    if (mp_stream_call(stream, launch, &game) != MP_OK) return refused("call");
    if (mp_stream_synchronize(stream, 60.0) != MP_OK || game.wrong != 0 || game.failed != 0 || game.came[turns - 1] != blocks)
        return refused("meetings");
    if (mp_block_signals_free(signals) != MP_OK) return refused("free");

    if (mp_block_signals_create(stream, blocks, 0.1, &signals) != MP_OK) return refused("signals");
    Game without = {};
    if (mp_block_signals_handle(signals, &without.signals, sizeof without.signals) != MP_OK) return refused("handle");
    without.absent = 1;
    if (mp_stream_call(stream, launch, &without) != MP_OK) return refused("call");
    const mp_status late = mp_stream_synchronize(stream, 60.0);
    std::printf("%s: %s\n", mp_status_name(late), mp_last_error());
    return late != MP_OK && without.failed == blocks - 1 && mp_block_signals_free(signals) == MP_OK && mp_stream_free(stream) == MP_OK ? 0 : 1;
}
