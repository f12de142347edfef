//! The mean of 27 cells, again and again, in a box cut among ranks along three axes: each step is one launch, which waits for the
//! neighbours' borders, computes, and brings them its own (`jacobi3d.cu`). A rank has 26 neighbours.
//!
//! `jacobi3d [host] [n [X Y Z]]`: cells of a rank along each axis (6), and how many ranks there are along each (2 2 2), which without a
//! launcher are threads; `host` keeps it on the CPU.

use std::time::Instant;

use libmp::exchange::{Field, Neighbour, Phase};
use libmp::gdsync::{Arg, Dims};
use libmp::{Device, World};
use mp_examples::{Arguments, Failure, kernel, run, soon, verdict};
use mp_kernels::{Exchange, Tiles};

const STEPS: usize = 6;

fn main() -> Result<(), Failure> {
    let arguments = Arguments::of_program()?;
    let cells = [arguments.number(0, 6) as i32; 3];
    let ranks = [1, 2, 3].map(|which| arguments.number(which, 2) as i32);
    let rank = |world: &World| rank(world, &arguments.device(world)?, cells, ranks, true);
    run(ranks.iter().product::<i32>() as usize, rank)
}

/// What one rank does with so many cells of its own; `around`: the box is periodic.
pub fn rank(
    world: &World,
    device: &Device,
    n: [i32; 3],
    ranks: [i32; 3],
    around: bool,
) -> Result<(), Failure> {
    let (me, size) = (world.rank() as i32, world.size());
    if ranks.iter().product::<i32>() as usize != size {
        return Err(format!("{ranks:?} ranks along the axes, and {size} in all").into());
    }
    let place = [me % ranks[0], me / ranks[0] % ranks[1], me / ranks[0] / ranks[1]];
    let (row, plane) = (n[0] + 2, (n[0] + 2) * (n[1] + 2));
    let origin = 1 + row + plane;
    let memory = [0, 1].map(|_| world.alloc::<f64>(device, (plane * (n[2] + 2)) as usize));
    let [even, odd] = memory;
    let fields = [even?, odd?];
    let mut borders = fields
        .each_ref()
        .map(|region| Field::new(region, origin as isize, [row as usize, plane as usize]));
    let mut neighbours = Vec::new();
    for number in (0..27).filter(|number| *number != 13) {
        let direction = [number % 3 - 1, number / 3 % 3 - 1, number / 9 - 1];
        let at = [0, 1, 2].map(|axis| place[axis] + direction[axis]);
        if !around && (0..3).any(|axis| at[axis] < 0 || at[axis] == ranks[axis]) {
            // The ghosts beyond the box are zeros.
            neighbours.push(None);
            continue;
        }
        let at = [0, 1, 2].map(|axis| at[axis].rem_euclid(ranks[axis]));
        let peer = at[0] + ranks[0] * (at[1] + ranks[1] * at[2]);
        neighbours.push(Some(Neighbour::toward(peer as usize, direction.map(|step| step as i8))));
        let side = |axis: usize, before, all, behind| match direction[axis] {
            -1 => before,
            0 => all,
            _ => behind,
        };
        let send = [0, 1, 2].map(|a| side(a, 0..1, 0..n[a], n[a] - 1..n[a]));
        let receive = [0, 1, 2].map(|a| side(a, -1..0, 0..n[a], n[a]..n[a] + 1));
        borders = borders.map(|field| field.border(send.clone(), receive.clone()));
    }
    let whole = [0, 1, 2].map(|axis| ranks[axis] * n[axis]);
    let mut all = vec![0.0; (whole[0] * whole[1] * whole[2]) as usize];
    all.iter_mut().enumerate().for_each(|(i, cell)| *cell = (i * i % 101) as f64);
    // Where a cell of this rank is in its fields, and in the whole box.
    let cells = || (0..n.iter().product()).map(|i| [i % n[0], i / n[0] % n[1], i / n[0] / n[1]]);
    let here = |c: [i32; 3]| (origin + c[0] + c[1] * row + c[2] * plane) as usize;
    let there = |c: [i32; 3]| {
        let [x, y, z] = [0, 1, 2].map(|axis| place[axis] * n[axis] + c[axis]);
        (x + whole[0] * (y + whole[1] * z)) as usize
    };
    let mut first = vec![0.0; fields[0].len()];
    cells().for_each(|cell| first[here(cell)] = all[there(cell)]);
    fields[0].write(&first)?;
    let halo = world.exchange(device, &neighbours, &borders)?;
    let (stream, jacobi) = (world.stream(device)?, kernel(device, "jacobi3d")?);
    let gpu = device.as_cuda().is_some();
    let each = if gpu { [32, 4, 4] } else { n.map(|cells| (cells + 1) / 2) };
    let tiles = Tiles { first: [0; 3], end: n, each };
    let dims = Dims::linear(tiles.count(), if gpu { 128 } else { 1 });
    world.barrier()?;
    let since = Instant::now();
    halo.run_on(&stream, 0)?;
    for step in 0..STEPS {
        let (read, written) = (step % 2, (step + 1) % 2);
        let handle: Exchange<26> =
            halo.handle(Phase { read: Some(read), written: Some(written), waits: true })?;
        let address =
            |field: usize| fields[field].buffer().device_address().unwrap_or(0) + 8 * origin as u64;
        let (from, to, row, plane) = (address(read), address(written), row as i64, plane as i64);
        let args = [
            Arg::new(&handle),
            Arg::new(&tiles),
            Arg::new(&from),
            Arg::new(&to),
            Arg::new(&row),
            Arg::new(&plane),
        ];
        // SAFETY: the kernel's parameters; the fields live until the stream has been waited for.
        unsafe { stream.launch(&jacobi, dims, &args)? };
    }
    world.synchronize(&stream, soon())?;
    let each = since.elapsed().as_secs_f64() * 1e6 / STEPS as f64;
    (0..STEPS).for_each(|_| all = alone(&all, whole, around));
    let found = fields[STEPS % 2].to_vec()?;
    let right = cells().all(|cell| found[here(cell)] == all[there(cell)]);
    let ([x, y, z], [a, b, c]) = (whole, ranks);
    let line = format!(
        "jacobi3d: {x} x {y} x {z} cells on {a} x {b} x {c} ranks ({device}), {STEPS} steps: {each:.2} µs each"
    );
    verdict(world, right, &line)
}

/// A step of the whole box.
fn alone(from: &[f64], n: [i32; 3], around: bool) -> Vec<f64> {
    let value = |x: i32, y: i32, z: i32| {
        let inside = (0..n[0]).contains(&x) && (0..n[1]).contains(&y) && (0..n[2]).contains(&z);
        let [x, y, z] = [x.rem_euclid(n[0]), y.rem_euclid(n[1]), z.rem_euclid(n[2])];
        if inside || around { from[(x + n[0] * (y + n[1] * z)) as usize] } else { 0.0 }
    };
    let near = |i: i32| {
        (0..27).map(move |d| {
            (i % n[0] + d % 3 - 1, i / n[0] % n[1] + d / 3 % 3 - 1, i / n[0] / n[1] + d / 9 - 1)
        })
    };
    let mean = |i: i32| near(i).fold(0.0, |sum, (x, y, z)| sum + value(x, y, z)) / 27.0;
    (0..n.iter().product()).map(mean).collect()
}
