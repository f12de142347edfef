//! Steps of device operations on a stream: a list of them is one launch of the kernel `mp_steps`, or one call on a host
//! stream.

use std::sync::Arc;

use gdsync::{Arg, Device, Dims, Stream};
use mp_kernels::{Message, StepKind};

use super::half::DeviceHalf;
use super::host::HostEnd;
use super::station::IN_PACKET;
use crate::data::half::broken;
use crate::data::plane::Plane;
use crate::error::{Error, Result};
use crate::trace::Label;

/// Steps in one launch, `max_steps` of `steps.cu`, and in a short one, `few_steps`.
pub(crate) const LAUNCH: usize = 16;
const FEW: usize = 3;
/// Threads of a block that copies at most, each so many bytes at once; and of one with a thread for each packet.
const COPYING: u64 = 512;
const WIDE: u64 = 16;
const MOST: u64 = 768;
/// A block for every so many bytes of the largest message that goes in one piece …
const BLOCK_BYTES: u64 = 8 << 10;
/// … up to so many, which must be on the GPU at once …
const BLOCKS: u64 = 64;
/// … but one for up to so many bytes: that the last of several blocks signals costs more than they save.
const ALONE: u64 = 16 << 10;

/// Something that a stream does with a device operation: [`DeviceSend::start`](super::DeviceSend::start),
/// [`DeviceRecv::start`](super::DeviceRecv::start), [`DeviceRecv::wait`](super::DeviceRecv::wait).
#[derive(Clone, Copy)]
#[must_use = "a step does nothing before it is enqueued"]
pub struct Step<'a> {
    pub(crate) half: &'a Arc<DeviceHalf>,
    pub(crate) kind: StepKind,
}

/// The argument of a launch.
#[repr(C)]
#[derive(Clone, Copy)]
struct StepList<const COUNT: usize>([mp_kernels::Step; COUNT]);

/// Enqueues the steps in order.
pub(crate) fn enqueue(plane: &Plane, stream: &Stream, steps: &[Step<'_>]) -> Result<()> {
    steps.iter().for_each(|step| step.count(plane));
    let _span = plane.trace.has_spans().then(|| {
        let what = format!("enqueue {}", label(steps).name);
        plane.trace.span("host", what).arg("steps", steps.len() as u64)
    });
    let run = || match stream.device() {
        Device::Host => on_host(plane, stream, steps),
        Device::Cuda(_) => steps.chunks(LAUNCH).try_for_each(|steps| launch(plane, stream, steps)),
    };
    plane.probes.around(&plane.trace, stream, || label(steps), run)
}

impl Step<'_> {
    fn count(&self, plane: &Plane) {
        let (counters, bytes) =
            (plane.counters_of(self.half.name.rank), self.half.memory.len() as u64);
        tracing::trace!(operation = %self.half.name, step = ?self.kind, bytes, "enqueued");
        match self.kind {
            StepKind::Post => counters.recvs.add(bytes),
            StepKind::Send => match self.half.one_sided {
                None => counters.sends.add(bytes),
                Some(signals) => {
                    counters.puts.add(bytes);
                    counters.signals.add(signals);
                }
            },
            StepKind::Recv => counters.waits.add(1),
        }
    }
}

/// What the timeline shows of a list.
fn label(steps: &[Step<'_>]) -> Label {
    let of = |step: &Step<'_>| match step.kind {
        StepKind::Post => format!("post {}", step.half.name),
        StepKind::Send => format!("start {}", step.half.name),
        StepKind::Recv => format!("wait for {}", step.half.name),
    };
    let bytes = steps.iter().map(|step| step.half.memory.len() as u64).sum();
    let name = steps.iter().map(of).collect::<Vec<_>>().join(", ");
    Label::new(name, &[("steps", steps.len() as u64), ("bytes", bytes)])
}

fn on_host(plane: &Plane, stream: &Stream, steps: &[Step<'_>]) -> Result<()> {
    let mut ends: Vec<(StepKind, Arc<HostEnd>)> = Vec::with_capacity(steps.len());
    for Step { half, kind } in steps {
        half.check(stream)?;
        ends.extend(half.meet(plane)?.host.clone().map(|end| (*kind, end)));
    }
    let run = move || {
        // A step that fails ends the list; its report says why.
        ends.iter().all(|(kind, end)| end.run(*kind));
    };
    let op = || steps.first().map_or_else(String::new, |step| step.half.name.to_string());
    stream.call(run).map_err(|source| Error::Memory { op: op(), source })
}

/// At most [`LAUNCH`] of them.
fn launch(plane: &Plane, stream: &Stream, steps: &[Step<'_>]) -> Result<()> {
    if steps.len() <= FEW {
        launch_as::<FEW>(plane, stream, steps, ["mp_steps_few", "mp_steps_few_wide"])
    } else {
        launch_as::<LAUNCH>(plane, stream, steps, ["mp_steps", "mp_steps_wide"])
    }
}

fn launch_as<const COUNT: usize>(
    plane: &Plane,
    stream: &Stream,
    steps: &[Step<'_>],
    [narrow, wide]: [&str; 2],
) -> Result<()> {
    let Some(first) = steps.first() else { return Ok(()) };
    let Some(cuda) = first.half.memory.device().as_cuda() else { return Ok(()) };
    let failed = |source| broken(&first.half.name, source);
    let mut list = StepList([mp_kernels::Step::default(); COUNT]);
    let mut meetings = Meetings::default();
    let (mut count, mut largest, mut threads) = (0, 0, 0);
    for Step { half, kind } in steps {
        half.check(stream)?;
        let way = half.meet(plane)?;
        if *kind == StepKind::Post && is_taken(&way.message) {
            // The peer never writes the buffer.
            continue;
        }
        let meet = u32::from(meetings.before(*kind, &way.message));
        list.0[count] = mp_kernels::Step { message: way.message, kind: *kind as u32, meet };
        count += 1;
        threads = threads.max(threads_for(&way.message));
        if shared(*kind, &way.message) {
            largest = largest.max(way.message.len);
        }
        for memory in way.held.iter().chain([&half.memory, half.station.memory()]) {
            stream.hold(memory);
        }
        stream.hold(half.report.memory());
    }
    if count == 0 {
        return Ok(());
    }
    let blocks = blocks_for(largest);
    let count = count as u32;
    let kernel = if u64::from(threads) > COPYING { wide } else { narrow };
    let kernel = cuda.kernel(kernel).map_err(failed)?;
    let args = [Arg::new(&list), Arg::new(&count)];
    // SAFETY: the kernel's parameters; the addresses are those of memory that the halves hold, of the abort word and of
    // reports, which live as long as the world or, in a graph, are held by it; peers write it as the protocol orders.
    unsafe { stream.launch(&kernel, Dims::linear(blocks, threads), &args) }.map_err(failed)
}

/// Threads of a block that suit a message: one for each packet, or what its copy keeps busy. More take longer to start and to
/// meet.
fn threads_for(message: &Message) -> u32 {
    let threads = match message.inbox {
        0 => message.len.div_ceil(WIDE).min(COPYING),
        _ => message.len.div_ceil(IN_PACKET).min(MOST),
    };
    (threads.max(1) as u32).next_multiple_of(32)
}

/// Blocks that share messages in one piece of up to so many bytes.
fn blocks_for(largest: u64) -> u32 {
    let blocks = if largest <= ALONE { 1 } else { largest.div_ceil(BLOCK_BYTES).min(BLOCKS) };
    blocks as u32
}

/// Whether all blocks of a launch have to do with a step: a message in one piece.
fn shared(kind: StepKind, message: &Message) -> bool {
    match kind {
        StepKind::Post => false,
        StepKind::Send => message.inbox == 0,
        StepKind::Recv => !is_taken(message),
    }
}

/// Of a receive: as `is_taken` of `mp/message.cuh`.
fn is_taken(message: &Message) -> bool {
    message.inbox != 0 || message.target != 0
}

/// Before which steps the blocks of a launch have to meet: where a step builds on what blocks other than the own one did.
#[derive(Default)]
struct Meetings {
    /// Since the last one: a message was copied by all blocks, …
    copied: bool,
    /// … a message was taken from packets by the first block, …
    taken: bool,
    /// … and these ends, by their counters, were used by all blocks.
    used: [u64; LAUNCH],
    count: usize,
}

impl Meetings {
    fn before(&mut self, kind: StepKind, message: &Message) -> bool {
        let shared = shared(kind, message);
        let builds = match kind {
            // The buffer may be what was copied.
            StepKind::Post => self.copied,
            // The source may be what was taken; the first block alone has it.
            StepKind::Send => shared && self.taken,
            // What is taken may go where others still copy from.
            StepKind::Recv => !shared && self.copied,
        };
        let again = shared && self.used[..self.count].contains(&message.state);
        if builds || again {
            *self = Meetings::default();
        }
        self.copied |= shared && kind == StepKind::Send;
        self.taken |= !shared && kind == StepKind::Recv;
        if shared {
            self.used[self.count] = message.state;
            self.count += 1;
        }
        builds || again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POST: StepKind = StepKind::Post;
    const SEND: StepKind = StepKind::Send;
    const RECV: StepKind = StepKind::Recv;

    /// Ends 1 to 9 go in one piece, others as packets.
    fn meetings(steps: &[(StepKind, u64)]) -> Vec<bool> {
        let mut meetings = Meetings::default();
        let before = |&(kind, state): &(StepKind, u64)| {
            let inbox = u64::from(!(1..10).contains(&state));
            meetings.before(kind, &Message { state, inbox, ..Message::default() })
        };
        steps.iter().map(before).collect()
    }

    #[test]
    fn a_block_has_a_thread_for_each_packet_of_a_message() {
        let threads = |len, inbox| threads_for(&Message { len, inbox, ..Message::default() });
        assert_eq!([0, 8, 384, 385, 8192].map(|len| threads(len, 1)), [32, 32, 32, 64, 704]);
        assert_eq!([0, 8, 8193, 64 << 20].map(|len| threads(len, 0)), [32, 32, 512, 512]);
    }

    #[test]
    fn blocks_share_what_is_worth_a_meeting() {
        let sizes = [0, 16 << 10, (16 << 10) + 1, 64 << 10, 1 << 30];
        assert_eq!(sizes.map(blocks_for), [1, 1, 3, 8, 64]);
    }

    #[test]
    fn a_message_that_is_passed_on_needs_no_meeting() {
        assert_eq!(meetings(&[(POST, 1), (RECV, 1), (SEND, 2)]), [false; 3]);
        assert_eq!(meetings(&[(SEND, 1), (SEND, 2), (RECV, 3)]), [false; 3]);
        assert_eq!(meetings(&[(RECV, 11), (SEND, 12), (SEND, 11)]), [false; 3], "one block's");
    }

    #[test]
    fn blocks_meet_where_a_step_builds_on_other_blocks() {
        assert_eq!(
            meetings(&[(SEND, 1), (POST, 2)]),
            [false, true],
            "what was sent may be written"
        );
        assert_eq!(meetings(&[(RECV, 11), (SEND, 1)]), [false, true]);
        assert_eq!(meetings(&[(SEND, 1), (RECV, 11)]), [false, true]);
        assert_eq!(meetings(&[(SEND, 1), (SEND, 1), (SEND, 2)]), [false, true, false]);
        assert_eq!(meetings(&[(RECV, 11), (SEND, 1), (SEND, 2)]), [false, true, false]);
    }
}
