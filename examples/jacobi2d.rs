//! Heat on a square plate, as `stencil_host.rs`, cut among the ranks along both axes: each step is one launch, whose blocks wait for the
//! neighbours' borders, compute, and bring them this rank's (`jacobi2d.cu`). Blocks inside wait for nobody.
//!
//! `jacobi2d [host] [SIDE [STEPS [RANKS]]]`: cells a side (256), steps (50), and, without a launcher, how many threads (4); `host` keeps it
//! on the CPU.

use std::time::Instant;

use libmp::exchange::{Field, Neighbour, Phase};
use libmp::gdsync::{Arg, Dims};
use libmp::{Device, World};
use mp_examples::plate::{alone, part, start};
use mp_examples::{Arguments, Failure, kernel, run, soon, verdict};
use mp_kernels::{Exchange, Tiles};

fn main() -> Result<(), Failure> {
    let arguments = Arguments::of_program()?;
    let (side, steps) = (arguments.number(0, 256), arguments.number(1, 50));
    run(arguments.number(2, 4), |world| rank(world, &arguments.device(world)?, side, steps))
}

/// What one rank does.
pub fn rank(world: &World, device: &Device, side: usize, steps: usize) -> Result<(), Failure> {
    let (rank, size) = (world.rank(), world.size());
    // As square as it goes: this many ranks along each axis, and this rank's place among them.
    let across = (1..=size).filter(|n| size % n == 0 && n * n <= size).max().unwrap_or(1);
    let (grid, place) = ([across, size / across], [rank % across, rank / across]);
    if side < grid[1] {
        return Err(format!("{side} rows for {} ranks: each needs one", grid[1]).into());
    }
    let mine = [0, 1].map(|axis| part(side, grid[axis], place[axis]));
    let cells = [mine[0].len() as i32, mine[1].len() as i32];
    let row = mine[0].len() + 2;
    let origin = 1 + row;
    // ANCHOR: exchange
    let fields = [0, 1].map(|_| world.alloc::<f64>(device, row * (mine[1].len() + 2)));
    let [even, odd] = fields;
    let fields = [even?, odd?];
    // A field begins at cell (0, 0); its rows are `row` apart. Neighbours: left, right, above, below.
    let mut borders =
        fields.each_ref().map(|field| Field::new(field, origin as isize, [row, field.len()]));
    let mut neighbours = Vec::new();
    for (axis, step) in [(0, -1), (0, 1), (1, -1), (1, 1)] {
        let at = place[axis] as i32 + step;
        if at < 0 || at == grid[axis] as i32 {
            neighbours.push(None); // the frame of the plate, which stays cold
            continue;
        }
        let mut direction = [0_i8; 3];
        direction[axis] = step as i8;
        let peer = rank as i32 + step * [1, across as i32][axis];
        neighbours.push(Some(Neighbour::toward(peer as usize, direction)));
        let (mut send, mut receive) =
            ([0..cells[0], 0..cells[1], 0..1], [0..cells[0], 0..cells[1], 0..1]);
        let end = cells[axis];
        send[axis] = if step < 0 { 0..1 } else { end - 1..end };
        receive[axis] = if step < 0 { -1..0 } else { end..end + 1 };
        borders = borders.map(|field| field.border(send.clone(), receive.clone()));
    }
    let halo = world.exchange(device, &neighbours, &borders)?;
    // ANCHOR_END: exchange
    let all = start(side);
    let here = |x: usize, y: usize| origin + x + y * row;
    let mut first = vec![0.0; fields[0].len()];
    fields[1].write(&first)?;
    for (y, x) in mine[1].clone().flat_map(|y| mine[0].clone().map(move |x| (y, x))) {
        first[here(x - mine[0].start, y - mine[1].start)] = all[y * side + x];
    }
    fields[0].write(&first)?;
    let (stream, jacobi) = (world.stream(device)?, kernel(device, "jacobi2d")?);
    let gpu = device.as_cuda().is_some();
    let each = if gpu { [64, 16, 1] } else { [cells[0], (cells[1] / 2).max(1), 1] };
    let tiles = Tiles { first: [0; 3], end: [cells[0], cells[1], 1], each };
    let dims = Dims::linear(tiles.count(), if gpu { 256 } else { 1 });
    world.barrier()?;
    let since = Instant::now();
    // ANCHOR: steps
    halo.run_on(&stream, 0)?; // the neighbours get the first borders
    for step in 0..steps {
        let (read, written) = (step % 2, 1 - step % 2);
        let phase = Phase { read: Some(read), written: Some(written), waits: true };
        let handle: Exchange<4> = halo.handle(phase)?;
        let address =
            |field: usize| fields[field].buffer().device_address().unwrap_or(0) + 8 * origin as u64;
        let (from, to, row) = (address(read), address(written), row as i64);
        let args =
            [Arg::new(&handle), Arg::new(&tiles), Arg::new(&from), Arg::new(&to), Arg::new(&row)];
        // SAFETY: the kernel's parameters; the fields live until the stream has been waited for.
        unsafe { stream.launch(&jacobi, dims, &args)? };
    }
    world.synchronize(&stream, soon())?;
    // ANCHOR_END: steps
    let each = since.elapsed().as_secs_f64() * 1e6 / steps as f64;
    let (found, all) = (fields[steps % 2].to_vec()?, alone(side, steps));
    let right = mine[1].clone().all(|y| {
        let at = here(0, y - mine[1].start);
        found[at..at + mine[0].len()] == all[y * side..][mine[0].clone()]
    });
    let [x, y] = grid;
    let line = format!(
        "jacobi2d: {side} x {side} cells on {x} x {y} ranks ({device}), {steps} steps: {each:.2} µs each"
    );
    verdict(world, right, &line)
}
