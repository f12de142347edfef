//! Waves from a pulse in an elastic box, as in seismology: velocities and stresses in turn on a staggered grid in three dimensions, absorbed near the
//! border. The box is cut along x, so a face is not in one piece. Three ways to get faces to the neighbours, in turn: *CPU* copies
//! whole fields to the host, which packs, sends, receives and unpacks, and back; *GPU* packs by a kernel, copies the face to the host, sends it from there,
//! and waits for each; *behind the stream* gives the packed face as it lies on the device to a tagged message behind the kernel that packs it, and
//! receives before the kernel that unpacks: the host waits for nothing on the device.
//!
//! `seismic [host] [SIDE [STEPS [RANKS]]]`: cells a side (40), steps (12), and, without a launcher, how many threads (2); `host` keeps it on the CPU.

use std::time::Instant;

use libmp::gdsync::{Arg, Dims, Kernel, Stream};
use libmp::tagged::{Options, Place, Request, Tagged, wait_all};
use libmp::{Device, Region, World};
use mp_examples::plate::part;
use mp_examples::{Arguments, Failure, kernel, run, soon, verdict};

const FIELDS: usize = 9;

fn main() -> Result<(), Failure> {
    let arguments = Arguments::of_program()?;
    let (side, steps) = (arguments.number(0, 40), arguments.number(1, 12));
    run(arguments.number(2, 2), |world| rank(world, &arguments.device(world)?, side, steps))
}

/// `Grid` of seismic.cu.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Grid {
    cells: [u64; 3],
    first: u64,
    all: u64,
}

impl Grid {
    fn field(&self) -> usize {
        self.cells.iter().map(|cells| *cells as usize + 2).product()
    }

    fn at(&self, [x, y, z]: [usize; 3]) -> usize {
        let [width, height] = [0, 1].map(|axis| self.cells[axis] as usize + 2);
        x + width * (y + height * z)
    }
}

/// The box of a rank on a device.
struct Waves<'a> {
    device: &'a Device,
    stream: Stream,
    fields: Region<f64>,
    grid: Grid,
    kernels: [Kernel; 3],
}

/// What a half step needs of a neighbour: how many fields from which on, of the other's cells next to this rank.
#[derive(Debug, Clone, Copy)]
struct Face {
    first: u64,
    count: u64,
}

/// Before velocities and before stresses: what goes to the left, and what goes to the right.
const FACES: [[Face; 2]; 2] = [
    [Face { first: 3, count: 1 }, Face { first: 6, count: 2 }],
    [Face { first: 1, count: 2 }, Face { first: 0, count: 1 }],
];

fn address(region: &Region<f64>) -> Result<u64, Failure> {
    Ok(region.buffer().device_address().ok_or("the device does not reach its memory")?)
}

impl<'a> Waves<'a> {
    fn new(device: &'a Device, stream: Stream, grid: Grid) -> Result<Waves<'a>, Failure> {
        let names = ["seismic_velocity", "seismic_stress", "seismic_face"];
        let [velocity, stress, face] = names.map(|name| kernel(device, name));
        let fields = Region::from_buffer(device.alloc::<f64>(FIELDS * grid.field())?);
        Ok(Waves { device, stream, fields, grid, kernels: [velocity?, stress?, face?] })
    }

    fn launch(&self, number: usize, args: &[Arg<'_>]) -> Result<(), Failure> {
        let gpu = self.device.as_cuda().is_some();
        let dims = if gpu { Dims::linear(256, 256) } else { Dims::linear(1, 1) };
        // SAFETY: the kernel's parameters; the memory lives until the stream has been waited for.
        unsafe { self.stream.launch(&self.kernels[number], dims, args)? };
        Ok(())
    }

    /// Half a step: velocities (0) or stresses (1).
    fn half(&self, half: usize, step: usize) -> Result<(), Failure> {
        let fields = address(&self.fields)?;
        let since = step as f64 - 6.0;
        let pulse = (1.0 - since * since * 0.1) / (1.0 + since * since);
        let args = [Arg::new(&fields), Arg::new(&self.grid), Arg::new(&pulse)];
        self.launch(half, &args[..2 + half])
    }

    /// Packs a face, or with `back` unpacks it into the ghosts.
    fn face(&self, to: &Region<f64>, side: usize, face: Face, back: bool) -> Result<(), Failure> {
        let [fields, to] = [address(&self.fields)?, address(to)?];
        let end = self.grid.cells[0];
        let x = match (side, back) {
            (0, false) => 0,
            (0, true) => u64::MAX, // -1
            (_, false) => end - 1,
            (_, true) => end,
        };
        let Face { first, count } = face;
        let back = u64::from(back);
        let numbers = [Arg::new(&x), Arg::new(&first), Arg::new(&count), Arg::new(&back)];
        let [x, first, count, back] = numbers;
        let args = [Arg::new(&fields), Arg::new(&self.grid), Arg::new(&to), x, first, count, back];
        self.launch(2, &args)
    }
}

/// A face that goes to a neighbour, and the one that comes from it.
struct Border {
    side: usize,
    peer: usize,
    goes: Face,
    comes: Face,
    /// In the device's memory, and pinned.
    device: [Region<f64>; 2],
    host: [Region<f64>; 2],
}

/// Tags tell the halves, and which way it goes.
fn tag(half: usize, side: usize) -> u64 {
    (2 * half + side) as u64
}

fn borders(world: &World, waves: &Waves<'_>, half: usize) -> Result<Vec<Border>, Failure> {
    let (rank, size) = (world.rank(), world.size());
    let mut all = Vec::new();
    for side in [0, 1] {
        let peer = if side == 0 { rank.checked_sub(1) } else { Some(rank + 1) };
        let Some(peer) = peer.filter(|peer| *peer < size) else { continue };
        let (goes, comes) = (FACES[half][side], FACES[half][1 - side]);
        let len = |face: Face| (face.count * waves.grid.cells[1] * waves.grid.cells[2]) as usize;
        let device = [goes, comes].map(|face| world.alloc(waves.device, len(face)));
        let host = [goes, comes].map(|face| waves.device.alloc_pinned(len(face)));
        let ([out, here], [host_out, host_here]) = (device, host);
        let device = [out?, here?];
        let host = [Region::from_buffer(host_out?), Region::from_buffer(host_here?)];
        all.push(Border { side, peer, goes, comes, device, host });
    }
    Ok(all)
}

/// Sends and receives what is in pinned memory, and waits for it.
fn exchange(messages: &Tagged, borders: &[Border], half: usize) -> Result<(), Failure> {
    let mut requests = Vec::new();
    for Border { side, peer, host: [out, here], .. } in borders {
        requests.push(messages.irecv(here, *peer, tag(half, 1 - side))?);
        requests.push(messages.isend(out, *peer, tag(half, *side))?);
    }
    Ok(wait_all(&mut requests, soon()).map(drop)?)
}

/// Packs by the CPU, from whole fields.
fn by_cpu(
    (world, messages): (&World, &Tagged),
    waves: &Waves<'_>,
    (borders, whole): (&[Border], &Region<f64>),
    half: usize,
) -> Result<(), Failure> {
    let Waves { grid, stream, fields, .. } = waves;
    let [width, height, depth] = grid.cells.map(|cells| cells as usize);
    let places = |face: Face, x: usize| {
        let cells = (0..depth).flat_map(move |z| (0..height).map(move |y| (y, z)));
        let all = (face.first..face.first + face.count)
            .flat_map(move |field| cells.clone().map(move |(y, z)| (field as usize, y, z)));
        all.map(move |(field, y, z)| field * grid.field() + grid.at([x, y + 1, z + 1]))
    };
    // The fields of this half: three velocities, or six stresses.
    let fields_of = [3, 0][half] * grid.field()..[FIELDS, 3][half] * grid.field();
    let (there, here) = (fields.slice(fields_of.clone())?, whole.slice(fields_of)?);
    stream.copy(here.buffer(), there.buffer())?;
    world.synchronize(stream, soon())?;
    let mut all = whole.to_vec()?;
    for Border { side, goes, host: [out, _], .. } in borders {
        let x = if *side == 0 { 1 } else { width };
        out.write(&places(*goes, x).map(|at| all[at]).collect::<Vec<_>>())?;
    }
    exchange(messages, borders, half)?;
    for Border { side, comes, host: [_, came], .. } in borders {
        let x = if *side == 0 { 0 } else { width + 1 };
        let came = came.to_vec()?;
        places(*comes, x).zip(came).for_each(|(at, value)| all[at] = value);
    }
    whole.write(&all)?;
    Ok(stream.copy(there.buffer(), here.buffer())?)
}

/// Packs by the device, and copies and sends one after the other.
fn by_gpu(
    (world, messages): (&World, &Tagged),
    waves: &Waves<'_>,
    borders: &[Border],
    half: usize,
) -> Result<(), Failure> {
    for Border { side, goes, device: [packed, _], host: [out, _], .. } in borders {
        waves.face(packed, *side, *goes, false)?;
        waves.stream.copy(out.buffer(), packed.buffer())?;
    }
    world.synchronize(&waves.stream, soon())?;
    exchange(messages, borders, half)?;
    for Border { side, comes, device: [_, packed], host: [_, here], .. } in borders {
        waves.stream.copy(packed.buffer(), here.buffer())?;
        waves.face(packed, *side, *comes, true)?;
    }
    Ok(())
}

/// Packs by the device; the messages are between its kernels.
fn behind_the_stream(
    waves: &Waves<'_>,
    borders: &[Border],
    requests: &mut [[Request<'_>; 2]],
) -> Result<(), Failure> {
    // ANCHOR: behind
    for (border, [send, recv]) in borders.iter().zip(requests) {
        let Border { side, goes, comes, device: [out, here], .. } = border;
        send.wait(soon())?; // a step ago; nothing is waited for the first time
        recv.wait(soon())?;
        waves.face(out, *side, *goes, false)?; // a kernel …
        send.start()?; // … behind which the message leaves
        recv.start()?; // the stream goes on when it has come
        waves.face(here, *side, *comes, true)?;
    }
    // ANCHOR_END: behind
    Ok(())
}

/// What one rank does.
pub fn rank(world: &World, device: &Device, side: usize, steps: usize) -> Result<(), Failure> {
    let (rank, size) = (world.rank(), world.size());
    if side < size {
        return Err(format!("{side} cells for {size} ranks: each needs one").into());
    }
    let mine = part(side, size, rank);
    let cells = [mine.len() as u64, side as u64, side as u64];
    let grid = Grid { cells, first: mine.start as u64, all: side as u64 };
    let waves = Waves::new(device, world.stream(device)?, grid)?;
    let messages = world.tagged(&Options::default())?;
    let borders = [borders(world, &waves, 0)?, borders(world, &waves, 1)?];
    let whole = Region::from_buffer(device.alloc_pinned::<f64>(waves.fields.len())?);
    // The whole box, by one rank alone on the CPU.
    let alone = Waves::new(
        &Device::Host,
        world.stream(&Device::Host)?,
        Grid { cells: [side as u64; 3], first: 0, all: side as u64 },
    )?;
    for (step, half) in (0..steps).flat_map(|step| [(step, 0), (step, 1)]) {
        alone.half(half, step)?;
    }
    world.synchronize(&alone.stream, soon())?;
    let expected = alone.fields.to_vec()?;
    let (mut right, mut times) = (true, Vec::new());
    for way in ["CPU", "GPU", "behind the stream"] {
        waves.fields.write(&vec![0.0; waves.fields.len()])?;
        whole.write(&vec![0.0; whole.len()])?;
        let mut requests: Vec<Vec<[Request<'_>; 2]>> = Vec::new();
        for (half, borders) in borders.iter().enumerate() {
            let mut both = Vec::new();
            for Border { side, peer, device: [out, here], .. } in borders {
                let (out, here) = (Place::from(out), Place::from(here));
                let send = messages.send_init(out.on(&waves.stream), *peer, tag(half, *side))?;
                let from = tag(half, 1 - side);
                both.push([send, messages.recv_init(here.on(&waves.stream), *peer, from)?]);
            }
            requests.push(both);
        }
        world.barrier()?;
        let since = Instant::now();
        for (step, half) in (0..steps).flat_map(|step| [(step, 0), (step, 1)]) {
            let (both, borders) = ((world, &messages), &borders[half]);
            match way {
                "CPU" => by_cpu(both, &waves, (borders, &whole), half)?,
                "GPU" => by_gpu(both, &waves, borders, half)?,
                _ => behind_the_stream(&waves, borders, &mut requests[half])?,
            }
            waves.half(half, step)?;
        }
        for request in requests.iter_mut().flatten().flatten() {
            request.wait(soon())?;
        }
        world.synchronize(&waves.stream, soon())?;
        let each = since.elapsed().as_secs_f64() * 1e6 / steps as f64;
        times.push(format!("{way} {each:.0}"));
        // What was waited for is over on both sides.
        world.barrier()?;
        right &= is_part(&waves, &alone.grid, &expected)?;
    }
    let times = times.join(", ");
    let line = format!(
        "seismic: {side} x {side} x {side} cells on {size} ranks ({device}), {steps} steps, µs each, packed by: {times}"
    );
    verdict(world, right, &line)
}

/// Whether the fields of a rank are its part of the whole box, bit by bit.
fn is_part(waves: &Waves<'_>, all: &Grid, expected: &[f64]) -> Result<bool, Failure> {
    let (found, grid) = (waves.fields.to_vec()?, &waves.grid);
    let [width, height, depth] = grid.cells.map(|cells| cells as usize);
    let mut same = expected.iter().any(|value| *value != 0.0);
    for (field, z, y) in (0..FIELDS)
        .flat_map(|field| (1..=depth).flat_map(move |z| (1..=height).map(move |y| (field, z, y))))
    {
        let here = field * grid.field() + grid.at([1, y, z]);
        let there = field * all.field() + all.at([1 + grid.first as usize, y, z]);
        same &= found[here..here + width] == expected[there..there + width];
    }
    Ok(same)
}
