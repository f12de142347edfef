//! The CUDA side: driver, devices, streams and graphs. Everything raw stays in here.

mod batch;
mod callback;
pub(crate) mod capabilities;
pub(crate) mod capture;
pub(crate) mod copies;
pub(crate) mod device;
pub(crate) mod dma_buf;
pub(crate) mod driver;
mod gate;
pub(crate) mod graph;
pub(crate) mod graveyard;
pub(crate) mod kernel;
mod marks;
pub(crate) mod module;
pub(crate) mod registration;
pub(crate) mod second_context;
pub(crate) mod stream;
pub(crate) mod tensor_map;
pub(crate) mod topology;

use std::ffi::c_char;

/// A zero-terminated string that the driver wrote into a fixed buffer.
pub(crate) fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
