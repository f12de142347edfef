//! The ranks of a measurement, two but in comparisons of collectives: where they run and on which devices.

use anyhow::{Context, Result, bail, ensure};
use gdsync::Kernel;
use libmp::{Config, Device, Stream, World};

use super::Gpus;
use crate::kernels::Kernels;

/// Which devices the ranks use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Devices {
    /// The first two GPUs, one GPU for both, or host memory where there is none.
    Automatic,
    /// Host memory and host streams.
    Host,
    /// These GPUs, rank 0's first.
    Gpus(Gpus),
}

/// One rank.
pub struct Rank {
    /// All ranks.
    pub world: World,
    /// Where its memory and its streams are.
    pub device: Device,
    /// A stream of it.
    pub stream: Stream,
    /// What the method line says of the ranks.
    pub ranks: String,
    kernels: Kernels,
}

impl Rank {
    /// A rank of `world` on `device`.
    ///
    /// # Errors
    /// A GPU whose driver refuses the stream or the kernels.
    pub fn new(world: World, device: Device, ranks: String) -> Result<Rank> {
        let stream = world.stream(&device)?;
        let kernels = Kernels::load(&device)?;
        Ok(Rank { world, device, stream, ranks, kernels })
    }

    /// A measuring kernel.
    ///
    /// # Errors
    /// The rank has no GPU.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        self.kernels.get(name)
    }

    /// Whether it is the one that measures.
    pub fn leads(&self) -> bool {
        self.world.rank() == 0
    }

    /// The other one of two.
    ///
    /// # Errors
    /// The world is not one of two.
    pub fn peer(&self) -> Result<libmp::Peer> {
        let size = self.world.size();
        ensure!(size == 2, "a world of {size} ranks: expected 2, each the other's peer");
        Ok(self.world.peer(1 - self.world.rank())?)
    }
}

/// Runs `body` as two ranks: the two processes that a launcher started, or two threads. What rank 0 gave, where that runs.
///
/// # Errors
/// The first error of a rank; a world of another size.
pub fn on_ranks<T: Send>(
    devices: &Devices,
    body: impl Fn(&Rank) -> Result<T> + Sync,
) -> Result<Option<T>> {
    let config = Config::from_env()?;
    let world = World::with_config(&config)?;
    match world.size() {
        1 => {
            world.finish()?;
            let worlds = World::threads_with_config(2, &config)?;
            let body = &body;
            std::thread::scope(|scope| {
                let ranks: Vec<_> = worlds
                    .into_iter()
                    .map(|world| scope.spawn(move || one(world, devices, true, body)))
                    .collect();
                let results: Vec<Result<T>> = ranks
                    .into_iter()
                    .map(|rank| rank.join().unwrap_or_else(|_| bail!("a rank panicked")))
                    .collect();
                let mut first = None;
                // Both fail when one does; the other's error only says that this one is gone.
                let mut failures = Vec::new();
                for result in results {
                    match result {
                        Ok(value) => first = first.or(Some(value)),
                        Err(error) => failures.push(error),
                    }
                }
                let own = failures.iter().position(|error| {
                    !matches!(error.downcast_ref(), Some(libmp::Error::PeerLost { .. }))
                });
                match failures.len() {
                    0 => Ok(first),
                    _ => Err(failures.swap_remove(own.unwrap_or(0))),
                }
            })
        }
        2 => {
            let leads = world.rank() == 0;
            one(world, devices, false, &body).map(|value| leads.then_some(value))
        }
        size => bail!("{size} ranks: this is measured between two (mprun -n 2 mp-perf …)"),
    }
}

fn one<T>(
    world: World,
    devices: &Devices,
    threads: bool,
    body: &impl Fn(&Rank) -> Result<T>,
) -> Result<T> {
    let device = device(&world, devices)?;
    let mine = device.to_string();
    let names = world.all_gather(mine.as_bytes())?;
    let name = |rank: usize| String::from_utf8_lossy(&names[rank]).into_owned();
    let kind = if threads { "threads of one process" } else { "processes" };
    let ranks = format!("two {kind}: {} and {}", name(0), name(1));
    let rank = Rank::new(world, device, ranks)?;
    let value = body(&rank)?;
    rank.world.barrier()?;
    let Rank { world, .. } = rank;
    world.finish()?;
    Ok(value)
}

fn device(world: &World, devices: &Devices) -> Result<Device> {
    let rank = world.rank();
    Ok(match devices {
        Devices::Host => Device::Host,
        Devices::Gpus(gpus) => Device::cuda(gpus.of(rank)?)?,
        Devices::Automatic => {
            if let Some(gpu) = world.assigned_gpu() {
                let ordinal =
                    gpu.parse().with_context(|| format!("MP_GPU={gpu:?} is no ordinal"))?;
                return Ok(Device::cuda(ordinal)?);
            }
            // A machine without a driver has no GPU.
            match gdsync::CudaDevice::count().unwrap_or(0) {
                0 => Device::Host,
                count => {
                    ensure!(rank < 2, "rank {rank} of two");
                    Device::cuda(rank as u32 % count)?
                }
            }
        }
    })
}
