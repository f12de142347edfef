//! Who may join a world: what rank 0 checks of a new connection, in which order, and what it answers. A pure function.
//!
//! A connection that does not carry the token is a stranger: it is turned away, remembered for the error that a start
//! without all ranks ends in, and the world waits on. A rank that carries the token but does not fit is one of us,
//! wrongly started: it ends the start on every rank at once.

use subtle::ConstantTimeEq;

use super::cause::Cause;
use super::frame::Preamble;
use super::message::{Hello, PeerInfo};
use crate::build_info::BuildInfo;

const HOST_MAX: usize = 255;
/// Longest `MP_NODE`.
pub(crate) const NODE_MAX: usize = 512;
/// Longest `MP_JOB` and build revision.
pub(crate) const NAME_MAX: usize = 256;

/// What rank 0 expects of the others.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub preamble: Preamble,
    pub size: u32,
    pub job: String,
    pub build: BuildInfo,
    /// Host of rank 0.
    pub host: String,
}

/// Why a connection does not become a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Turned away; the world waits on. The reason is for both sides.
    Stranger(String),
    /// Ends the start on all ranks.
    Unfit(Cause),
}

fn unfit(reason: String) -> Refusal {
    Refusal::Unfit(Cause::Refused { reason })
}

/// Checks the first bytes of a connection from `from`.
pub(crate) fn check_preamble(
    expected: &Expected,
    theirs: &Preamble,
    from: &str,
) -> Result<(), Refusal> {
    if !bool::from(expected.preamble.token.0.ct_eq(&theirs.token.0)) {
        return Err(Refusal::Stranger(format!("{from}: wrong token")));
    }
    let ours = expected.preamble.protocol;
    if theirs.protocol != ours {
        let who = format!("a rank at {from}");
        return Err(unfit(versions(&who, theirs.protocol, &expected.host, ours)));
    }
    Ok(())
}

/// The sentence on a rank and rank 0 that speak different protocols.
pub(crate) fn versions(who: &str, theirs: u32, root: &str, ours: u32) -> String {
    format!(
        "{who} speaks version {theirs} of the control protocol, rank 0 on {root} version {ours}: \
         start all ranks from the same build"
    )
}

/// Checks the first message of a connection whose preamble was right.
pub(crate) fn check_hello(
    expected: &Expected,
    hello: Hello,
    from: &str,
) -> Result<(u32, PeerInfo), Refusal> {
    let Hello { rank, size, job, build, peer } = hello;
    if job.len() > NAME_MAX
        || build.len() > NAME_MAX
        || peer.host.len() > HOST_MAX
        || peer.node.len() > NODE_MAX
    {
        return Err(Refusal::Stranger(format!("{from}: a name longer than {NAME_MAX} bytes")));
    }
    if job != expected.job {
        let ours = &expected.job;
        return Err(Refusal::Stranger(format!(
            "{from}: rank {rank} of job {job:?}, this is job {ours:?}"
        )));
    }
    if build != expected.build.revision {
        let (host, ours) = (&expected.host, &expected.build.revision);
        return Err(unfit(format!(
            "rank {rank} on {} is build {build}, rank 0 on {host} is build {ours}: start all ranks from the same build",
            peer.host
        )));
    }
    if size != expected.size {
        let ours = expected.size;
        return Err(unfit(format!(
            "rank {rank} on {} was started as one of {size}, rank 0 on {} as one of {ours}",
            peer.host, expected.host
        )));
    }
    if rank == 0 || rank >= size {
        return Err(unfit(format!(
            "a rank on {} says it is rank {rank}, expected 1 to {}",
            peer.host,
            size.saturating_sub(1)
        )));
    }
    Ok((rank, peer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::frame::Token;

    fn expected() -> Expected {
        Expected {
            preamble: Preamble { protocol: 4, token: Token([7; 32]) },
            size: 4,
            job: "j1".into(),
            build: BuildInfo { protocol: 4, revision: "1.2+aa".into() },
            host: "n0".into(),
        }
    }

    fn hello() -> Hello {
        Hello {
            rank: 2,
            size: 4,
            job: "j1".into(),
            build: "1.2+aa".into(),
            peer: PeerInfo { host: "n2".into(), node: "x".into(), pid: 9 },
        }
    }

    fn sentence(refusal: Refusal) -> String {
        match refusal {
            Refusal::Stranger(reason) | Refusal::Unfit(Cause::Refused { reason }) => reason,
            Refusal::Unfit(cause) => cause.to_string(),
        }
    }

    #[test]
    fn a_rank_that_fits_is_let_in() {
        check_preamble(&expected(), &expected().preamble, "a:1").unwrap();
        assert_eq!(check_hello(&expected(), hello(), "a:1"), Ok((2, hello().peer)));
    }

    #[test]
    fn the_token_is_checked_before_anything_else_and_is_not_shown() {
        let theirs = Preamble { protocol: 9, token: Token([8; 32]) };
        let refusal = check_preamble(&expected(), &theirs, "a:1").unwrap_err();
        assert_eq!(refusal, Refusal::Stranger("a:1: wrong token".into()));
        assert_eq!(format!("{:?}", theirs.token), "Token(..)");
    }

    #[test]
    fn a_rank_that_does_not_fit_is_named_with_both_sides_values() {
        let theirs = Preamble { protocol: 9, ..expected().preamble };
        let text = sentence(check_preamble(&expected(), &theirs, "a:1").unwrap_err());
        assert!(text.contains("version 9") && text.contains("version 4"), "{text}");
        type Damage = fn(&mut Hello);
        let cases: [(Damage, [&str; 2]); 5] = [
            (|hello| hello.build = "1.2+bb".into(), ["1.2+bb", "1.2+aa"]),
            (|hello| hello.size = 5, ["one of 5", "one of 4"]),
            (|hello| hello.rank = 0, ["rank 0", "expected 1 to 3"]),
            (|hello| hello.rank = 4, ["rank 4", "expected 1 to 3"]),
            (|hello| hello.job = "j2".into(), ["j2", "j1"]),
        ];
        for (damage, words) in cases {
            let mut hello = hello();
            damage(&mut hello);
            let text = sentence(check_hello(&expected(), hello, "a:1").unwrap_err());
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }

    #[test]
    fn another_job_is_a_stranger_and_does_not_end_the_start() {
        let hello = Hello { job: "j2".into(), ..hello() };
        assert!(matches!(check_hello(&expected(), hello, "a:1"), Err(Refusal::Stranger(_))));
    }
}
