//! The engine of the software NIC going to sleep, while the CPU rings a doorbell and somebody else has a command for it. The
//! engine's own sleep has an end; here it has none, so that what it misses is a deadlock.

use std::time::{Duration, Instant};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::doze::Doze;
use super::inbox::Inbox;
use super::rest::{Pause, Rest};

struct Nic {
    doze: Doze,
    commands: Inbox<()>,
    doorbell: AtomicU64,
}

/// One after the other under every interleaving; both at once, which makes three threads, with at most two preemptions.
pub fn model() {
    check(0, true, None);
    check(2, false, None);
    check(1, true, Some(2));
}

fn check(all: usize, ring: bool, preemptions: Option<usize>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let nic = Arc::new(Nic {
            doze: Doze::new(),
            commands: Inbox::new(),
            doorbell: AtomicU64::new(0),
        });
        let engine = {
            let nic = nic.clone();
            thread::spawn(move || {
                let (now, mut rest) = (Instant::now(), Rest::new(Duration::ZERO));
                let (mut commands, mut rung) = (0, 0);
                while (commands, rung) != (all, u64::from(ring)) {
                    // A pass, as `Engine::run` makes it.
                    let new = nic.commands.take().len();
                    let seen = nic.doorbell.load(Ordering::Relaxed);
                    let busy = new > 0 || seen != rung;
                    commands += new;
                    rung = seen;
                    match rest.after(busy, now, &nic.doze) {
                        Pause::None => {}
                        Pause::Spin | Pause::Yield => thread::yield_now(),
                        Pause::Sleep(_) => thread::park(),
                    }
                }
            })
        };
        let wake = {
            let (nic, engine) = (nic.clone(), engine.thread().clone());
            move || {
                if nic.doze.must_wake() {
                    engine.unpark();
                }
            }
        };
        let give = {
            let (nic, wake) = (nic.clone(), wake.clone());
            move || {
                for _ in 0..all {
                    nic.commands.put(());
                    wake();
                }
            }
        };
        let mut commander = None;
        if ring && all > 0 {
            commander = Some(thread::spawn(give));
        } else {
            give();
        }
        if ring {
            nic.doorbell.store(1, Ordering::Relaxed);
            wake();
        }
        if let Some(commander) = commander {
            commander.join().unwrap();
        }
        engine.join().unwrap();
    });
}
