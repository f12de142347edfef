//! Halo exchanges: phases on streams, and what is refused. Exchanges in kernels are those of the examples (`examples/tests`).

mod common;
#[path = "common/devices.rs"]
#[macro_use]
mod devices;

use common::{PASSES, config, each_path, on_threads, ranks, soon, stay_to_the_end};
use libmp::exchange::{Field, Neighbour, Phase};
use libmp::{Device, Error, Exchange, Path, Region, World};

/// Cells of a rod a rank, a ghost at each end.
const ROD: usize = 6;

/// A ring of rods, each `width` cells thick: both fields, and what exchanges them.
fn ring(
    world: &World,
    device: &Device,
    width: i32,
    buffered: bool,
) -> ([Region<u32>; 2], Exchange) {
    let (rank, size) = (world.rank(), world.size());
    let fields = [0, 1].map(|_| world.alloc(device, ROD * width as usize).unwrap());
    let end = ROD as i32 - 1;
    let rod = |region: &Region<u32>| {
        let field = Field::new(region, 0, [ROD, ROD * width as usize]).buffered(buffered);
        let field = field.border([1..2, 0..width, 0..1], [0..1, 0..width, 0..1]);
        field.border([end - 1..end, 0..width, 0..1], [end..end + 1, 0..width, 0..1])
    };
    let neighbours = [
        Some(Neighbour::toward((rank + size - 1) % size, [-1, 0, 0])),
        Some(Neighbour::toward((rank + 1) % size, [1, 0, 0])),
    ];
    let halo = world.exchange(device, &neighbours, &[rod(&fields[0]), rod(&fields[1])]);
    (fields, halo.unwrap())
}

/// Ranks, width and whether through buffers.
const RINGS: [(usize, i32, bool); 4] = [(1, 1, false), (2, 3, true), (3, 1, true), (3, 2, false)];

/// What a rank's cells are in a round.
fn value(rank: usize, round: u32) -> u32 {
    100 * (round + 1) + rank as u32
}

/// Writes the inner cells. Not the ghosts: a neighbour that is ahead may have written them.
fn write_inside(field: &Region<u32>, value: u32) {
    for row in (0..field.len()).step_by(ROD) {
        let inside = field.slice(row + 1..row + ROD - 1).unwrap();
        inside.write(&[value; ROD - 2]).unwrap();
    }
}

/// The inner cells and the two ghosts of each row.
fn check(field: &Region<u32>, inside: u32, left: u32, right: u32, when: &str) {
    for row in field.to_vec().unwrap().chunks(ROD) {
        assert_eq!((row[0], row[ROD - 1]), (left, right), "{when}");
        assert_eq!(row[1..ROD - 1], [inside; ROD - 2], "{when}");
    }
}

fn phases_bring_the_ghosts(device: &Device) {
    for (size, width, buffered) in RINGS {
        ranks(size, |world| {
            let (fields, halo) = ring(world, device, width, buffered);
            let stream = world.stream(device).unwrap();
            let me = world.rank();
            let (left, right) = ((me + size - 1) % size, (me + 1) % size);
            world.barrier().unwrap();
            for round in 0..7u32 {
                let field = (round % 2) as usize;
                write_inside(&fields[field], value(me, round));
                if round % 3 == 0 {
                    halo.start_on(&stream, field).unwrap();
                    halo.wait_on(&stream, Some(field)).unwrap();
                } else {
                    halo.run_on(&stream, field).unwrap();
                }
                world.synchronize(&stream, soon()).unwrap();
                let [here, left, right] = [me, left, right].map(|rank| value(rank, round));
                check(&fields[field], here, left, right, &format!("round {round}"));
            }
        });
    }
}

/// What a neighbour has sent stays in the receive buffer of its field until it is cleared.
fn a_cleared_field_has_ghosts_of_zeros(device: &Device) {
    for (size, width, buffered) in RINGS {
        ranks(size, |world| {
            let (fields, halo) = ring(world, device, width, buffered);
            let stream = world.stream(device).unwrap();
            let me = world.rank();
            let of = |round| {
                [me, (me + size - 1) % size, (me + 1) % size].map(|rank| value(rank, round))
            };
            // Through a NIC cells that are not in one piece go through buffers, and no others.
            let held = match world.path((me + 1) % size).unwrap() {
                Path::Direct => buffered,
                _ => width > 1,
            };
            world.barrier().unwrap();
            for round in 0..4u32 {
                for field in &fields {
                    write_inside(field, value(me, round));
                }
                for field in 0..2 {
                    halo.run_on(&stream, field).unwrap();
                }
                world.synchronize(&stream, soon()).unwrap();
                // Now nobody sends.
                world.barrier().unwrap();
                let [here, left, right] = of(round);
                for clears in [false, true] {
                    for field in &fields {
                        field.write(&vec![0; field.len()]).unwrap();
                    }
                    if clears {
                        halo.clear_on(&stream, 0).unwrap();
                    }
                    for field in 0..2 {
                        halo.wait_on(&stream, Some(field)).unwrap();
                    }
                    world.synchronize(&stream, soon()).unwrap();
                    let ghosts = if held { [left, right] } else { [0; 2] };
                    let cleared = if clears { [0; 2] } else { ghosts };
                    let when = format!("round {round}, cleared: {clears}");
                    check(&fields[0], 0, cleared[0], cleared[1], &when);
                    check(&fields[1], 0, ghosts[0], ghosts[1], &when);
                }
                // What is not behind a buffer stays as it is.
                write_inside(&fields[0], here);
                halo.clear_on(&stream, 0).unwrap();
                world.synchronize(&stream, soon()).unwrap();
                check(&fields[0], here, 0, 0, "only the buffers are cleared");
                world.barrier().unwrap();
            }
            let said = halo.clear_on(&stream, 2).unwrap_err().to_string();
            assert!(said.contains("field 2 of 2"), "{said}");
            world.barrier().unwrap();
        });
    }
}

tests_of_devices! {
    crate::devices::once;
    "needs a GPU":
    phases_on_streams_bring_the_ghosts_through_buffers_too = crate::phases_bring_the_ghosts;
    a_field_that_a_stream_has_cleared_has_ghosts_of_zeros = crate::a_cleared_field_has_ghosts_of_zeros;
}

on_the_host!();

mod gpu {
    on_a_gpu!();
}

#[test]
fn a_neighbour_that_never_comes_ends_the_wait_with_its_name() {
    each_path(|| {
        let mut config = config();
        config.timeout = PASSES;
        stay_to_the_end(World::threads_with_config(2, &config).unwrap(), |world| {
            let (_fields, halo) = ring(world, &Device::Host, 1, false);
            if world.rank() == 1 {
                return Some(halo);
            }
            let stream = world.stream(&Device::Host).unwrap();
            halo.run_on(&stream, 0).unwrap();
            // Nothing is sent behind the wait that failed.
            halo.run_on(&stream, 1).unwrap();
            let error = world.synchronize(&stream, soon()).unwrap_err();
            let said = error.to_string();
            assert!(matches!(error, Error::Late { rank: 1, expected: 1, seen: 0, .. }), "{said}");
            assert!(said.contains("halo exchange"), "{said}");
            None
        });
    });
}

#[test]
fn the_end_of_a_rank_ends_the_waits_of_its_neighbours() {
    each_path(|| {
        let lost = on_threads(World::threads_with_config(2, &config()).unwrap(), |world| {
            let (_fields, halo) = ring(&world, &Device::Host, 1, false);
            if world.rank() == 1 {
                drop(world);
                return None;
            }
            let stream = world.stream(&Device::Host).unwrap();
            halo.run_on(&stream, 0).and_then(|()| world.synchronize(&stream, soon())).err()
        });
        let error = lost[0].as_ref().unwrap();
        assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "{error}");
    });
}

/// What `prepare` of two ranks says, which is the same on both.
fn refusal(prepare: impl Fn(&World, &Region<f64>) -> Result<Exchange, Error> + Sync) -> String {
    let said = on_threads(World::threads(2).unwrap(), |world| {
        let region = world.alloc::<f64>(&Device::Host, 64).unwrap();
        let said = prepare(&world, &region).unwrap_err().to_string();
        world.finish().unwrap();
        said
    });
    assert_eq!(said[0], said[1]);
    said[0].clone()
}

#[test]
fn neighbours_that_do_not_agree_are_refused_on_every_rank() {
    let border = |region: &Region<f64>, cells: i32| {
        Field::new(region, 0, [8, 64]).border([0..cells, 0..1, 0..1], [0..3, 3..4, 0..1])
    };
    let other = |world: &World| Neighbour::new(1 - world.rank());
    let said = refusal(|world, region| {
        let field = border(region, 3 + world.rank() as i32);
        world.exchange(&Device::Host, &[Some(other(world))], &[field])
    });
    assert!(said.contains("rank 1 sends rank 0 rows of 32 bytes"), "{said}");
    let said = refusal(|world, region| {
        let neighbours: &[_] = if world.rank() == 0 { &[Some(Neighbour::new(1))] } else { &[None] };
        let field = Field::new(region, 0, [8, 64]);
        let field = if world.rank() == 0 { border(region, 3) } else { field };
        world.exchange(&Device::Host, neighbours, &[field])
    });
    assert!(said.contains("which has no Neighbour"), "{said}");
    let said = refusal(|world, region| {
        let cells = if world.rank() == 1 { 9 } else { 3 };
        let field = border(region, 3).border([60..60 + cells, 0..1, 0..1], [0..3, 3..4, 0..1]);
        let more = Neighbour { here: 1, there: 1, ..other(world) };
        let neighbours = [Some(other(world)), Some(more)];
        world.exchange(&Device::Host, &neighbours, &[field])
    });
    assert!(said.contains("rank 1: field 0: cells [60..69"), "{said}");
    let said = refusal(|world, region| {
        let field = border(region, 3).border([0..3, 0..1, 0..1], [0..3, 3..4, 0..1]);
        world.exchange(&Device::Host, &[Some(other(world)), Some(other(world))], &[field])
    });
    assert!(said.contains("twice"), "{said}");
}

#[test]
fn a_handle_is_refused_for_too_few_neighbours_and_for_a_field_that_is_read_and_written() {
    ranks(2, |world| {
        let (_fields, halo) = ring(world, &Device::Host, 1, false);
        let phase = Phase { read: Some(0), written: Some(1), waits: true };
        assert_eq!(halo.handle::<2>(phase).unwrap().head.count, 2);
        let said = halo.handle::<1>(phase).unwrap_err().to_string();
        assert!(said.contains("2 neighbours for 1"), "{said}");
        let said = halo.handle::<2>(Phase { written: Some(0), ..phase }).unwrap_err().to_string();
        assert!(said.contains("read and overwritten"), "{said}");
        let said = halo.handle::<2>(Phase { written: Some(2), ..phase }).unwrap_err().to_string();
        assert!(said.contains("field 2 of 2"), "{said}");
        let stream = world.stream(&Device::Host).unwrap();
        assert!(halo.run_on(&stream, 2).is_err());
        world.barrier().unwrap();
    });
}
