//! Links by themselves, and what becomes of a world whose link fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gdsync::nic::{Access, Nic, WireKind};
use gdsync::wqe::RemoteAddress;
use gdsync::{Buffer, Deadline, Device, Space};

use super::link::{Link, Post, Ring, Use, parts};
use super::{OpenedLinks, Place, open};
use crate::data::region::Pieces;
use crate::{Config, Error, Loss, Operation, Region, World};

const PATIENCE: Duration = Duration::from_secs(5);

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Two links of one NIC, connected.
fn pair(what: Use) -> (Arc<dyn Nic>, Link, Link) {
    let nic = open((None, None)).unwrap();
    let pieces = Pieces::default();
    let link = |what| {
        Link::new((&*nic, &pieces), &Device::Host, what, WireKind::SharedMemory, PATIENCE).unwrap()
    };
    let (one, two) = (link(what), link(Use::Answer));
    one.connect(&two.address(), WireKind::SharedMemory).unwrap();
    two.connect(&one.address(), WireKind::SharedMemory).unwrap();
    (nic, one, two)
}

fn memory(words: usize) -> Buffer<u64> {
    Buffer::new(&Device::Host, Space::Pinned, words).unwrap()
}

#[test]
fn a_message_of_several_entries_is_cut_without_gaps() {
    let mut cut = Vec::new();
    let len = (5 << 30) / 2 + 3;
    parts(len, |at, part| {
        cut.push((at, u64::from(part)));
        Ok(())
    })
    .unwrap();
    assert_eq!(cut, [(0, 1 << 30), (1 << 30, 1 << 30), (2 << 30, (1 << 29) + 3)]);
}

#[test]
fn a_flush_is_counted_when_what_was_posted_before_it_is_there_and_memory_is_held_until_then() {
    let (nic, link, _other) = pair(Use::Host);
    let (from, to) = (memory(1000), memory(1000));
    let target = nic.register(&to.bytes(), Access::REMOTE_WRITE).unwrap();
    let stream = Device::Host.stream().unwrap();
    let gate = memory(1).word(0).unwrap();
    for round in 1..=50 {
        from.write(&[round; 1000]).unwrap();
        let source = Arc::new(nic.register(&from.bytes(), Access::LOCAL_READ).unwrap());
        let write =
            Post::Write { from: &source, at: 0, len: 8000, to: Place::of(&target).after(0) };
        let held = Arc::downgrade(&source);
        stream.wait_geq64(&gate, round).unwrap();
        let mut turn = link.turn();
        let posted = turn.post(&[write, Post::Flush], Ring::On(&stream)).unwrap();
        turn.hold(source);
        drop(turn);
        assert_eq!(posted.flushes, round);
        drop(link.turn());
        assert!(held.upgrade().is_some() && link.done().load() == Some(round - 1));
        gate.store(round).unwrap();
        soon().poll(|| (link.done().load() == Some(round)).then_some(())).unwrap();
        assert_eq!(to.to_vec().unwrap(), [round; 1000]);
        drop(link.turn());
        assert!(held.upgrade().is_none());
    }
}

/// The peer connects late: what is posted waits for it, and who posted does not.
#[test]
fn memory_of_what_is_started_is_kept_until_it_is_complete() {
    let nic = open((None, None)).unwrap();
    let pieces = Pieces::default();
    let link = |what| {
        Link::new((&*nic, &pieces), &Device::Host, what, WireKind::SharedMemory, PATIENCE).unwrap()
    };
    let (one, two) = (link(Use::Host), link(Use::Answer));
    one.connect(&two.address(), WireKind::SharedMemory).unwrap();
    let (from, to) = (memory(1000), memory(1000));
    from.write(&[3; 1000]).unwrap();
    let target = nic.register(&to.bytes(), Access::REMOTE_WRITE).unwrap();
    let source = Arc::new(nic.register(&from.bytes(), Access::LOCAL_READ).unwrap());
    let held = Arc::downgrade(&source);
    assert!(one.uses_nothing().unwrap());
    let write = Post::Write { from: &source, at: 800, len: 7200, to: Place::of(&target).after(0) };
    let posted = one.post(&[write]).unwrap().unwrap();
    one.keep_until(posted.position, source);
    assert!(!one.uses_nothing().unwrap() && held.upgrade().is_some());
    two.connect(&one.address(), WireKind::SharedMemory).unwrap();
    soon().poll(|| one.uses_nothing().unwrap().then_some(())).unwrap();
    assert!(held.upgrade().is_none());
    assert_eq!(to.to_vec().unwrap(), [vec![3; 900], vec![0; 100]].concat());
}

#[test]
fn a_batch_that_does_not_fit_is_refused_whole_until_there_is_room() {
    let (nic, link, _other) = pair(Use::Stream);
    let to = memory(1);
    let target = nic.register(&to.bytes(), Access::ALL).unwrap();
    let word = Place::of(&target).after(0);
    let stream = Device::Host.stream().unwrap();
    let gate = memory(1).word(0).unwrap();
    stream.wait_geq64(&gate, 1).unwrap();
    let value = 7u64.to_le_bytes();
    let posts = || [Post::Inline { bytes: &value, to: word }, Post::FetchAdd { word, add: 1 }];
    let mut batches = 0;
    while link.turn().has_room(&posts()).unwrap() {
        link.turn().post(&posts(), Ring::On(&stream)).unwrap();
        batches += 1;
    }
    assert_eq!(batches, 256);
    gate.store(1).unwrap();
    soon().poll(|| link.turn().has_room(&posts()).unwrap().then_some(())).unwrap();
    let posted = link.turn().post(&posts(), Ring::On(&stream)).unwrap();
    soon().poll(|| link.is_complete(posted.position).unwrap().then_some(())).unwrap();
    assert_eq!((to.to_vec().unwrap(), link.result()), (vec![8], 7));
}

#[test]
fn a_request_that_fails_ends_the_world_with_the_peer_the_operation_and_the_reason() {
    for path in ["nic", "nic-tcp"] {
        let config = Config::from_variables([("MP_PATH", path)]).unwrap();
        let worlds = World::threads_with_config(2, &config).unwrap();
        let rank = |world: World| {
            let peer = world.peer(1 - world.rank()).unwrap();
            let here: Region<u64> = world.alloc(&Device::Host, 1).unwrap();
            let recv = peer.recv(&here, 3).prepare().unwrap();
            recv.start().unwrap();
            let since = Instant::now();
            let error = if world.rank() == 0 {
                let (plane, op) = (&peer.plane, || "a write that must fail".to_owned());
                let nowhere = RemoteAddress { address: 8, rkey: 0xdead_0001 };
                let post = Post::Inline { bytes: &[1; 8], to: nowhere };
                let neighbour = plane.neighbour(1).unwrap();
                plane.carry_out(neighbour, &[post], Duration::from_secs(60), &op).unwrap_err()
            } else {
                recv.wait(soon()).unwrap_err()
            };
            assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
            error
        };
        let errors = std::thread::scope(|scope| {
            let ranks: Vec<_> =
                worlds.into_iter().map(|world| scope.spawn(|| rank(world))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
        });
        for (error, op) in errors.iter().zip(["a write that must fail", "recv tag 3 from rank 0"]) {
            let Error::PeerLost { rank: 1, how: Loss::Path { detail }, op: during, .. } = error
            else {
                panic!("{path}: {error}")
            };
            assert!(detail.starts_with("the path to it through the NIC failed"), "{detail}");
            assert!(detail.contains("remote access"), "{detail}");
            assert!(during.starts_with(op), "{during}");
        }
    }
}

/// It answers that its queue pair is there, and is gone before this rank connects its own.
#[test]
fn a_peer_that_ends_while_a_link_to_it_is_made_is_lost() {
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let config = Config::from_variables([("MP_PATH", "nic")]).unwrap();
    let worlds = World::threads_with_config(2, &config).unwrap();
    let (peer, op) = (worlds[0].peer(1).unwrap(), || "a start on a stream".to_owned());
    let (plane, neighbour) = (&peer.plane, peer.plane.neighbour(1).unwrap());
    let opened = plane.kernel_links(neighbour, &Device::Host, &op).unwrap().contexts[0].clone();
    assert!(!plane.is_connected(&opened, &op).unwrap());
    let mut address = serde_json::to_value(opened.link.address()).unwrap();
    for process in ["pid", "ring/process/pid", "ring/kind/Segment/pid"] {
        *address.pointer_mut(&format!("/queue/Soft/{process}")).unwrap() = gone.id().into();
    }
    let links = OpenedLinks { opened: vec![opened.clone()], ..OpenedLinks::default() };
    plane.link_answered(neighbour, &links, 0, Ok(serde_json::from_value(address).unwrap()));
    let error = plane.is_connected(&opened, &op).unwrap_err();
    let Error::PeerLost { rank: 1, how: Loss::Path { detail }, op: during, .. } = &error else {
        panic!("{error}")
    };
    assert!(detail.contains("cannot be connected"), "{detail}");
    assert!(during.starts_with("a start on a stream"), "{during}");
}
