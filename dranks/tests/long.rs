//! The tests of device ranks at the length that their specification asks for: by hand, with `-- --ignored`. On the CPU each takes up to some
//! minutes, in `gpu` up to half a minute. `TEST_EACH`: how many notifications each of a crowd sends; `TEST_ROUNDS`: how many rounds of puts
//! are checked, of all ranks together.

mod common;

use std::time::{Duration, Instant};

use common::{
    MINUTE, Player, by_path, devices, devices_of, first, fit, host, number_from, of_its_own,
};
use dranks::{Call, Error, Options};
use libmp::{Config, Device};
use mp_kernels::WaitStatus;

/// Plays kernels that check themselves, by name, rounds and flavour, on `count` devices.
fn play(
    place: impl Fn(usize) -> Device + Sync,
    count: usize,
    config: &Config,
    options: &Options,
    threads: u32,
    words: usize,
    kernels: &[(&'static str, u64, u64)],
) {
    for &(name, rounds, flavour) in kernels {
        let began = Instant::now();
        devices_of(count, config, |world| {
            let place = place(world.rank());
            let mut player = Player::new(world, &place, options, threads, words).unwrap();
            player.limit = Duration::from_secs(600);
            player.pass_with(name, rounds, flavour);
            world.barrier().unwrap();
        });
        let (ranks, took) = (options.ranks, began.elapsed());
        eprintln!(
            "{name}: {count} devices of {ranks} ranks of {threads} threads, {rounds} rounds, {took:.1?}"
        );
    }
}

/// On whatever path there is.
fn any_path() -> Config {
    by_path("auto")
}

/// F3, F9 and S5.
#[test]
#[ignore = "takes minutes"]
fn windows_barriers_and_delays_in_full() {
    let kernels = [
        ("ranks_windows", 100_000, 0),
        ("ranks_barriers", 1_000_000, 0),
        ("ranks_late", 1_000_000_000, 0),
    ];
    play(host, 1, &any_path(), &Options::new(2), 1, 64, &kernels);
}

/// F4: puts and gets of up to 4 MiB and a little more, from and to odd places.
fn mebibytes_are_moved(
    place: impl Fn(usize) -> Device + Sync,
    count: usize,
    config: &Config,
    options: &Options,
    threads: u32,
) {
    // Half of a share is 48 bytes more than 4 MiB.
    let words = ((4 << 20) + 48) / 4;
    play(place, count, config, options, threads, words, &[("ranks_transfers", 1, 0)]);
}

#[test]
#[ignore = "takes minutes"]
fn mebibytes_are_put_and_got_from_and_to_any_place() {
    mebibytes_are_moved(host, 1, &any_path(), &Options::new(2), 1);
    mebibytes_are_moved(host, 2, &any_path(), &Options::new(1), 3);
    for path in ["nic", "nic-tcp"] {
        mebibytes_are_moved(host, 2, &by_path(path), &Options::new(1), 1);
    }
}

/// M9.
fn a_step_ahead_counts_only_if_windows_are_any(
    place: impl Fn(usize) -> Device + Sync,
    threads: u32,
) {
    let kernels = [("ranks_steps", 1_000_000, 0)];
    play(place, 1, &any_path(), &Options::new(3), threads, 64, &kernels);
}

#[test]
#[ignore = "takes minutes"]
fn a_step_ahead_counts_only_if_windows_are_any_a_million_times() {
    a_step_ahead_counts_only_if_windows_are_any(host, 1);
}

/// M8, M10: ten thousand notifications through rings of 64. Then more than ten thousand that nobody waits for, as many as a queue holds: what is
/// waited for is found behind them, they stay in order, and one more has no room.
fn ten_thousand_are_kept(place: impl Fn(usize) -> Device + Sync, threads: u32) {
    const SPILL: u32 = 16_384;
    let options = Options { spill: SPILL, ..Options::new(4) };
    play(&place, 1, &any_path(), &options, threads, 64, &[("ranks_many", 10_000, 0)]);
    devices(1, MINUTE, |world| {
        let mut player = Player::new(world, &place(0), &options, threads, 64).unwrap();
        player.limit = Duration::from_secs(600);
        let (ended, wrong) = player.play("ranks_kept", 1, 0);
        assert_eq!(wrong, []);
        let Err(Error::Failed(failure)) = ended else { panic!("{ended:?}") };
        assert_eq!((failure.status, failure.call), (WaitStatus::NoRoom, Call::Wait), "{failure}");
        let from = (failure.rank + 3) % 4;
        assert_eq!((failure.peer, failure.tag), (Some(from), Some(1000)), "{failure}");
    });
}

#[test]
#[ignore = "takes minutes"]
fn ten_thousand_notifications_are_kept_and_matched() {
    ten_thousand_are_kept(host, 1);
}

/// O1: data before their notification, `rounds` puts and waits of all ranks together, for ranks that are so far apart as `distances` says.
fn data_come_before_notifications(
    place: impl Fn(usize) -> Device + Sync,
    count: usize,
    ranks: u32,
    threads: u32,
    rounds: u64,
    distances: &[u32],
) {
    let each = rounds.div_ceil(count as u64 * u64::from(ranks) * distances.len() as u64);
    let kernels: Vec<_> = distances.iter().map(|&by| ("ranks_puts", each, u64::from(by))).collect();
    play(place, count, &any_path(), &Options::new(ranks), threads, 64, &kernels);
}

#[test]
#[ignore = "takes minutes"]
fn data_come_before_notifications_ten_million_times() {
    let rounds = number_from("TEST_ROUNDS", 10_000_000);
    data_come_before_notifications(host, 1, 4, 1, rounds, &[1, 2]);
    data_come_before_notifications(host, 2, 2, 1, rounds, &[2]);
}

/// Q1: all send to one, `each` notifications, and it does nothing for a second first.
fn a_crowd_sends_to_one(
    place: impl Fn(usize) -> Device + Sync,
    count: usize,
    ranks: u32,
    threads: u32,
    each: u64,
) {
    let options = Options { slots: 256, ..Options::new(ranks) };
    let kernels = [("dense_crowd", each, 1_000_000_000)];
    play(place, count, &any_path(), &options, threads, 64, &kernels);
}

#[test]
#[ignore = "takes minutes"]
fn sixty_four_send_to_one_that_sleeps_and_nothing_is_lost() {
    let each = number_from("TEST_EACH", 10_000);
    a_crowd_sends_to_one(host, 1, 65, 1, each);
    a_crowd_sends_to_one(host, 2, 32, 1, each);
}

/// S1: many ranks in a ring, in barriers and in random pairs.
fn many_ranks_get_on(
    place: impl Fn(usize) -> Device + Sync,
    count: usize,
    ranks: u32,
    threads: u32,
) {
    // Of each other rank one may have come, and of one of them two.
    let spill = (count as u32 * ranks + 1).next_power_of_two().max(1024);
    let options = Options { spill, ..Options::new(ranks) };
    let kernels = [("dense_late", 0, 0), ("dense_barriers", 10, 0), ("dense_pairs", 100, 0)];
    play(place, count, &any_path(), &options, threads, 64, &kernels);
}

#[test]
#[ignore = "takes minutes"]
fn a_thousand_threads_turn_a_ring_meet_and_put_in_random_pairs() {
    many_ranks_get_on(host, 1, 1056, 1);
}

/// S9: on two cores, which is what the bound is for.
#[test]
#[ignore = "takes minutes"]
fn four_thousand_threads_turn_a_ring_within_a_minute() {
    devices(1, MINUTE, |world| {
        let options = Options { slots: 4, spill: 16, ..Options::new(4096) };
        let player = Player::new(world, &Device::Host, &options, 1, 8).unwrap();
        let began = Instant::now();
        player.pass("ranks_late", 0);
        let took = began.elapsed();
        eprintln!("4096 threads turned a ring in {took:.1?}");
        assert!(took < Duration::from_secs(60), "{took:?}");
    });
}

mod gpu {
    use super::*;

    #[test]
    #[ignore = "needs a GPU"]
    fn mebibytes_are_put_and_got_from_and_to_any_place_on_a_gpu() {
        mebibytes_are_moved(first, 1, &any_path(), &Options::new(2), 128);
        mebibytes_are_moved(first, 2, &any_path(), &Options::new(1), 128);
    }

    #[test]
    #[ignore = "needs 2 GPUs"]
    fn mebibytes_are_put_and_got_from_and_to_any_place_on_two_gpus() {
        mebibytes_are_moved(of_its_own, 2, &any_path(), &Options::new(1), 128);
        mebibytes_are_moved(of_its_own, 2, &by_path("nic"), &Options::new(1), 128);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_step_ahead_counts_only_if_windows_are_any_a_million_times_on_a_gpu() {
        a_step_ahead_counts_only_if_windows_are_any(first, 32);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn ten_thousand_notifications_are_kept_and_matched_on_a_gpu() {
        ten_thousand_are_kept(first, 32);
    }

    /// O1: with the next rank, whose block is mostly on another multiprocessor, and with the one that is as many further as there are
    /// multiprocessors, mostly on the same one.
    #[test]
    #[ignore = "needs a GPU"]
    fn data_come_before_notifications_a_hundred_million_times_on_a_gpu() {
        let gpu = common::gpu(0);
        let multiprocessors = gpu.as_cuda().unwrap().capabilities().multiprocessors;
        let (ranks, rounds) =
            (fit(&gpu, "ranks_puts", 32), number_from("TEST_ROUNDS", 100_000_000));
        data_come_before_notifications(first, 1, ranks, 32, rounds, &[1, multiprocessors]);
    }

    /// O1: all of them with a rank of the other GPU.
    #[test]
    #[ignore = "needs 2 GPUs"]
    fn data_come_before_notifications_a_hundred_million_times_on_two_gpus() {
        let (gpu, rounds) = (common::gpu(0), number_from("TEST_ROUNDS", 100_000_000));
        let ranks = fit(&gpu, "ranks_puts", 32);
        data_come_before_notifications(of_its_own, 2, ranks, 32, rounds, &[ranks]);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_thousand_ranks_of_a_gpu_send_to_one_that_sleeps_and_nothing_is_lost() {
        let ranks = fit(&common::gpu(0), "dense_crowd", 64).min(1056);
        a_crowd_sends_to_one(first, 1, ranks, 64, number_from("TEST_EACH", 20_000));
    }

    /// On a GPU of 132 multiprocessors 2,112 ranks of 64 threads, and 4,224 of 32.
    #[test]
    #[ignore = "needs a GPU"]
    fn as_many_ranks_as_a_gpu_runs_turn_a_ring_meet_and_put_in_random_pairs() {
        for threads in [64, 32] {
            many_ranks_get_on(first, 1, fit(&common::gpu(0), "dense_barriers", threads), threads);
        }
    }

    #[test]
    #[ignore = "needs 2 GPUs"]
    fn as_many_ranks_as_two_gpus_run_turn_a_ring_meet_and_put_in_random_pairs() {
        for threads in [64, 32] {
            let ranks = fit(&common::gpu(0), "dense_barriers", threads);
            many_ranks_get_on(of_its_own, 2, ranks, threads);
        }
    }

    /// F9; O1 to O5 and Q2 many times, over the link.
    #[test]
    #[ignore = "needs 2 GPUs, and half a minute"]
    fn barriers_puts_and_floods_many_times_on_two_gpus() {
        for (name, rounds) in
            [("ranks_barriers", 50_000), ("ranks_puts", 100_000), ("ranks_chains", 50_000)]
        {
            devices(2, MINUTE, |world| {
                let place = of_its_own(world.rank());
                let player = Player::new(world, &place, &Options::new(4), 64, 64).unwrap();
                player.pass(name, rounds);
                world.barrier().unwrap();
            });
        }
        devices(2, MINUTE, |world| {
            let options = Options { slots: 2, spill: 1 << 13, ..Options::new(4) };
            let player = Player::new(world, &of_its_own(world.rank()), &options, 32, 64).unwrap();
            player.pass("ranks_flood", 1_000);
            world.barrier().unwrap();
        });
    }

    /// F9, S5 at full length; O1's data many times.
    #[test]
    #[ignore = "needs a GPU, and half a minute"]
    fn barriers_delays_and_puts_many_times_on_a_gpu() {
        for (name, rounds) in
            [("ranks_barriers", 100_000), ("ranks_late", 1_000_000_000), ("ranks_puts", 100_000)]
        {
            devices(1, MINUTE, |world| {
                let player = Player::new(world, &first(0), &Options::new(4), 64, 64).unwrap();
                player.pass(name, rounds);
            });
        }
    }
}
