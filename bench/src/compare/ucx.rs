//! UCX as a peer, through its own program `ucx_perftest`: two processes of it over shared memory.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The program.
pub struct Ucx {
    version: String,
}

impl Ucx {
    /// Finds `ucx_perftest` and `ucx_info` in `PATH`.
    pub fn find() -> Option<Ucx> {
        Command::new("ucx_perftest").arg("-h").output().ok()?;
        let version = Command::new("ucx_info").arg("-v").output().ok()?;
        let text = String::from_utf8_lossy(&version.stdout);
        // "# Version 1.13.1", of UCX 1.14 and later "# Library version: 1.14.0".
        let number = text.split(['=', ' ', '\n']).find(|word| {
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
    /// The program fails, or prints what this does not understand.
    pub(super) fn measure(&self, test: &str, size: usize, rounds: usize) -> Result<f64> {
        let port = free_port()?.to_string();
        let program = || {
            let mut command = Command::new("ucx_perftest");
            command.args(["-p", &port, "-t", test, "-s", &size.to_string()]);
            command.args(["-n", &rounds.to_string(), "-f"]);
            command.env("UCX_TLS", "posix,sysv,self").env("UCX_WARN_UNUSED_ENV_VARS", "n");
            command.stdin(Stdio::null()).stderr(Stdio::piped());
            command
        };
        let mut server =
            program().stdout(Stdio::null()).spawn().context("starting ucx_perftest")?;
        let begin = Instant::now();
        let text = loop {
            std::thread::sleep(Duration::from_millis(50));
            let client = program().arg("127.0.0.1").output().context("starting ucx_perftest")?;
            if client.status.success() {
                break String::from_utf8_lossy(&client.stdout).into_owned();
            }
            if begin.elapsed() > Duration::from_secs(10) {
                let _ = server.kill();
                let _ = server.wait();
                bail!("ucx_perftest: {}", String::from_utf8_lossy(&client.stderr).trim());
            }
        };
        server.wait().context("waiting for ucx_perftest")?;
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
    if test == "tag_lat" { Some(words[3]) } else { Some(words[5] * (1 << 20) as f64 * 1e-9) }
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
    }
}
