//! Where the blocks of a collective are: values of the host, or regions that the CPU reaches.

use gdsync::Buffer;

use crate::error::{Error, Result};

/// Where the blocks are.
pub(in crate::data::collective) trait Memory {
    /// Reads what is given, or, of a phase that gives `again`, what was taken.
    fn load(&self, again: bool, at: u64, to: &mut [u8]) -> Result<()>;
    /// Writes what is taken.
    fn store(&mut self, at: u64, from: &[u8]) -> Result<()>;
}

/// Values of the host, in place.
pub(in crate::data::collective) struct InPlace<'a>(pub &'a mut [u8]);

impl Memory for InPlace<'_> {
    fn load(&self, _: bool, at: u64, to: &mut [u8]) -> Result<()> {
        let at = at as usize;
        to.copy_from_slice(&self.0[at..at + to.len()]);
        Ok(())
    }

    fn store(&mut self, at: u64, from: &[u8]) -> Result<()> {
        let at = at as usize;
        self.0[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }
}

/// Regions that the CPU reaches; others may look at them meanwhile.
pub(in crate::data::collective) struct InRegions<'a> {
    pub from: &'a Buffer<u8>,
    pub to: &'a Buffer<u8>,
}

impl Memory for InRegions<'_> {
    fn load(&self, again: bool, at: u64, to: &mut [u8]) -> Result<()> {
        let (at, memory) = (at as usize, if again { self.to } else { self.from });
        memory.slice(at..at + to.len()).and_then(|part| part.read(to)).map_err(failed)
    }

    fn store(&mut self, at: u64, from: &[u8]) -> Result<()> {
        let at = at as usize;
        self.to.slice(at..at + from.len()).and_then(|part| part.write(from)).map_err(failed)
    }
}

fn failed(source: gdsync::Error) -> Error {
    Error::Memory { op: "the memory of a collective".into(), source }
}

/// Brings bytes into words, the last one filled up with zeros.
pub(super) fn load<M: Memory>(
    memory: &M,
    again: bool,
    at: u64,
    bytes: usize,
    words: &mut Vec<u64>,
) -> Result<()> {
    words.clear();
    words.resize(bytes.div_ceil(8), 0);
    if bytes == 0 {
        return Ok(());
    }
    memory.load(again, at, &mut bytemuck::cast_slice_mut(words)[..bytes])
}
