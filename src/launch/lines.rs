//! Output of many ranks as whole lines: [`LineBuffer`] collects what one rank writes until a line is
//! complete, [`Sink`] writes lines of all of them to one place and keeps them apart. Bytes are never
//! looked at but for the newline, so any encoding passes. No descriptors here.

use std::io::{self, Write};

/// A line longer than this is passed on in pieces: memory stays bounded, and nobody waits for it.
const LONGEST_HELD: usize = 1 << 20;

/// Bytes of one stream that are not yet a line.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    held: Vec<u8>,
}

impl LineBuffer {
    /// Takes what was read and hands what can be written to `emit`: whole lines, or a piece of one that
    /// is too long to hold.
    pub fn feed<E>(
        &mut self,
        mut bytes: &[u8],
        mut emit: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(last) = bytes.iter().rposition(|byte| *byte == b'\n') {
            let (lines, rest) = bytes.split_at(last + 1);
            bytes = rest;
            if self.held.is_empty() {
                emit(lines)?;
            } else {
                self.held.extend_from_slice(lines);
                self.flush(&mut emit)?;
            }
        }
        self.held.extend_from_slice(bytes);
        if self.held.len() >= LONGEST_HELD { self.flush(emit) } else { Ok(()) }
    }

    /// Hands out what is held, a line or not: at the end of the stream.
    pub fn flush<E>(&mut self, mut emit: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if !self.held.is_empty() {
            emit(&self.held)?;
            self.held.clear();
        }
        Ok(())
    }
}

/// Where lines of several writers go.
#[derive(Debug)]
pub(super) struct Sink<W> {
    writer: W,
    /// The writer whose line has begun and not ended.
    unfinished: Option<usize>,
    assembled: Vec<u8>,
}

impl<W: Write> Sink<W> {
    pub fn new(writer: W) -> Sink<W> {
        Sink { writer, unfinished: None, assembled: Vec::new() }
    }

    /// Writes `bytes` of the writer with number `from`, with `prefix` at the beginning of every line.
    /// A line of another writer that has no end yet gets one first. The bytes of a single writer without
    /// prefix arrive exactly as they came.
    pub fn write(&mut self, from: usize, prefix: &[u8], bytes: &[u8]) -> io::Result<()> {
        self.assembled.clear();
        if self.unfinished.is_some_and(|other| other != from) {
            self.assembled.push(b'\n');
            self.unfinished = None;
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.unfinished.is_none() {
                self.assembled.extend_from_slice(prefix);
            }
            self.assembled.extend_from_slice(line);
            self.unfinished = (!line.ends_with(b"\n")).then_some(from);
        }
        self.writer.write_all(&self.assembled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `(writer, bytes)` in turn, ends all writers, and returns what came out.
    fn pass(prefix: bool, pieces: &[(usize, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut sink = Sink::new(&mut out);
        let mut buffers = [LineBuffer::default(), LineBuffer::default()];
        let label = |from: usize| if prefix { format!("[{from}] ") } else { String::new() };
        for (from, bytes) in pieces {
            let emit = |line: &[u8]| sink.write(*from, label(*from).as_bytes(), line);
            buffers[*from].feed(bytes, emit).unwrap();
        }
        for (from, buffer) in buffers.iter_mut().enumerate() {
            buffer.flush(|line| sink.write(from, label(from).as_bytes(), line)).unwrap();
        }
        out
    }

    #[test]
    fn lines_that_arrive_in_pieces_come_out_whole() {
        let out = pass(true, &[(0, b"a"), (1, b"x\ny"), (0, b"b\nc\n"), (1, b"z\n")]);
        assert_eq!(out, b"[1] x\n[0] ab\n[0] c\n[1] yz\n");
    }

    #[test]
    fn an_unfinished_last_line_is_not_glued_to_that_of_another_writer() {
        assert_eq!(pass(false, &[(0, b"a"), (1, b"b")]), b"a\nb");
        assert_eq!(pass(true, &[(0, b"a"), (1, b"b\n")]), b"[1] b\n[0] a");
    }

    #[test]
    fn bytes_that_are_no_text_pass_unchanged() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let pieces: Vec<_> = bytes.chunks(7).map(|piece| (0, piece)).collect();
        assert_eq!(pass(false, &pieces), bytes);
    }

    #[test]
    fn a_line_longer_than_memory_allows_passes_in_pieces() {
        let long = vec![b'x'; LONGEST_HELD + 5];
        assert_eq!(pass(false, &[(0, &long), (0, b"y\n")]), [&long[..], b"y\n"].concat());
        let shared = pass(true, &[(0, &long), (1, b"b\n"), (0, b"y\n")]);
        assert_eq!(shared, [b"[0] ", &long[..], b"\n[1] b\n[0] y\n"].concat());
    }
}
