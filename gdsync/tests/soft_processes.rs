//! Two processes with a software NIC each: mixed operations of random sizes both ways against a shadow model.

mod soft_common;

use std::time::Instant;

use soft_common::process::{Order, Peer, Task};
use soft_common::side::Side;
use soft_common::{Outcome, Way};

/// The peer; does nothing unless one of the tests below started it.
#[test]
#[ignore = "started by the other tests"]
fn peer() -> Outcome {
    soft_common::process::peer()
}

fn mixed_operations(way: Way, operations: u64) -> Outcome {
    let order = Order::new(way, Task::Work(operations));
    let mut peer = Peer::start(&order, &[])?;
    let nic = way.nic()?;
    let begin = Instant::now();
    let mut side = Side::start(&nic, way, 1, order.transport_timeout, |own| peer.exchange(own))?;
    side.run(operations)?;
    let report = peer.hear()?;
    let took = begin.elapsed().as_secs_f64();
    assert!(report.starts_with(&format!("{operations} operations")), "{report}");
    println!(
        "{way:?}: 2 x {operations} operations, {:.2} GB, {took:.1} s, no mismatch",
        side.bytes as f64 / 1e9 * 2.0
    );
    Ok(())
}

#[test]
fn mixed_operations_between_processes_agree_with_the_model_over_mapped_memory() -> Outcome {
    mixed_operations(Way::Mapped, 100_000)
}

#[test]
fn mixed_operations_between_processes_agree_with_the_model_over_rings() -> Outcome {
    mixed_operations(Way::Ring, 30_000)
}

#[test]
fn mixed_operations_between_processes_agree_with_the_model_over_tcp() -> Outcome {
    mixed_operations(Way::Tcp, 30_000)
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn mixed_operations_over_rdma_agree_with_the_model() -> Outcome {
    mixed_operations(Way::Rdma, 3_000)
}

/// 10^7 operations in all, half from each side.
#[test]
#[ignore = "long"]
fn ten_million_operations_over_mapped_memory() -> Outcome {
    mixed_operations(Way::Mapped, 5_000_000)
}

#[test]
#[ignore = "long"]
fn ten_million_operations_over_rings() -> Outcome {
    mixed_operations(Way::Ring, 5_000_000)
}

#[test]
#[ignore = "long"]
fn ten_million_operations_over_tcp() -> Outcome {
    mixed_operations(Way::Tcp, 5_000_000)
}
