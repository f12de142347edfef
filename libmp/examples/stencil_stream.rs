//! Heat on a square plate, in strips of rows, as `stencil_host.rs`; here a stream exchanges the edge rows and computes: the
//! two steps of a double buffer are captured once and replayed, and the host does nothing in between. On a GPU the two
//! closures are kernels; everything else stays as it is.
//!
//! `mprun -n 4 target/release/examples/stencil_stream` for processes; without a launcher the ranks are four threads. Argument:
//! cells a side (default 256). Every rank computes the plate alone as well and compares, bit by bit.

use std::time::Duration;

use libmp::{Deadline, Device, Error, Recv, Region, Result, Send, Step, Stream, World};

const STEPS: usize = 50;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let side: usize = std::env::args().nth(1).map_or(Ok(256), |word| word.parse())?;
    let world = World::init()?;
    if world.size() > 1 {
        return Ok(rank(world, side)?);
    }
    world.finish()?;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = World::threads(4)?
            .into_iter()
            .map(|world| scope.spawn(move || rank(world, side)))
            .collect();
        ranks.into_iter().try_for_each(|rank| rank.join().expect("a rank panicked"))?;
        Ok(())
    })
}

/// The edge row of a plate on its way to a neighbour, and the neighbour's on its way into the row beyond the edge: straight
/// from plate to plate.
fn halo(
    world: &World,
    neighbour: usize,
    plate: &Region<f64>,
    side: usize,
    (edge, ghost): (usize, usize),
    tag: u64,
) -> Result<(Send, Recv)> {
    let peer = world.peer(neighbour)?;
    let row = |row: usize| plate.slice(row * side..(row + 1) * side);
    Ok((peer.send(&row(edge)?, tag).prepare()?, peer.recv(&row(ghost)?, tag).prepare()?))
}

/// What one rank does.
pub fn rank(world: World, side: usize) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let (first, last) = (rank * side / size, (rank + 1) * side / size);
    let rows = last - first;
    let device = Device::Host;
    let stream = world.stream(&device)?;
    // Used in turn. One row more above and below: the neighbours', or the cold frame.
    let plates: [Region<f64>; 2] =
        [world.alloc(&device, (rows + 2) * side)?, world.alloc(&device, (rows + 2) * side)?];
    plates[0].slice(side..(rows + 1) * side)?.write(&start(side)[first * side..last * side])?;
    let mut halos = [Vec::new(), Vec::new()];
    for (turn, (plate, halos)) in plates.iter().zip(&mut halos).enumerate() {
        if rank > 0 {
            halos.push(halo(&world, rank - 1, plate, side, (1, 0), turn as u64)?);
        }
        if rank + 1 < size {
            halos.push(halo(&world, rank + 1, plate, side, (rows, rows + 1), turn as u64)?);
        }
    }
    // The first rows beyond the edges may be written as soon as they are posted.
    let post =
        |turn: usize| halos[turn].iter().map(|(_, recv)| Step::start(recv)).collect::<Vec<_>>();
    world.enqueue(&stream, &post(0))?;
    let capture = |source| Error::Memory { op: "capturing two steps".into(), source };
    stream.begin_capture().map_err(capture)?;
    for turn in [0, 1] {
        // The other plate's rows are read by nobody now.
        let mut list: Vec<Step<'_>> = post(1 - turn);
        list.extend(halos[turn].iter().map(|(send, _)| Step::start(send)));
        list.extend(halos[turn].iter().map(|(_, recv)| Step::wait(recv)));
        world.enqueue(&stream, &list)?;
        compute(&stream, &plates[turn], &plates[1 - turn], side).map_err(capture)?;
    }
    let two_steps = stream.end_capture().map_err(capture)?;
    for _ in 0..STEPS / 2 {
        stream.launch_graph(&two_steps).map_err(capture)?;
    }
    world.synchronize(&stream, Deadline::after(Duration::from_secs(60)))?;
    let alone = (0..STEPS).fold(framed(&start(side), side), |plate, _| step(&plate, side));
    let mine = plates[0].slice(side..(rows + 1) * side)?.to_vec()?;
    let agreeing = world.sum(u64::from(mine == alone[(first + 1) * side..(last + 1) * side]))?;
    if rank == 0 {
        println!("{STEPS} steps of {side} x {side} cells on {size} ranks: {agreeing} ranks agree");
    }
    if agreeing < size as u64 {
        world.abort("the plate differs from the one computed alone");
        world.check()?;
    }
    world.finish()
}

/// Enqueues one step from one plate to the other.
fn compute(
    stream: &Stream,
    from: &Region<f64>,
    to: &Region<f64>,
    side: usize,
) -> libmp::gdsync::Result<()> {
    let (from, to) = (from.clone(), to.clone());
    stream.call(move || {
        // The ends of the first and last row are the neighbours' business; only rows between them are written.
        let next = step(&from.to_vec().expect("host memory"), side);
        let inner = side..next.len() - side;
        let target = to.slice(inner.clone()).and_then(|to| to.write(&next[inner]));
        target.expect("plates of one size");
    })
}

/// A plate with a hot spot.
fn start(side: usize) -> Vec<f64> {
    let hot = |cell: usize| cell / side > side / 3 && cell % side < side / 2;
    (0..side * side).map(|cell| if hot(cell) { 1.0 + cell as f64 * 1e-6 } else { 0.0 }).collect()
}

/// The plate with a cold row above and below.
fn framed(plate: &[f64], side: usize) -> Vec<f64> {
    let cold = vec![0.0; side];
    [&cold[..], plate, &cold[..]].concat()
}

/// One step of all rows but the first and the last, which stay; cells beyond the left and right edge are cold.
fn step(now: &[f64], side: usize) -> Vec<f64> {
    let mut next = now.to_vec();
    for cell in side..now.len() - side {
        let left = if cell % side == 0 { 0.0 } else { now[cell - 1] };
        let right = if cell % side == side - 1 { 0.0 } else { now[cell + 1] };
        let around = left + right + now[cell - side] + now[cell + side];
        next[cell] = now[cell] + 0.2 * (around - 4.0 * now[cell]);
    }
    next
}
