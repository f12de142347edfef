//! Halo exchanges: phases on host streams, and what is refused. Exchanges in kernels are those of the examples (`examples/tests`).

mod common;

use common::{PASSES, SOON, config, each_path, on_threads, ranks, stay_to_the_end};
use libmp::exchange::{Field, Neighbour, Phase};
use libmp::{Deadline, Device, Error, Exchange, Region, World};

fn soon() -> Deadline {
    Deadline::after(SOON)
}

/// Cells of a rod a rank, a ghost at each end.
const ROD: usize = 6;

/// A ring of rods, each `width` cells thick: both fields, and what exchanges them.
fn ring(world: &World, width: i32, buffered: bool) -> ([Region<u32>; 2], Exchange) {
    let (rank, size) = (world.rank(), world.size());
    let fields = [0, 1].map(|_| world.alloc(&Device::Host, ROD * width as usize).unwrap());
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
    let halo = world.exchange(&Device::Host, &neighbours, &[rod(&fields[0]), rod(&fields[1])]);
    (fields, halo.unwrap())
}

#[test]
fn phases_on_streams_bring_the_ghosts_through_buffers_too() {
    for (size, width, buffered) in [(1, 1, false), (2, 3, true), (3, 1, true), (3, 2, false)] {
        ranks(size, |world| {
            let (fields, halo) = ring(world, width, buffered);
            let stream = world.stream(&Device::Host).unwrap();
            for round in 0..7u32 {
                let field = (round % 2) as usize;
                let value = |rank: usize| 100 * (round + 1) + rank as u32;
                // Not the ghosts: a neighbour that is ahead may have written them.
                for row in (0..width as usize).map(|row| row * ROD) {
                    let inside = fields[field].slice(row + 1..row + ROD - 1).unwrap();
                    inside.write(&[value(world.rank()); ROD - 2]).unwrap();
                }
                if round % 3 == 0 {
                    halo.start_on(&stream, field).unwrap();
                    halo.wait_on(&stream, Some(field)).unwrap();
                } else {
                    halo.run_on(&stream, field).unwrap();
                }
                world.synchronize(&stream, soon()).unwrap();
                let found = fields[field].to_vec().unwrap();
                let (left, right) = ((world.rank() + size - 1) % size, (world.rank() + 1) % size);
                for row in found.chunks(ROD) {
                    assert_eq!((row[0], row[ROD - 1]), (value(left), value(right)), "{round}");
                    assert_eq!(row[1], value(world.rank()));
                }
            }
        });
    }
}

#[test]
fn a_neighbour_that_never_comes_ends_the_wait_with_its_name() {
    each_path(|| {
        let mut config = config();
        config.timeout = PASSES;
        stay_to_the_end(World::threads_with_config(2, &config).unwrap(), |world| {
            let (_fields, halo) = ring(world, 1, false);
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
            let (_fields, halo) = ring(&world, 1, false);
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
        let (_fields, halo) = ring(world, 1, false);
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
