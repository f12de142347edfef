//! Rank, size and rendezvous from environment variables: those of `mprun` and those of `torchrun`.

use std::num::NonZeroU16;

use super::{Meeting, Place, Session, check_size, tcp};
use crate::config::{Config, Variables};
use crate::control::frame::Token;
use crate::control::handshake::NAME_MAX;
use crate::error::{Error, Result};

/// Parses every variable of the launchers, used or not.
pub(crate) fn check(variables: &Variables) -> Result<()> {
    for name in [
        "MP_RANK",
        "MP_SIZE",
        "MP_LOCAL_RANK",
        "MP_LOCAL_SIZE",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "PMIX_RANK",
        "PMI_SIZE",
        "OMPI_COMM_WORLD_SIZE",
        "SLURM_STEP_NUM_TASKS",
    ] {
        variables.number(name)?;
    }
    if let Some(address) = variables.get("MP_RENDEZVOUS") {
        split_address("MP_RENDEZVOUS", address)?;
    }
    descriptor(variables)?;
    variables.parse::<u32>("MP_GPU", "the number of a GPU, as the driver counts")?;
    variables.parse::<NonZeroU16>("MASTER_PORT", "a port from 1 to 65535")?;
    if let Some(host) = variables.get("MASTER_ADDR").filter(|host| !is_host(host)) {
        return Err(Error::Variable {
            name: "MASTER_ADDR".into(),
            value: host.into(),
            expected: "the name or address of a host".into(),
        });
    }
    agents_store(variables)?;
    for name in ["MP_JOB", "TORCHELASTIC_RUN_ID"] {
        job(name, variables.get(name))?;
    }
    token(variables).map(|_| ())
}

fn is_host(text: &str) -> bool {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '%');
    !bare.is_empty() && bare.chars().all(fits)
}

/// Whether torchrun's agent listens on `MASTER_PORT` itself.
fn agents_store(variables: &Variables) -> Result<bool> {
    const NAME: &str = "TORCHELASTIC_USE_AGENT_STORE";
    match variables.get(NAME) {
        None | Some("False") => Ok(false),
        Some("True") => Ok(true),
        Some(other) => Err(Error::Variable {
            name: NAME.into(),
            value: other.into(),
            expected: "True or False".into(),
        }),
    }
}

/// `MP_RENDEZVOUS_FD`.
fn descriptor(variables: &Variables) -> Result<Option<i32>> {
    const EXPECTED: &str = "a file descriptor number";
    match variables.parse("MP_RENDEZVOUS_FD", EXPECTED)? {
        Some(negative @ ..0) => Err(Error::Variable {
            name: "MP_RENDEZVOUS_FD".into(),
            value: negative.to_string(),
            expected: EXPECTED.into(),
        }),
        number => Ok(number),
    }
}

/// `MP_RANK`, `MP_SIZE`, `MP_RENDEZVOUS`, ….
pub(super) fn mprun(config: &Config) -> Result<Place> {
    let variables = &config.variables;
    variables.required("MP_RANK", "the bootstrap is mprun")?;
    variables.required("MP_SIZE", "MP_RANK is")?;
    let rank = variables.number("MP_RANK")?.unwrap_or(0);
    let size = variables.number("MP_SIZE")?.unwrap_or(1);
    check_size(rank, size, "MP_SIZE")?;
    let local = local(variables, "MP_LOCAL_RANK", "MP_LOCAL_SIZE")?;
    let meeting = if size == 1 {
        Meeting::Here
    } else {
        let address = variables.required("MP_RENDEZVOUS", "MP_SIZE is more than 1")?;
        let (host, port) = split_address("MP_RENDEZVOUS", address)?;
        if rank != 0 {
            Meeting::Connect(address.to_owned())
        } else {
            let inherited = descriptor(variables)?;
            let inherited = inherited.map(|descriptor| tcp::inherited(descriptor, address));
            Meeting::Listen(match inherited.transpose()? {
                Some(Some(listener)) => listener,
                // A world has met there before: again where the others look.
                Some(None) => tcp::listen(host, port, None, false)?,
                None => listen(config, host, port, local, size)?,
            })
        }
    };
    let job = job("MP_JOB", variables.get("MP_JOB"))?;
    Ok(Place {
        rank,
        size,
        local,
        job,
        token: token(variables)?,
        gpu: gpu(variables),
        meeting,
        session: Session::None,
    })
}

/// `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`, ….
pub(super) fn torchrun(config: &Config) -> Result<Place> {
    let variables = &config.variables;
    for name in ["RANK", "WORLD_SIZE"] {
        variables.required(name, "the bootstrap is env")?;
    }
    let rank = variables.number("RANK")?.unwrap_or(0);
    let size = variables.number("WORLD_SIZE")?.unwrap_or(1);
    check_size(rank, size, "WORLD_SIZE")?;
    // Some launchers that set the rest leave these out; either alone says nothing.
    let both = variables.get("LOCAL_RANK").is_some() && variables.get("LOCAL_WORLD_SIZE").is_some();
    let local = if both { local(variables, "LOCAL_RANK", "LOCAL_WORLD_SIZE")? } else { None };
    let meeting = if size == 1 {
        Meeting::Here
    } else {
        let address = torchrun_address(variables)?;
        let (host, port) = split_address("MP_RENDEZVOUS", &address)?;
        match rank {
            0 => Meeting::Listen(listen(config, host, port, local, size)?),
            _ => Meeting::Connect(address),
        }
    };
    let names = ["MP_JOB", "TORCHELASTIC_RUN_ID"];
    let name = names.into_iter().find(|name| variables.get(name).is_some()).unwrap_or(names[0]);
    let job = job(name, variables.get(name))?;
    Ok(Place {
        rank,
        size,
        local,
        job,
        token: token(variables)?,
        gpu: gpu(variables),
        meeting,
        session: Session::None,
    })
}

/// `MP_RENDEZVOUS`, or the master's address. Where torchrun's agent keeps its own store on `MASTER_PORT`, the port next
/// to it: all ranks see the same variables, so all look there.
fn torchrun_address(variables: &Variables) -> Result<String> {
    if let Some(address) = variables.get("MP_RENDEZVOUS") {
        return Ok(address.to_owned());
    }
    let host = variables.required("MASTER_ADDR", "WORLD_SIZE is more than 1")?;
    variables.required("MASTER_PORT", "WORLD_SIZE is more than 1")?;
    let port: u16 = variables.parse("MASTER_PORT", "a port from 1 to 65535")?.unwrap_or(0);
    let port = match (agents_store(variables)?, port) {
        (false, port) => port,
        (true, u16::MAX) => u16::MAX - 1,
        (true, port) => port + 1,
    };
    // An IPv6 address needs brackets before a port.
    Ok(if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    })
}

fn listen(
    config: &Config,
    host: &str,
    port: u16,
    local: Option<(u32, u32)>,
    size: u32,
) -> Result<std::net::TcpListener> {
    let spans_hosts = local.is_some_and(|(_, local_size)| local_size < size);
    tcp::listen(host, port, config.interface.as_deref(), spans_hosts)
}

fn local(variables: &Variables, rank_name: &str, size_name: &str) -> Result<Option<(u32, u32)>> {
    let rank = variables.number(rank_name)?;
    let size = variables.number(size_name)?;
    match (rank, size) {
        (None, None) => Ok(None),
        (Some(rank), Some(size)) if rank < size => Ok(Some((rank, size))),
        (Some(rank), Some(size)) => Err(Error::Variable {
            name: rank_name.into(),
            value: rank.to_string(),
            expected: format!("less than {size_name}={size}"),
        }),
        (Some(_), None) => Err(missing(size_name, rank_name)),
        (None, Some(_)) => Err(missing(rank_name, size_name)),
    }
}

fn missing(name: &str, other: &str) -> Error {
    Error::MissingVariable { name: name.into(), because: format!("{other} is") }
}

/// The name of the job, which the variable `name` holds.
fn job(name: &str, job: Option<&str>) -> Result<String> {
    let job = job.unwrap_or_default();
    if job.len() > NAME_MAX {
        return Err(Error::Variable {
            name: name.into(),
            value: job.into(),
            expected: format!("at most {NAME_MAX} bytes"),
        });
    }
    Ok(job.to_owned())
}

fn gpu(variables: &Variables) -> Option<String> {
    variables.get("MP_GPU").map(str::to_owned)
}

/// The host and the port of `host:port`; an IPv6 address stands in brackets.
fn split_address<'a>(name: &str, address: &'a str) -> Result<(&'a str, u16)> {
    let parts = address.rsplit_once(':').and_then(|(host, port)| {
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bracketed.unwrap_or(host);
        let plain = bracketed.is_some() || !host.contains(':');
        let port: u16 = port.parse().ok().filter(|&port| port != 0)?;
        (plain && is_host(host)).then_some((host, port))
    });
    parts.ok_or_else(|| Error::Variable {
        name: name.into(),
        value: address.into(),
        expected: "host:port, with a port from 1 to 65535".into(),
    })
}

/// `MP_TOKEN`. An error does not show it.
fn token(variables: &Variables) -> Result<Token> {
    let Some(text) = variables.get("MP_TOKEN") else { return Ok(Token([0; 32])) };
    parse_token(text).ok_or_else(|| Error::Variable {
        name: "MP_TOKEN".into(),
        value: format!("({} characters)", text.len()),
        expected: "2 to 64 hexadecimal digits, an even number of them".into(),
    })
}

/// Hexadecimal digits as bytes, the rest zero.
pub(crate) fn parse_token(text: &str) -> Option<Token> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.is_empty() || pairs.len() > 32 || !rest.is_empty() {
        return None;
    }
    let mut token = [0; 32];
    for (byte, pair) in token.iter_mut().zip(pairs) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(Token(token))
}

/// A token as hexadecimal digits, for channels that only its world reads.
pub(super) fn format_token(token: &Token) -> String {
    token.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(variables: &[(&str, &str)]) -> Config {
        Config::from_variables(variables.iter().copied()).unwrap()
    }

    const MPRUN: [(&str, &str); 3] =
        [("MP_RANK", "1"), ("MP_SIZE", "2"), ("MP_RENDEZVOUS", "[::1]:77")];

    #[test]
    fn the_variables_of_mprun_give_a_place() {
        let more = [
            ("MP_LOCAL_RANK", "1"),
            ("MP_LOCAL_SIZE", "2"),
            ("MP_JOB", "j"),
            ("MP_TOKEN", "0aFF"),
            ("MP_GPU", "3"),
        ];
        let place = mprun(&config(&[&MPRUN[..], &more[..]].concat())).unwrap();
        assert_eq!(
            (place.rank, place.size, place.local, &place.job[..]),
            (1, 2, Some((1, 2)), "j")
        );
        assert_eq!(
            (place.token.0[..3].to_vec(), place.gpu.as_deref()),
            (vec![0x0a, 0xff, 0], Some("3"))
        );
        assert!(matches!(place.meeting, Meeting::Connect(address) if address == "[::1]:77"));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (damage, words) in [
            (("MP_SIZE", ""), ["MP_SIZE is not set", "MP_RANK is"]),
            (("MP_SIZE", "1"), ["MP_SIZE=\"1\"", "more than the rank"]),
            (("MP_SIZE", "5000"), ["MP_SIZE=\"5000\"", "1 to 4096"]),
            (("MP_RANK", "-1"), ["MP_RANK=\"-1\"", "0 to 4294967295"]),
            (("MP_RENDEZVOUS", ""), ["MP_RENDEZVOUS is not set", "more than 1"]),
            (("MP_RENDEZVOUS", "host"), ["MP_RENDEZVOUS=\"host\"", "host:port"]),
            (("MP_RENDEZVOUS", "::1:77"), ["MP_RENDEZVOUS=\"::1:77\"", "host:port"]),
            (("MP_RENDEZVOUS", "h:0"), ["MP_RENDEZVOUS=\"h:0\"", "1 to 65535"]),
            (("MP_LOCAL_RANK", "0"), ["MP_LOCAL_SIZE is not set", "MP_LOCAL_RANK is"]),
            (("MP_TOKEN", "abc"), ["MP_TOKEN", "(3 characters)"]),
            (("MP_TOKEN", "xy"), ["MP_TOKEN", "hexadecimal"]),
        ] {
            let variables = [&MPRUN[..], &[damage]].concat();
            let place = Config::from_variables(variables).and_then(|config| mprun(&config));
            let text = place.unwrap_err().to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{damage:?}: {text}");
        }
    }

    #[test]
    fn the_agents_store_of_torchrun_is_stepped_around() {
        let base = [
            ("RANK", "1"),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "fd00::2"),
            ("MASTER_PORT", "29500"),
        ];
        let address = |more: &[(&str, &str)]| match torchrun(&config(&[&base[..], more].concat()))
            .unwrap()
            .meeting
        {
            Meeting::Connect(address) => address,
            other => panic!("{other:?}"),
        };
        assert_eq!(address(&[]), "[fd00::2]:29500");
        assert_eq!(address(&[("TORCHELASTIC_USE_AGENT_STORE", "True")]), "[fd00::2]:29501");
        assert_eq!(address(&[("MP_RENDEZVOUS", "n1:5")]), "n1:5");
    }
}
