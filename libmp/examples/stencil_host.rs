//! Heat on a square plate, in strips of rows: each rank has one strip and exchanges its edge rows with the ranks above and
//! below. Here the host starts and completes the messages; `stencil_stream.rs` is the same with a stream doing it.
//!
//! `mprun -n 4 target/release/examples/stencil_host` for processes; without a launcher the ranks are four threads. Argument:
//! cells a side (default 256). Every rank computes the plate alone as well and compares, bit by bit.

use std::time::Duration;

use libmp::{Deadline, Device, Operation, Recv, Region, Result, Send, World, wait_all};

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

/// An edge row that goes to a neighbour, and the row that comes from it.
struct Halo {
    edge: Region<f64>,
    ghost: Region<f64>,
    send: Send,
    recv: Recv,
}

impl Halo {
    fn with(world: &World, neighbour: usize, side: usize) -> Result<Halo> {
        let peer = world.peer(neighbour)?;
        let edge: Region<f64> = world.alloc(&Device::Host, side)?;
        let ghost: Region<f64> = world.alloc(&Device::Host, side)?;
        let (send, recv) = (peer.send(&edge, 0).prepare()?, peer.recv(&ghost, 0).prepare()?);
        Ok(Halo { edge, ghost, send, recv })
    }
}

/// What one rank does.
pub fn rank(world: World, side: usize) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let (first, last) = (rank * side / size, (rank + 1) * side / size);
    let rows = last - first;
    // One row more above and below: the neighbours', or the cold frame.
    let mut now = vec![0.0; (rows + 2) * side];
    now[side..(rows + 1) * side].copy_from_slice(&start(side)[first * side..last * side]);
    let above = (rank > 0).then(|| Halo::with(&world, rank - 1, side)).transpose()?;
    let below = (rank + 1 < size).then(|| Halo::with(&world, rank + 1, side)).transpose()?;
    // The row that a halo sends, and the one that it fills.
    let halos = [(above, 1, 0), (below, rows, rows + 1)];
    for _ in 0..STEPS {
        let halos = || halos.iter().filter_map(|(halo, from, to)| Some((halo.as_ref()?, from, to)));
        for (halo, from, _) in halos() {
            halo.recv.start()?;
            halo.edge.write(&now[from * side..(from + 1) * side])?;
            halo.send.start()?;
        }
        for (halo, _, to) in halos() {
            let operations: [&dyn Operation; 2] = [&halo.send, &halo.recv];
            wait_all(&operations, Deadline::after(Duration::from_secs(20)))?;
            now[to * side..(to + 1) * side].copy_from_slice(&halo.ghost.to_vec()?);
        }
        now = step(&now, side);
    }
    let alone = (0..STEPS).fold(framed(&start(side), side), |plate, _| step(&plate, side));
    let same = now[side..(rows + 1) * side] == alone[(first + 1) * side..(last + 1) * side];
    let agreeing = world.sum(u64::from(same))?;
    if rank == 0 {
        println!("{STEPS} steps of {side} x {side} cells on {size} ranks: {agreeing} ranks agree");
    }
    if agreeing < size as u64 {
        world.abort("the plate differs from the one computed alone");
        world.check()?;
    }
    world.finish()
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
