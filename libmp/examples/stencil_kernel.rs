//! Heat on a square plate, in strips of rows, as `stencil_host.rs` and `stencil_stream.rs`; here one kernel a step sends the
//! edge rows, computes the inside meanwhile, waits for the neighbours' rows and computes the rest. The host only launches. The
//! kernel is `stencil_kernel.cu`, compiled beforehand as its first lines say.
//!
//! `mprun --per-gpu target/release/examples/stencil_kernel stencil_kernel.fatbin`; without a launcher the ranks are two
//! threads on the first GPU. Arguments: the compiled kernel, cells a side (256). Every rank computes the plate alone as
//! well, on the CPU, and compares, bit by bit.

use std::time::{Duration, Instant};

use libmp::gdsync::{Arg, Dims};
use libmp::{Deadline, Device, Region, World};
use mp_kernels::{Recv, Send};

type Failure = Box<dyn std::error::Error + std::marker::Send + Sync>;

const STEPS: usize = 50;
/// Blocks and threads of a launch: 4 blocks exchange.
const DIMS: (u32, u32) = (20, 256);

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the compiled kernel is missing, see stencil_kernel.cu")?;
    // Code is loaded for as long as the program runs.
    let image: &'static [u8] = std::fs::read(&path).map_err(|e| format!("{path}: {e}"))?.leak();
    let side: usize = arguments.next().map_or(Ok(256), |word| word.parse())?;
    let world = World::init()?;
    if world.size() > 1 {
        return rank(world, image, side);
    }
    world.finish()?;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = World::threads(2)?
            .into_iter()
            .map(|world| scope.spawn(move || rank(world, image, side)))
            .collect();
        ranks.into_iter().try_for_each(|rank| rank.join().expect("a rank panicked"))
    })
}

/// `Halo` of stencil_kernel.cu.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Halo {
    send: Send,
    recv: Recv,
    there: u64,
}

fn rank(world: World, image: &'static [u8], side: usize) -> Result<(), Failure> {
    let (rank, size) = (world.rank(), world.size());
    let (first, last) = (rank * side / size, (rank + 1) * side / size);
    let rows = last - first;
    if side < size {
        return Err(format!("{side} rows for {size} ranks: each needs one").into());
    }
    let device = Device::cuda(world.assigned_gpu().map_or(Ok(0), str::parse)?)?;
    let module = device.as_cuda().ok_or("no GPU")?.load_module(image, &["stencil"])?;
    let kernel = module.kernel("stencil")?;
    let stream = world.stream(&device)?;
    // Used in turn. One row more above and below: the neighbours', or the cold frame.
    let plates: [Region<f64>; 2] =
        [world.alloc(&device, (rows + 2) * side)?, world.alloc(&device, (rows + 2) * side)?];
    let cold = vec![0.0; (rows + 2) * side];
    plates.iter().try_for_each(|plate| plate.write(&cold))?;
    plates[0].slice(side..(rows + 1) * side)?.write(&start(side)[first * side..last * side])?;
    // Of each plate: the ends above and below, from plate to plate.
    let mut ends = Vec::new();
    let mut halos = [[Halo::default(); 2]; 2];
    let neighbours = [(rank.checked_sub(1), 1, 0), (Some(rank + 1), rows, rows + 1)];
    for (turn, plate) in plates.iter().enumerate() {
        for (neighbour, edge, ghost) in neighbours {
            let Some(neighbour) = neighbour.filter(|&neighbour| neighbour < size) else { continue };
            let peer = world.peer(neighbour)?;
            let row = |row: usize| plate.slice(row * side..(row + 1) * side);
            let send = peer.send(&row(edge)?, turn as u64).prepare()?;
            ends.push((send, peer.recv(&row(ghost)?, turn as u64).prepare()?));
        }
    }
    let mut prepared = ends.iter();
    for (halo, (neighbour, ..)) in halos.iter_mut().flatten().zip(neighbours.iter().cycle()) {
        if neighbour.is_some_and(|neighbour| neighbour < size) {
            let (send, recv) = prepared.next().ok_or("an end for each halo")?;
            *halo = Halo { send: send.handle()?, recv: recv.handle()?, there: 1 };
        }
    }
    let address = |turn: usize| plates[turn].buffer().device_address().ok_or("no address");
    let addresses = [address(0)?, address(1)?];
    let (rows, cells) = (rows as u64, side as u64);
    world.barrier()?;
    let since = Instant::now();
    for step in 0..STEPS {
        let [above, below] = halos[step % 2];
        let (from, to) = (addresses[step % 2], addresses[(step + 1) % 2]);
        let args = [
            Arg::new(&above),
            Arg::new(&below),
            Arg::new(&from),
            Arg::new(&to),
            Arg::new(&rows),
            Arg::new(&cells),
        ];
        // SAFETY: the kernel's parameters; everything lives until the stream has been waited for.
        unsafe { stream.launch(&kernel, Dims::linear(DIMS.0, DIMS.1), &args)? };
    }
    world.synchronize(&stream, Deadline::after(Duration::from_secs(60)))?;
    let each = since.elapsed().as_secs_f64() * 1e6 / STEPS as f64;
    let cold = vec![0.0; side];
    let framed = [&cold[..], &start(side), &cold[..]].concat();
    let alone = (0..STEPS).fold(framed, |plate, _| next(&plate, side));
    let mine = plates[STEPS % 2].slice(side..(last - first + 1) * side)?.to_vec()?;
    let agreeing = world.sum(u64::from(mine == alone[(first + 1) * side..(last + 1) * side]))?;
    if rank == 0 {
        println!(
            "{STEPS} steps of {side} x {side} cells on {size} ranks, {each:.2} µs each: {agreeing} ranks agree"
        );
    }
    world.barrier()?;
    if agreeing < size as u64 {
        return Err("the plate differs from the one computed alone".into());
    }
    Ok(world.finish()?)
}

/// A plate with a hot spot.
fn start(side: usize) -> Vec<f64> {
    let hot = |cell: usize| cell / side > side / 3 && cell % side < side / 2;
    (0..side * side).map(|cell| if hot(cell) { 1.0 + cell as f64 * 1e-6 } else { 0.0 }).collect()
}

/// The plate a step later; the first and the last row stay, cells beyond the left and right edge are cold.
fn next(now: &[f64], side: usize) -> Vec<f64> {
    let mut next = now.to_vec();
    for cell in side..now.len() - side {
        let left = if cell % side == 0 { 0.0 } else { now[cell - 1] };
        let right = if cell % side == side - 1 { 0.0 } else { now[cell + 1] };
        let around = left + right + now[cell - side] + now[cell + side];
        next[cell] = now[cell] + 0.2 * (around - 4.0 * now[cell]);
    }
    next
}
