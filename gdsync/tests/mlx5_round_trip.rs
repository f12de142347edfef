//! Properties of the mlx5 formats: what is encoded is decoded again, in any ring at any index, and bytes that
//! nobody encoded are an error and never a panic.

use gdsync::wqe::{
    CollapsedProgress, Completion, CompletionKind, Cqe, DataSegment, Doorbell, DoorbellRecord,
    Entry, ErrorSide, Fence, Notify, Octoword, Operation, Payload, ReceiveEntry, ReceiveRing,
    Received, RemoteAddress, SendRing, Syndrome, WorkRequest, WqeOpcode,
};
use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

/// A request that owns its lists.
#[derive(Debug, Clone)]
enum Owned {
    Nop,
    Send(OwnedPayload, Option<u32>),
    Write(RemoteAddress, OwnedPayload, Option<u32>),
    Read(RemoteAddress, Vec<DataSegment>),
    FetchAdd(RemoteAddress, u64, DataSegment),
    CompareSwap(RemoteAddress, u64, u64, DataSegment),
    Dump(DataSegment),
}

#[derive(Debug, Clone)]
enum OwnedPayload {
    Gather(Vec<DataSegment>),
    Inline(Vec<u8>),
}

impl OwnedPayload {
    fn borrow(&self) -> Payload<'_> {
        match self {
            Self::Gather(segments) => Payload::Gather(segments),
            Self::Inline(data) => Payload::Inline(data),
        }
    }
}

impl Owned {
    fn borrow(&self) -> Operation<'_> {
        match self {
            Self::Nop => Operation::Nop,
            Self::Send(payload, imm) => Operation::Send { payload: payload.borrow(), imm: *imm },
            Self::Write(remote, payload, imm) => {
                Operation::Write { remote: *remote, payload: payload.borrow(), imm: *imm }
            }
            Self::Read(remote, into) => Operation::Read { remote: *remote, into },
            Self::FetchAdd(remote, add, into) => {
                Operation::FetchAdd { remote: *remote, add: *add, into: *into }
            }
            Self::CompareSwap(remote, compare, swap, into) => Operation::CompareSwap {
                remote: *remote,
                compare: *compare,
                swap: *swap,
                into: *into,
            },
            Self::Dump(from) => Operation::Dump { from: *from },
        }
    }
}

fn segment() -> impl Strategy<Value = DataSegment> {
    (any::<u32>(), any::<u64>(), 1..=1u32 << 31)
        .prop_map(|(lkey, address, length)| DataSegment::new(lkey, address, length).unwrap())
}

fn word() -> impl Strategy<Value = DataSegment> {
    (any::<u32>(), any::<u64>()).prop_map(|(lkey, addr)| DataSegment::new(lkey, addr, 8).unwrap())
}

fn remote() -> impl Strategy<Value = RemoteAddress> {
    (any::<u64>(), any::<u32>()).prop_map(|(address, rkey)| RemoteAddress { address, rkey })
}

fn payload() -> impl Strategy<Value = OwnedPayload> {
    prop_oneof![
        vec(segment(), 0..=61).prop_map(OwnedPayload::Gather),
        vec(any::<u8>(), 0..=972).prop_map(OwnedPayload::Inline),
    ]
}

fn operation() -> impl Strategy<Value = Owned> {
    prop_oneof![
        Just(Owned::Nop),
        (payload(), any::<Option<u32>>()).prop_map(|(p, imm)| Owned::Send(p, imm)),
        (remote(), payload(), any::<Option<u32>>()).prop_map(|(r, p, imm)| Owned::Write(r, p, imm)),
        (remote(), vec(segment(), 0..=61)).prop_map(|(r, into)| Owned::Read(r, into)),
        (remote(), any::<u64>(), word()).prop_map(|(r, add, into)| Owned::FetchAdd(r, add, into)),
        (remote(), any::<u64>(), any::<u64>(), word())
            .prop_map(|(r, compare, swap, into)| Owned::CompareSwap(r, compare, swap, into)),
        segment().prop_map(Owned::Dump),
    ]
}

fn fence() -> impl Strategy<Value = Fence> {
    prop::sample::select(vec![
        Fence::None,
        Fence::InitiatorSmall,
        Fence::ReadsAndAtomics,
        Fence::Strong,
        Fence::Full,
    ])
}

fn notify() -> impl Strategy<Value = Notify> {
    prop::sample::select(vec![
        Notify::OnError,
        Notify::OnFirstError,
        Notify::Always,
        Notify::AlwaysWithEvent,
    ])
}

fn completion() -> impl Strategy<Value = Completion> {
    let by = prop_oneof![
        Just(Received::Send),
        any::<u32>().prop_map(Received::SendImm),
        any::<u32>().prop_map(Received::SendInvalidate),
        any::<u32>().prop_map(Received::WriteImm),
    ];
    let side = prop::sample::select(vec![ErrorSide::Requester, ErrorSide::Responder]);
    let kind = prop_oneof![
        (prop::sample::select(WqeOpcode::ALL), any::<u32>())
            .prop_map(|(opcode, byte_count)| CompletionKind::Request { opcode, byte_count }),
        (by, any::<u32>(), any::<bool>()).prop_map(|(by, byte_count, solicited)| {
            CompletionKind::Receive { by, byte_count, solicited }
        }),
        (side, any::<u8>(), any::<u8>(), any::<u8>()).prop_map(
            |(side, syndrome, vendor, opcode)| {
                CompletionKind::Error { side, syndrome: Syndrome::from(syndrome), vendor, opcode }
            }
        ),
    ];
    (0..1u32 << 24, any::<u16>(), 0..1u32 << 24, kind)
        .prop_map(|(qpn, index, user_index, kind)| Completion { qpn, index, user_index, kind })
}

/// Bytes that are noise, with a plausible control segment often enough to get past it.
fn noise() -> impl Strategy<Value = Vec<Octoword>> {
    let ctrl = (
        any::<u16>(),
        prop_oneof![prop::sample::select(WqeOpcode::ALL).prop_map(|o| o as u8), any::<u8>()],
        1..=8u8,
    );
    (ctrl, vec(any::<Octoword>(), 16)).prop_map(|((index, opcode, size), mut octowords)| {
        octowords[0] = [0; 16];
        octowords[0][1..3].copy_from_slice(&index.to_be_bytes());
        (octowords[0][3], octowords[0][7]) = (opcode, size);
        octowords
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_request_survives_the_ring(
        operation in operation(),
        qpn in 0..1u32 << 24,
        index: u16,
        fence in fence(),
        notify in notify(),
        solicited: bool,
        log_blocks in 4..8u32,
    ) {
        let operation = operation.borrow();
        let request = WorkRequest { qpn, index, fence, notify, solicited, operation };
        let mut entry = Entry::new();
        entry.encode(&request).unwrap();
        prop_assert_eq!(entry.decode().unwrap(), request);
        let mut ring = SendRing::new(vec![[0; 16]; 4 << log_blocks]).unwrap();
        ring.store(&entry).unwrap();
        let mut fetched = Entry::new();
        ring.fetch(qpn, index, &mut fetched).unwrap();
        prop_assert_eq!(fetched.decode().unwrap(), request);
    }

    #[test]
    fn noise_in_a_ring_never_panics_and_what_decodes_encodes_to_itself(noise in noise()) {
        let ring = SendRing::new(&noise).unwrap();
        let index = u16::from_be_bytes([noise[0][1], noise[0][2]]);
        let mut entry = Entry::new();
        for at in [index, index.wrapping_add(1)] {
            for qpn in [0, 1] {
                let _ = ring.fetch(qpn, at, &mut entry);
                let _ = entry.decode();
            }
        }
        for len in 0..=noise.len() {
            let entry = Entry::from_octowords(&noise[..len]).unwrap();
            if let Ok(request) = entry.decode() {
                let mut again = Entry::new();
                again.encode(&request).unwrap();
                if let Operation::Send { payload: Payload::Inline(data), .. }
                | Operation::Write { payload: Payload::Inline(data), .. } = request.operation
                {
                    // What pads inline data is not part of the request.
                    let padding = (data.len() + 4).next_multiple_of(16) - (data.len() + 4);
                    let end = again.bytes().len() - padding;
                    prop_assert_eq!(&again.bytes()[..end], &entry.bytes()[..end]);
                } else {
                    prop_assert_eq!(&again, &entry);
                }
            }
        }
    }

    #[test]
    fn one_changed_bit_of_a_control_segment_is_noticed_or_changes_the_request(
        operation in operation(),
        bit in 0..128usize,
    ) {
        let request = WorkRequest::new(operation.borrow());
        let mut entry = Entry::new();
        entry.encode(&request).unwrap();
        let mut octowords = entry.octowords().to_vec();
        octowords[0][bit / 8] ^= 1 << (bit % 8);
        let entry = Entry::from_octowords(&octowords).unwrap();
        prop_assert_ne!(entry.decode().ok(), Some(request));
    }

    #[test]
    fn a_receive_survives_the_ring(
        segments in vec(segment(), 0..=8),
        index: u16,
        log_entries in 0..6u32,
    ) {
        let mut ring = ReceiveRing::new(vec![[0; 16]; 8 << log_entries], 8).unwrap();
        ring.store(index, &segments).unwrap();
        let mut entry = ReceiveEntry::new();
        ring.fetch(index, &mut entry).unwrap();
        prop_assert_eq!(entry.segments(), &segments[..]);
    }

    #[test]
    fn noise_in_a_receive_queue_never_panics(noise in vec(any::<Octoword>(), 16), index: u16) {
        for stride in [1, 2, 4, 8, 16] {
            let ring = ReceiveRing::new(&noise, stride).unwrap();
            let mut entry = ReceiveEntry::new();
            let _ = ring.fetch(index, &mut entry);
            prop_assert!(entry.segments().len() <= stride);
        }
    }

    #[test]
    fn a_completion_survives_its_bytes(completion in completion(), owner: bool) {
        let cqe = Cqe::encode(&completion, owner).unwrap();
        prop_assert_eq!(cqe.owner(), owner);
        prop_assert_eq!(cqe.index(), completion.index);
        prop_assert_eq!(cqe.decode().unwrap(), completion);
    }

    #[test]
    fn noise_in_a_completion_never_panics(bytes in vec(any::<u8>(), 64)) {
        let cqe = Cqe::read_from_bytes(&bytes[..]).unwrap();
        if let Ok(completion) = cqe.decode() {
            let again = Cqe::encode(&completion, cqe.owner()).unwrap();
            prop_assert_eq!(again.decode().unwrap(), completion);
            let tail = |cqe: &Cqe| <[u8; 6]>::try_from(&cqe.as_bytes()[56..62]).unwrap();
            if !matches!(completion.kind, CompletionKind::Receive { .. }) {
                prop_assert_eq!(tail(&again), tail(&cqe));
            }
        }
    }

    #[test]
    fn doorbells_survive_their_bytes(qpn in 0..1u32 << 24, index: u16) {
        let doorbell = Doorbell { qpn, index };
        prop_assert_eq!(Doorbell::from_bytes(doorbell.to_bytes()), doorbell);
        prop_assert_eq!(DoorbellRecord::index(DoorbellRecord::word(index)), index);
    }

    #[test]
    fn the_doorbell_of_an_entry_is_the_head_of_its_control_segment(
        operation in operation(), qpn in 0..1u32 << 24, index: u16,
    ) {
        let request = WorkRequest { qpn, index, ..WorkRequest::new(operation.borrow()) };
        let mut entry = Entry::new();
        entry.encode(&request).unwrap();
        let head = <[u8; 8]>::try_from(&entry.bytes()[..8]).unwrap();
        prop_assert_eq!(Doorbell::from_bytes(head), Doorbell { qpn, index });
    }

    #[test]
    fn progress_follows_any_sequence_of_completions_and_stale_readings(
        start in 0..1u64 << 40,
        steps in vec((1..=32768u64, 0..=32767u64), 1..200),
    ) {
        let (mut true_progress, mut seen) = (start, CollapsedProgress::at(start));
        for (step, behind) in steps {
            true_progress += step;
            seen = seen.after((true_progress as u16).wrapping_sub(1));
            prop_assert_eq!(seen.blocks(), true_progress);
            let stale = true_progress.saturating_sub(behind);
            prop_assert_eq!(seen.after((stale as u16).wrapping_sub(1)), seen);
        }
    }
}
