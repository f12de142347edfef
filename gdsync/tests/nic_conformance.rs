//! What every NIC must do, written against the trait alone (`docs/nic-provider.md`). A new NIC adds itself to [`nics`].

mod soft_common;

use std::time::{Duration, Instant};

use gdsync::nic::{
    Access, CompletionMode, Error, MemoryRegion, Nic, Posters, Prepared, QueuePair,
    QueuePairOptions, Trigger, WireKind,
};
use gdsync::verbs::RdmaOptions;
use gdsync::wqe::{Operation, Payload, RemoteAddress, Syndrome, WorkRequest};
use gdsync::{Buffer, Device};
use soft_common::operations::{syndrome, write};
use soft_common::{Outcome, Way, signaled, soon};

/// Two NICs that reach each other, and the wire between them.
type Nics = (Box<dyn Nic>, Box<dyn Nic>, WireKind);

/// Each kind that this machine can try.
fn nics() -> Outcome<Vec<Nics>> {
    let soft = |way: Way| -> Outcome<Nics> {
        Ok((Box::new(way.nic()?), Box::new(way.nic()?), way.wire()))
    };
    let mut ways = vec![Way::Mapped, Way::Ring, Way::Tcp];
    if RdmaOptions::default().find().is_ok() {
        ways.extend([Way::Rdma, Way::RdmaStaged, Way::RdmaFrames]);
    }
    ways.into_iter().map(soft).collect()
}

/// Two connected queue pairs with 1000 words of memory each, which the other may do everything with.
struct Pair {
    here: QueuePair,
    /// Answers.
    _there: QueuePair,
    mine: Buffer<u64>,
    source: MemoryRegion,
    theirs: Buffer<u64>,
    target: MemoryRegion,
}

fn words(nic: &dyn Nic, access: Access) -> Outcome<(Buffer<u64>, MemoryRegion)> {
    let memory = Device::Host.alloc_pinned::<u64>(1000)?;
    let region = nic.register(&memory.bytes(), access)?;
    Ok((memory, region))
}

fn pair((left, right, wire): &Nics, options: &QueuePairOptions) -> Outcome<Pair> {
    let here = left.queue_pair(&Device::Host, options)?;
    let there = right.queue_pair(&Device::Host, options)?;
    here.connect_over(there.address(), *wire)?;
    there.connect_over(here.address(), *wire)?;
    here.wait_connected(soon())?;
    let (mine, source) = words(&**left, Access::ALL)?;
    let (theirs, target) = words(&**right, Access::ALL)?;
    Ok(Pair { here, _there: there, mine, source, theirs, target })
}

/// Runs `test` on a pair of each kind, in both modes of completion.
fn each(test: impl Fn(&Pair) -> Outcome) -> Outcome {
    for nics in nics()? {
        for send_completions in [CompletionMode::Ring, CompletionMode::Collapsed] {
            println!("{} over {}, {send_completions:?}", nics.0.capabilities().name, nics.2);
            let options = QueuePairOptions { send_completions, ..QueuePairOptions::default() };
            test(&pair(&nics, &options)?)?;
        }
    }
    Ok(())
}

impl Pair {
    /// Posts one request and waits for it.
    fn carry_out(&self, operation: Operation<'_>) -> Result<(), Error> {
        let position = self.here.post(&signaled(operation))?;
        self.here.wait(position, soon())
    }

    /// Writes 8 bytes there.
    fn write_to(&self, remote: RemoteAddress) -> Result<(), Error> {
        let bytes = 7u64.to_ne_bytes();
        self.carry_out(Operation::Write { remote, payload: Payload::Inline(&bytes), imm: None })
    }
}

#[test]
fn it_says_what_it_is_and_which_wires_it_has() -> Outcome {
    for (left, _, wire) in nics()? {
        let capabilities = left.capabilities();
        assert!(!capabilities.name.is_empty() && capabilities.wires.contains(&wire));
    }
    Ok(())
}

#[test]
fn writes_reads_and_atomics_do_what_they_say() -> Outcome {
    each(|pair| {
        let (source, target) = (&pair.source, &pair.target);
        pair.mine.write(&(0..1000).collect::<Vec<u64>>())?;
        let gathered = [source.segment(80, 8)?, source.segment(0, 400)?];
        let payload = Payload::Gather(&gathered);
        pair.carry_out(Operation::Write { remote: target.remote(8), payload, imm: None })?;
        let there = pair.theirs.to_vec()?;
        assert_eq!(there[..4], [0, 10, 0, 1]);
        assert_eq!(there[50..53], [48, 49, 0]);
        let into = [source.segment(7992, 8)?];
        pair.carry_out(Operation::Read { remote: target.remote(16 + 8 * 5), into: &into })?;
        assert_eq!(pair.mine.to_vec()?[999], 5);
        let (remote, into) = (target.remote(8), source.segment(0, 8)?);
        pair.carry_out(Operation::FetchAdd { remote, add: 32, into })?;
        assert_eq!((pair.mine.to_vec()?[0], pair.theirs.to_vec()?[1]), (10, 42));
        pair.carry_out(Operation::CompareSwap { remote, compare: 42, swap: 1, into })?;
        assert_eq!((pair.mine.to_vec()?[0], pair.theirs.to_vec()?[1]), (42, 1));
        assert!(pair.here.is_idle()?);
        Ok(())
    })
}

#[test]
fn whoever_sees_the_signal_sees_the_data_that_were_posted_before_it() -> Outcome {
    each(|pair| {
        let signal = pair.theirs.word(999)?;
        for round in 1..=200u64 {
            pair.mine.write(&[round; 1000])?;
            let data = [pair.source.segment(0, 7000)?];
            let _ = pair.here.post(&write(pair.target.remote(0), &data))?;
            let bytes = round.to_ne_bytes();
            let (remote, payload) = (pair.target.remote(7992), Payload::Inline(&bytes));
            let last =
                pair.here.post(&signaled(Operation::Write { remote, payload, imm: None }))?;
            soon().poll(|| (signal.load() == Some(round)).then_some(())).ok_or("no signal")?;
            assert_eq!(pair.theirs.to_vec()?[..875], [round; 875]);
            pair.here.wait(last, soon())?;
        }
        Ok(())
    })
}

#[test]
fn a_stream_rings_what_the_cpu_prepared() -> Outcome {
    each(|pair| {
        let (stream, gate) = (Device::Host.stream()?, Device::Host.alloc_pinned::<u64>(1)?);
        stream.wait_geq64(&gate.word(0)?, 1)?;
        pair.mine.write(&[9; 1000])?;
        let data = [pair.source.segment(0, 8)?];
        let prepared = pair.here.prepare(&write(pair.target.remote(0), &data))?;
        let position = prepared.position();
        stream.ring(&pair.here, prepared)?;
        assert!(!pair.here.is_complete(position)?);
        gate.word(0)?.store(1)?;
        pair.here.wait(position, soon())?;
        assert_eq!(pair.theirs.to_vec()?[0], 9);
        Ok(())
    })
}

#[test]
fn kernels_get_a_view_of_a_queue_whose_completions_are_collapsed() -> Outcome {
    for nics in nics()? {
        let options =
            |send_completions| QueuePairOptions { send_completions, ..QueuePairOptions::default() };
        let view = pair(&nics, &options(CompletionMode::Collapsed))?.here.device_view()?;
        assert_eq!(view.blocks as usize, QueuePairOptions::default().send_blocks);
        assert!(pair(&nics, &options(CompletionMode::Ring))?.here.device_view().is_err());
        // What is theirs alone the CPU leaves to them, and may ask about.
        let theirs =
            QueuePairOptions { posters: Posters::Kernels, ..options(CompletionMode::Collapsed) };
        let queue = pair(&nics, &theirs)?.here;
        assert!(matches!(
            queue.post(&WorkRequest::new(Operation::Nop)),
            Err(Error::KernelsOnly { .. })
        ));
        assert!(matches!(queue.receive(&[]), Err(Error::KernelsOnly { .. })));
        assert!(queue.device_view().is_ok() && queue.is_idle()?);
    }
    Ok(())
}

#[test]
fn what_a_key_does_not_allow_is_refused_and_the_memory_stays_as_it_is() -> Outcome {
    for nics in nics()? {
        type Wrong = fn(&Pair, &MemoryRegion) -> RemoteAddress;
        let wrongs: [(&str, Wrong); 3] = [
            ("no such key", |pair, _| RemoteAddress {
                rkey: pair.target.rkey() ^ 0x55_00,
                ..pair.target.remote(0)
            }),
            ("past the end", |pair, _| pair.target.remote(7996)),
            ("only to be read", |_, read_only| read_only.remote(0)),
        ];
        for (what, wrong) in wrongs {
            let pair = pair(&nics, &QueuePairOptions::default())?;
            let (memory, read_only) = words(&*nics.1, Access::REMOTE_READ)?;
            let refused = pair.write_to(wrong(&pair, &read_only));
            assert_eq!(syndrome(refused)?, Syndrome::RemoteAccess, "{what}");
            assert_eq!((memory.to_vec()?, pair.theirs.to_vec()?), (vec![0; 1000], vec![0; 1000]));
            // The queue has failed, and says so from now on.
            assert!(matches!(pair.here.check(), Err(Error::Failed { .. })), "{what}");
        }
        assert!(pair(&nics, &QueuePairOptions::default())?.source.segment(7996, 8).is_err());
    }
    Ok(())
}

#[test]
fn a_key_that_was_taken_back_names_nothing() -> Outcome {
    for nics in nics()? {
        let pair = pair(&nics, &QueuePairOptions::default())?;
        let remote = pair.target.remote(0);
        pair.write_to(remote)?;
        pair.target.deregister(soon())?;
        pair.theirs.write(&[0; 1000])?;
        let bytes = 7u64.to_ne_bytes();
        let again = Operation::Write { remote, payload: Payload::Inline(&bytes), imm: None };
        let position = pair.here.post(&signaled(again))?;
        assert_eq!(syndrome(pair.here.wait(position, soon()))?, Syndrome::RemoteAccess);
        assert_eq!(pair.theirs.to_vec()?[0], 0);
    }
    Ok(())
}

#[test]
fn a_full_queue_refuses_and_has_room_again_when_requests_are_complete() -> Outcome {
    each(|pair| {
        let bytes = [0; 8];
        let (remote, payload) = (pair.target.remote(0), Payload::Inline(&bytes));
        let request = signaled(Operation::Write { remote, payload, imm: None });
        let room = pair.here.room()?;
        let mut last: Option<Prepared> = None;
        let full = loop {
            match pair.here.prepare(&request) {
                Ok(next) => {
                    last = Some(match last {
                        None => next,
                        Some(before) => {
                            Prepared::and(before, next).map_err(|_| "they follow each other")?
                        }
                    });
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::Full { .. }), "{full}");
        assert!(pair.here.room()? < room);
        let prepared = last.ok_or("nothing fits")?;
        let position = prepared.position();
        pair.here.ring(prepared, soon())?;
        pair.here.wait(position, soon())?;
        assert_eq!(pair.here.room()?, room);
        Ok(())
    })
}

#[test]
fn many_queue_pairs_between_two_nics_do_not_wait_for_each_other() -> Outcome {
    for nics in nics()? {
        let pairs = (0..8)
            .map(|_| pair(&nics, &QueuePairOptions::default()))
            .collect::<Outcome<Vec<_>>>()?;
        // The first has an entry that nobody rings.
        let (first, others) = pairs.split_first().ok_or("there are eight")?;
        let bytes = [0; 8];
        let payload = Payload::Inline(&bytes);
        let request = Operation::Write { remote: first.target.remote(0), payload, imm: None };
        let _held = first.here.prepare(&signaled(request))?;
        for pair in others {
            pair.write_to(pair.target.remote(0))?;
            assert_eq!(pair.theirs.to_vec()?[0], 7);
        }
        assert_eq!(first.theirs.to_vec()?[0], 0);
    }
    Ok(())
}

#[test]
fn a_peer_that_never_connects_ends_the_requests_within_the_timeout() -> Outcome {
    for (left, right, wire) in nics()? {
        let transport_timeout = Duration::from_millis(200);
        let options = QueuePairOptions { transport_timeout, ..QueuePairOptions::default() };
        let here = left.queue_pair(&Device::Host, &options)?;
        let there = right.queue_pair(&Device::Host, &options)?;
        here.connect_over(there.address(), wire)?;
        let since = Instant::now();
        let send = Operation::Send { payload: Payload::Inline(b"?"), imm: None };
        let position = here.post(&signaled(send))?;
        let ended = here.wait(position, soon());
        assert!(since.elapsed() >= transport_timeout, "{:?}", since.elapsed());
        assert_eq!(syndrome(ended)?, Syndrome::TransportRetryExceeded);
        assert!(here.lost().is_some());
    }
    Ok(())
}

#[test]
fn a_wire_that_a_nic_does_not_have_is_refused_with_a_sentence() -> Outcome {
    for (left, right, _) in nics()? {
        for wire in [WireKind::SharedMemory, WireKind::Tcp, WireKind::Rdma] {
            if !left.capabilities().wires.contains(&wire) {
                let here = left.queue_pair(&Device::Host, &QueuePairOptions::default())?;
                let there = right.queue_pair(&Device::Host, &QueuePairOptions::default())?;
                let both = here
                    .connect_over(there.address(), wire)
                    .and_then(|()| there.connect_over(here.address(), wire));
                let error = both.expect_err("it has no such wire");
                assert!(error.to_string().contains("cannot be connected"), "{error}");
            }
        }
    }
    Ok(())
}
