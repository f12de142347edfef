// Windows of ranks behind a NIC: what window.cuh does instead of loads and stores of a rank's share. Not to be included by
// itself. Offsets have been checked. Out of line, as nic.cuh.
//
// The NIC reads and writes registered memory only: of this rank that is its own share of the window. What is put from elsewhere
// travels inside entries, inline_bytes in each; what is got to elsewhere, and results of atomics, come by the reply slots of the
// blocks that the entries have in the queue. A slot is its poster's until that has read it: nobody else waits for it but who
// posts at the same block, one pass over the ring later.
//
// A rank has several queues (`Context`): blocks of a grid take them in turns, so that few meet.
#pragma once

#include "nic.cuh"

namespace mp {
namespace impl {

// Data up to so many bytes fit an entry of one block.
constexpr std::uint64_t block_inline_bytes = 28;
// The longest row that comes by reply slots in one entry, and how many slots are used at once.
constexpr std::uint64_t reply_row_bytes = 16 * reply_bytes;
constexpr unsigned replies_at_once = 64;

MP_DEVICE WaitBounds bounds_of(const Window& window) { return {window.abort, window.timeout_ns}; }

MP_DEVICE const Context& context_in(const NicPart& nic, std::uint64_t number) {
    return at<const Context>(nic.queue)[number % nic.contexts];
}

// Whether an address of the rank is one of its share's memory, not of its signals.
MP_DEVICE bool is_in_memory(const WindowPart& share, std::uint64_t address) {
    return address - share.memory < share.bytes;  // wraps for what lies before
}

// Whether the range is in the own share.
MP_DEVICE bool is_own(const NicPart& part, std::uint64_t memory, std::uint64_t bytes) {
    const std::uint64_t offset = memory - part.own;  // wraps for what lies before
    return offset <= part.own_bytes && bytes <= part.own_bytes - offset;
}

// The failure is the window's report; whether there was none.
template <class Group>
MP_DEVICE bool succeeded(Group group, const Window& window, PostStatus status, std::uint64_t expected) {
    const WaitResult result = result_of(status, expected);
    if (result.failed() && group.leads()) report(at<WaitReport>(window.report), expected, result);
    return !result.failed();
}

// Rows that are posted by one doorbell, of so many blocks each.
MP_DEVICE unsigned rows_at_once(unsigned most, unsigned blocks, std::uint64_t left) {
    const unsigned rows = most > blocks ? most / blocks : 1;
    return left < rows ? unsigned(left) : rows;
}

// Rows of at most entry_bytes, an entry each; of memory that is not `own` at most inline_bytes.
template <class Group>
MP_COLD PostStatus put_rows(Group group, const Context& context, const NicPart& nic, std::uint64_t to, std::uint64_t from,
                            const Rows rows, bool own, const WaitBounds bounds) {
    const QueuePair qp = context.queue;
    const bool inlined = !own || rows.bytes <= block_inline_bytes;
    const unsigned blocks = inlined ? wqe_blocks(2 + inline_octowords(unsigned(rows.bytes))) : 1;
    Posted posted = {0, PostStatus::ok, 0};
    unsigned now = 0;
    for (std::uint64_t done = 0; done < rows.count && posted.status == PostStatus::ok; done += now) {
        now = rows_at_once(qp.blocks / 4, blocks, rows.count - done);
        const auto write = [&](SendRing ring, std::uint64_t position, unsigned number) {
            const std::uint64_t row = done + number, source = from + row * rows.here;
            const RemoteAddress target = {to + row * rows.there, nic.memory_key};
            const std::uint8_t flags = number + 1 == now ? notify_always : notify_on_error;
            if (inlined) {
                encode_write_inline(ring, std::uint16_t(position), flags, target, at<const void>(source), unsigned(rows.bytes));
            } else {
                const DataSegment data = {source, nic.own_key, std::uint32_t(rows.bytes)};
                encode_write(ring, std::uint16_t(position), flags, target, &data, 1);
            }
            return PostStatus::ok;
        };
        const auto tell = [&](std::uint64_t position) {
            count_posted(qp, position + std::uint64_t{now - 1} * blocks, !inlined);
        };
        posted = post_many(group, qp, now, blocks, write, tell, bounds);
    }
    return posted.status;
}

// Puts, then writes a word of the rank if there is one.
template <class Group>
MP_COLD PostStatus put_bytes(Group group, const Context& context, const NicPart& nic, std::uint64_t to, std::uint64_t from,
                             std::uint64_t bytes, const RemoteAddress word, std::uint64_t value, const WaitBounds bounds) {
    std::uint64_t done = 0;
    if (bytes > inline_bytes && !is_own(nic, from, bytes)) {
        const Rows rows = {inline_bytes, (bytes - 1) / inline_bytes, inline_bytes, inline_bytes};
        const PostStatus status = put_rows(group, context, nic, to, from, rows, false, bounds);
        if (status != PostStatus::ok) return status;
        done = rows.count * inline_bytes;
    }
    if (bytes == 0 && word.address == 0) return PostStatus::ok;
    const Batch last = {from + done, bytes - done, {to + done, nic.memory_key}, nic.own_key, word.address != 0, word, value};
    return start_batch(group, address_of(&context), last, bounds).status;
}

// A signal of the rank, or a word of its memory.
MP_DEVICE RemoteAddress word_of(const WindowPart& share, const NicPart& nic, std::uint64_t word) {
    return {word, is_in_memory(share, word) ? nic.memory_key : nic.signals_key};
}

// Puts, then writes a word of the rank if there is one, by the context of this number. `to` and `word` are addresses of the rank.
template <class Group>
MP_COLD bool put_by_nic(Group group, const Window& window, const WindowPart& share, std::uint64_t context, std::uint64_t to,
                        const void* from, std::uint64_t bytes, std::uint64_t word, std::uint64_t value) {
    const auto& nic = *at<const NicPart>(share.nic);
    const PostStatus status = put_bytes(group, context_in(nic, context), nic, to, address_of(from), bytes,
                                        word_of(share, nic, word), value, bounds_of(window));
    return succeeded(group, window, status, value);
}

// Puts rows of at least one byte.
template <class Group>
MP_COLD bool put_rows_by_nic(Group group, const Window& window, const WindowPart& share, std::uint64_t to, const void* from,
                             const Rows rows) {
    const auto& nic = *at<const NicPart>(share.nic);
    const Context& context = context_in(nic, block_rank());
    const WaitBounds bounds = bounds_of(window);
    const std::uint64_t source = address_of(from);
    const bool own = is_own(nic, source, extent_of(rows.bytes, rows.count, rows.here));
    if (rows.bytes <= (own ? entry_bytes : inline_bytes))
        return succeeded(group, window, put_rows(group, context, nic, to, source, rows, own, bounds), 0);
    PostStatus status = PostStatus::ok;
    for (std::uint64_t row = 0; row < rows.count && status == PostStatus::ok; ++row)
        status = put_bytes(group, context, nic, to + row * rows.there, source + row * rows.here, rows.bytes, {0, 0}, 0, bounds);
    return succeeded(group, window, status, 0);
}

// Adds to a signal of the rank, or a word of its memory. What it held goes behind the reply slots, where nobody looks.
template <class Group>
MP_COLD bool add_by_nic(Group group, const Window& window, const WindowPart& share, std::uint64_t word, std::uint64_t value) {
    const auto& nic = *at<const NicPart>(share.nic);
    if (nic.contexts == 0 || (nic.atomics == 0 && is_in_memory(share, word))) {
        (void)refuse(group, window.report, not_atomic, word - (is_in_memory(share, word) ? share.memory : share.signals), 8, share.bytes);
        return false;
    }
    const Context& context = context_in(nic, block_rank());
    const QueuePair qp = context.queue;
    const auto write = [&](SendRing ring, std::uint64_t position) {
        const RemoteAddress signal = word_of(share, nic, word);
        const std::uint64_t nobodys = context.replies + std::uint64_t{qp.blocks} * reply_bytes;
        encode_fetch_add(ring, std::uint16_t(position), notify_always, signal, value, nobodys, context.replies_key);
        count_posted(qp, position, false);
        return PostStatus::ok;
    };
    return succeeded(group, window, post_by(group, qp, 1, write, bounds_of(window)).status, value);
}

// The reply slot of the block at `position`, and the word that says whether it is somebody's.
MP_DEVICE std::uint64_t reply_at(const Context& context, std::uint64_t position) {
    return context.replies + (position & (context.queue.blocks - 1)) * reply_bytes;
}
MP_DEVICE std::uint32_t* taken_at(const Context& context, std::uint64_t position) {
    return at<std::uint32_t>(context.taken) + (position & (context.queue.blocks - 1));
}

// One thread, which has reserved the block: waits until who had its slot one pass earlier has read it.
MP_DEVICE PostStatus take_reply(const Context& context, std::uint64_t position, const WaitBounds& bounds) {
    std::uint32_t* taken = taken_at(context, position);
    // The entry of that pass is complete: who waited for it reads, or has given up.
    const auto poll = [taken](std::uint64_t&) { return load(taken, acquire, gpu) == 0; };
    const WaitResult result = wait_for(poll, bounds);
    if (result.failed()) return result.status == aborted ? PostStatus::aborted : PostStatus::timed_out;
    store(taken, std::uint32_t{1}, relaxed, gpu);
    return PostStatus::ok;
}
MP_DEVICE void free_reply(const Context& context, std::uint64_t position) {
    store(taken_at(context, position), std::uint32_t{0}, release, gpu);
}

// Gets rows of at most reply_row_bytes by reply slots. They are there when it returns, for the group after a barrier.
template <class Group>
MP_COLD PostStatus fetch_rows(Group group, const Context& context, const NicPart& nic, std::uint64_t from, std::uint64_t to,
                              const Rows rows, const WaitBounds bounds) {
    const QueuePair qp = context.queue;
    const unsigned slots = unsigned((rows.bytes + reply_bytes - 1) / reply_bytes);
    const unsigned most = qp.blocks / 4 < replies_at_once ? qp.blocks / 4 : replies_at_once;
    PostStatus status = PostStatus::ok;
    unsigned now = 0;
    for (std::uint64_t done = 0; done < rows.count && status == PostStatus::ok; done += now) {
        now = rows_at_once(most, slots, rows.count - done);
        const unsigned all = now * slots;
        // A block for each slot: the row's read is in the last, the others do nothing.
        const auto write = [&](SendRing ring, std::uint64_t position, unsigned number) {
            for (unsigned slot = 0; slot < slots; ++slot) {
                const PostStatus taken = take_reply(context, position + slot, bounds);
                if (taken != PostStatus::ok) return taken;
                if (slot + 1 < slots) encode_nop(ring, std::uint16_t(position + slot), notify_on_error);
            }
            const std::uint64_t first = reply_at(context, position);
            const std::uint64_t to_end = context.replies + std::uint64_t{qp.blocks} * reply_bytes - first;
            const auto here = std::uint32_t(rows.bytes < to_end ? rows.bytes : to_end);
            const DataSegment into[2] = {{first, context.replies_key, here},
                                         {context.replies, context.replies_key, std::uint32_t(rows.bytes) - here}};
            const RemoteAddress there = {from + (done + number) * rows.there, nic.memory_key};
            const std::uint8_t flags = number + 1 == now ? notify_always : notify_on_error;
            encode_read(ring, std::uint16_t(position + slots - 1), flags, there, into, rows.bytes > to_end ? 2 : 1);
            return PostStatus::ok;
        };
        const auto tell = [&](std::uint64_t position) { count_posted(qp, position + all - 1, true); };
        const Posted posted = post_many(group, qp, now, slots, write, tell, bounds);
        status = posted.status;
        if (status != PostStatus::ok) break;
        status = wait_completed(group, qp, posted.position + all - 1, bounds);
        for (unsigned slot = group.rank(); slot < all; slot += group.size()) {
            const std::uint64_t row = slot / slots, part = slot % slots * reply_bytes, left = rows.bytes - part;
            const std::uint64_t bytes = left < reply_bytes ? left : reply_bytes;
            if (status == PostStatus::ok)
                copy(thread(), at<void>(to + (done + row) * rows.here + part),
                     at<const void>(reply_at(context, posted.position + slot)), bytes);
            free_reply(context, posted.position + slot);
        }
    }
    return status;
}

// Gets rows of at most entry_bytes into the own share, an entry each, and does not wait for them.
template <class Group>
MP_COLD PostStatus start_reads(Group group, const Context& context, const NicPart& nic, std::uint64_t from, std::uint64_t to,
                               const Rows rows, const WaitBounds bounds) {
    const QueuePair qp = context.queue;
    Posted posted = {0, PostStatus::ok, 0};
    unsigned now = 0;
    for (std::uint64_t done = 0; done < rows.count && posted.status == PostStatus::ok; done += now) {
        now = rows_at_once(qp.blocks / 4, 1, rows.count - done);
        const auto write = [&](SendRing ring, std::uint64_t position, unsigned number) {
            const std::uint64_t row = done + number;
            const DataSegment into = {to + row * rows.here, nic.own_key, std::uint32_t(rows.bytes)};
            const std::uint8_t flags = number + 1 == now ? notify_always : notify_on_error;
            encode_read(ring, std::uint16_t(position), flags, {from + row * rows.there, nic.memory_key}, &into, 1);
            return PostStatus::ok;
        };
        const auto tell = [&](std::uint64_t position) { count_posted(qp, position + now - 1, true); };
        posted = post_many(group, qp, now, 1, write, tell, bounds);
    }
    return posted.status;
}

// Gets one row.
template <class Group>
MP_COLD PostStatus get_bytes(Group group, const Context& context, const NicPart& nic, std::uint64_t from, std::uint64_t to,
                             std::uint64_t bytes, const WaitBounds bounds) {
    if (is_own(nic, to, bytes))
        return start_read(group, address_of(&context), {from, nic.memory_key}, to, nic.own_key, bytes, bounds).status;
    const std::uint64_t step = reply_row_bytes, whole = bytes / step * step;
    PostStatus status = fetch_rows(group, context, nic, from, to, {step, bytes / step, step, step}, bounds);
    if (status == PostStatus::ok && whole < bytes)
        status = fetch_rows(group, context, nic, from + whole, to + whole, {bytes - whole, 1, 0, 0}, bounds);
    return status;
}

template <class Group>
MP_COLD bool get_by_nic(Group group, const Window& window, const WindowPart& share, std::uint64_t from, void* to,
                        const Rows rows) {
    const auto& nic = *at<const NicPart>(share.nic);
    const Context& context = context_in(nic, block_rank());
    const WaitBounds bounds = bounds_of(window);
    const std::uint64_t into = address_of(to);
    if (rows.bytes == 0 || rows.count == 0) return true;
    // What the group did with the memory before is done.
    group.sync();
    PostStatus status = PostStatus::ok;
    const bool own = is_own(nic, into, extent_of(rows.bytes, rows.count, rows.here));
    if (rows.count > 1 && own && rows.bytes <= entry_bytes) {
        status = start_reads(group, context, nic, from, into, rows, bounds);
    } else if (rows.count > 1 && !own && rows.bytes <= reply_row_bytes) {
        status = fetch_rows(group, context, nic, from, into, rows, bounds);
    } else {
        for (std::uint64_t row = 0; row < rows.count && status == PostStatus::ok; ++row)
            status = get_bytes(group, context, nic, from + row * rows.there, into + row * rows.here, rows.bytes, bounds);
    }
    return succeeded(group, window, status, 0);
}

// One thread's atomic operation on the word at `there` of the rank: adds, or replaces the word if it holds `compare`.
enum class NicAtomic { fetch_add, compare_swap };
MP_COLD bool atomic_by_nic(const Window& window, const WindowPart& share, std::uint64_t there, NicAtomic kind,
                           std::uint64_t value, std::uint64_t compare, std::uint64_t& before) {
    const auto& nic = *at<const NicPart>(share.nic);
    if (nic.contexts == 0 || nic.atomics == 0) {
        (void)refuse(thread(), window.report, not_atomic, there - share.memory, 8, share.bytes);
        return false;
    }
    const Context& context = context_in(nic, block_rank());
    const QueuePair qp = context.queue;
    const WaitBounds bounds = bounds_of(window);
    const auto write = [&](SendRing ring, std::uint64_t position) {
        const PostStatus taken = take_reply(context, position, bounds);
        if (taken != PostStatus::ok) return taken;
        const RemoteAddress word = {there, nic.memory_key};
        const std::uint64_t into = reply_at(context, position);
        const auto index = std::uint16_t(position);
        if (kind == NicAtomic::fetch_add)
            encode_fetch_add(ring, index, notify_always, word, value, into, context.replies_key);
        else
            encode_compare_swap(ring, index, notify_always, word, compare, value, into, context.replies_key);
        count_posted(qp, position, true);
        return PostStatus::ok;
    };
    const Posted posted = post_by(thread(), qp, 1, write, bounds);
    PostStatus status = posted.status;
    if (status == PostStatus::ok) {
        status = wait_completed(thread(), qp, posted.position, bounds);
        if (status == PostStatus::ok) before = load(at<const std::uint64_t>(reply_at(context, posted.position)), relaxed, system);
        free_reply(context, posted.position);
    }
    return succeeded(thread(), window, status, value);
}

// How far a rank's requests are waited for.
enum class Drain { in_use, posted };

// Waits for what kernels of this GPU have posted for `ranks` ranks from `first` on by contexts from `least` on, a thread for each
// rank. The failure is the window's report and every thread's.
template <class Group>
MP_COLD WaitResult drain(Group group, const Window& window, std::uint64_t first, std::uint64_t ranks, std::uint32_t least,
                         Drain how) {
    // The group has posted, and stored.
    group.sync();
    const WaitBounds bounds = bounds_of(window);
    WaitResult result = {ok, 0, 0};
    std::uint64_t expected = 0;
    bool looked = group.leads();
    for (std::uint64_t rank = first + group.rank(); rank < first + ranks && !result.failed(); rank += group.size()) {
        // By this one goes all that goes by a NIC.
        const std::uint64_t by = at<const WindowPart>(window.parts)[rank].atomic_nic;
        if (by == 0) continue;
        const auto& nic = *at<const NicPart>(by);
        looked = true;
        for (std::uint32_t number = least; number < nic.contexts && !result.failed(); ++number) {
            const QueuePair& qp = context_in(nic, number).queue;
            const QueuePairState* state = state_of(qp);
            expected = load(how == Drain::posted ? &state->posted : &state->in_use, relaxed, gpu);
            result = result_of(until(qp, Until::completed, expected, bounds), expected);
            if (result.failed()) result.seen = load(&state->completed, relaxed, gpu);
        }
    }
    // Of what the NIC wrote, and, the leader's, of what was stored in mapped memory.
    if (looked) fence(acq_rel, system);
    if (group.any(result.failed())) {
        const bool lost = group.any(result.status == path_failed), ended = group.any(result.status == aborted);
        report(at<WaitReport>(window.report), expected, result);
        return {lost ? path_failed : ended ? aborted : timed_out, result.seen, 0};
    }
    return {ok, 0, 0};
}

}  // namespace impl
}  // namespace mp
