//! Safe verbs against a real kernel driver: two queue pairs of one device, connected to each other. Run by
//! `tools/rxe-vm test -p gdsync --test verbs_rxe` in a guest with a software RoCE device; runs as well on any machine
//! with an RDMA device (`cargo test -p gdsync --test verbs_rxe -- --ignored`).

use gdsync::verbs::{
    self, Access, Completion, CompletionQueue, Context, DmaBuf, Done, Endpoint, Error, Failure,
    GidType, LinkLayer, MemoryRegion, PortChoice, ProtectionDomain, QueuePair, QueuePairOptions,
    QueueSide, ReadyToSend, RegionSlice, RemoteRegion, RetryPolicy, SendOperation, SendRequest,
    Status,
};
use gdsync::{Buffer, Deadline, Device, Space};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// Gives up on a silent peer after a few tries of 33 ms: where that is what is awaited. In a slow guest a peer that is there
/// may be silent as long.
fn impatient() -> RetryPolicy {
    RetryPolicy { timeout: Duration::from_millis(33), retries: 2, not_ready_retries: 2 }
}

/// Two connected queue pairs, `a` and `b`, each with its own completion queue, and 64 KiB of memory for each.
struct Pair {
    domain: Arc<ProtectionDomain>,
    a: QueuePair<ReadyToSend>,
    b: QueuePair<ReadyToSend>,
    a_done: Arc<CompletionQueue>,
    b_done: Arc<CompletionQueue>,
    a_memory: Arc<MemoryRegion>,
    b_memory: Arc<MemoryRegion>,
}

const SIZE: usize = 65536;

fn open() -> Arc<Context> {
    verbs::device(None).unwrap().open().unwrap()
}

fn memory(domain: &Arc<ProtectionDomain>, access: Access) -> Arc<MemoryRegion> {
    let buffer = Buffer::<u8>::new(&Device::Host, Space::Host, SIZE).unwrap();
    domain.register(&buffer, access).unwrap()
}

fn pair() -> Pair {
    pair_that_retries(&RetryPolicy::default())
}

fn pair_that_retries(retry: &RetryPolicy) -> Pair {
    pair_with(&QueuePairOptions { segments: 4, ..QueuePairOptions::default() }, retry)
}

fn pair_with(options: &QueuePairOptions, retry: &RetryPolicy) -> Pair {
    let context = open();
    let port = context.port(&PortChoice::default()).unwrap();
    let domain = context.protection_domain().unwrap();
    let (a_done, b_done) =
        (context.completion_queue(256).unwrap(), context.completion_queue(256).unwrap());
    let make = |done| domain.queue_pair(done, done, options).unwrap();
    let a = make(&a_done).init(&port, Access::ALL).unwrap();
    let b = make(&b_done).init(&port, Access::ALL).unwrap();
    // The endpoints travel as bytes, as they do between processes.
    let (to_a, to_b) = (b.endpoint().to_bytes(), a.endpoint().to_bytes());
    let connect = |qp: QueuePair<verbs::Init>, peer: &[u8]| {
        let peer = Endpoint::from_bytes(peer).unwrap();
        qp.connect(&peer).unwrap().ready_to_send(retry).unwrap()
    };
    let (a, b) = (connect(a, &to_a), connect(b, &to_b));
    let a_memory = memory(&domain, Access::ALL);
    let b_memory = memory(&domain, Access::ALL);
    Pair { domain, a, b, a_done, b_done, a_memory, b_memory }
}

fn fill(region: &MemoryRegion, seed: u8) -> Vec<u8> {
    let bytes: Vec<u8> = (0..region.len()).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
    region.memory().write(&bytes).unwrap();
    bytes
}

fn bytes(region: &MemoryRegion) -> Vec<u8> {
    region.memory().to_vec().unwrap()
}

fn slice(region: &Arc<MemoryRegion>, range: std::ops::Range<usize>) -> [RegionSlice; 1] {
    [region.slice(range).unwrap()]
}

fn post(qp: &QueuePair<ReadyToSend>, id: u64, operation: SendOperation<'_>) {
    qp.post(&SendRequest::new(id, operation)).unwrap();
}

fn done(queue: &CompletionQueue) -> (u64, Done) {
    let Completion { id, outcome, .. } = queue.wait(soon()).unwrap();
    (id, outcome.unwrap_or_else(|failure| panic!("request {id}: {failure}")))
}

fn failed(queue: &CompletionQueue) -> (u64, QueueSide, Status) {
    let Completion { id, outcome, .. } = queue.wait(soon()).unwrap();
    let Failure { side, status, .. } = outcome.expect_err("the request fails");
    (id, side, status)
}

fn nothing_more(queue: &CompletionQueue) {
    let wait = Deadline::after(Duration::from_millis(20));
    match queue.wait(wait) {
        Err(Error::Timeout { .. }) => {}
        other => panic!("expected no completion, got {other:?}"),
    }
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn a_device_has_an_active_port_with_a_routable_gid() {
    let context = open();
    assert!(context.limits().ports >= 1, "{context:?}");
    let port = context.port(&PortChoice::default()).unwrap();
    assert!(port.active);
    let gid = port.gid.unwrap();
    if port.link_layer == LinkLayer::Ethernet {
        assert_eq!(gid.kind, GidType::RoceV2);
        assert_ne!(gid.gid.0[..2], [0xfe, 0x80], "an address that is not link-local: {gid}");
    }
    let table = context.gids(&port).unwrap();
    assert!(table.contains(&gid));
    let named = PortChoice {
        port: Some(port.number),
        gid_index: Some(table[0].index),
        ..PortChoice::default()
    };
    assert_eq!(context.port(&named).unwrap().gid, Some(table[0]));
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn what_is_not_there_is_an_error_that_lists_what_is() {
    let error = verbs::device(Some("mlx5_9")).unwrap_err().to_string();
    let name = open().name().to_owned();
    assert_eq!(error, format!("no RDMA device mlx5_9; there are: {name}"));
    let port = open().port(&PortChoice { port: Some(9), ..PortChoice::default() }).unwrap_err();
    assert!(port.to_string().contains("no active port 9: port 1: active"), "{port}");
    let gid =
        open().port(&PortChoice { gid_index: Some(200), ..PortChoice::default() }).unwrap_err();
    assert!(gid.to_string().contains("has no GID at index 200; its table: 0: "), "{gid}");
    let queue = open().completion_queue(u32::MAX / 2).unwrap_err();
    assert!(queue.to_string().starts_with("ibv_create_cq failed on "), "{queue}");
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn a_message_arrives_in_the_receive_piece_by_piece() {
    let pair = pair();
    let sent = fill(&pair.a_memory, 1);
    let into = [pair.b_memory.slice(100..110).unwrap(), pair.b_memory.slice(500..4000).unwrap()];
    pair.b.post_receive(7, &into).unwrap();
    let from = [pair.a_memory.slice(3..5).unwrap(), pair.a_memory.slice(1000..2000).unwrap()];
    post(&pair.a, 8, SendOperation::Send { from: &from, imm: None });
    assert_eq!(done(&pair.a_done), (8, Done::Sent));
    assert_eq!(done(&pair.b_done), (7, Done::Received { length: 1002, imm: None }));
    let message = [&sent[3..5], &sent[1000..2000]].concat();
    let got = bytes(&pair.b_memory);
    assert_eq!(got[100..110], message[..10]);
    assert_eq!(got[500..500 + 992], message[10..]);
    assert_eq!(got[1492..4000], [0; 4000 - 1492], "nothing behind the message is touched");
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn immediates_and_inline_data_arrive() {
    let pair = pair();
    for id in 0..3 {
        pair.b.post_receive(id, &slice(&pair.b_memory, 0..64)).unwrap();
    }
    let imm = Some(0x0102_0304);
    post(&pair.a, 10, SendOperation::SendInline { data: b"inline", imm });
    assert_eq!(done(&pair.b_done), (0, Done::Received { length: 6, imm }));
    assert_eq!(bytes(&pair.b_memory)[..6], *b"inline");
    post(&pair.a, 11, SendOperation::SendInline { data: b"", imm: None });
    assert_eq!(done(&pair.b_done), (1, Done::Received { length: 0, imm: None }));
    let to = pair.b_memory.remote().at(64, 8).unwrap();
    post(&pair.a, 12, SendOperation::WriteInline { data: b"at 64..!", to, imm: Some(5) });
    assert_eq!(done(&pair.b_done), (2, Done::ReceivedWrite { length: 8, imm: 5 }));
    assert_eq!(bytes(&pair.b_memory)[64..72], *b"at 64..!");
    let ends = [done(&pair.a_done), done(&pair.a_done), done(&pair.a_done)];
    assert_eq!(ends, [(10, Done::Sent), (11, Done::Sent), (12, Done::Written)]);
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn a_write_lands_in_the_peers_memory_and_nowhere_else() {
    let pair = pair();
    let sent = fill(&pair.a_memory, 2);
    let to = pair.b_memory.remote().at(1000, 20_000).unwrap();
    let from = slice(&pair.a_memory, 7..20_007);
    post(&pair.a, 1, SendOperation::Write { from: &from, to, imm: None });
    assert_eq!(done(&pair.a_done), (1, Done::Written));
    let got = bytes(&pair.b_memory);
    assert_eq!(got[1000..21_000], sent[7..20_007]);
    assert!(got[..1000].iter().chain(&got[21_000..]).all(|b| *b == 0));
    nothing_more(&pair.b_done);
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn a_write_with_immediate_uses_up_a_receive() {
    let pair = pair();
    let sent = fill(&pair.a_memory, 3);
    pair.b.post_receive(4, &[]).unwrap();
    let to = pair.b_memory.remote().at(0, 5000).unwrap();
    let from = slice(&pair.a_memory, 0..5000);
    post(&pair.a, 5, SendOperation::Write { from: &from, to, imm: Some(0xdead_beef) });
    assert_eq!(done(&pair.b_done), (4, Done::ReceivedWrite { length: 5000, imm: 0xdead_beef }));
    assert_eq!(bytes(&pair.b_memory)[..5000], sent[..5000], "the data are there before it");
    assert_eq!(done(&pair.a_done), (5, Done::Written));
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn a_read_brings_the_peers_memory() {
    let pair = pair();
    let theirs = fill(&pair.b_memory, 4);
    let from = pair.b_memory.remote().at(333, 10_000).unwrap();
    let into = [pair.a_memory.slice(0..1).unwrap(), pair.a_memory.slice(10..10_009).unwrap()];
    post(&pair.a, 1, SendOperation::Read { into: &into, from });
    assert_eq!(done(&pair.a_done), (1, Done::Read));
    let got = bytes(&pair.a_memory);
    assert_eq!((got[0], &got[10..10_009]), (theirs[333], &theirs[334..10_333]));
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn atomics_change_the_word_and_bring_the_old_value() {
    let pair = pair();
    let word = pair.b_memory.remote().at(64, 8).unwrap();
    let [into] = slice(&pair.a_memory, 8..16);
    let number = |region: &MemoryRegion, at: usize| {
        u64::from_ne_bytes(bytes(region)[at..at + 8].try_into().unwrap())
    };
    post(&pair.a, 1, SendOperation::FetchAdd { word, add: 40, into: &into });
    assert_eq!(done(&pair.a_done), (1, Done::FetchedAndAdded));
    assert_eq!((number(&pair.a_memory, 8), number(&pair.b_memory, 64)), (0, 40));
    post(&pair.a, 2, SendOperation::FetchAdd { word, add: u64::MAX, into: &into });
    assert_eq!(done(&pair.a_done), (2, Done::FetchedAndAdded));
    assert_eq!((number(&pair.a_memory, 8), number(&pair.b_memory, 64)), (40, 39));
    let swap = 0x0123_4567_89ab_cdef;
    post(&pair.a, 3, SendOperation::CompareSwap { word, compare: 1, swap, into: &into });
    assert_eq!(done(&pair.a_done), (3, Done::ComparedAndSwapped));
    assert_eq!((number(&pair.a_memory, 8), number(&pair.b_memory, 64)), (39, 39), "no match");
    post(&pair.a, 4, SendOperation::CompareSwap { word, compare: 39, swap, into: &into });
    assert_eq!(done(&pair.a_done), (4, Done::ComparedAndSwapped));
    assert_eq!((number(&pair.a_memory, 8), number(&pair.b_memory, 64)), (39, swap), "a match");
    let [short] = slice(&pair.a_memory, 0..4);
    let request = SendRequest::new(5, SendOperation::FetchAdd { word, add: 1, into: &short });
    assert!(matches!(pair.a.post(&request), Err(Error::AtomicResult { length: 4 })));
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn a_wrong_key_is_a_remote_access_error_and_flushes_the_rest() {
    let pair = pair();
    let mut wrong = pair.b_memory.remote().at(0, 64).unwrap();
    wrong.rkey ^= 0x55;
    let from = slice(&pair.a_memory, 0..64);
    pair.a.post_receive(3, &from).unwrap();
    post(&pair.a, 1, SendOperation::Write { from: &from, to: wrong, imm: None });
    assert_eq!(failed(&pair.a_done), (1, QueueSide::Send, Status::RemoteAccess));
    post(&pair.a, 2, SendOperation::Send { from: &from, imm: None });
    let mut rest = [failed(&pair.a_done), failed(&pair.a_done)];
    rest.sort_by_key(|(id, ..)| *id);
    let flushed = Status::Flushed;
    assert_eq!(rest, [(2, QueueSide::Send, flushed), (3, QueueSide::Receive, flushed)]);
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn memory_that_is_not_the_peers_to_touch_is_a_remote_access_error() {
    type Forbidden = fn(&Pair, RemoteRegion, RemoteRegion);
    let past_the_end: Forbidden = |pair, open, _| {
        let long = RemoteRegion { size: open.size + 8, ..open };
        let to = long.at(open.size - 56, 64).unwrap();
        let from = slice(&pair.a_memory, 0..64);
        post(&pair.a, 1, SendOperation::Write { from: &from, to, imm: None });
    };
    let write_only_local: Forbidden = |pair, _, local| {
        let (from, to) = (slice(&pair.a_memory, 0..64), local.at(0, 64).unwrap());
        post(&pair.a, 1, SendOperation::Write { from: &from, to, imm: None });
    };
    let read_only_local: Forbidden = |pair, _, local| {
        let (into, from) = (slice(&pair.a_memory, 0..64), local.at(0, 64).unwrap());
        post(&pair.a, 1, SendOperation::Read { into: &into, from });
    };
    let atomic_only_local: Forbidden = |pair, _, local| {
        let ([into], word) = (slice(&pair.a_memory, 0..8), local.at(0, 8).unwrap());
        post(&pair.a, 1, SendOperation::FetchAdd { word, add: 1, into: &into });
    };
    for forbidden in [past_the_end, write_only_local, read_only_local, atomic_only_local] {
        let pair = pair();
        let local = memory(&pair.domain, Access::LOCAL);
        forbidden(&pair, pair.b_memory.remote(), local.remote());
        assert_eq!(failed(&pair.a_done), (1, QueueSide::Send, Status::RemoteAccess));
        assert!(bytes(&local).iter().all(|b| *b == 0), "nothing was written");
    }
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn a_receive_too_short_fails_on_both_sides() {
    let pair = pair();
    pair.b.post_receive(1, &slice(&pair.b_memory, 0..10)).unwrap();
    let from = slice(&pair.a_memory, 0..11);
    post(&pair.a, 2, SendOperation::Send { from: &from, imm: None });
    let (sender, receiver) = (failed(&pair.a_done), failed(&pair.b_done));
    assert_eq!((sender.0, sender.1), (2, QueueSide::Send));
    assert_eq!((receiver.0, receiver.1), (1, QueueSide::Receive));
    // The first are those of the InfiniBand specification. rxe of Linux 6.1 takes a receive that is too short for
    // a malformed one and answers with the second.
    let specified = (Status::RemoteInvalidRequest, Status::LocalLength);
    let rxe = (Status::RemoteOperation, Status::LocalQpOperation);
    let found = (sender.2, receiver.2);
    assert!(found == specified || found == rxe, "{found:?}");
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn a_send_without_a_receive_gives_up_after_its_retries() {
    let pair = pair();
    let from = slice(&pair.a_memory, 0..10);
    post(&pair.a, 1, SendOperation::Send { from: &from, imm: None });
    let expected = (1, QueueSide::Send, Status::ReceiverNotReadyRetryExceeded);
    assert_eq!(failed(&pair.a_done), expected);
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn a_peer_that_is_gone_is_retry_exceeded_and_flushes_the_rest() {
    let Pair { a, b, a_done, a_memory, b_memory, .. } = pair_that_retries(&impatient());
    drop(b);
    let (from, start) = (slice(&a_memory, 0..64), Instant::now());
    let to = b_memory.remote().at(0, 64).unwrap();
    for id in 0..3 {
        post(&a, id, SendOperation::Write { from: &from, to, imm: None });
    }
    assert_eq!(failed(&a_done), (0, QueueSide::Send, Status::RetryExceeded));
    assert!(start.elapsed() < Duration::from_secs(15), "it took {:?}", start.elapsed());
    for id in 1..3 {
        assert_eq!(failed(&a_done), (id, QueueSide::Send, Status::Flushed));
    }
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn an_aborted_queue_pair_flushes_everything_in_flight() {
    let pair = pair();
    for id in 0..5 {
        pair.b.post_receive(id, &slice(&pair.b_memory, 0..64)).unwrap();
    }
    pair.b.abort().unwrap();
    for id in 0..5 {
        assert_eq!(failed(&pair.b_done), (id, QueueSide::Receive, Status::Flushed));
    }
    nothing_more(&pair.b_done);
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn a_full_queue_is_an_error_until_its_completions_are_polled() {
    let options = QueuePairOptions { send_depth: 4, receive_depth: 2, ..Default::default() };
    let pair = pair_with(&options, &RetryPolicy::default());
    let receive = |id| pair.b.post_receive(id, &slice(&pair.b_memory, 0..8));
    receive(0).unwrap();
    receive(1).unwrap();
    assert!(matches!(receive(2), Err(Error::QueueFull { queue: "receive", depth: 2, .. })));
    let to = pair.b_memory.remote().at(0, 8).unwrap();
    let from = slice(&pair.a_memory, 0..8);
    let write = |id| {
        pair.a.post(&SendRequest::new(id, SendOperation::Write { from: &from, to, imm: None }))
    };
    (0..4).for_each(|id| write(id).unwrap());
    assert!(matches!(write(4), Err(Error::QueueFull { queue: "send", depth: 4, .. })));
    assert_eq!(done(&pair.a_done), (0, Done::Written));
    write(4).unwrap();
    for id in 1..5 {
        assert_eq!(done(&pair.a_done), (id, Done::Written));
    }
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn unsignaled_requests_are_retired_by_the_next_signaled_one() {
    let options = QueuePairOptions { send_depth: 8, ..Default::default() };
    let pair = pair_with(&options, &RetryPolicy::default());
    let sent = fill(&pair.a_memory, 5);
    for round in 0..200u64 {
        for k in 0..8 {
            let at = (round * 8 + k) as usize * 8;
            let from = slice(&pair.a_memory, at..at + 8);
            let to = pair.b_memory.remote().at(at as u64, 8).unwrap();
            let operation = SendOperation::Write { from: &from, to, imm: None };
            let request = SendRequest::new(round * 8 + k, operation);
            pair.a.post(&SendRequest { signaled: k == 7, ..request }).unwrap();
        }
        assert_eq!(done(&pair.a_done), (round * 8 + 7, Done::Written));
    }
    assert_eq!(bytes(&pair.b_memory)[..12_800], sent[..12_800]);
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn a_thousand_messages_arrive_in_order_in_both_directions() {
    const COUNT: u64 = 1000;
    let pair = pair();
    let from = (slice(&pair.a_memory, 0..4096), slice(&pair.b_memory, 0..4096));
    let into = (slice(&pair.a_memory, 8192..12_288), slice(&pair.b_memory, 8192..12_288));
    for id in 0..32 {
        pair.a.post_receive(id, &into.0).unwrap();
        pair.b.post_receive(id, &into.1).unwrap();
    }
    let (mut sent, mut received) = ([0; 2], [0; 2]);
    let deadline = Deadline::after(Duration::from_secs(60));
    let mut found = Vec::new();
    while received != [COUNT; 2] {
        assert!(!deadline.expired(), "sent {sent:?}, received {received:?} of {COUNT}");
        for (side, qp, from) in [(0, &pair.a, &from.0), (1, &pair.b, &from.1)] {
            // No more than the peer has receives for.
            if sent[side] < COUNT && sent[side] - received[1 - side] < 16 {
                let imm = Some(sent[side] as u32);
                post(qp, sent[side], SendOperation::Send { from, imm });
                sent[side] += 1;
            }
        }
        let sides = [(0, &pair.a, &pair.a_done, &into.0), (1, &pair.b, &pair.b_done, &into.1)];
        for (side, qp, queue, into) in sides {
            queue.poll(&mut found).unwrap();
            for Completion { outcome, .. } in found.drain(..) {
                if let Done::Received { length, imm } = outcome.unwrap() {
                    assert_eq!((length, imm), (4096, Some(received[side] as u32)));
                    received[side] += 1;
                    qp.post_receive(received[side] + 31, into).unwrap();
                }
            }
        }
        std::thread::yield_now();
    }
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn memory_in_flight_is_kept_and_everything_may_be_dropped_in_any_order() {
    let Pair { domain, a, b, a_done, b_done, a_memory, b_memory } = pair();
    let watched = Arc::downgrade(&b_memory);
    let sent = fill(&a_memory, 6);
    b.post_receive(1, &slice(&b_memory, 0..1000)).unwrap();
    drop(b_memory);
    drop(domain);
    assert!(watched.upgrade().is_some(), "the receive holds its memory");
    let from = slice(&a_memory, 0..1000);
    post(&a, 2, SendOperation::Send { from: &from, imm: None });
    drop((from, a_memory));
    assert_eq!(done(&a_done), (2, Done::Sent));
    let kept = watched.upgrade().unwrap();
    assert_eq!(done(&b_done), (1, Done::Received { length: 1000, imm: None }));
    assert_eq!(bytes(&kept)[..1000], sent[..1000]);
    drop(kept);
    assert!(watched.upgrade().is_none(), "the completion has let it go");
    drop(a_done);
    drop(a);
    drop(b);
    drop(b_done);
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn completions_of_a_dropped_queue_pair_are_not_reported_to_anyone() {
    let Pair { domain, a, b, a_done, b_done, a_memory, b_memory } = pair();
    let watched = Arc::downgrade(&b_memory);
    b.post_receive(1, &slice(&b_memory, 0..8)).unwrap();
    let from = slice(&a_memory, 0..8);
    post(&a, 2, SendOperation::Send { from: &from, imm: None });
    assert_eq!(done(&a_done), (2, Done::Sent));
    drop(b_memory);
    drop(b);
    assert!(watched.upgrade().is_none(), "with the queue pair its receives are gone");
    nothing_more(&b_done);
    drop(domain);
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn a_dma_buf_that_the_device_refuses_falls_back_to_the_address() {
    let domain = open().protection_domain().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let refused = || Ok(DmaBuf { fd: null.as_fd(), offset: 0 });
    let buffer = Buffer::<u8>::new(&Device::Host, Space::Pinned, 4096).unwrap();
    // SAFETY: /dev/null exports nothing, so nothing else either.
    let region = unsafe { domain.register_gpu(&buffer, refused(), Access::ALL) }.unwrap();
    assert_eq!(region.len(), 4096);
    // Empty memory cannot be registered by its address: both reasons are reported.
    let nothing = buffer.slice(0..0).unwrap();
    // SAFETY: as above.
    let error = unsafe { domain.register_gpu(&nothing, refused(), Access::ALL) }.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("as a dma-buf: ibv_reg_dmabuf_mr: "), "{text}");
    assert!(text.contains("by address (nvidia-peermem): "), "{text}");
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn a_peer_on_another_kind_of_network_is_refused() {
    let context = open();
    let port = context.port(&PortChoice::default()).unwrap();
    let domain = context.protection_domain().unwrap();
    let queue = context.completion_queue(8).unwrap();
    let qp = domain.queue_pair(&queue, &queue, &QueuePairOptions::default()).unwrap();
    let qp = qp.init(&port, Access::LOCAL).unwrap();
    let link_layer = match port.link_layer {
        LinkLayer::InfiniBand => LinkLayer::Ethernet,
        LinkLayer::Ethernet => LinkLayer::InfiniBand,
    };
    let peer = Endpoint { link_layer, ..qp.endpoint() };
    let error = qp.connect(&peer).unwrap_err();
    assert!(matches!(error, Error::LinkLayer { .. }), "{error}");
}
