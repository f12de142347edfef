//! The command line of `mprun`: what can be asked, and the words of its help. Nothing is started or
//! looked up here.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgGroup, Parser};

use super::contract;

/// Starts a program as N ranks, on this host or on several.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "mprun",
    version = crate::version_string(),
    after_long_help = after_help(),
    group = ArgGroup::new("gpu").args(["per_gpu", "gpus"]),
)]
pub struct Options {
    /// Number of ranks [default with --per-gpu: number of GPUs; with --gpus: length of LIST]
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = ranks)]
    pub ranks: Option<usize>,

    /// What other hosts start, if that is not the executable of this process: a script that calls it.
    #[arg(skip)]
    pub program: Option<std::path::PathBuf>,

    /// Start the ranks on these hosts: NAME or NAME:RANKS, separated by commas. Without RANKS the hosts get equal shares of
    /// -n, in blocks [default for -n: one a host, or the sum of RANKS]
    #[arg(long, value_name = "LIST", value_parser = hosts)]
    pub hosts: Option<String>,

    /// With --hosts: the command that starts a program on a host, run as COMMAND NAME PROGRAM ARGUMENTS. It is split at blanks
    #[arg(long, value_name = "COMMAND", requires = "hosts", value_parser = words, default_value = "ssh")]
    pub launch: String,

    /// Look after the ranks of this host, as an order on the standard input says: what --hosts starts
    #[arg(long, hide = true, conflicts_with_all = ["ranks", "hosts", "gpu", "prefix", "env", "timeout", "command"])]
    pub agent: bool,

    /// Give every rank a GPU of its host in turn (rank on the host modulo number of GPUs), as MP_GPU
    #[arg(long)]
    pub per_gpu: bool,

    /// Give the ranks the GPUs of LIST in turn, as MP_GPU: ordinals and ranges, such as 0,2,4-7
    #[arg(long, value_name = "LIST", value_parser = gpu_list)]
    pub gpus: Option<GpuList>,

    /// Begin every line of output with the rank in brackets
    #[arg(short = 'l', long)]
    pub prefix: bool,

    /// Set a variable for the ranks; may be given several times
    #[arg(short = 'e', long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,

    /// End the job after SECONDS and exit with 124 [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,

    /// After a rank fails, leave the others SECONDS to notice it themselves before they get SIGTERM
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "0")]
    pub linger: Duration,

    /// What still runs SECONDS after it was asked to end gets SIGKILL
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "5")]
    pub kill_after: Duration,

    /// The program and its arguments
    #[arg(
        required_unless_present = "agent",
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<OsString>,
}

/// GPU ordinals in the order in which ranks get them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuList(pub Vec<u32>);

fn after_help() -> String {
    format!(
        "\
Every rank runs in a process group of its own; signals that mprun gets (SIGINT, SIGTERM, SIGHUP,
SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP) go to all of them. Rank 0 reads the standard input. Output is
passed on line by line.

When a rank exits with a status other than 0, or a signal kills it, the others are ended: SIGTERM,
then SIGKILL after --kill-after. With --linger they first have time to say what they saw, unless all
that are left are stopped. SIGINT, SIGTERM, SIGHUP and SIGQUIT start the same delay; a second
one kills at once. A rank that is stopped is named after 2 s; ranks that are still starting give it up
after MP_HEARTBEAT_TIMEOUT (10 s). What a rank leaves running in its process group when all ranks have ended is
ended as well; a process that moved to another group or session is not.

With --hosts, ssh or what --launch names starts another mprun on each host, found under the same path, which
looks after the ranks there. They get the environment of the first mprun (but for what says whose it is and
where: HOME, USER, SHELL, TMPDIR, SSH_* and such), run in its folder, and read nothing from the standard
input. They meet at the address by which rank 0's host reaches others, or that of MP_INTERFACE. A host whose
launcher ends counts as a rank that fails, and is named; when mprun ends, so do the ranks of all hosts.

Exit status: that of the first rank that failed, 128 + number of the signal that killed it; where one
exits and another one was killed, as the kernel shows within moments, that of the killed one. 124 after
--timeout, 126 or 127 if the program cannot be executed or found, 0 if every rank exited with 0.

Environment of the ranks:
{}",
        contract::table()
    )
}

/// More processes than any kernel gives are a slip of the finger.
const MOST_RANKS: usize = 1 << 22;

fn ranks(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(ranks) if (1..=MOST_RANKS).contains(&ranks) => Ok(ranks),
        _ => Err(format!("expected a whole number from 1 to {MOST_RANKS}")),
    }
}

fn hosts(text: &str) -> Result<String, String> {
    super::hosts::parse(text).map(|_| text.to_owned())
}

fn words(text: &str) -> Result<String, String> {
    match text.split_whitespace().next() {
        Some(_) => Ok(text.to_owned()),
        None => Err("expected a command".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    // A year: sums with the clock's reading stay far from its end.
    const MOST: f64 = 31_536_000.0;
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=MOST).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("expected a number of seconds from 0 to {MOST}")),
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => (name, value),
        _ => return Err("expected NAME=VALUE".to_owned()),
    };
    if contract::VARIABLES.iter().any(|(taken, _)| *taken == name) {
        return Err(format!("{name} is set by mprun itself"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn gpu_list(text: &str) -> Result<GpuList, String> {
    /// No machine has more; without a bound `0-4000000000` would fill the memory.
    const MOST: u32 = 1024;
    let ordinal = |text: &str| match text.parse::<u32>() {
        Ok(ordinal) if ordinal < MOST => Ok(ordinal),
        _ => Err(format!("{text:?} is not a GPU ordinal (a whole number below {MOST})")),
    };
    let mut list = Vec::new();
    for item in text.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last) = (ordinal(first)?, ordinal(last)?);
        if first > last {
            return Err(format!("the range {item} runs backwards"));
        }
        list.extend(first..=last);
    }
    Ok(GpuList(list))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(arguments: &[&str]) -> Result<Options, String> {
        Options::try_parse_from([&["mprun"], arguments].concat()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn what_follows_the_command_belongs_to_the_command() {
        let options = parse(&["-n", "2", "prog", "-n", "9", "--gpus", "x"]).unwrap();
        assert_eq!(options.ranks, Some(2));
        assert_eq!(options.command, ["prog", "-n", "9", "--gpus", "x"]);
        let options = parse(&["-n", "2", "--", "-odd-name"]).unwrap();
        assert_eq!(options.command, ["-odd-name"]);
    }

    #[test]
    fn gpu_lists_are_ordinals_and_ranges() {
        assert_eq!(gpu_list("0,2,4-7,2"), Ok(GpuList(vec![0, 2, 4, 5, 6, 7, 2])));
        for wrong in ["", "a", "1,", "3-1", "1-", "-1", "4000000000", "0-4000000000"] {
            assert!(gpu_list(wrong).is_err(), "{wrong:?} was taken");
        }
    }

    #[test]
    fn a_number_of_ranks_or_seconds_out_of_range_is_refused() {
        for wrong in ["0", "-1", "x", "", "99999999999"] {
            assert!(ranks(wrong).is_err(), "{wrong:?} was taken");
        }
        for wrong in ["-1", "nan", "inf", "1e300", ""] {
            assert!(seconds(wrong).is_err(), "{wrong:?} was taken");
        }
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
    }

    #[test]
    fn absurd_values_of_any_option_are_refused() {
        const SECONDS: &[&str] = &["-1", "nan", "inf", "1e300", "x", "", "1s", "0x1"];
        // Every option, and what it may not be; nothing for those without a value, which may not be given one.
        let table: &[(&str, &[&str])] = &[
            ("ranks", &["0", "-1", "x", "1.5", "", "nan", "1e3", "99999999999"]),
            ("hosts", &["", ",", "a,,b", "a,a", "a:0", "a:x", "-a", "a b"]),
            ("launch", &["", " "]),
            ("agent", &[]),
            ("per-gpu", &[]),
            ("gpus", &["", "x", "-1", "1,,2", "3-1", "0-4000000000", "0;1", "1.5"]),
            ("prefix", &[]),
            ("env", &["", "x", "=x", "MP_RANK=1", "MP_TOKEN=", "MASTER_PORT=5"]),
            ("timeout", SECONDS),
            ("linger", SECONDS),
            ("kill-after", SECONDS),
        ];
        let command = Options::command();
        let there: Vec<&str> =
            command.get_arguments().filter_map(|option| option.get_long()).collect();
        let tried: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        assert_eq!(there, tried);
        for (name, values) in table {
            for value in values.iter().chain(values.is_empty().then_some(&"1")) {
                let option = format!("--{name}={value}");
                let refusal = parse(&[&option, "--", "true"]).expect_err(&option);
                assert!(refusal.contains(&format!("--{name}")), "{option}: {refusal}");
            }
        }
        assert!(parse(&["-n", "2"]).is_err(), "no command");
    }

    #[test]
    fn no_option_takes_what_nobody_means() {
        let (accepted, tried) = mp_program::absurd::accepted(&Options::command());
        // A host may be called so.
        let accepted: Vec<_> =
            accepted.iter().filter(|line| !line.starts_with("mprun --hosts=")).collect();
        assert!(accepted.is_empty() && tried > 50, "{tried} tried, accepted: {accepted:#?}");
    }

    #[test]
    fn a_variable_of_the_contract_cannot_be_set_by_hand() {
        let refusal = parse(&["-n", "1", "--env", "MP_RANK=3", "true"]).unwrap_err();
        assert!(refusal.contains("MP_RANK is set by mprun itself"), "{refusal}");
        assert!(parse(&["-n", "1", "--env", "NO_VALUE", "true"]).is_err());
        let options = parse(&["-n", "1", "-e", "A=b=c", "-e", "B=", "true"]).unwrap();
        assert_eq!(options.env, [("A".into(), "b=c".into()), ("B".into(), "".into())]);
    }

    #[test]
    fn the_two_ways_of_giving_gpus_exclude_each_other() {
        assert!(parse(&["--per-gpu", "--gpus", "0", "true"]).is_err());
    }
}
