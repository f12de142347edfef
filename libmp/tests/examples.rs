//! The examples' ranks, on threads: that they end, and that the plates are right (the examples compare them themselves).

mod common;

use common::on_threads;
use libmp::{Result, World};

#[path = "../examples/stencil_host.rs"]
#[allow(dead_code, reason = "main is the program's")]
mod stencil_host;
#[path = "../examples/stencil_stream.rs"]
#[allow(dead_code, reason = "main is the program's")]
mod stencil_stream;

fn every_rank_agrees(rank: fn(World, usize) -> Result<()>) {
    for ranks in [1, 2, 3] {
        for result in on_threads(World::threads(ranks).unwrap(), |world| rank(world, 24)) {
            result.unwrap();
        }
    }
}

#[test]
fn the_stencil_with_messages_of_the_host_is_right() {
    every_rank_agrees(stencil_host::rank);
}

#[test]
fn the_stencil_with_messages_of_a_replayed_stream_is_right() {
    every_rank_agrees(stencil_stream::rank);
}
