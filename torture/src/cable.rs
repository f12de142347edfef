//! Two hosts on a bad cable: network namespaces, each with a TAP device as its end, and a thread of this process that carries
//! every Ethernet frame between them. It loses, delays, reorders and duplicates frames, and is cut for a second now and then,
//! in an order that follows from a seed. It needs root, `ip` of iproute2 and /dev/net/tun, but no kernel module for bad networks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::ioctl::{Setter, ioctl, opcode};
use serde::{Deserialize, Serialize};

/// How long the cable is cut.
const CUT: Duration = Duration::from_secs(1);
/// Of so many spells of weather, one begins with a cut.
const CUT_EVERY: usize = 4;
/// How late a frame is that others are to overtake.
const LATE: Duration = Duration::from_millis(5);
/// How often the thread looks whether it is over.
const LOOK: Duration = Duration::from_millis(20);
/// Frames taken from one end before the other has its turn.
const TURN: usize = 64;
/// Longer than any frame of a device whose largest packet has 1500 bytes.
const FRAME: usize = 2048;

/// What happens to frames for a while: shares of them, and times.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Weather {
    lost: f64,
    twice: f64,
    late: f64,
    delay: Duration,
    jitter: Duration,
}

const FINE: Weather =
    Weather { lost: 0.0, twice: 0.0, late: 0.0, delay: Duration::ZERO, jitter: Duration::ZERO };
const WEATHERS: [Weather; 6] = [
    FINE,
    Weather { lost: 0.01, ..FINE },
    Weather { late: 0.05, ..FINE },
    Weather { twice: 0.02, ..FINE },
    Weather { delay: Duration::from_millis(2), jitter: Duration::from_millis(1), ..FINE },
    Weather {
        lost: 0.01,
        twice: 0.02,
        late: 0.05,
        delay: Duration::from_millis(2),
        jitter: Duration::from_millis(1),
    },
];

/// What the cable did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Frames that came out of an end.
    pub frames: u64,
    /// Of these: lost, carried twice, held back so that others overtook them, delayed.
    pub lost: u64,
    pub twice: u64,
    pub late: u64,
    pub delayed: u64,
    /// Lost because the cable was cut, and how often it was.
    pub cut_off: u64,
    pub cuts: u64,
}

/// Two hosts and the cable between them; gone when dropped.
pub struct Hosts {
    names: [String; 2],
    over: Arc<AtomicBool>,
    carrier: Option<JoinHandle<Result<Counts>>>,
}

impl Hosts {
    /// The address of the first.
    pub const ADDRESS: &str = "10.213.9.1";

    /// Makes them. The weather changes after every `spell`.
    ///
    /// # Errors
    /// If the machine does not let this process make network namespaces or TAP devices.
    pub fn new(seed: u64, spell: Duration) -> Result<Hosts> {
        let id = std::process::id();
        let names = ["a", "b"].map(|end| format!("mp-soak-{id}-{end}"));
        let mut hosts = Hosts { names, over: Arc::default(), carrier: None };
        let mut ends = Vec::new();
        for (host, name) in hosts.names.iter().enumerate() {
            // A name of at most 15 letters until the device is in its namespace.
            let device = format!("mp{id}{host}");
            ends.push(tap(&device)?);
            ip(&format!("netns add {name}"))?;
            ip(&format!("link set {device} netns {name} name cable"))?;
            ip(&format!("-n {name} addr add 10.213.9.{}/24 dev cable", host + 1))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set cable up"))?;
        }
        let ends: [File; 2] = ends.try_into().map_err(|_| anyhow!("a cable has two ends"))?;
        let over = hosts.over.clone();
        hosts.carrier = Some(std::thread::spawn(move || carry(ends, seed, spell, &over)));
        Ok(hosts)
    }

    /// A command that will run on a host, 0 or 1.
    pub fn command(&self, host: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host]]);
        command
    }

    /// Takes the cable away, and says what it did.
    ///
    /// # Errors
    /// If it broke by itself.
    pub fn end(mut self) -> Result<Counts> {
        self.over.store(true, Ordering::Release);
        let carrier = self.carrier.take().context("the cable was taken away before")?;
        carrier.join().map_err(|_| anyhow!("the thread that is the cable panicked"))?
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        for name in &self.names {
            // Not made yet, or nothing that could be done about it.
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

/// Runs `ip` with these words.
fn ip(words: &str) -> Result<()> {
    let output = Command::new("ip").args(words.split(' ')).output().context("ip of iproute2")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {words}: {}", said.trim_end());
    Ok(())
}

/// `struct ifreq` of `linux/if.h`, as far as `TUNSETIFF` reads it, and its size.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// Makes a TAP device in this process's namespace. What the device sends is read from the file, a frame a call, and what is
/// written there it receives. It exists for as long as the file, in whichever namespace.
fn tap(name: &str) -> Result<File> {
    // `linux/if_tun.h`: Ethernet frames, with nothing before them.
    const IFF_TAP: u16 = 0x0002;
    const IFF_NO_PI: u16 = 0x1000;
    const TUNSETIFF: rustix::ioctl::Opcode = opcode::write::<i32>(b'T', 202);
    let path = "/dev/net/tun";
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path)
        .with_context(|| format!("opening {path}"))?;
    let mut request = InterfaceRequest { name: [0; 16], flags: IFF_TAP | IFF_NO_PI, rest: [0; 22] };
    ensure!(name.len() < request.name.len(), "{name} is too long for a network device");
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, 40 bytes, which `InterfaceRequest` is.
    unsafe { ioctl(&file, Setter::<TUNSETIFF, _>::new(request)) }
        .with_context(|| format!("a TAP device {name}, which needs root"))?;
    Ok(file)
}

/// A frame on its way; the one that is due first is the least.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    due: Instant,
    /// Frames that are due together stay in order.
    number: u64,
    to: usize,
    bytes: Vec<u8>,
}

/// What the weather makes of a frame: when its copies arrive, none if it is lost.
fn fate(
    weather: &Weather,
    now: Instant,
    random: &mut SmallRng,
    counts: &mut Counts,
) -> Vec<Instant> {
    if random.random_bool(weather.lost) {
        counts.lost += 1;
        return Vec::new();
    }
    let mut due = now + weather.delay + weather.jitter.mul_f64(random.random());
    counts.delayed += u64::from(due > now);
    if random.random_bool(weather.late) {
        counts.late += 1;
        due += LATE;
    }
    let twice = random.random_bool(weather.twice);
    counts.twice += u64::from(twice);
    vec![due; 1 + usize::from(twice)]
}

/// Is the cable between two ends until it is over.
fn carry(mut ends: [File; 2], seed: u64, spell: Duration, over: &AtomicBool) -> Result<Counts> {
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut counts, mut waiting) = (Counts::default(), BinaryHeap::<Reverse<Frame>>::new());
    let (begin, mut spells, mut number) = (Instant::now(), 0, 0);
    let mut weather = FINE;
    let mut cut_until = begin;
    let mut buffer = [0; FRAME];
    while !over.load(Ordering::Acquire) {
        let now = Instant::now();
        let spells_now = now.duration_since(begin).div_duration_f64(spell) as usize;
        if spells_now != spells {
            spells = spells_now;
            weather = WEATHERS[spells % WEATHERS.len()];
            if spells.is_multiple_of(CUT_EVERY) {
                counts.cuts += 1;
                cut_until = now + CUT;
            }
        }
        while let Some(Reverse(frame)) = waiting.peek()
            && frame.due <= now
        {
            let Some(Reverse(frame)) = waiting.pop() else { break };
            // A device whose queue is full, or that is down, loses the frame, as a cable's far end does.
            let _ = ends[frame.to].write(&frame.bytes);
        }
        let next = waiting.peek().map(|Reverse(frame)| frame.due.saturating_duration_since(now));
        let wait = Timespec::try_from(next.map_or(LOOK, |next| next.min(LOOK)))
            .context("a time to wait")?;
        let [a, b] = &ends;
        let mut sources = [PollFd::new(a, PollFlags::IN), PollFd::new(b, PollFlags::IN)];
        match poll(&mut sources, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for frames"),
        }
        for (from, end) in ends.iter_mut().enumerate() {
            for _ in 0..TURN {
                let read = match end.read(&mut buffer) {
                    Ok(read) => read,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error).context("reading a frame"),
                };
                counts.frames += 1;
                let now = Instant::now();
                if now < cut_until {
                    counts.cut_off += 1;
                    continue;
                }
                for due in fate(&weather, now, &mut random, &mut counts) {
                    number += 1;
                    let bytes = buffer[..read].to_vec();
                    waiting.push(Reverse(Frame { due, number, to: 1 - from, bytes }));
                }
            }
        }
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weather_does_to_frames_what_its_shares_say() {
        let (mut random, mut counts) = (SmallRng::seed_from_u64(1), Counts::default());
        let now = Instant::now();
        let all = |weather: &Weather, random: &mut SmallRng, counts: &mut Counts| -> usize {
            (0..10_000).map(|_| fate(weather, now, random, counts).len()).sum()
        };
        assert_eq!(all(&FINE, &mut random, &mut counts), 10_000);
        assert_eq!(counts, Counts::default());
        let arrived = all(&WEATHERS[5], &mut random, &mut counts) as u64;
        assert_eq!(arrived, 10_000 - counts.lost + counts.twice);
        assert_eq!(counts.delayed, 10_000 - counts.lost);
        for (count, share) in [(counts.lost, 0.01), (counts.twice, 0.02), (counts.late, 0.05)] {
            // Six standard deviations.
            let expected = 10_000.0 * share;
            assert!((count as f64 - expected).abs() < 6.0 * expected.sqrt(), "{counts:?}");
        }
    }

    #[test]
    fn a_late_frame_is_overtaken_and_others_stay_in_order() {
        let now = Instant::now();
        let frame =
            |late: Duration, number| Frame { due: now + late, number, to: 0, bytes: vec![] };
        let mut waiting = BinaryHeap::new();
        for frame in [frame(LATE, 1), frame(Duration::ZERO, 2), frame(Duration::ZERO, 3)] {
            waiting.push(Reverse(frame));
        }
        let order: Vec<u64> =
            std::iter::from_fn(|| waiting.pop().map(|Reverse(frame)| frame.number)).collect();
        assert_eq!(order, [2, 3, 1]);
    }
}
