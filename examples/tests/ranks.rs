//! The examples' ranks on threads: that they end, and that what they compute is right, which they compare themselves – with odd numbers of
//! ranks, and over every path between ranks of a host.

#[path = "../../libmp/tests/common/mod.rs"]
mod common;

use common::ranks;
use libmp::{Device, World};
use mp_examples::Failure;

#[path = "../all_reduce_graph.rs"]
#[allow(dead_code, reason = "main is the program's")]
mod all_reduce_graph;
#[path = "../device_ranks.rs"]
#[allow(dead_code, reason = "main is the program's")]
mod device_ranks;
#[path = "../jacobi2d.rs"]
#[allow(dead_code, reason = "main is the program's")]
mod jacobi2d;
#[path = "../jacobi3d.rs"]
#[allow(dead_code, reason = "main is the program's")]
mod jacobi3d;
#[path = "../ping_pong.rs"]
#[allow(dead_code, reason = "main is the program's")]
mod ping_pong;
#[path = "../ring.rs"]
#[allow(dead_code, reason = "main is the program's")]
mod ring;
#[path = "../seismic.rs"]
#[allow(dead_code, reason = "main is the program's")]
mod seismic;
#[path = "../stencil_host.rs"]
#[allow(dead_code, reason = "main is the program's")]
mod stencil_host;
#[path = "../stencil_kernel.rs"]
#[allow(dead_code, reason = "main is the program's")]
mod stencil_kernel;
#[path = "../stencil_stream.rs"]
#[allow(dead_code, reason = "main is the program's")]
mod stencil_stream;
#[path = "../tagged_opencl.rs"]
#[allow(dead_code, reason = "main is the program's")]
mod tagged_opencl;
#[path = "../visits.rs"]
#[allow(dead_code, reason = "main is the program's")]
mod visits;

/// Runs the ranks of an example over every path.
fn every_rank_is_right(size: usize, rank: impl Fn(&World) -> Result<(), Failure> + Sync) {
    ranks(size, |world| rank(world).unwrap());
}

fn strips(rank: fn(&World, &Device, usize, usize) -> Result<(), Failure>) {
    for size in [1, 2, 3] {
        every_rank_is_right(size, |world| rank(world, &Device::Host, 24, 6));
    }
    // Strips of one row.
    every_rank_is_right(3, |world| rank(world, &Device::Host, 3, 5));
}

#[test]
fn the_stencil_with_messages_of_the_host_is_right() {
    strips(stencil_host::rank);
}

#[test]
fn the_stencil_with_messages_on_a_stream_and_in_a_graph_is_right() {
    strips(stencil_stream::rank);
}

#[test]
fn the_stencil_with_messages_in_its_kernel_is_right() {
    strips(stencil_kernel::rank);
}

#[test]
fn the_plate_cut_along_both_axes_is_right() {
    for size in [1, 3, 4, 6] {
        every_rank_is_right(size, |world| jacobi2d::rank(world, &Device::Host, 13, 7));
    }
}

fn the_box_in_parts_is_the_box_in_one_piece(grid: [i32; 3], around: bool) {
    every_rank_is_right(grid.iter().product::<i32>() as usize, |world| {
        jacobi3d::rank(world, &Device::Host, [5, 4, 6], grid, around)
    });
}

#[test]
fn a_kernel_beside_two_neighbours_finds_the_bits_of_one_rank() {
    the_box_in_parts_is_the_box_in_one_piece([3, 1, 1], false);
}

#[test]
fn a_rank_that_is_its_own_neighbour_on_all_sides_finds_them() {
    the_box_in_parts_is_the_box_in_one_piece([1, 1, 1], true);
}

#[test]
fn a_kernel_with_rows_and_columns_as_borders_finds_them() {
    the_box_in_parts_is_the_box_in_one_piece([2, 2, 1], false);
}

#[test]
fn a_kernel_with_26_neighbours_finds_them() {
    the_box_in_parts_is_the_box_in_one_piece([2, 2, 2], true);
}

#[test]
fn a_ring_turns_as_often_as_it_is_told() {
    every_rank_is_right(3, |world| ring::rank(world, &Device::Host, 100, 50));
}

#[test]
fn a_replayed_all_reduce_takes_what_is_there_at_each_replay() {
    every_rank_is_right(3, |world| all_reduce_graph::rank(world, &Device::Host, 10, 5));
}

#[test]
fn a_message_goes_back_and_forth() {
    every_rank_is_right(3, |world| ping_pong::rank(world, &Device::Host, 100));
}

/// Where memory is mapped: device ranks are refused elsewhere.
#[test]
fn blocks_that_are_ranks_compute_what_one_would() {
    for devices in [1, 2] {
        let worlds = World::threads(devices).unwrap();
        common::on_threads(worlds, |world| {
            device_ranks::rank(&world, &Device::Host, 2, 9, 3).unwrap();
            world.finish().unwrap();
        });
    }
}

mod on_opencl {
    use super::tagged_opencl;

    #[test]
    #[ignore = "needs an OpenCL platform"]
    fn messages_of_opencl_memory_come_from_any_source() {
        let context = libmp::gdsync::opencl::Context::open().unwrap();
        super::every_rank_is_right(3, |world| tagged_opencl::rank(world, &context, 300_001));
    }
}

mod gpu {
    use super::*;

    /// Ranks that share a GPU, as threads.
    fn shared(size: usize, rank: impl Fn(&World, &Device) -> Result<(), Failure> + Sync) {
        let gpu = std::env::var("MP_TEST_GPU").map_or(0, |number| number.parse().unwrap());
        let device = Device::cuda(gpu).unwrap();
        common::on_threads(World::threads(size).unwrap(), |world| {
            rank(&world, &device).unwrap();
            world.finish().unwrap();
        });
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn every_example_is_right_on_a_gpu() {
        shared(2, |world, gpu| ping_pong::rank(world, gpu, 1000));
        shared(2, |world, gpu| ring::rank(world, gpu, 100, 1000));
        shared(2, |world, gpu| stencil_host::rank(world, gpu, 256, 50));
        shared(2, |world, gpu| stencil_stream::rank(world, gpu, 256, 50));
        shared(2, |world, gpu| stencil_kernel::rank(world, gpu, 256, 50));
        shared(4, |world, gpu| jacobi2d::rank(world, gpu, 256, 50));
        shared(8, |world, gpu| jacobi3d::rank(world, gpu, [16; 3], [2; 3], true));
        shared(2, |world, gpu| all_reduce_graph::rank(world, gpu, 1000, 50));
        shared(2, |world, gpu| device_ranks::rank(world, gpu, 8, 50, 32));
    }

    /// The programs of the guide's chapter on the stencil, which print their times: several times in turn, since they vary.
    #[test]
    #[ignore = "needs a GPU"]
    fn the_times_of_the_guide() {
        for _ in 0..3 {
            for side in [256, 1024] {
                shared(2, |world, gpu| stencil_host::rank(world, gpu, side, 400));
                shared(2, |world, gpu| stencil_stream::rank(world, gpu, side, 400));
                shared(2, |world, gpu| stencil_kernel::rank(world, gpu, side, 400));
                shared(2, |world, gpu| jacobi2d::rank(world, gpu, side, 400));
            }
        }
    }
}

#[test]
fn the_visits_are_all_counted() {
    for size in [1, 2, 3] {
        every_rank_is_right(size, |world| visits::rank(world, &Device::Host, 600, 50, 2));
    }
    // More than a message for each rank.
    every_rank_is_right(2, |world| visits::rank(world, &Device::Host, 2500, 50, 1));
}

#[test]
fn the_waves_in_a_cut_box_are_those_in_a_whole_one() {
    for size in [1, 2, 3] {
        every_rank_is_right(size, |world| seismic::rank(world, &Device::Host, 9, 7));
    }
}

/// So many steps that the program asks what is left of their energy.
#[test]
fn the_waves_are_absorbed_at_the_border() {
    let worlds = World::threads(2).unwrap();
    common::on_threads(worlds, |world| {
        seismic::rank(&world, &Device::Host, 24, 144).unwrap();
        world.finish().unwrap();
    });
}
