//! What the examples have in common: ranks, whoever starts them; arguments; the kernels, compiled for GPUs and for the CPU; and the one line
//! that each prints, with its figures and whether its result is right. What an example shows is in its own file.

pub mod plate;

use std::error::Error;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::time::Duration;

use libmp::gdsync::{Kernel, Module};
use libmp::{Communicator, Deadline, Device, World};

/// Why an example ends early.
pub type Failure = Box<dyn Error + Send + Sync>;

/// What an example is called with: the word `host`, if it is to stay on the CPU, and numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    host: bool,
    numbers: Vec<usize>,
}

impl Arguments {
    /// Those of the program.
    ///
    /// # Errors
    /// A sentence about one that is neither.
    pub fn of_program() -> Result<Arguments, Failure> {
        Arguments::parse(std::env::args().skip(1))
    }

    /// The same of any words.
    ///
    /// # Errors
    /// A sentence about one that is neither `host` nor a number from 1 on.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Arguments, Failure> {
        let mut arguments = Arguments { host: false, numbers: Vec::new() };
        for word in words {
            match word.parse() {
                _ if word == "host" => arguments.host = true,
                Ok(number @ 1..) => arguments.numbers.push(number),
                _ => return Err(format!("{word:?}: expected `host` or a number from 1 on").into()),
            }
        }
        Ok(arguments)
    }

    /// A number, or what it is if there are not so many.
    pub fn number(&self, which: usize, otherwise: usize) -> usize {
        self.numbers.get(which).copied().unwrap_or(otherwise)
    }

    /// This rank's GPU, or the CPU where there is none or it was asked for.
    ///
    /// # Errors
    /// As [`World::local_device`].
    pub fn device(&self, world: &World) -> libmp::Result<Device> {
        if self.host { Ok(Device::Host) } else { world.local_device() }
    }
}

/// Runs `rank` on every rank: those that a launcher started, or else as so many threads of this process.
///
/// # Errors
/// What a rank returns.
pub fn run(
    threads: usize,
    rank: impl Fn(&World) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let world = World::init()?;
    if world.size() > 1 {
        rank(&world)?;
        return Ok(world.finish()?);
    }
    world.finish()?;
    let rank = &rank;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = World::threads(threads)?
            .into_iter()
            .map(|world| {
                scope.spawn(move || {
                    rank(&world)?;
                    Ok(world.finish()?)
                })
            })
            .collect();
        ranks.into_iter().try_for_each(|rank| rank.join().map_err(|_| "a rank panicked")?)
    })
}

/// The end of every example: how many ranks found their result right, and the line about it, which rank 0 prints.
///
/// # Errors
/// If it is not right everywhere.
pub fn verdict(world: &Communicator, right: bool, line: &str) -> Result<(), Failure> {
    let (size, agreeing) = (world.size() as u64, world.sum(u64::from(right))?);
    if world.rank() == 0 {
        let word = if agreeing == size { "right" } else { "WRONG" };
        println!("{line}, {word}");
    }
    // Nobody leaves before all know.
    world.barrier()?;
    match size - agreeing {
        0 => Ok(()),
        wrong => Err(format!("{wrong} of {size} ranks have a result that is not right").into()),
    }
}

/// Far longer than an example takes.
pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

macro_rules! kernels {
    ($($name:ident $entry:ident,)*) => {
        unsafe extern "C" {
            $(fn $entry(_: u32, _: u32, _: *const *const c_void, _: *mut usize) -> c_int;)*
        }

        #[allow(dead_code, reason = "only with GPU code")]
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        fn on_host(name: &str) -> Option<Kernel> {
            match name {
                // SAFETY: MP_HOST_KERNEL made it, and it is linked into this program.
                $(stringify!($name) => Some(unsafe { Kernel::host(stringify!($name), $entry) }),)*
                _ => None,
            }
        }
    };
}

kernels! {
    jacobi2d jacobi2d_on_host,
    jacobi3d jacobi3d_on_host,
    plate_of_ranks plate_of_ranks_on_host,
    ring ring_on_host,
    seismic_face seismic_face_on_host,
    seismic_stress seismic_stress_on_host,
    seismic_velocity seismic_velocity_on_host,
    stencil stencil_on_host,
    sweep sweep_on_host,
    visits visits_on_host,
}

/// The GPU code; none if there was no nvcc when this was built.
fn image() -> Option<&'static [u8]> {
    mp_kernels::embedded!(examples_fatbin, "examples.fatbin")
}

/// One of the kernels of `kernels.cu`, for a device; loaded for as long as the program runs.
///
/// # Errors
/// If there is none of that name, or, on a GPU, no GPU code; what the driver says.
pub fn kernel(device: &Device, name: &'static str) -> Result<Kernel, Failure> {
    static LOADED: OnceLock<std::sync::Mutex<Vec<(u32, Module)>>> = OnceLock::new();
    let Some(gpu) = device.as_cuda() else {
        return on_host(name).ok_or_else(|| format!("no kernel is called {name}").into());
    };
    let mut loaded = LOADED.get_or_init(Default::default).lock().map_err(|_| "a rank panicked")?;
    let here = loaded.iter().position(|(ordinal, _)| *ordinal == gpu.ordinal());
    let here = match here {
        Some(here) => here,
        None => {
            let image =
                image().ok_or("the examples were built without GPU code: see CUDA in README.md")?;
            loaded.push((gpu.ordinal(), gpu.load_module(image, NAMES)?));
            loaded.len() - 1
        }
    };
    Ok(loaded[here].1.kernel(name)?)
}

/// The guide's code, compiled and run.
#[cfg(doctest)]
mod guide {
    include!(concat!(env!("OUT_DIR"), "/guide.rs"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Arguments, Failure> {
        Arguments::parse(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_numbers_and_a_word() {
        let arguments = parse("12 host 7").unwrap();
        assert!(arguments.host);
        assert_eq!([0, 1, 2].map(|which| arguments.number(which, 99)), [12, 7, 99]);
        assert_eq!(parse("").unwrap(), Arguments { host: false, numbers: Vec::new() });
        for word in ["0", "-1", "gpu", "1.5", "--help"] {
            let said = parse(word).unwrap_err().to_string();
            assert!(said.contains(word) && said.contains("a number from 1 on"), "{said}");
        }
    }

    #[test]
    fn a_kernel_has_its_name_and_another_name_has_none() {
        assert_eq!(kernel(&Device::Host, "ring").unwrap().name(), "ring");
        assert!(kernel(&Device::Host, "rings").unwrap_err().to_string().contains("rings"));
    }
}
