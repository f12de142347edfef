//! What the tests of single operations share: a test of each function over each way, completions in few words.

#![allow(unused_macros, unused_imports)] // Two test files use it.

use gdsync::nic::{Error, QueuePair};
use gdsync::wqe::{
    Completion, CompletionKind, DataSegment, ErrorSide, Operation, Payload, RemoteAddress,
    Syndrome, WorkRequest,
};

use super::{Outcome, signaled, soon};

/// Makes a test of each function for each way.
macro_rules! on_every_way {
    ($($name:ident),+ $(,)?) => {
        mod mapped { $(#[test] fn $name() -> super::Outcome { super::$name(super::Way::Mapped) })+ }
        mod ring { $(#[test] fn $name() -> super::Outcome { super::$name(super::Way::Ring) })+ }
        mod tcp { $(#[test] fn $name() -> super::Outcome { super::$name(super::Way::Tcp) })+ }
        mod rdma {
            $(#[test]
            #[ignore = "needs a verbs device (run by tools/rxe-vm)"]
            fn $name() -> super::Outcome {
                super::$name(super::Way::Rdma)
            })+
        }
        mod rdma_staged {
            $(#[test]
            #[ignore = "needs a verbs device (run by tools/rxe-vm)"]
            fn $name() -> super::Outcome {
                super::$name(super::Way::RdmaStaged)
            })+
        }
        mod rdma_frames {
            $(#[test]
            #[ignore = "needs a verbs device (run by tools/rxe-vm)"]
            fn $name() -> super::Outcome {
                super::$name(super::Way::RdmaFrames)
            })+
        }
    };
}
pub(crate) use on_every_way;

pub fn write<'a>(remote: RemoteAddress, segments: &'a [DataSegment]) -> WorkRequest<'a> {
    signaled(Operation::Write { remote, payload: Payload::Gather(segments), imm: None })
}

/// The syndrome that a wait ends with.
pub fn syndrome(result: Result<(), Error>) -> Outcome<Syndrome> {
    match result {
        Err(Error::Failed { syndrome, .. }) => Ok(syndrome),
        other => Err(format!("expected a failed request, not {other:?}").into()),
    }
}

pub fn next_send(queue: &QueuePair) -> Outcome<Completion> {
    let polled = soon().poll(|| queue.poll_send().transpose());
    Ok(polled.ok_or("no completion in time")??)
}

pub fn next_receive(queue: &QueuePair) -> Outcome<Completion> {
    let polled = soon().poll(|| queue.poll_receive().transpose());
    Ok(polled.ok_or("no completion in time")??)
}

pub fn error_of(completion: Completion) -> Option<(ErrorSide, Syndrome)> {
    match completion.kind {
        CompletionKind::Error { side, syndrome, .. } => Some((side, syndrome)),
        _ => None,
    }
}
