//! Worlds of device ranks, opened, launched and judged by the host: one device, and several that are ranks of libmp on threads. With OS
//! threads as blocks on any machine; the same on GPUs.

mod common;

use std::time::{Duration, Instant};

use common::{MINUTE, Player, by_path, devices, devices_of, first, host, of_its_own};
use dranks::{Call, Error, Options, Phase, Ranks, Team};
use libmp::matching::{Label, Matcher, Pattern};
use libmp::{Config, Device, Region};

/// Kernels that check themselves, and their rounds.
const KERNELS: [(&str, u64); 20] = [
    ("ranks_numbers", 1),
    ("ranks_windows", 20),
    ("ranks_transfers", 1),
    ("ranks_rows", 1),
    ("ranks_in_place", 50),
    ("ranks_puts", 20),
    ("ranks_chains", 20),
    ("ranks_barriers", 20),
    ("ranks_matching", 1),
    ("ranks_many", 500),
    ("ranks_steps", 20),
    ("ranks_flood", 30),
    ("ranks_crowd", 50),
    ("ranks_late", 20_000_000),
    ("ranks_deadline", 1),
    ("ranks_notify_all", 10),
    ("ranks_collectives", 10),
    ("ranks_fompi", 5),
    ("ranks_beside", 20),
    ("ranks_pairs", 20),
];

fn every_kernel_passes(
    place: impl Fn(usize) -> Device + Sync,
    count: usize,
    ranks: u32,
    threads: u32,
) {
    for (name, mut rounds) in KERNELS {
        // Of each round something stays in every queue.
        if ["ranks_flood", "ranks_in_place"].contains(&name) {
            rounds = rounds.min(1000 / (count as u64 * u64::from(ranks)));
        }
        // In `ranks_fompi` every other rank sends three before anybody waits.
        let spill = (3 * count as u32 * ranks).next_power_of_two().max(1024);
        let began = Instant::now();
        devices(count, MINUTE, |world| {
            let options = Options { spill, ..Options::new(ranks) };
            let player = Player::new(world, &place(world.rank()), &options, threads, 64).unwrap();
            player.pass(name, rounds);
            world.barrier().unwrap();
        });
        // For whoever waits: this takes a while on a GPU.
        let took = began.elapsed();
        eprintln!("{name}: {count} devices of {ranks} ranks of {threads} threads, {took:.1?}");
    }
}

#[test]
fn every_kernel_passes_on_one_device() {
    every_kernel_passes(host, 1, 6, 1);
}

#[test]
fn every_kernel_passes_on_two_devices() {
    every_kernel_passes(host, 2, 3, 2);
}

#[test]
fn a_world_goes_on_in_its_next_launch() {
    devices(2, MINUTE, |world| {
        let options = Options { first: u64::MAX - 20, ..Options::new(3) };
        let player = Player::new(world, &Device::Host, &options, 1, 64).unwrap();
        for _ in 0..5 {
            player.pass("ranks_late", 0);
            player.pass("ranks_deadline", 1);
        }
        world.barrier().unwrap();
    });
}

fn declared(place: impl Fn(usize) -> Device + Sync, count: usize) {
    devices(count, MINUTE, |world| {
        let player = Player::new(world, &place(world.rank()), &Options::new(3), 32, 64).unwrap();
        let whole: Vec<_> = (0..3).map(|rank| 512 * rank..512 * (rank + 1)).collect();
        assert_eq!(player.ranks.window(&whole).unwrap(), 0);
        assert_eq!(player.ranks.window(&[1536..1544, 1536..1544, 1536..1544]).unwrap(), 1);
        player.pass("ranks_declared", 1);
        world.barrier().unwrap();
    });
}

#[test]
fn windows_are_declared_by_the_host() {
    declared(host, 1);
    declared(host, 2);
}

#[test]
fn what_cannot_be_opened_is_refused_with_its_value() {
    devices(1, MINUTE, |world| {
        let memory = world.alloc::<u64>(&Device::Host, 8).unwrap();
        let says =
            |options: &Options| Ranks::open(world, &memory, options).unwrap_err().to_string();
        let good = Options::new(2);
        assert_eq!(
            says(&Options { slots: 3, ..good }),
            "device ranks: slots is 3: expected a power of two from 1 to 1048576"
        );
        assert_eq!(
            says(&Options { ranks: 0, ..good }),
            "device ranks: the number of ranks of a device is 0: expected from 1 to 16777215"
        );
        assert!(says(&Options { spill: 0, ..good }).starts_with("device ranks: spill is 0"));
        assert!(says(&Options { lines: 5, ..good }).starts_with("device ranks: lines is 5"));
        let ranks = Ranks::open(world, &memory, &good).unwrap();
        let refused = ranks.window(std::slice::from_ref(&(0..8))).unwrap_err().to_string();
        assert_eq!(
            refused,
            "device ranks: the number of shares is 1: expected 2, one for each rank"
        );
        assert!(
            ranks
                .window(&[0..8, 60..65])
                .unwrap_err()
                .to_string()
                .starts_with("device ranks: the end of a share is 65")
        );
    });
    let ends = devices(2, MINUTE, |world| {
        let memory = world.alloc::<u64>(&Device::Host, 8).unwrap();
        let options = Options { spill: 16 << world.rank(), ..Options::new(2) };
        Ranks::open(world, &memory, &options).unwrap_err().to_string()
    });
    assert!(ends[0].contains("32 kept") && ends[1].contains("16 kept"), "{ends:?}");
}

#[test]
fn every_kernel_passes_on_devices_behind_a_nic() {
    for path in ["nic", "nic-tcp"] {
        for (name, rounds) in KERNELS {
            devices_of(2, &by_path(path), |world| {
                let options = Options { spill: 1024, ..Options::new(2) };
                let player = Player::new(world, &Device::Host, &options, 1, 64).unwrap();
                player.pass(name, rounds.min(20_000_000));
                world.barrier().unwrap();
            });
        }
    }
}

/// What a test's kernel fills in for a round.
fn filled(words: usize, rank: u32, round: u64) -> Vec<u64> {
    let first = u64::from(rank + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let first = first.wrapping_add(round * 1_000_003);
    (0..words as u64).map(|i| first.wrapping_add(i)).collect()
}

/// The other half of `ranks_with_hosts`: a host rank, whose share is `words` words for itself and for each rank of kernels.
fn host_rank(
    ranks: &Ranks,
    local: u32,
    memory: &Region<u64>,
    kernels: u32,
    words: usize,
    rounds: u64,
) {
    let mut rank = ranks.host_rank(local).unwrap();
    let (hosts, number) = (rank.size(Team::World) - kernels, rank.rank());
    let (half, host) = (words / 2, number - kernels);
    let part = half / hosts as usize;
    // What it gives, and what comes.
    let length = words * (1 + kernels as usize);
    let first = local as usize * length;
    let share = memory.slice(first..first + length).unwrap();
    let bytes = 8 * first as u64..8 * (first + length) as u64;
    let window = rank.win_create(Team::World, bytes).unwrap();
    let wanted =
        |source, tag: u32| Pattern { context: Some(window.into()), source, tag: Some(tag.into()) };
    let mine = share.slice(0..part).unwrap();
    for round in 0..rounds {
        let tag = (round % 100) as u32;
        mine.write(&filled(part, number, round)).unwrap();
        let came = rank.wait_notifications(&wanted(None, tag), kernels as usize).unwrap();
        assert_eq!(came.len(), kernels as usize);
        for device_rank in 0..kernels {
            let at = half + device_rank as usize * part;
            let got = share.slice(at..at + part).unwrap().to_vec().unwrap();
            assert_eq!(
                got,
                filled(part, device_rank, round),
                "host {host}, rank {device_rank}, round {round}"
            );
            // Where it came from, it has been read, too.
            let copy = share.slice(share.len() - part..share.len()).unwrap();
            rank.get_notify(window, device_rank, 0, &copy, 102).unwrap();
            rank.flush().unwrap();
            assert_eq!(
                copy.to_vec().unwrap(),
                got,
                "host {host}, rank {device_rank}, round {round}"
            );
            let at = 8 * (half + host as usize * part) as u64;
            rank.put_notify(window, device_rank, at, &mine, tag).unwrap();
        }
        rank.wait_notifications(&wanted(None, 101), kernels as usize).unwrap();
        rank.barrier(Team::World).unwrap();
    }
    assert_eq!(rank.test_notifications(&Pattern::default(), 1).unwrap(), None);
    rank.win_free(window).unwrap();
    rank.finish();
}

/// Host ranks beside those of kernels: `count` devices with kernels, and one of threads.
fn host_ranks(place: impl Fn(usize) -> Device + Sync, config: &Config, count: usize, rounds: u64) {
    const KERNEL_RANKS: u32 = 3;
    const HOSTS: u32 = 2;
    const WORDS: usize = 64;
    devices_of(count + 1, config, |world| {
        let (kernels, device) = (count as u32 * KERNEL_RANKS, place(world.rank()));
        if world.rank() < count {
            let options = Options { slots: 4, ..Options::new(KERNEL_RANKS) };
            let player = Player::new(world, &device, &options, 32, WORDS).unwrap();
            let (ended, wrong) = player.play("ranks_with_hosts", rounds, HOSTS.into());
            assert!(wrong.is_empty(), "ranks and lines of kernels.cu {wrong:?}, {ended:?}");
            ended.unwrap();
        } else {
            let options = Options { slots: 4, ..Options::new(HOSTS) };
            let words = HOSTS as usize * WORDS * (1 + kernels as usize);
            let memory = Region::from_buffer(device.alloc_pinned::<u64>(words).unwrap());
            let ranks = Ranks::open(world, &memory, &options).unwrap();
            std::thread::scope(|scope| {
                for local in 0..HOSTS {
                    let (ranks, memory) = (&ranks, &memory);
                    scope.spawn(move || host_rank(ranks, local, memory, kernels, WORDS, rounds));
                }
            });
            assert!(
                ranks.host_rank(0).unwrap_err().to_string().contains("one that no other thread is")
            );
            world.barrier().unwrap();
        }
        if world.rank() < count {
            world.barrier().unwrap();
        }
    });
}

#[test]
fn threads_of_the_cpu_are_ranks_beside_those_of_kernels() {
    let mut config = Config::from_env().unwrap();
    config.timeout = Duration::from_millis(MINUTE);
    host_ranks(host, &config, 1, 50);
    host_ranks(host, &config, 2, 20);
    for path in ["nic", "nic-tcp"] {
        host_ranks(host, &by_path(path), 2, 10);
    }
}

fn who_does_not_come_is_named(place: impl Fn(usize) -> Device + Sync, path: &str, count: usize) {
    let mut config = by_path(path);
    config.timeout = Duration::from_millis(1500);
    for flavour in [0, 1] {
        devices_of(count, &config, |world| {
            let options = Options::new(3);
            let player = Player::new(world, &place(world.rank()), &options, 32, 64).unwrap();
            let (ended, wrong) = player.play("ranks_absent", 1, flavour);
            assert_eq!(wrong, []);
            let Err(Error::Failed(failure)) = ended else { panic!("{ended:?}") };
            assert_eq!(failure.call, if flavour == 0 { Call::Barrier } else { Call::Wait });
            assert_eq!(failure.missing, Some((1, Phase::Finished)), "{failure}");
            assert!(failure.to_string().ends_with("; rank 1 has finished"), "{failure}");
            // What is opened then works.
            let player = Player::new(world, &place(world.rank()), &options, 32, 64).unwrap();
            player.pass("ranks_late", 0);
            world.barrier().unwrap();
        });
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_and_a_new_world_works() {
    who_does_not_come_is_named(host, "auto", 1);
    who_does_not_come_is_named(host, "auto", 2);
    who_does_not_come_is_named(host, "nic", 2);
}

fn what_is_refused_is_said(place: impl Fn(usize) -> Device + Sync) {
    devices(1, MINUTE, |world| {
        let options = Options { spill: 64, ..Options::new(1) };
        let player = |threads| Player::new(world, &place(0), &options, threads, 64).unwrap();
        let (ended, wrong) = player(32).play("ranks_refusals", 1, 0);
        assert_eq!(wrong, []);
        let said = ended.unwrap_err().to_string();
        assert!(
            said.starts_with(
                "device rank 0 put to rank 0: refused: 9 bytes from byte 504 on of window 0"
            ),
            "{said}"
        );
        let (ended, wrong) = player(1).play("ranks_kept", 1, 0);
        assert_eq!(wrong, []);
        let said = ended.unwrap_err().to_string();
        assert!(said.starts_with("device rank 0 waited for 1 notifications of window 0, source 0, tag 1000: its own queue is full"), "{said}");
        let (ended, wrong) = player(128).play("ranks_window_numbers", 1, 0);
        assert_eq!(wrong, []);
        assert_eq!(
            ended.unwrap_err().to_string(),
            "device rank 0 created a window: all 64 are open"
        );
    });
}

#[test]
fn what_is_refused_is_said_in_one_sentence() {
    what_is_refused_is_said(host);
}

fn lines_are_whole(place: impl Fn(usize) -> Device + Sync, ranks: u32, lines: u64) {
    devices(1, MINUTE, |world| {
        let options = Options { lines: 256, ..Options::new(ranks) };
        let player = Player::new(world, &place(0), &options, 1, 8).unwrap();
        let mut found = Vec::new();
        for _ in 0..3 {
            player.pass("ranks_log", lines);
            found.extend(player.ranks.lines().unwrap());
        }
        let lost = player.ranks.lost_lines().unwrap();
        assert_eq!(found.len() as u64 + lost, 3 * lines * u64::from(ranks));
        for line in found {
            let words: Vec<&str> = line.text.split([' ', ':', ',']).collect();
            let number: f64 = words[1].parse().unwrap();
            assert_eq!(line.text, format!("line {number} of {}: -1, {}", line.rank, 0.5 * number));
        }
    });
}

#[test]
fn lines_of_the_log_are_whole_and_those_that_are_lost_are_counted() {
    lines_are_whole(host, 5, 10);
    lines_are_whole(host, 20, 100);
}

/// Figure 2 of the paper: each rank has lines of as many cells as its block has threads.
fn the_stencil_of_the_paper(
    place: impl Fn(usize) -> Device + Sync,
    count: usize,
    ranks: u32,
    threads: u32,
) {
    const LINES: usize = 4;
    const STEPS: usize = 15;
    let line = threads as usize;
    let (here, all) =
        (ranks as usize * LINES * line, count * ranks as usize * LINES * line + 2 * line);
    let start: Vec<f64> =
        (0..all as u64).map(|i| (i * 2_654_435_761 % 1000) as f64 / 7.0).collect();
    let mut alone = start.clone();
    for _ in 0..STEPS {
        let mut next = start.clone();
        for i in line..all - line {
            next[i] =
                -4.0 * alone[i] + alone[i + 1] + alone[i - 1] + alone[i + line] + alone[i - line];
        }
        alone = next;
    }
    devices(count, MINUTE, |world| {
        let options = Options::new(ranks);
        let words = (2 * (here + 2 * line)).div_ceil(ranks as usize);
        let player = Player::new(world, &place(world.rank()), &options, threads, words).unwrap();
        let first = world.rank() * here;
        let mine: Vec<u64> =
            start[first..first + here + 2 * line].iter().map(|x| x.to_bits()).collect();
        player
            .memory
            .slice(0..2 * mine.len())
            .unwrap()
            .write(&[&mine[..], &mine].concat())
            .unwrap();
        world.barrier().unwrap();
        let (ended, _) = player.play_with("dcuda_figure_2", LINES as u64, STEPS as u64, 0);
        ended.unwrap();
        let got = player.memory.to_vec().unwrap();
        let got =
            got[STEPS % 2 * mine.len()..][..mine.len()].iter().map(|&bits| f64::from_bits(bits));
        let cells = got.enumerate().skip(line).take(here);
        assert_eq!(cells.filter(|&(i, cell)| cell != alone[first + i]).count(), 0);
        world.barrier().unwrap();
    });
}

#[test]
fn the_stencil_of_the_paper_is_the_one_computed_alone() {
    the_stencil_of_the_paper(host, 1, 13, 3);
    the_stencil_of_the_paper(host, 2, 4, 2);
    the_stencil_of_the_paper(host, 1, 200, 1);
}

/// Nanoseconds one way of a notified put between rank 0 and another.
fn one_way(
    place: impl Fn(usize) -> Device + Sync,
    count: usize,
    threads: u32,
    bytes: u64,
    rounds: u64,
) -> f64 {
    let ways = devices(count, MINUTE, |world| {
        let words = (1 + 2 * bytes.div_ceil(8)) as usize;
        let options = Options::new(if count == 1 { 2 } else { 1 });
        let player = Player::new(world, &place(world.rank()), &options, threads, words).unwrap();
        let (ended, wrong) = player.play("ranks_ping_pong", rounds, bytes << 32 | 1);
        assert_eq!(wrong, []);
        ended.unwrap();
        world.barrier().unwrap();
        player.memory.slice(0..1).unwrap().to_vec().unwrap()[0] as f64 / (2 * rounds) as f64
    });
    ways[0]
}

#[test]
fn a_ping_pong_is_timed() {
    assert!(one_way(host, 1, 1, 0, 200) > 0.0);
    assert!(one_way(host, 2, 1, 64, 200) > 0.0);
}

/// Random steps, the same for a rank and for the matcher of libmp.
fn the_matcher_is_the_model(device: &Device, threads: u32, steps: u64, seed: u64) {
    devices(1, MINUTE, |world| {
        const SPILL: u32 = 64;
        let options = Options { spill: SPILL, slots: 4, ..Options::new(1) };
        let words = 12 * steps as usize;
        let mut player = Player::new(world, device, &options, threads, words).unwrap();
        player.limit = Duration::from_secs(600);
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let any = u64::from(u32::MAX);
        let (mut script, mut expected) = (Vec::new(), Vec::new());
        let mut model = Matcher::<(), ()>::new();
        for _ in 0..steps {
            if random(5) < 3 && model.unexpected() < SPILL as usize {
                let (source, window, tag) = (random(3), random(3), random(4));
                script.extend([0, source, window << 32 | tag, 0]);
                model.keep(Label { context: window, source: source as u32, tag }, ());
                continue;
            }
            let mut field = |below| Some(random(below)).filter(|_| random(3) > 0);
            let (source, window, tag) = (field(1), field(3), field(4));
            let count = random(4);
            let code = |value: Option<u64>| value.unwrap_or(any);
            script.extend([1, code(source), code(window) << 32 | code(tag), count]);
            let pattern = Pattern { context: window, source: source.map(|rank| rank as u32), tag };
            let there = model.labels().iter().filter(|label| pattern.matches(label)).count();
            expected.push(model.take_all(&pattern, count as usize).ok_or(there as u64));
        }
        player.memory.slice(0..script.len()).unwrap().write(&script).unwrap();
        player.pass("ranks_script", steps);
        let words = player.memory.to_vec().unwrap();
        let mut out = &words[4 * steps as usize..];
        for (step, expected) in expected.into_iter().enumerate() {
            let (first, rest) = out.split_first().unwrap();
            out = rest;
            match expected {
                Err(there) => assert_eq!(!first, there, "{threads} threads, take {step}"),
                Ok(taken) => {
                    assert_eq!(*first, taken.len() as u64, "{threads} threads, take {step}");
                    let fields: &[u32] = bytemuck::cast_slice(out);
                    for (fields, (label, ())) in fields.chunks_exact(3).zip(&taken) {
                        let label = [label.context as u32, label.source, label.tag as u32];
                        assert_eq!(fields, label, "{threads} threads, take {step}");
                    }
                    out = &out[(taken.len() * 12).div_ceil(8)..];
                }
            }
        }
    });
}

/// M12 as long as one likes: `tools/notifications`, which says how many steps, and keeps account of them.
#[test]
#[ignore = "runs TEST_STEPS steps from TEST_SEED on"]
fn a_rank_takes_what_the_matcher_of_libmp_takes_over_and_over() {
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (steps, seed, each) = (number("TEST_STEPS"), number("TEST_SEED"), 500_000);
    for part in 0..steps.div_ceil(each) {
        the_matcher_is_the_model(&Device::Host, 1, each.min(steps - part * each), seed + part);
    }
}

#[test]
fn a_rank_takes_what_the_matcher_of_libmp_takes() {
    for (threads, steps, seed) in [(1, 100_000, 1), (1, 100_000, 2), (32, 500, 3), (128, 100, 4)] {
        the_matcher_is_the_model(&Device::Host, threads, steps, seed);
    }
}

mod gpu {
    use super::*;

    fn behind_a_nic(place: impl Fn(usize) -> Device + Sync) {
        for (name, rounds) in KERNELS {
            devices_of(2, &by_path("nic"), |world| {
                let options = Options { spill: 1024, ..Options::new(4) };
                let player = Player::new(world, &place(world.rank()), &options, 32, 64).unwrap();
                player.pass(name, rounds);
                world.barrier().unwrap();
            });
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn every_kernel_passes_on_one_gpu() {
        for (ranks, threads) in [(1, 1), (7, 32), (132, 128), (500, 32)] {
            every_kernel_passes(first, 1, ranks, threads);
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn every_kernel_passes_on_two_devices_that_share_a_gpu() {
        every_kernel_passes(first, 2, 20, 64);
    }

    #[test]
    #[ignore = "needs 2 GPUs"]
    fn every_kernel_passes_on_two_gpus() {
        for (ranks, threads) in [(1, 32), (60, 128), (264, 32)] {
            every_kernel_passes(of_its_own, 2, ranks, threads);
        }
    }

    #[test]
    #[ignore = "needs 2 GPUs"]
    fn every_kernel_passes_on_two_gpus_behind_a_nic() {
        behind_a_nic(of_its_own);
    }

    #[test]
    #[ignore = "needs 2 GPUs"]
    fn the_stencil_of_the_paper_on_two_gpus_is_the_one_computed_alone() {
        for (ranks, threads) in [(1, 32), (264, 128)] {
            the_stencil_of_the_paper(of_its_own, 2, ranks, threads);
        }
    }

    #[test]
    #[ignore = "needs 2 GPUs"]
    fn a_rank_of_another_gpu_that_does_not_come_is_named() {
        who_does_not_come_is_named(of_its_own, "auto", 2);
    }

    #[test]
    #[ignore = "needs 2 GPUs"]
    fn threads_of_the_cpu_are_ranks_beside_those_of_two_gpus() {
        let mut config = Config::from_env().unwrap();
        config.timeout = Duration::from_millis(MINUTE);
        // Those of the CPU are beside the second one.
        host_ranks(|rank| of_its_own(rank.min(1)), &config, 2, 50);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn threads_of_the_cpu_are_ranks_beside_those_of_a_gpu() {
        let mut config = Config::from_env().unwrap();
        config.timeout = Duration::from_millis(MINUTE);
        host_ranks(first, &config, 1, 50);
        host_ranks(first, &config, 2, 10);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn every_kernel_passes_on_two_devices_of_a_gpu_behind_a_nic() {
        behind_a_nic(first);
    }

    /// M14: rings whose counts end on the way.
    #[test]
    #[ignore = "needs a GPU"]
    fn counts_past_the_end_of_a_word_are_right_on_a_gpu() {
        for before in [1, 5, 90] {
            devices(2, MINUTE, |world| {
                let first_ticket = 0_u64.wrapping_sub(before);
                let options = Options { spill: 512, first: first_ticket, ..Options::new(2) };
                let player = Player::new(world, &first(0), &options, 32, 64).unwrap();
                player.pass("ranks_matching", 1);
                world.barrier().unwrap();
            });
        }
    }

    /// S4: a kernel that has all of the GPU when ranks are launched lets them begin when it ends; one that is launched after them runs beside or
    /// behind them.
    #[test]
    #[ignore = "needs a GPU"]
    fn other_kernels_before_and_after_ranks_delay_nothing_for_ever() {
        devices(1, MINUTE, |world| {
            let player = Player::new(world, &first(0), &Options::new(132), 128, 64).unwrap();
            // A block whose threads have 198 registers each, as a kernel that says nothing may: beside it on its multiprocessor no other fits.
            let other = Player::new(world, &first(0), &Options::new(132), 256, 64).unwrap();
            for ahead in [true, false] {
                std::thread::scope(|scope| {
                    // Half a second on all multiprocessors.
                    let busy = || other.play("ranks_late", 500_000_000, 0);
                    let begun = ahead.then(|| scope.spawn(busy));
                    player.pass("ranks_puts", 20);
                    let ended = begun.unwrap_or_else(|| scope.spawn(busy)).join().unwrap();
                    assert_eq!(ended.1, []);
                    ended.0.unwrap();
                });
            }
        });
    }

    /// K7: under `compute-sanitizer --tool synccheck` this is a "divergent thread(s) in block".
    #[test]
    #[ignore = "needs a GPU"]
    fn calls_of_half_a_block_end_when_the_other_half_has_ended() {
        devices(1, MINUTE, |world| {
            let player = Player::new(world, &first(0), &Options::new(2), 128, 64).unwrap();
            // What comes of it is not promised, but that it ends.
            let (ended, wrong) = player.play("ranks_half", 1, 0);
            println!("{ended:?}, {wrong:?}");
        });
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn windows_are_declared_by_the_host_for_a_gpu() {
        declared(first, 1);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_rank_of_a_gpu_that_does_not_come_is_named() {
        who_does_not_come_is_named(first, "auto", 1);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn what_a_gpu_refuses_is_said_in_one_sentence() {
        what_is_refused_is_said(first);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn lines_of_a_gpus_log_are_whole() {
        lines_are_whole(first, 500, 100);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_rank_of_a_gpu_takes_what_the_matcher_of_libmp_takes() {
        for (threads, seed) in [(1, 1), (32, 2), (128, 3)] {
            the_matcher_is_the_model(&first(0), threads, 100_000, seed);
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn the_stencil_of_the_paper_on_a_gpu_is_the_one_computed_alone() {
        for (ranks, threads) in [(1, 32), (7, 64), (264, 128)] {
            the_stencil_of_the_paper(first, 1, ranks, threads);
        }
        the_stencil_of_the_paper(first, 2, 20, 32);
    }

    fn times(place: impl Fn(usize) -> Device + Sync + Copy, count: usize) {
        for threads in [32, 128] {
            for bytes in [0, 8, 1024, 65536, 1 << 20] {
                let ns = one_way(place, count, threads, bytes, 1000);
                println!(
                    "{count} devices, {threads} threads, {bytes} bytes: {:.3} µs one way",
                    ns / 1000.0
                );
            }
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn times_of_notified_puts_on_one_gpu() {
        times(first, 1);
    }

    #[test]
    #[ignore = "needs 2 GPUs"]
    fn times_of_notified_puts_between_two_gpus() {
        times(of_its_own, 2);
    }

    /// One more than run at once is refused with both numbers; as many as do, meet.
    #[test]
    #[ignore = "needs a GPU"]
    fn more_ranks_than_run_at_once_are_refused_with_both_numbers() {
        for threads in [32, 64, 128, 255] {
            devices(1, MINUTE, |world| {
                let player = |ranks| {
                    Player::new(world, &first(0), &Options::new(ranks), threads, 8).unwrap()
                };
                let (ended, _) = player(100_000).play("ranks_late", 0, 0);
                let Err(Error::Launch(libmp::gdsync::Error::TooManyBlocks { blocks, fit, .. })) =
                    ended
                else {
                    panic!("{ended:?}")
                };
                assert_eq!(blocks, 100_000);
                println!("{threads} threads: {fit} ranks");
                player(fit).pass("ranks_late", 0);
                let (ended, _) = player(fit + 1).play("ranks_late", 0, 0);
                let said = ended.unwrap_err().to_string();
                assert!(
                    said.starts_with(&format!(
                        "{} blocks of `ranks_late` cannot run at once",
                        fit + 1
                    )),
                    "{said}"
                );
                assert!(said.contains(&format!(": {fit} do, with {threads} threads")), "{said}");
            });
        }
    }
}
