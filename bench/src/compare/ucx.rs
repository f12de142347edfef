//! UCX as a peer, through its own program `ucx_perftest`: two processes of it over shared memory.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mp_program::peer::{Program, patience};

/// How long the two may take to find each other.
const MEETING: Duration = Duration::from_secs(10);

/// The program.
pub struct Ucx {
    version: String,
}

impl Ucx {
    /// Finds `ucx_perftest` and `ucx_info` in `PATH`.
    pub fn find() -> Option<Ucx> {
        super::launch::find("ucx_perftest")?;
        let info = Program::start("ucx_info", Command::new("ucx_info").arg("-v"));
        let text = info.and_then(|info| info.end(Instant::now() + patience())).unwrap_or_default();
        // "# Version 1.13.1", of UCX 1.14 and later "# Library version: 1.14.0".
        let mut words = text.iter().flat_map(|line| line.split(['=', ' ']));
        let number = words.find(|word| {
            word.starts_with(|c: char| c.is_ascii_digit()) && word.matches('.').count() == 2
        });
        Some(Ucx { version: format!("UCX {}", number.unwrap_or("of unknown version")) })
    }

    /// As it calls itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// One run: microseconds one way of `tag_lat`, GB/s of `tag_bw`.
    ///
    /// # Errors
    /// The program fails, does not end, or prints what this does not understand.
    pub(super) fn measure(&self, test: &str, size: usize, rounds: usize) -> Result<f64> {
        let port = free_port()?.to_string();
        let program = || {
            let mut command = Command::new("ucx_perftest");
            command.args(["-p", &port, "-t", test, "-s", &size.to_string()]);
            command.args(["-n", &rounds.to_string(), "-f"]);
            command.env("UCX_TLS", "posix,sysv,self").env("UCX_WARN_UNUSED_ENV_VARS", "n");
            command
        };
        let begin = Instant::now();
        let deadline = begin + patience();
        let server = Program::start("ucx_perftest", &mut program())?;
        let lines = loop {
            std::thread::sleep(Duration::from_millis(50));
            let client = Program::start("ucx_perftest", program().arg("127.0.0.1"))?;
            match client.end(deadline) {
                Ok(lines) => break lines,
                // The server may not be listening yet.
                Err(_) if begin.elapsed() < MEETING.min(patience()) => {}
                Err(error) => return Err(error),
            }
        };
        server.end(deadline)?;
        let text = lines.join("\n");
        parse(test, &text).with_context(|| format!("ucx_perftest printed {text:?}"))
    }
}

/// A port that is free at this moment.
fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The last line's figures (with -f only the final line is printed): iterations; latency in µs: percentile, average,
/// overall; bandwidth in MB/s (2^20 bytes): average, overall; rate: average, overall.
fn parse(test: &str, text: &str) -> Option<f64> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let words: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    if words.len() < 8 {
        return None;
    }
    let value = if test == "tag_lat" { words[3] } else { words[5] * (1 << 20) as f64 * 1e-9 };
    (value.is_finite() && value > 0.0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_final_line_is_understood() {
        let line =
            "Final:   1000      0.250     0.291     0.310     26.20    24.61   3434000   3225000\n";
        assert_eq!(parse("tag_lat", line), Some(0.310));
        assert!((parse("tag_bw", line).unwrap() - 24.61 * 1.048576e-3).abs() < 1e-9);
        assert_eq!(parse("tag_lat", "Final: none"), None);
        assert_eq!(parse("tag_lat", "Final: 1 2 3 nan 5 6 7 8"), None);
    }
}
