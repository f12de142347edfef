//! Kernels that the host compiler made (`mp/host/launch.hpp`), launched on host streams as GPU code is on CUDA streams: the arguments
//! are copied when it is enqueued, and it runs when the stream gets there.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::cuda::kernel::Kernel;
use crate::error::{Error, Result};
use crate::host::executor::{Executor, HostOp};
use crate::launch::{Arg, Dims};

/// What `MP_HOST_KERNEL(name)` exports as `name_on_host`: runs the kernel with so many blocks and threads and the arguments at these
/// addresses, and returns 0, or 1 if the machine has not so many threads. Without addresses it writes the arguments' sizes, as many as
/// it returns, at most 64.
///
/// See [`Arg`](crate::Arg) for an example.
pub type HostEntry = unsafe extern "C" fn(u32, u32, *const *const c_void, *mut usize) -> c_int;

/// Arguments of a kernel at most; `mp/host/launch.hpp` refuses to compile more.
pub(crate) const ARGUMENTS_MAX: usize = 64;

/// Copies of a kernel's arguments. Words of 16 bytes, as every argument is aligned to 16 or less.
struct Arguments(Vec<Box<[u128]>>);

/// Enqueues a kernel on a host stream.
///
/// # Safety
/// As [`Stream::launch`](crate::Stream::launch).
pub(crate) unsafe fn run_on(
    executor: &Executor,
    kernel: &Kernel,
    dims: Dims,
    args: &[Arg<'_>],
) -> Result<()> {
    let entry = kernel.entry()?;
    if !dims.is_linear() || dims.shared != 0 {
        let why = "it has one dimension and no dynamic shared memory there";
        return Err(kernel.elsewhere("the host", why));
    }
    let (blocks, threads) = (dims.grid.0, dims.block.0);
    let mut sizes = [0; ARGUMENTS_MAX];
    // SAFETY: without arguments the entry only writes their sizes, at most as many as there is room for.
    let count = unsafe { entry(0, 0, std::ptr::null(), sizes.as_mut_ptr()) };
    if usize::try_from(count) != Ok(args.len()) {
        let why = format!("it takes {count} arguments, and there are {}", args.len());
        return Err(kernel.elsewhere("the host", &why));
    }
    let copy = |(arg, &size): (&Arg<'_>, &usize)| {
        let mut words = vec![0_u128; size.div_ceil(size_of::<u128>())].into_boxed_slice();
        // SAFETY: the caller promises arguments of the kernel's types, which are so large, and references make them readable.
        unsafe {
            std::ptr::copy_nonoverlapping(
                arg.address().cast::<u8>(),
                words.as_mut_ptr().cast(),
                size,
            )
        };
        words
    };
    let arguments = Arguments(args.iter().zip(&sizes).map(copy).collect());
    let name = kernel.name();
    let call = move || {
        let addresses: Vec<*const c_void> =
            arguments.0.iter().map(|words| words.as_ptr().cast()).collect();
        // SAFETY: the entry takes as many arguments of these sizes; what they point to is the caller's promise.
        match unsafe { entry(blocks, threads, addresses.as_ptr(), std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(Error::os(
                "clone",
                format_args!("{blocks} blocks of {threads} threads for the kernel {name}"),
                "the machine has not so many threads",
            )),
        }
    };
    executor.enqueue(std::iter::once(HostOp::Call(Arc::new(call))), |_| Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Deadline, Device};
    use std::time::Duration;

    /// As the macro makes it of `void add(std::uint64_t* sum, std::uint32_t one, double other)`.
    unsafe extern "C" fn add(
        blocks: u32,
        threads: u32,
        arguments: *const *const c_void,
        sizes: *mut usize,
    ) -> c_int {
        if arguments.is_null() {
            // SAFETY: there is room for three.
            unsafe { std::slice::from_raw_parts_mut(sizes, 3) }.copy_from_slice(&[8, 4, 8]);
            return 3;
        }
        if blocks > 1000 {
            return 1;
        }
        // SAFETY: three arguments of these types.
        unsafe {
            let [sum, one, other] = *arguments.cast::<[*const c_void; 3]>();
            let (sum, one) = (*sum.cast::<*mut u64>(), u64::from(*one.cast::<u32>()));
            *sum += u64::from(blocks * threads) * one + *other.cast::<f64>() as u64;
        }
        0
    }

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(30))
    }

    #[test]
    fn a_launch_copies_its_arguments_and_runs_in_the_order_of_the_stream_and_of_graphs() {
        let (stream, sum) = (Device::Host.stream().unwrap(), Device::Host.alloc::<u64>(1).unwrap());
        // SAFETY: written as the macro would.
        let kernel = unsafe { Kernel::host("add", add) };
        let launch = |one: u32, other: f64| {
            let address = sum.device_address().unwrap();
            let args = [Arg::new(&address), Arg::new(&one), Arg::new(&other)];
            // SAFETY: its types; `sum` lives until the stream has been waited for.
            unsafe { stream.launch(&kernel, Dims::linear(2, 5), &args) }
        };
        stream.begin_capture().unwrap();
        launch(3, 4.5).unwrap();
        let graph = stream.end_capture().unwrap();
        for _ in 0..3 {
            stream.launch_graph(&graph).unwrap();
        }
        launch(100, 0.0).unwrap();
        stream.synchronize(soon()).unwrap();
        assert_eq!(sum.to_vec().unwrap(), [3 * 34 + 1000]);
    }

    #[test]
    fn what_the_host_cannot_launch_is_refused_and_too_many_threads_are_reported() {
        let stream = Device::Host.stream().unwrap();
        // SAFETY: written as the macro would.
        let kernel = unsafe { Kernel::host("add", add) };
        let (one, dims) = (1_u64, Dims::linear(1, 1));
        let args = [Arg::new(&one); 3];
        let refused = |dims: Dims, args: &[Arg<'_>]| {
            // SAFETY: refused before an argument is looked at.
            unsafe { stream.launch(&kernel, dims, args) }.unwrap_err().to_string()
        };
        let said = refused(dims, &args[..2]);
        assert!(said.contains("add: it takes 3 arguments, and there are 2"), "{said}");
        for dims in [Dims { grid: (1, 2, 1), ..dims }, Dims { shared: 8, ..dims }] {
            assert!(refused(dims, &args).contains("one dimension"));
        }
        // SAFETY: with so many blocks the kernel touches nothing.
        unsafe { stream.launch(&kernel, Dims::linear(2000, 1), &args) }.unwrap();
        let said = stream.synchronize(soon()).unwrap_err().to_string();
        assert!(said.contains("2000 blocks of 1 threads for the kernel add"), "{said}");
    }
}
