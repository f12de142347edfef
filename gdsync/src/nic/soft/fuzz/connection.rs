//! One end of a connection whose peer says anything: frames about requests, and those about keys, liveness and the end, in any order,
//! over a wire to another host whose device carries out requests, or to a process of this machine whose memory may be mapped.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Bench, QPN, Tape, in_parts, options, record};
use crate::memory::Space;
use crate::nic::memory_region::Access;
use crate::nic::soft::direct::MapRequest;
use crate::nic::soft::keys::TakenBack;
use crate::nic::soft::slot::{By, Slot, SlotParts};
use crate::nic::soft::state::{CarriedOut, DeviceUse, Machine, Outgoing, Payload, Violation};
use crate::nic::soft::wire::frame::{Frame, HEADER};
use crate::nic::soft::wire::{Cut, Sink, Wire};
use crate::verbs::RemoteRegion;
use crate::wqe::{Doorbell, Syndrome};

/// What a peer may make this side keep to say, and what goes out at once with it.
const MOST_TO_SAY: usize = 1 << 16;

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

/// What arrives, and what has gone out.
#[derive(Default)]
struct Line {
    arriving: VecDeque<(Frame, Vec<u8>)>,
    /// Requests that the device was given: bytes here, and whether staged.
    given: VecDeque<(usize, bool)>,
    /// Whether the oldest of them has failed, once the device has reported it.
    report: Option<bool>,
    sent: usize,
}

/// A wire that takes all there is to send, and brings what the input says.
struct Said {
    line: Arc<Mutex<Line>>,
    device: Option<DeviceUse>,
    brought: Vec<u8>,
}

impl Wire for Said {
    fn poll_up(&mut self, _wanted: bool) -> Result<bool, Cut> {
        Ok(true)
    }

    fn max_payload(&self) -> usize {
        4096
    }

    fn has_room(&mut self) -> bool {
        self.line.lock().is_ok_and(|line| line.given.len() < 32)
    }

    fn device(&self) -> Option<DeviceUse> {
        self.device
    }

    fn carried_out(&mut self) -> Option<CarriedOut<'_>> {
        let mut line = self.line.lock().ok()?;
        let failed = line.report.take()?;
        let (len, staged) = line.given.pop_front()?;
        drop(line);
        self.brought.resize(len, 7);
        let outcome = if failed { Err(Syndrome::RemoteAccess) } else { Ok(()) };
        let brought = (staged && !failed).then(|| Payload::of(&self.brought[..len]));
        Some(CarriedOut { outcome, len, staged, brought })
    }

    fn send(&mut self, out: &mut Outgoing) -> Result<(), Cut> {
        let mut payload = vec![0; out.len];
        // SAFETY: the vector has this many bytes.
        unsafe { out.copy_payload(payload.as_mut_ptr()) };
        if let Ok(mut line) = self.line.lock() {
            line.sent += 1;
            match out.request {
                Some(_) => line.given.push_back((out.len, out.staged)),
                // Whatever this side says is a frame that its peer understands.
                None => {
                    let said = Frame::decode(out.frame.encode(out.len as u32));
                    assert_eq!(said, Ok((out.frame, out.len as u32)));
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<bool, Cut> {
        Ok(false)
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn receive(&mut self, sink: &mut dyn Sink) -> Result<bool, Cut> {
        let arriving = std::mem::take(&mut self.line.lock().map_err(|_| cut())?.arriving);
        let any = !arriving.is_empty();
        for (frame, payload) in arriving {
            let first = usize::from(payload.first().copied().unwrap_or(0));
            in_parts(sink, frame, &payload, first)?;
        }
        Ok(any)
    }
}

fn cut() -> Cut {
    Violation::Other("a test").into()
}

/// One connection: the first byte says over what; then a program, a byte that says what happens, and its operands.
pub fn connection(data: &[u8]) {
    BENCH.with_borrow_mut(|bench| {
        let bench = bench.get_or_insert_with(|| Bench::of(Space::Pinned));
        bench.clear();
        let mut tape = Tape(data);
        End::new(bench, tape.byte()).execute(&mut tape);
        bench.check();
    });
}

struct End<'a> {
    bench: &'a Bench,
    slot: Slot,
    line: Arc<Mutex<Line>>,
    /// What was to be mapped.
    requests: Receiver<MapRequest>,
    now: Instant,
    next: u16,
}

impl<'a> End<'a> {
    fn new(bench: &'a Bench, over: u8) -> End<'a> {
        let (mapper, requests) = channel();
        let queue = &bench.queues[0];
        let mut slot = Slot::new(SlotParts {
            qpn: QPN,
            token: 1,
            memory: queue.clone(),
            machine: Machine::new(QPN, queue, &options()).expect("a machine"),
            timeout: Duration::from_millis(10),
            status: Arc::default(),
            map_peers: true,
            mapper,
            door: None,
        });
        let same_machine = over & 1 != 0;
        let device = DeviceUse { staged: over & 2 != 0, atomics: over & 4 != 0 };
        let line = Arc::new(Mutex::new(Line::default()));
        let device = (!same_machine && over & 8 == 0).then_some(device);
        slot.attach(
            Box::new(Said { line: line.clone(), device, brought: Vec::new() }),
            same_machine,
        );
        End { bench, slot, line, requests, now: Instant::now(), next: 0 }
    }

    fn execute(&mut self, tape: &mut Tape<'_>) {
        let mut out = Outgoing::new();
        // Up before the first frame, as frames that come before are the greeting's business.
        self.slot.drive(By::Engine, &self.bench.keys, self.now, &mut out);
        while !tape.0.is_empty() {
            let what = tape.byte();
            match what % 10 {
                0 => self.arrive(tape),
                1 => self.say(tape),
                2 => self.bench.post(tape, &mut self.next),
                3 => {
                    let queue = &self.bench.queues[0];
                    queue.send_record().store(record(self.next), Ordering::Relaxed);
                    let rung = Doorbell { qpn: QPN, index: self.next };
                    let value = u64::from_ne_bytes(rung.to_bytes());
                    queue.doorbell().store(value, Ordering::Relaxed);
                }
                4 => self.line.lock().expect("one thread").report = Some(what & 0x80 != 0),
                5 => self.map(what & 0x80 != 0),
                6 => {
                    let key = self.key(tape);
                    self.slot.revoke(key, &Arc::new(TakenBack::default()));
                }
                7 => {
                    self.now += Duration::from_micros(100 * u64::from(tape.byte()));
                    self.slot.keep_house(self.now);
                }
                8 if what & 0x80 != 0 => self.slot.close(),
                _ => {
                    let by = if what & 0x40 != 0 { By::Waiting } else { By::Engine };
                    self.slot.drive(by, &self.bench.keys, self.now, &mut out);
                }
            }
        }
        self.slot.drive(By::Engine, &self.bench.keys, self.now, &mut out);
        let sent = self.line.lock().expect("one thread").sent;
        assert!(sent < MOST_TO_SAY, "{sent} frames");
    }

    /// A key of this side, or one that means nothing.
    fn key(&self, tape: &mut Tape<'_>) -> u32 {
        let byte = tape.byte();
        self.bench.rkeys.get(usize::from(byte % 4)).copied().unwrap_or(u32::from(byte))
    }

    fn push(&mut self, frame: Frame, payload: Vec<u8>) {
        self.line.lock().expect("one thread").arriving.push_back((frame, payload));
    }

    /// A frame of any bytes.
    fn arrive(&mut self, tape: &mut Tape<'_>) {
        let mut bytes: [u8; HEADER] = tape.bytes();
        // A sequence number that may pass: one byte of it is enough.
        bytes[5..8].fill(0);
        if let Ok((frame, payload)) = Frame::decode(bytes)
            && payload <= 4096
        {
            let payload = (0..payload).map(|_| tape.byte()).collect();
            self.push(frame, payload);
        }
    }

    /// A frame about keys that makes sense, perhaps not now.
    fn say(&mut self, tape: &mut Tape<'_>) {
        let [what, size, rights] = tape.bytes();
        let (key, address) = (self.key(tape), self.bench.address);
        match what % 5 {
            0 => self.push(Frame::Resolve { key }, Vec::new()),
            1 => {
                let region = RemoteRegion { address, size: u64::from(size), rkey: key };
                let way = postcard::to_stdvec(&region).expect("plain data");
                self.push(Frame::Resolved { key, address, access: rights }, way);
            }
            2 => self.push(Frame::Resolved { key, address, access: rights }, Vec::new()),
            3 => self.push(Frame::Revoke { key }, Vec::new()),
            _ => self.push(Frame::Revoked { key }, Vec::new()),
        }
    }

    /// The mapper is done with what it was asked for first.
    fn map(&mut self, fails: bool) {
        let Ok(MapRequest { key, answer, .. }) = self.requests.try_recv() else { return };
        let memory = self.bench.region(Access::ALL);
        self.slot.learn(key, answer, (!fails).then_some(memory));
    }
}
