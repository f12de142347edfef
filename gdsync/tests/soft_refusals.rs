//! What the software NIC refuses, and how it says so: the syndrome on each side, and what becomes of the rest.

mod soft_common;

use std::time::Duration;

use gdsync::nic::{Access, Error, Nic, QueuePairOptions};
use gdsync::wqe::{
    DataSegment, ErrorSide, Operation, Payload, RemoteAddress, Syndrome, WorkRequest,
};
use gdsync::{Deadline, Device};
use soft_common::operations::{error_of, next_receive, next_send, on_every_way, syndrome, write};
use soft_common::{Memory, Outcome, Pair, Way, signaled, soon};

on_every_way!(
    a_sender_gives_up_when_the_receiver_is_never_ready,
    a_wrong_key_fails_with_remote_access_and_flushes_the_rest,
    a_range_outside_the_region_fails_with_remote_access,
    a_region_that_peers_may_not_write_refuses_them,
    a_receive_that_is_too_short_fails_on_both_sides,
    a_receive_under_a_wrong_key_fails_on_both_sides,
    a_wrong_local_key_fails_here_and_says_nothing_to_the_peer,
    an_atomic_on_an_odd_address_is_an_invalid_request,
    a_peer_that_goes_away_fails_what_waits_for_it_and_flushes_receives,
    a_region_taken_back_is_out_of_reach,
);

fn a_sender_gives_up_when_the_receiver_is_never_ready(way: Way) -> Outcome {
    let options = QueuePairOptions {
        receiver_not_ready_retries: 3,
        receiver_not_ready_delay: Duration::from_millis(5),
        ..QueuePairOptions::default()
    };
    let pair = Pair::new(way, &options)?;
    let begin = std::time::Instant::now();
    let send = Operation::Send { payload: Payload::Inline(b"?"), imm: None };
    let position = pair.left.post(&WorkRequest::new(send))?;
    let failed = syndrome(pair.left.wait(position, soon()))?;
    assert_eq!(failed, Syndrome::ReceiverNotReadyRetryExceeded);
    assert!(begin.elapsed() >= Duration::from_millis(15), "three delays");
    Ok(())
}

fn a_wrong_key_fails_with_remote_access_and_flushes_the_rest(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    let from = Memory::new(&pair.left_nic, &[1; 8], Access::LOCAL_READ)?;
    let to = Memory::new(&pair.right_nic, &[0; 8], Access::REMOTE_WRITE)?;
    let segment = [from.region.segment(0, 8)?];
    let wrong = RemoteAddress { rkey: to.region.rkey() ^ 1, ..to.region.remote(0) };
    pair.right.receive(&[])?;
    let nop = pair.left.prepare(&signaled(Operation::Nop))?;
    let bad = pair.left.prepare(&write(wrong, &segment))?;
    let good = pair.left.prepare(&write(to.region.remote(0), &segment))?;
    let positions = [nop.position(), bad.position(), good.position()];
    let all = nop.and(bad).and_then(|two| two.and(good)).map_err(|_| "adjacent")?;
    pair.left.ring(all, soon())?;
    assert_eq!(next_send(&pair.left)?.index, positions[0] as u16);
    for (position, syndrome) in
        [(positions[1], Syndrome::RemoteAccess), (positions[2], Syndrome::Flushed)]
    {
        let completion = next_send(&pair.left)?;
        assert_eq!(completion.index, position as u16);
        assert_eq!(error_of(completion), Some((ErrorSide::Requester, syndrome)));
    }
    assert_eq!(to.bytes()?, [0; 8]);
    // The responder's side is in the error state, too: its receives are flushed, and what is posted later.
    let flushed = Some((ErrorSide::Responder, Syndrome::Flushed));
    assert_eq!(error_of(next_receive(&pair.right)?), flushed);
    pair.right.receive(&[])?;
    assert_eq!(error_of(next_receive(&pair.right)?), flushed);
    let position = pair.left.post(&signaled(Operation::Nop))?;
    let completion = next_send(&pair.left)?;
    assert_eq!(completion.index, position as u16);
    assert_eq!(error_of(completion), Some((ErrorSide::Requester, Syndrome::Flushed)));
    Ok(())
}

/// Fails with this syndrome, on a fresh pair, with and without the key being mapped before.
fn refuses(
    way: Way,
    expected: Syndrome,
    access: Access,
    request: impl Fn(&Memory, &Memory) -> Outcome<(RemoteAddress, DataSegment, bool)>,
) -> Outcome {
    for warm in [false, true] {
        let pair = Pair::new(way, &QueuePairOptions::default())?;
        let here = Memory::new(&pair.left_nic, &[1; 64], Access::ALL)?;
        let there = Memory::new(&pair.right_nic, &[0; 64], access)?;
        let (remote, segment, read) = request(&there, &here)?;
        let segments = [segment];
        if warm && access.includes(Access::REMOTE_WRITE) {
            let good = [here.region.segment(0, 1)?];
            let position = pair.left.post(&write(there.region.remote(0), &good))?;
            pair.left.wait(position, soon())?;
            std::thread::sleep(Duration::from_millis(20));
        }
        let before = there.bytes()?;
        let position = if read {
            pair.left.post(&signaled(Operation::Read { remote, into: &segments }))?
        } else {
            pair.left.post(&write(remote, &segments))?
        };
        assert_eq!(syndrome(pair.left.wait(position, soon()))?, expected);
        assert_eq!(there.bytes()?, before);
    }
    Ok(())
}

fn a_range_outside_the_region_fails_with_remote_access(way: Way) -> Outcome {
    refuses(way, Syndrome::RemoteAccess, Access::ALL, |there, here| {
        Ok((there.region.remote(60), here.region.segment(0, 8)?, false))
    })?;
    refuses(way, Syndrome::RemoteAccess, Access::ALL, |there, here| {
        let address = u64::MAX - 3;
        let remote = RemoteAddress { address, rkey: there.region.rkey() };
        Ok((remote, here.region.segment(0, 8)?, true))
    })
}

fn a_region_that_peers_may_not_write_refuses_them(way: Way) -> Outcome {
    refuses(way, Syndrome::RemoteAccess, Access::REMOTE_READ, |there, here| {
        Ok((there.region.remote(0), here.region.segment(0, 8)?, false))
    })?;
    refuses(way, Syndrome::RemoteAccess, Access::REMOTE_WRITE, |there, here| {
        Ok((there.region.remote(0), here.region.segment(0, 8)?, true))
    })
}

fn a_receive_that_is_too_short_fails_on_both_sides(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    let to = Memory::new(&pair.right_nic, &[0; 64], Access::LOCAL_WRITE)?;
    pair.right.receive(&[to.region.segment(0, 5)?])?;
    let send = Operation::Send { payload: Payload::Inline(b"longer"), imm: None };
    let position = pair.left.post(&WorkRequest::new(send))?;
    assert_eq!(syndrome(pair.left.wait(position, soon()))?, Syndrome::RemoteInvalidRequest);
    let failed = error_of(next_receive(&pair.right)?);
    assert_eq!(failed, Some((ErrorSide::Responder, Syndrome::LocalLength)));
    assert_eq!(to.bytes()?, [0; 64]);
    Ok(())
}

fn a_receive_under_a_wrong_key_fails_on_both_sides(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    // Readable only: a receive may not write it.
    let to = Memory::new(&pair.right_nic, &[0; 64], Access::LOCAL_READ)?;
    pair.right.receive(&[to.region.segment(0, 64)?])?;
    let send = Operation::Send { payload: Payload::Inline(b"!"), imm: None };
    let position = pair.left.post(&WorkRequest::new(send))?;
    assert_eq!(syndrome(pair.left.wait(position, soon()))?, Syndrome::RemoteOperation);
    let failed = error_of(next_receive(&pair.right)?);
    assert_eq!(failed, Some((ErrorSide::Responder, Syndrome::LocalProtection)));
    Ok(())
}

fn a_wrong_local_key_fails_here_and_says_nothing_to_the_peer(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    let to = Memory::new(&pair.right_nic, &[0; 8], Access::ALL)?;
    let segment = [DataSegment::new(0x1234, 0x1000, 8)?];
    let position = pair.left.post(&write(to.region.remote(0), &segment))?;
    assert_eq!(syndrome(pair.left.wait(position, soon()))?, Syndrome::LocalProtection);
    assert_eq!(to.bytes()?, [0; 8]);
    Ok(())
}

fn an_atomic_on_an_odd_address_is_an_invalid_request(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    let word = Memory::new(&pair.right_nic, &[0; 16], Access::ALL)?;
    let result = Memory::new(&pair.left_nic, &[0; 8], Access::LOCAL_WRITE)?;
    let (remote, into) = (word.region.remote(4), result.region.segment(0, 8)?);
    let position = pair.left.post(&signaled(Operation::FetchAdd { remote, add: 1, into }))?;
    assert_eq!(syndrome(pair.left.wait(position, soon()))?, Syndrome::RemoteInvalidRequest);
    Ok(())
}

fn a_peer_that_goes_away_fails_what_waits_for_it_and_flushes_receives(way: Way) -> Outcome {
    let Pair { left, right, left_nic: _left, right_nic } =
        Pair::new(way, &QueuePairOptions::default())?;
    left.receive(&[])?;
    // No receive is posted there, so this waits.
    let send = Operation::Send { payload: Payload::Inline(b"?"), imm: None };
    let position = left.post(&WorkRequest::new(send))?;
    std::thread::sleep(Duration::from_millis(10));
    drop((right, right_nic));
    assert_eq!(syndrome(left.wait(position, soon()))?, Syndrome::TransportRetryExceeded);
    let flushed = Some((ErrorSide::Responder, Syndrome::Flushed));
    assert_eq!(error_of(next_receive(&left)?), flushed);
    assert!(left.lost().is_some());
    Ok(())
}

fn a_region_taken_back_is_out_of_reach(way: Way) -> Outcome {
    let pair = Pair::new(way, &QueuePairOptions::default())?;
    let from = Memory::new(&pair.left_nic, &[1; 8], Access::LOCAL_READ)?;
    let to = Memory::new(&pair.right_nic, &[0; 8], Access::ALL)?;
    let (remote, segment) = (to.region.remote(0), [from.region.segment(0, 8)?]);
    for _ in 0..2 {
        let position = pair.left.post(&write(remote, &segment))?;
        pair.left.wait(position, soon())?;
        std::thread::sleep(Duration::from_millis(20));
    }
    let Memory { buffer, region } = to;
    region.deregister(soon())?;
    buffer.write(&[9; 8])?;
    let position = pair.left.post(&write(remote, &segment))?;
    assert_eq!(syndrome(pair.left.wait(position, soon()))?, Syndrome::RemoteAccess);
    assert_eq!(buffer.to_vec()?, [9; 8]);
    Ok(())
}

#[test]
fn requests_posted_before_the_peer_connects_wait_for_it_and_then_give_up() -> Outcome {
    let nic = Way::Ring.nic()?;
    let options = QueuePairOptions {
        transport_timeout: Duration::from_millis(150),
        ..QueuePairOptions::default()
    };
    let left = nic.queue_pair(&Device::Host, &options)?;
    let right = nic.queue_pair(&Device::Host, &options)?;
    left.connect(right.address())?;
    let begin = std::time::Instant::now();
    let send = Operation::Send { payload: Payload::Inline(b"?"), imm: None };
    let position = left.post(&WorkRequest::new(send))?;
    let failed = left.wait(position, soon());
    assert!(begin.elapsed() >= Duration::from_millis(150));
    assert!(begin.elapsed() < Duration::from_secs(5));
    let text = failed.as_ref().unwrap_err().to_string();
    assert!(text.contains("no connection within 150ms"), "{text}");
    assert_eq!(syndrome(failed)?, Syndrome::TransportRetryExceeded);
    assert!(matches!(left.wait_connected(soon()), Err(Error::Lost { .. })));
    Ok(())
}

#[test]
fn what_cannot_be_connected_says_why() -> Outcome {
    let nic = Way::Ring.nic()?;
    let one = nic.queue_pair(&Device::Host, &QueuePairOptions::default())?;
    let two = nic.queue_pair(&Device::Host, &QueuePairOptions::default())?;
    for (from, to) in [(&one, &two), (&two, &one)] {
        let refused = from.connect_over(to.address(), gdsync::nic::WireKind::Tcp).unwrap_err();
        assert!(refused.to_string().contains("its option `listen` is not set"), "{refused}");
    }
    let wire = Some(gdsync::nic::WireKind::Tcp);
    let far = nic.queue_pair(&Device::Host, &QueuePairOptions { wire, ..Default::default() })?;
    for (from, to) in [(&one, &far), (&far, &one)] {
        let refused = from.connect(to.address()).unwrap_err().to_string();
        assert!(refused.contains("one of the two was made for another wire"), "{refused}");
    }
    let mut other = serde_json::to_value(two.address())?;
    let version = other["Soft"]["version"].as_u64().ok_or("a version")?;
    other["Soft"]["version"] = 99.into();
    let refused = one.connect(&serde_json::from_value(other)?).unwrap_err().to_string();
    let both = ["version 99".into(), format!("version {version}")];
    assert!(both.iter().all(|each: &String| refused.contains(each)), "{refused}");
    let timeout = one.wait_connected(Deadline::after(Duration::from_millis(5)));
    assert!(matches!(timeout, Err(Error::Timeout { .. })));
    Ok(())
}

#[test]
fn a_key_that_was_taken_back_is_nobodys_after_hundreds_of_registrations() -> Outcome {
    let nic = Way::Ring.nic()?;
    let mut seen = std::collections::HashSet::new();
    for registration in 0..600 {
        let key = Memory::new(&nic, &[0; 8], Access::ALL)?.region.rkey();
        assert!(seen.insert(key), "registration {registration} has the key {key:#x} again");
    }
    Ok(())
}
