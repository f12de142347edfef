//! Waves from a pulse in an elastic box, as in seismology: velocities and stresses in turn on a staggered grid in three dimensions, absorbed by a perfectly
//! matched layer at the border. The box is cut along x, so a face is not in one piece. Three ways to get faces to the neighbours, in turn: *CPU* copies
//! whole fields to the host, which packs, sends, receives and unpacks, and back; *GPU* packs by a kernel, copies the face to the host, sends it from there,
//! and waits for each; *behind the stream* gives the packed face as it lies on the device to a tagged message behind the kernel that packs it, and
//! receives before the kernel that unpacks: the host waits for nothing on the device. That once more with the velocities of a plane written to a file each
//! step, by a thread beside (*files*), and by the rank itself (*files by hand*).
//!
//! `seismic [host] [SIDE [STEPS [RANKS]]]`: cells a side (40), steps (12), and, without a launcher, how many threads (2); `host` keeps it on the CPU.

use std::f64::consts::PI;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use libmp::gdsync::{Arg, Dims, Event, Kernel, Stream};
use libmp::tagged::{Options, Place, Request, Tagged, wait_all};
use libmp::{Device, Region, World};
use mp_examples::plate::part;
use mp_examples::{Arguments, Failure, kernel, run, soon, verdict};

const FIELDS: usize = 9;
/// With the memories of the absorbing layer.
const ALL: usize = 3 * FIELDS;
/// Cells of the layer, and what it is to leave of the waves' energy when they have all reached it.
const THICK: f64 = 8.0;
const LEFT: f64 = 1e-3;
/// Planes that wait for the disk.
const SLOTS: usize = 4;

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

/// `Layer` of seismic.cu for each half cell along a side.
fn layers(side: usize) -> Vec<f64> {
    // Steps have 0.3 of the time in which a velocity of 1 crosses a cell.
    let fastest = 0.3 * (7.0_f64 / 3.0).sqrt();
    let most = 3.0 * fastest * 1000.0_f64.ln() / (2.0 * THICK);
    let each = |half: usize| {
        let (at, last) = (half as f64 / 2.0, side as f64 - 1.0);
        let depth = (THICK - at).max(THICK - (last - at)) / THICK;
        if depth <= 0.0 {
            return [0.0; 2];
        }
        let (damping, shift) = (most * depth * depth, PI / PERIOD * (1.0 - depth).max(0.0));
        let b = (-(damping + shift)).exp();
        [damping * (b - 1.0) / (damping + shift), b]
    };
    (0..2 * side).flat_map(each).collect()
}

/// Of the pulse, in steps.
const PERIOD: f64 = 16.0;

fn pulse(step: usize) -> f64 {
    let since = PI * (step as f64 - 18.0) / PERIOD;
    (1.0 - 2.0 * since * since) * (-since * since).exp()
}

/// What is in the velocities and the stresses of a whole box.
fn energy(fields: &[f64], field: usize) -> f64 {
    let at = |number: usize, cell: usize| fields[number * field + cell];
    let square = |numbers: std::ops::Range<usize>, cell| -> f64 {
        numbers.map(|number| at(number, cell).powi(2)).sum()
    };
    let of_cell = |cell| {
        let trace = at(3, cell) + at(4, cell) + at(5, cell);
        let stresses = square(3..6, cell) + 2.0 * square(6..9, cell);
        0.5 * square(0..3, cell) + 0.375 * (stresses - 3.0 / 13.0 * trace * trace)
    };
    (0..field).map(of_cell).sum()
}

/// The box of a rank on a device.
struct Waves<'a> {
    device: &'a Device,
    stream: Stream,
    fields: Region<f64>,
    layers: Region<f64>,
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
        let fields = Region::from_buffer(device.alloc::<f64>(ALL * grid.field())?);
        let half_cells = layers(grid.all as usize);
        let layers = Region::from_buffer(device.alloc::<f64>(half_cells.len())?);
        layers.write(&half_cells)?;
        Ok(Waves { device, stream, fields, layers, grid, kernels: [velocity?, stress?, face?] })
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
        let (fields, layers) = (address(&self.fields)?, address(&self.layers)?);
        let pulse = pulse(step);
        let args = [Arg::new(&fields), Arg::new(&self.grid), Arg::new(&layers), Arg::new(&pulse)];
        self.launch(half, &args[..3 + half])
    }

    /// Where the plane in the middle is in a field, ghosts included.
    fn plane(&self) -> std::ops::Range<usize> {
        let [width, height, depth] = self.grid.cells.map(|cells| cells as usize);
        let layer = (width + 2) * (height + 2);
        let first = (depth / 2 + 1) * layer;
        first..first + layer
    }

    /// Copies the velocities of that plane.
    fn copy_plane(&self, to: &Region<f64>) -> Result<(), Failure> {
        let (plane, len) = (self.plane(), self.plane().len());
        for field in 0..3 {
            let at = field * self.grid.field();
            let from = self.fields.slice(at + plane.start..at + plane.end)?;
            self.stream.copy(to.slice(field * len..(field + 1) * len)?.buffer(), from.buffer())?;
        }
        Ok(())
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
    let whole = Region::from_buffer(device.alloc_pinned::<f64>(FIELDS * waves.grid.field())?);
    // The whole box, by one rank alone on the CPU.
    let alone = Waves::new(
        &Device::Host,
        world.stream(&Device::Host)?,
        Grid { cells: [side as u64; 3], first: 0, all: side as u64 },
    )?;
    let (mut planes, mut energies) = (Vec::new(), Vec::new());
    let whole_plane = Region::from_buffer(Device::Host.alloc::<f64>(3 * alone.plane().len())?);
    for step in 0..steps {
        alone.half(0, step)?;
        alone.half(1, step)?;
        alone.copy_plane(&whole_plane)?;
        world.synchronize(&alone.stream, soon())?;
        planes.push(whole_plane.to_vec()?);
        if step % 8 == 0 || step + 1 == steps {
            let fields = alone.fields.slice(0..FIELDS * alone.grid.field())?.to_vec()?;
            energies.push(energy(&fields, alone.grid.field()));
        }
    }
    let expected = alone.fields.to_vec()?;
    let left = energies.last().unwrap_or(&0.0) / energies.iter().copied().fold(0.0, f64::max);
    // In so many steps the slower waves have reached every corner.
    let mut right = steps < 6 * side || left < LEFT;
    let ways = [
        (Way::Cpu, Files::None, "CPU"),
        (Way::Gpu, Files::None, "GPU"),
        (Way::Stream, Files::None, "behind the stream"),
        (Way::Stream, Files::Beside, "the same with files"),
        (Way::Stream, Files::ByHand, "files by hand"),
    ];
    let mut times = Vec::new();
    for (way, files, name) in ways {
        // What is made when it is first needed is made in steps that are not timed.
        let run = |steps| {
            let both = (world, &messages);
            steps_of(both, &waves, (&borders, &whole), (way, files), steps)
        };
        run(steps.min(2))?;
        let (each, written) = run(steps)?;
        times.push(format!("{name} {each:.0}"));
        right &= is_part((&waves, &alone.grid), &waves.fields.to_vec()?, &expected, ALL, 0);
        right &= (written.len() == planes.len() || files == Files::None)
            && written
                .iter()
                .zip(&planes)
                .all(|(here, there)| is_part((&waves, &alone.grid), here, there, 3, 1));
    }
    let times = times.join(", ");
    let line = format!(
        "seismic: {side} x {side} x {side} cells on {size} ranks ({device}), {steps} steps, {left:.1e} of the energy left, µs each, packed by: {times}"
    );
    verdict(world, right, &line)
}

/// How faces get to the neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Cpu,
    Gpu,
    Stream,
}

/// Who writes a plane to a file after each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Files {
    None,
    /// A thread, while the steps go on.
    Beside,
    /// The rank, which waits.
    ByHand,
}

/// The file of a rank, gone when this is.
struct Kept {
    path: PathBuf,
    file: File,
}

impl Kept {
    fn new(rank: usize) -> Result<Kept, Failure> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mp-seismic-{}-{rank}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file =
            File::create_new(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Kept { path, file })
    }

    fn write(&mut self, plane: &Region<f64>) -> Result<(), Failure> {
        let bytes: Vec<u8> = plane.to_vec()?.into_iter().flat_map(f64::to_ne_bytes).collect();
        Ok(self.file.write_all(&bytes)?)
    }

    /// The planes of so many values.
    fn planes(&self, len: usize) -> Result<Vec<Vec<f64>>, Failure> {
        let bytes = std::fs::read(&self.path)?;
        let values = |plane: &[u8]| {
            plane.as_chunks().0.iter().map(|value| f64::from_ne_bytes(*value)).collect()
        };
        Ok(bytes.chunks(len * size_of::<f64>()).map(values).collect())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // It is in a folder of what may go.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Goes so many steps from rest: microseconds each, and what has been written.
fn steps_of(
    (world, messages): (&World, &Tagged),
    waves: &Waves<'_>,
    (borders, whole): (&[Vec<Border>; 2], &Region<f64>),
    (way, files): (Way, Files),
    steps: usize,
) -> Result<(f64, Vec<Vec<f64>>), Failure> {
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
    let len = 3 * waves.plane().len();
    let slot = |_| {
        let plane = Region::from_buffer(waves.device.alloc_pinned::<f64>(len)?);
        Ok::<_, Failure>((plane, Event::new(waves.device)?))
    };
    let slots = (0..SLOTS).map(slot).collect::<Result<Vec<_>, _>>()?;
    let mut kept = Kept::new(world.rank())?;
    world.barrier()?;
    let since = Instant::now();
    std::thread::scope(|scope| {
        // ANCHOR: files
        let ((full, filled), (empty, emptied)) = (mpsc::channel(), mpsc::channel());
        (0..SLOTS).try_for_each(|slot| empty.send(slot))?;
        let (slots, kept) = (&slots, &mut kept);
        let mut write = move |slot: usize| {
            let (plane, copied) = &slots[slot];
            copied.synchronize(soon())?;
            kept.write(plane)
        };
        let (mut by_hand, mut writer, mut _progress) = (None, None, None);
        match files {
            Files::Beside => {
                // The messages go on while this rank waits for a plane's memory.
                _progress = Some(world.progress()?);
                let each = move |slot| write(slot).and_then(|()| Ok(empty.send(slot)?));
                writer = Some(scope.spawn(move || filled.iter().try_for_each(each)));
            }
            _ => by_hand = Some(write),
        }
        // ANCHOR_END: files
        for step in 0..steps {
            for half in [0, 1] {
                let (both, borders) = ((world, messages), &borders[half]);
                match way {
                    Way::Cpu => by_cpu(both, waves, (borders, whole), half)?,
                    Way::Gpu => by_gpu(both, waves, borders, half)?,
                    Way::Stream => behind_the_stream(waves, borders, &mut requests[half])?,
                }
                waves.half(half, step)?;
            }
            if files == Files::None {
                continue;
            }
            let slot = if files == Files::Beside { emptied.recv()? } else { 0 };
            waves.copy_plane(&slots[slot].0)?;
            waves.stream.record(&slots[slot].1)?;
            match &mut by_hand {
                Some(write) => {
                    world.synchronize(&waves.stream, soon())?;
                    write(slot)?;
                }
                None => full.send(slot)?,
            }
        }
        drop(full);
        writer.map_or(Ok(()), |writer| writer.join().map_err(|_| "the writer panicked")?)
    })?;
    for request in requests.iter_mut().flatten().flatten() {
        request.wait(soon())?;
    }
    world.synchronize(&waves.stream, soon())?;
    let each = since.elapsed().as_secs_f64() * 1e6 / steps as f64;
    // What was waited for is over on both sides.
    world.barrier()?;
    Ok((each, kept.planes(len)?))
}

/// Whether so many fields of a rank, or what there is of them on so many planes if that is not 0, are their part of the whole box, bit by bit.
fn is_part(
    (waves, all): (&Waves<'_>, &Grid),
    found: &[f64],
    expected: &[f64],
    fields: usize,
    planes: usize,
) -> bool {
    let grid = &waves.grid;
    let [width, height, depth] = grid.cells.map(|cells| cells as usize);
    // A plane has no ghosts before it and behind it.
    let (cells, first) = if planes == 0 { (depth, 1) } else { (planes, 0) };
    let (row, rows) = ([grid, all].map(|it| it.cells[0] as usize + 2), height + 2);
    let of_field = rows * (cells + 2 * first);
    let mut same = planes > 0 || expected.iter().any(|value| *value != 0.0);
    for field in 0..fields {
        for (z, y) in (first..first + cells).flat_map(|z| (1..=height).map(move |y| (z, y))) {
            let line = field * of_field + z * rows + y;
            let (here, there) = (line * row[0] + 1, line * row[1] + 1 + grid.first as usize);
            same &= found.get(here..here + width) == expected.get(there..there + width);
        }
    }
    same
}
