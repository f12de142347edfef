//! What several tests need: running a configuration on ranks that are threads.

use std::time::Duration;

use hpgmg::comm::libmp::LibmpComm;
use hpgmg::cpu::Cpu;
use hpgmg::error::Error;
use hpgmg::launch::on_threads;
use hpgmg::options::Config;

/// Builds the solver on `ranks` ranks of `threads` threads, runs `body` on each, and returns what rank 0
/// returns.
pub fn on_ranks<T: Send>(
    config: &Config,
    ranks: usize,
    threads: usize,
    body: impl Fn(&mut Cpu, &LibmpComm) -> Result<T, Error> + Sync,
) -> T {
    let limit = Duration::from_secs(120);
    let result = on_threads(ranks, limit, |comm| {
        let mut cpu = Cpu::new(config.clone(), comm, threads)?;
        body(&mut cpu, comm)
    });
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}
