//! Steps of operations on a stream: a list of them is one launch of the kernel `mp_steps`, or one call on a host stream.

use std::sync::Arc;

use gdsync::{Arg, Buffer, Device, Dims, Stream, Word64};
use mp_kernels::{FEW_STEPS, MAX_STEPS, Meeting, Message, StepKind, packet_threads};

use super::{Endpoint, Use, broken};
use crate::data::plane::Plane;
use crate::error::{Error, Result};
use crate::trace::Label;
use crate::transport::{EndState, OneSidedKind, Side};

/// Steps in one launch, and in a short one.
pub(crate) const LAUNCH: usize = MAX_STEPS as usize;
const FEW: usize = FEW_STEPS as usize;
/// Threads of a block at most, and what each copies at once.
const COPYING: u64 = 512;
const WIDE: u64 = 16;
/// A block for every so many bytes of the largest message that goes in one piece …
const BLOCK_BYTES: u64 = 8 << 10;
/// … up to so many, which must be on the GPU at once …
const BLOCKS: u64 = 64;
/// … but one for up to so many bytes: that the last of several blocks signals costs more than they save.
const ALONE: u64 = 16 << 10;

/// Something that a stream does with an operation, for [`Communicator::enqueue`](crate::Communicator::enqueue).
///
/// ```
/// use std::time::Duration;
///
/// use libmp::{Deadline, Device, Step, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// # let (edge, ghost) = (world.alloc::<f64>(&Device::Host, 9)?, world.alloc::<f64>(&Device::Host, 9)?);
/// # let right = world.peer((world.rank() + 1) % world.size())?;
/// # let left = world.peer((world.rank() + world.size() - 1) % world.size())?;
/// # let recv = left.recv(&ghost, 7).prepare()?;
/// # let send = right.send(&edge, 7).prepare()?;
/// let stream = world.stream(&Device::Host)?;
/// let turn = [Step::start(&recv), Step::start(&send), Step::wait(&recv)];
/// for _ in 0..3 {
///     world.enqueue(&stream, &turn)?; // one launch
/// }
/// world.synchronize(&stream, Deadline::after(Duration::from_secs(10)))?;
/// # world.finish()
/// # }
/// ```
#[derive(Clone, Copy)]
#[must_use = "a step does nothing before it is enqueued"]
pub struct Step<'a> {
    pub(crate) plane: &'a Arc<Plane>,
    pub(crate) end: &'a Arc<Endpoint>,
    pub(crate) action: Action,
}

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Sends, or posts the buffer of a receive.
    Start,
    /// Waits for the message of a receive, or for what the host has started of a send.
    Wait,
}

impl Step<'_> {
    /// Of those that are no waits for the host.
    fn kind(&self) -> StepKind {
        match (self.action, self.end.side) {
            (Action::Start, Side::Send) if self.end.one_sided == Some(OneSidedKind::Get) => {
                StepKind::Get
            }
            (Action::Start, Side::Send) => StepKind::Send,
            (Action::Start, Side::Recv) => StepKind::Post,
            (Action::Wait, _) => StepKind::Recv,
        }
    }

    /// Whether a GPU has nothing to do.
    fn is_nothing(&self, message: &Message) -> bool {
        // The peer never writes the buffer, or nobody is told.
        self.kind() == StepKind::Post && (is_taken(message) || self.end.one_sided.is_some())
    }
}

/// The argument of a launch.
#[repr(C)]
#[derive(Clone, Copy)]
struct StepList<const COUNT: usize>([mp_kernels::Step; COUNT]);

/// Enqueues the steps in order, and counts them.
pub(crate) fn enqueue(plane: &Arc<Plane>, stream: &Stream, steps: &[Step<'_>]) -> Result<()> {
    for Step { plane: own, end, .. } in steps {
        if !Arc::ptr_eq(own, plane) {
            return Err(Error::Mismatch {
                op: end.name.to_string(),
                reason: format!(
                    "it is an operation of rank {} of another world or thread, enqueued by rank {}: a list has operations of one rank",
                    own.rank(),
                    plane.rank()
                ),
            });
        }
        end.check(stream)?;
        end.meet(plane)?;
        end.bounds(plane)?;
    }
    let by = if stream.is_capturing() { Use::Captured } else { Use::Once };
    let mut number = 0;
    for (at, step) in steps.iter().enumerate() {
        match step.end.enqueued(plane, step.action, (stream, by)) {
            Ok(enqueued) => number = enqueued,
            Err(error) => {
                undo(&steps[..at], by);
                return Err(error);
            }
        }
    }
    let _span = plane.trace.has_spans().then(|| {
        let what = format!("enqueue {}", label(steps, number).name);
        plane.trace.span("host", what).arg("steps", steps.len() as u64)
    });
    let run = || match stream.device() {
        Device::Host => on_host(stream, steps, by),
        Device::Cuda(_) => run(plane, stream, steps, None).map(drop),
    };
    let label = || label(steps, number);
    let enqueued = plane.probes.around(&plane.trace, stream, label, run);
    if let (Err(error), Some(first)) = (&enqueued, steps.first()) {
        undo(steps, by);
        // The streams of a world that ends meanwhile take no more waits.
        return Err(first.end.cause(plane, error.clone()));
    }
    enqueued
}

fn undo(steps: &[Step<'_>], by: Use) {
    if by == Use::Once {
        steps.iter().for_each(|step| step.end.dequeued());
    }
}

/// What the timeline shows of a list, whose last start or wait has this number.
fn label(steps: &[Step<'_>], number: u64) -> Label {
    let of = |Step { end, action, .. }: &Step<'_>| match action {
        Action::Start => end.name.to_string(),
        Action::Wait => format!("wait for {}", end.name),
    };
    if let [step @ Step { end, action, .. }] = steps
        && number > 0
    {
        let message = || Some(end.message(number));
        let leaves = (*action == Action::Start && end.side == Side::Send).then(message).flatten();
        let arrives = (*action == Action::Wait && end.side == Side::Recv).then(message).flatten();
        return Label { leaves, arrives, ..Label::new(of(step), &end.values(number)) };
    }
    let bytes = steps.iter().map(|step| step.end.memory.len() as u64).sum();
    let name = steps.iter().map(of).collect::<Vec<_>>().join(", ");
    Label::new(name, &[("steps", steps.len() as u64), ("bytes", bytes)])
}

fn on_host(stream: &Stream, steps: &[Step<'_>], by: Use) -> Result<()> {
    let list: Vec<(Action, Arc<Endpoint>)> =
        steps.iter().map(|step| (step.action, step.end.clone())).collect();
    let run = move || {
        // A step that fails ends the list; its report says why.
        let mut goes_on = true;
        for (action, end) in &list {
            goes_on = goes_on && end.run_step(*action);
            if by == Use::Once {
                end.dequeued();
            }
        }
    };
    let op = || steps.first().map_or_else(String::new, |step| step.end.name.to_string());
    stream.call(run).map_err(|source| Error::Memory { op: op(), source })
}

/// What a stream's last launch tells the host: that all before it is done. Not for graphs.
pub(crate) struct Tell(mp_kernels::Step);

impl Tell {
    /// Raises `word` by one each time; `state` counts. Both live as long as the stream.
    pub fn new(state: &EndState, word: &Word64) -> gdsync::Result<Tell> {
        let (theirs, state) = (word.device_address()?, state.state()?);
        let message = Message { theirs, state, ..Message::default() };
        // All blocks have done their parts; none waits for the others.
        let (kind, meet) = (StepKind::Post as u32, Meeting::Last as u32);
        Ok(Tell(mp_kernels::Step { message, kind, meet }))
    }
}

/// Makes a stream of a GPU do them, in as few launches as copies of pieces and waits for the host let it. Then the stream tells
/// the host, if it is to and if there was anything to do: then the result is true.
pub(crate) fn run(
    plane: &Plane,
    stream: &Stream,
    steps: &[Step<'_>],
    tell: Option<&Tell>,
) -> Result<bool> {
    let launched = |steps: &[Step<'_>]| {
        steps.chunks(LAUNCH).try_for_each(|steps| launch(plane, stream, steps, None).map(drop))
    };
    let mut from = 0;
    for (at, step) in steps.iter().enumerate() {
        let end = step.end;
        let copies = &end.met(plane)?.copies;
        let copied = || copies.enqueue(stream).map_err(|source| broken(&end.name, source));
        match (step.action, end.side) {
            (Action::Wait, Side::Send) => {
                launched(&steps[from..at])?;
                end.settle_on(plane, stream)?;
                from = at + 1;
            }
            (Action::Start, Side::Send) if !copies.is_empty() => {
                launched(&steps[from..at])?;
                copied()?;
                from = at;
            }
            (Action::Wait, Side::Recv) if !copies.is_empty() => {
                launched(&steps[from..=at])?;
                copied()?;
                from = at + 1;
            }
            _ => {}
        }
    }
    let rest = &steps[from..];
    match tell {
        None => launched(rest).map(|()| false),
        Some(_) => {
            let last = rest.len().saturating_sub(LAUNCH - 1);
            launched(&rest[..last])?;
            launch(plane, stream, &rest[last..], tell)
        }
    }
}

/// At most [`LAUNCH`] of them. Whether the stream will tell.
fn launch(plane: &Plane, stream: &Stream, steps: &[Step<'_>], tell: Option<&Tell>) -> Result<bool> {
    if steps.len() + usize::from(tell.is_some()) <= FEW {
        launch_as::<FEW>(plane, stream, steps, tell, "mp_steps_few")
    } else {
        launch_as::<LAUNCH>(plane, stream, steps, tell, "mp_steps")
    }
}

fn launch_as<const COUNT: usize>(
    plane: &Plane,
    stream: &Stream,
    steps: &[Step<'_>],
    tell: Option<&Tell>,
    kernel: &str,
) -> Result<bool> {
    let Some(cuda) = stream.device().as_cuda() else { return Ok(false) };
    let failed = |source| match steps.first() {
        Some(first) => broken(&first.end.name, source),
        None => Error::Memory { op: format!("telling what {} has done", stream.name()), source },
    };
    let mut list = StepList([mp_kernels::Step::default(); COUNT]);
    let mut meetings = Meetings::default();
    let (mut count, mut largest, mut threads) = (0, 0, 32);
    let (mut seen, captured) = (0, stream.is_capturing());
    for step in steps {
        let (end, kind) = (step.end, step.kind());
        let way = end.met(plane)?;
        let message = way.message.map_err(|reason| Error::Mismatch {
            op: end.name.to_string(),
            reason: reason.to_owned(),
        })?;
        if step.is_nothing(&message) {
            continue;
        }
        let meet = if meetings.before(kind, &message) { Meeting::All } else { Meeting::None };
        list.0[count] = mp_kernels::Step { message, kind: kind as u32, meet: meet as u32 };
        count += 1;
        if moves(kind, &message) {
            threads = threads.max(threads_for(&message));
            largest = largest.max(if shared(kind, &message) { message.len } else { 0 });
        }
        let bounds = end.bounds(plane)?;
        let word = bounds.abort.seen.as_ref();
        seen = word.and_then(Buffer::device_address).unwrap_or_default();
        if captured {
            let memory = way.held.iter().chain(end.memory.iter()).chain([end.state.memory()]);
            memory.for_each(|memory| stream.hold(memory));
            stream.hold(bounds.report.memory());
            word.into_iter().for_each(|word| stream.hold(word));
        }
    }
    if count == 0 && (!steps.is_empty() || tell.is_none()) {
        return Ok(false);
    }
    if let Some(Tell(step)) = tell {
        list.0[count] = *step;
        count += 1;
    }
    let blocks = blocks_for(largest);
    let count = count as u32;
    let kernel = cuda.kernel(kernel).map_err(failed)?;
    let args = [Arg::new(&list), Arg::new(&count), Arg::new(&seen)];
    // SAFETY: the kernel's parameters; the addresses are those of memory that the ends hold, of the abort word, of what
    // kernels note of it and of reports, which live as long as the world or, in a graph, are held by it; peers write it as the protocol orders.
    unsafe { stream.launch(&kernel, Dims::linear(blocks, threads), &args) }.map_err(failed)?;
    Ok(tell.is_some())
}

/// Threads of a block that suit a message: those for its packets, or what its copy keeps busy.
fn threads_for(message: &Message) -> u32 {
    if message.inbox != 0 {
        return packet_threads(message.len);
    }
    let threads = message.len.div_ceil(WIDE).clamp(1, COPYING);
    (threads as u32).next_multiple_of(32)
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
        StepKind::Get => true,
    }
}

/// Whether a step moves bytes. A receive of what the peer writes into its buffer waits for one word.
fn moves(kind: StepKind, message: &Message) -> bool {
    match kind {
        StepKind::Post => false,
        StepKind::Send | StepKind::Get => true,
        StepKind::Recv => is_taken(message),
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
    /// … all blocks got their part from a window, …
    got: bool,
    /// … and these ends, by their counters, were used by all blocks.
    used: [u64; LAUNCH],
    count: usize,
}

impl Meetings {
    fn before(&mut self, kind: StepKind, message: &Message) -> bool {
        let shared = shared(kind, message);
        let builds = match kind {
            // The buffer may be what was copied.
            StepKind::Post => self.copied || self.got,
            // It may go where others still copy from, or come from what they have put to this rank itself.
            StepKind::Get => self.copied || self.taken || self.got,
            // The source may be what was taken, which the first block alone has, or what all have a part of.
            StepKind::Send => (shared && self.taken) || self.got,
            // What is taken may go where others still copy from, or to.
            StepKind::Recv => !shared && (self.copied || self.got),
        };
        let again = shared && self.used[..self.count].contains(&message.state);
        if builds || again {
            *self = Meetings::default();
        }
        self.copied |= shared && kind == StepKind::Send;
        self.got |= kind == StepKind::Get;
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
    const GET: StepKind = StepKind::Get;

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
    fn a_block_has_a_thread_for_one_or_two_packets_of_a_message() {
        let threads = |len, inbox| threads_for(&Message { len, inbox, ..Message::default() });
        assert_eq!([0, 8, 384, 385, 8192].map(|len| threads(len, 1)), [32, 32, 32, 64, 352]);
        assert_eq!([0, 8, 8193, 64 << 20].map(|len| threads(len, 0)), [32, 32, 512, 512]);
    }

    #[test]
    fn blocks_share_what_is_worth_a_meeting() {
        let sizes = [0, 16 << 10, (16 << 10) + 1, 64 << 10, 1 << 30];
        assert_eq!(sizes.map(blocks_for), [1, 1, 3, 8, 64]);
    }

    #[test]
    fn waiting_for_what_the_peer_writes_moves_nothing() {
        let whole = Message { len: 1 << 20, ..Message::default() };
        let packets = Message { inbox: 1, ..whole };
        let by_kind = |message| [POST, SEND, RECV, GET].map(|kind| moves(kind, message));
        assert_eq!(by_kind(&whole), [false, true, false, true]);
        assert_eq!(by_kind(&packets), [false, true, true, true]);
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
        assert_eq!(meetings(&[(GET, 5), (SEND, 1)]), [false, true], "what was got is sent");
        assert_eq!(meetings(&[(SEND, 1), (GET, 5), (POST, 2)]), [false, true, true]);
        assert_eq!(meetings(&[(GET, 5), (RECV, 1), (RECV, 11)]), [false, false, true]);
        assert_eq!(meetings(&[(SEND, 1), (SEND, 1), (SEND, 2)]), [false, true, false]);
        assert_eq!(meetings(&[(RECV, 11), (SEND, 1), (SEND, 2)]), [false, true, false]);
    }
}
