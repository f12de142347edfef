//! The environment contract between `mprun` and the programs it starts: the names, what each means,
//! and the values one rank gets. Programs read it through `libmp`; `docs/mprun.md` shows the same table. It
//! starts nothing and chooses nothing.

use std::net::SocketAddr;

/// Every variable that `mprun` sets, and what it means. The program of a rank finds these and
/// whatever environment `mprun` was started in.
pub const VARIABLES: [(&str, &str); 15] = [
    (MP_RANK, "rank of this process, from 0"),
    (MP_SIZE, "number of ranks of the job"),
    (MP_LOCAL_RANK, "rank among the processes of this host"),
    (MP_LOCAL_SIZE, "number of ranks on this host"),
    (MP_RENDEZVOUS, "ADDRESS:PORT where the ranks meet; rank 0 accepts there"),
    (MP_RENDEZVOUS_FD, "rank 0 only: descriptor of the listening socket of MP_RENDEZVOUS"),
    (MP_JOB, "id of the job, unique on this host"),
    (MP_TOKEN, "secret of the job: 128 random bits as 32 hexadecimal digits"),
    (MP_GPU, "with --per-gpu or --gpus: ordinal of the rank's GPU"),
    (RANK, "as MP_RANK, for programs written for torchrun"),
    (WORLD_SIZE, "as MP_SIZE"),
    (LOCAL_RANK, "as MP_LOCAL_RANK"),
    (LOCAL_WORLD_SIZE, "as MP_LOCAL_SIZE"),
    (MASTER_ADDR, "address on which rank 0 of such a program listens"),
    (MASTER_PORT, "its port: reserved for the job, free for rank 0 to bind"),
];

/// Rank of this process, from 0.
pub const MP_RANK: &str = "MP_RANK";
/// Number of ranks of the job.
pub const MP_SIZE: &str = "MP_SIZE";
/// Rank among the processes of this host, from 0.
pub const MP_LOCAL_RANK: &str = "MP_LOCAL_RANK";
/// Number of ranks on this host.
pub const MP_LOCAL_SIZE: &str = "MP_LOCAL_SIZE";
/// `ADDRESS:PORT` where the ranks meet: rank 0 accepts, the others connect.
pub const MP_RENDEZVOUS: &str = "MP_RENDEZVOUS";
/// Rank 0 only: the number of the inherited descriptor that listens at [`MP_RENDEZVOUS`].
pub const MP_RENDEZVOUS_FD: &str = "MP_RENDEZVOUS_FD";
/// Id of the job, unique on this host: letters, digits and dashes.
pub const MP_JOB: &str = "MP_JOB";
/// Secret of the job: 32 hexadecimal digits.
pub const MP_TOKEN: &str = "MP_TOKEN";
/// Ordinal of the GPU that the rank was given, as the CUDA driver counts.
pub const MP_GPU: &str = "MP_GPU";
/// As [`MP_RANK`].
pub const RANK: &str = "RANK";
/// As [`MP_SIZE`].
pub const WORLD_SIZE: &str = "WORLD_SIZE";
/// As [`MP_LOCAL_RANK`].
pub const LOCAL_RANK: &str = "LOCAL_RANK";
/// As [`MP_LOCAL_SIZE`].
pub const LOCAL_WORLD_SIZE: &str = "LOCAL_WORLD_SIZE";
/// Address on which rank 0 of a torchrun-style program listens.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// Port on which rank 0 of a torchrun-style program listens. Not the port of [`MP_RENDEZVOUS`], on
/// which somebody listens already.
pub const MASTER_PORT: &str = "MASTER_PORT";

/// What one rank is told.
#[derive(Clone, Debug)]
pub struct RankEnvironment<'a> {
    /// Rank of the process, below `size`.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
    /// Rank among the processes of this host, below `local_size`.
    pub local_rank: usize,
    /// Number of ranks on this host.
    pub local_size: usize,
    /// Where the ranks meet.
    pub rendezvous: SocketAddr,
    /// The listening socket, for rank 0.
    pub rendezvous_fd: Option<i32>,
    /// The address kept free for torchrun-style programs.
    pub master: SocketAddr,
    /// Id of the job.
    pub job: &'a str,
    /// Secret of the job.
    pub token: &'a str,
    /// Ordinal of the rank's GPU, if it was given one.
    pub gpu: Option<u32>,
}

impl RankEnvironment<'_> {
    /// Every variable of [`VARIABLES`] with its value; `None`: the variable must not be set, not even
    /// inherited from an outer job.
    pub fn values(&self) -> [(&'static str, Option<String>); VARIABLES.len()] {
        let (rank, size) = (self.rank.to_string(), self.size.to_string());
        let (local_rank, local_size) = (self.local_rank.to_string(), self.local_size.to_string());
        [
            (MP_RANK, Some(rank.clone())),
            (MP_SIZE, Some(size.clone())),
            (MP_LOCAL_RANK, Some(local_rank.clone())),
            (MP_LOCAL_SIZE, Some(local_size.clone())),
            (MP_RENDEZVOUS, Some(self.rendezvous.to_string())),
            (MP_RENDEZVOUS_FD, self.rendezvous_fd.map(|fd| fd.to_string())),
            (MP_JOB, Some(self.job.to_owned())),
            (MP_TOKEN, Some(self.token.to_owned())),
            (MP_GPU, self.gpu.map(|ordinal| ordinal.to_string())),
            (RANK, Some(rank)),
            (WORLD_SIZE, Some(size)),
            (LOCAL_RANK, Some(local_rank)),
            (LOCAL_WORLD_SIZE, Some(local_size)),
            (MASTER_ADDR, Some(self.master.ip().to_string())),
            (MASTER_PORT, Some(self.master.port().to_string())),
        ]
    }
}

/// The table of the contract as `mprun --help` prints it.
pub fn table() -> String {
    let rows = VARIABLES.iter().map(|(name, meaning)| format!("  {name:<17} {meaning}\n"));
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_variable_gets_a_value_or_is_removed() {
        let here = SocketAddr::from(([127, 0, 0, 1], 4000));
        let rank = RankEnvironment {
            rank: 1,
            size: 2,
            local_rank: 0,
            local_size: 1,
            rendezvous: here,
            rendezvous_fd: None,
            master: here,
            job: "j",
            token: "t",
            gpu: None,
        };
        let named: Vec<_> = rank.values().into_iter().map(|(name, _)| name).collect();
        let documented: Vec<_> = VARIABLES.iter().map(|(name, _)| *name).collect();
        assert_eq!(named, documented);
    }

    #[test]
    fn its_page_lists_every_variable() {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/mprun.md"));
        for (name, _) in VARIABLES {
            assert!(page.contains(&format!("| `{name}` |")), "docs/mprun.md lacks {name}");
        }
    }
}
