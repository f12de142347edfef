//! Puts into windows and waits for their signals, prepared. They join devices of one kind.

mod put;

pub use put::{Put, SignalWait};
