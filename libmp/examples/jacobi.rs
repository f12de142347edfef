//! The mean of 27 cells, again and again, in a box cut among ranks along three axes: each step is one launch, which waits for the
//! neighbours' borders, computes, and brings them its own. The kernel is `jacobi.cu`, compiled beforehand as its first lines say.
//!
//! `mprun -n 8 --per-gpu target/release/examples/jacobi jacobi.fatbin 2 2 2`, or `jacobi.so` for the host: the kernel, and the ranks
//! along each axis. Every rank computes all of the box alone as well and compares, bit by bit.

use std::path::Path;
use std::time::Duration;

use libloading::Library;
use libmp::exchange::{Field, Neighbour, Phase};
use libmp::gdsync::{Arg, Dims, Module};
use libmp::{Deadline, Device, World};
use mp_kernels::{Exchange, Tiles};

type Failure = Box<dyn std::error::Error + Send + Sync>;
type OnHost = unsafe extern "C" fn(*const Exchange<26>, *const Tiles, u64, u64, i64, i64);

const STEPS: usize = 6;
/// Of a rank.
const CELLS: [i32; 3] = [5, 4, 6];

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the compiled kernel is missing, see jacobi.cu")?;
    let ranks: Vec<i32> = arguments.map(|word| word.parse()).collect::<Result<_, _>>()?;
    let ranks: [i32; 3] = ranks.try_into().map_err(|_| "how many ranks along each of 3 axes?")?;
    let world = World::init()?;
    let device = match path.ends_with(".so") {
        true => Device::Host,
        false => Device::cuda(world.assigned_gpu().map_or(Ok(0), str::parse)?)?,
    };
    rank(&world, &Kernel::load(Path::new(&path), &device)?, &device, ranks, true)?;
    Ok(world.finish()?)
}

/// The kernel for a GPU or for the host.
pub enum Kernel {
    /// The fatbin.
    Gpu(Module),
    /// The shared library.
    Host(&'static Library),
}

impl Kernel {
    /// Code is loaded for as long as the program runs.
    pub fn load(path: &Path, device: &Device) -> Result<Kernel, Failure> {
        Ok(match device.as_cuda() {
            Some(gpu) => Kernel::Gpu(gpu.load_module(std::fs::read(path)?.leak(), &["jacobi"])?),
            // SAFETY: made of jacobi.cu, which runs nothing when it is loaded.
            None => Kernel::Host(Box::leak(Box::new(unsafe { Library::new(path)? }))),
        })
    }
}

/// What a rank does; `around`: the box is periodic.
pub fn rank(
    world: &World,
    kernel: &Kernel,
    device: &Device,
    ranks: [i32; 3],
    around: bool,
) -> Result<(), Failure> {
    let me = world.rank() as i32;
    let place = [me % ranks[0], me / ranks[0] % ranks[1], me / ranks[0] / ranks[1]];
    let (row, plane) = (CELLS[0] + 2, (CELLS[0] + 2) * (CELLS[1] + 2));
    let origin = 1 + row + plane;
    let memory = [0, 1].map(|_| world.alloc::<f64>(device, (plane * (CELLS[2] + 2)) as usize));
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
        let send = [0, 1, 2].map(|a| side(a, 0..1, 0..CELLS[a], CELLS[a] - 1..CELLS[a]));
        let receive = [0, 1, 2].map(|a| side(a, -1..0, 0..CELLS[a], CELLS[a]..CELLS[a] + 1));
        borders = borders.map(|field| field.border(send.clone(), receive.clone()));
    }
    let whole = [0, 1, 2].map(|axis| ranks[axis] * CELLS[axis]);
    let mut all = vec![0.0; (whole[0] * whole[1] * whole[2]) as usize];
    all.iter_mut().enumerate().for_each(|(i, cell)| *cell = (i * i % 101) as f64);
    // Where a cell of this rank is in its fields, and in the whole box.
    let cells = || {
        (0..CELLS.iter().product())
            .map(|i| [i % CELLS[0], i / CELLS[0] % CELLS[1], i / CELLS[0] / CELLS[1]])
    };
    let here = |c: [i32; 3]| (origin + c[0] + c[1] * row + c[2] * plane) as usize;
    let there = |c: [i32; 3]| {
        let [x, y, z] = [0, 1, 2].map(|axis| place[axis] * CELLS[axis] + c[axis]);
        (x + whole[0] * (y + whole[1] * z)) as usize
    };
    let mut first = vec![0.0; fields[0].len()];
    cells().for_each(|cell| first[here(cell)] = all[there(cell)]);
    fields[0].write(&first)?;
    let halo = world.exchange(device, &neighbours, &borders)?;
    let stream = world.stream(device)?;
    halo.run_on(&stream, 0)?;
    for step in 0..STEPS {
        let (read, written) = (step % 2, (step + 1) % 2);
        let handle: Exchange<26> =
            halo.handle(Phase { read: Some(read), written: Some(written), waits: true })?;
        let tiles = Tiles { first: [0; 3], end: CELLS, each: [3, 2, 3] };
        let address =
            |field: usize| fields[field].buffer().device_address().unwrap_or(0) + 8 * origin as u64;
        let (from, to, row, plane) = (address(read), address(written), row as i64, plane as i64);
        match kernel {
            Kernel::Gpu(module) => {
                let args = [
                    Arg::new(&handle),
                    Arg::new(&tiles),
                    Arg::new(&from),
                    Arg::new(&to),
                    Arg::new(&row),
                    Arg::new(&plane),
                ];
                // SAFETY: the kernel's parameters; the fields live until the stream has been waited for.
                unsafe {
                    stream.launch(&module.kernel("jacobi")?, Dims::linear(tiles.count(), 64), &args)
                }?;
            }
            // SAFETY: as above, and the signature is that of jacobi.cu.
            Kernel::Host(library) => unsafe {
                let jacobi = *library.get::<OnHost>(b"jacobi_on_host")?;
                stream.call(move || jacobi(&handle, &tiles, from, to, row, plane))?;
            },
        }
    }
    world.synchronize(&stream, Deadline::after(Duration::from_secs(60)))?;
    (0..STEPS).for_each(|_| all = alone(&all, whole, around));
    let found = fields[STEPS % 2].to_vec()?;
    let wrong = cells().filter(|&cell| found[here(cell)] != all[there(cell)]).count();
    if wrong == 0 { Ok(()) } else { Err(format!("{wrong} cells of rank {me} differ").into()) }
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
