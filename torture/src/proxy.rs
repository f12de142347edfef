//! Between a rank and rank 0: passes bytes on, slowly if asked to, and then cuts the connection or lets it hang.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

const PASS: u8 = 0;
const CUT: u8 = 1;
const HOLD: u8 = 2;
const OVER: u8 = 3;

/// How often the threads look at what they are to do.
const LOOK: Duration = Duration::from_millis(10);
/// A slow connection delays every piece by up to so much.
const DELAY: Duration = Duration::from_millis(40);
/// And gives pieces of that many bytes.
const PIECE: usize = 7;

/// The proxy. It ends when it is dropped.
pub struct Proxy {
    address: String,
    what: Arc<AtomicU8>,
}

impl Proxy {
    /// Listens, and will pass on to the address in the file `rendezvous` of `folder`.
    pub fn start(folder: &Path, slow: bool) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").context("a socket for the proxy")?;
        let address = listener.local_addr().context("the proxy's address")?.to_string();
        listener.set_nonblocking(true).context("the proxy's socket")?;
        let what = Arc::new(AtomicU8::new(PASS));
        let (file, shared) = (folder.join("rendezvous"), what.clone());
        std::thread::spawn(move || accept(&listener, &file, &shared, slow));
        Ok(Proxy { address, what })
    }

    /// Where the victim is to connect.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Closes all connections, those to come as well.
    pub fn cut(&self) {
        self.what.store(CUT, Ordering::Release);
    }

    /// Passes nothing on any more.
    pub fn hold(&self) {
        self.what.store(HOLD, Ordering::Release);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.what.store(OVER, Ordering::Release);
    }
}

fn accept(listener: &TcpListener, file: &PathBuf, what: &Arc<AtomicU8>, slow: bool) {
    while what.load(Ordering::Acquire) != OVER {
        let Ok((near, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        let patience = Instant::now() + Duration::from_secs(5);
        let far = loop {
            let target = std::fs::read_to_string(file).ok();
            if let Some(far) = target.and_then(|target| TcpStream::connect(target.trim()).ok()) {
                break Some(far);
            }
            if Instant::now() > patience {
                break None;
            }
            std::thread::sleep(LOOK);
        };
        // Without a far end the victim finds its connection closed, as it would without a proxy.
        let Some(far) = far else { continue };
        for (from, to) in [(&near, &far), (&far, &near)] {
            if let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) {
                let what = what.clone();
                std::thread::spawn(move || pass(from, to, &what, slow));
            }
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, what: &AtomicU8, slow: bool) {
    let _ = from.set_nonblocking(false);
    let _ = from.set_read_timeout(Some(LOOK));
    let mut buffer = vec![0; 1 << 16];
    let mut turn = 0u32;
    loop {
        match what.load(Ordering::Acquire) {
            CUT | OVER => {
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
            HOLD => {
                std::thread::sleep(LOOK);
                continue;
            }
            _ => {}
        }
        let read = match from.read(&mut buffer) {
            Ok(0) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => return,
        };
        // Long messages in large pieces, or a storm's collectives would take for ever.
        let piece = if slow { PIECE.max(read / 4) } else { read };
        for bytes in buffer[..read].chunks(piece.max(1)) {
            if slow {
                turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                std::thread::sleep(DELAY * (turn >> 24) / 2048);
            }
            if to.write_all(bytes).is_err() {
                return;
            }
        }
    }
}
