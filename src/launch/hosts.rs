//! Jobs on several hosts. The `mprun` that the user starts runs a command such as `ssh` for each host, which starts another
//! `mprun` there; that one looks after the ranks of its host as after a job of its own. Here stands which host gets how
//! many ranks, and what the two say to each other over the command's standard input and output, which is all they have:
//!
//! * in: the [`Order`], a line of JSON, so that the secret of the job is in no command line; then lines `signal NUMBER`. The
//!   end of the input means that the first `mprun` is gone, and ends the ranks;
//! * out: from the host of rank 0 first a line that begins with [`MEETS`]; then what the ranks write.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::BorrowedFd;
use std::process::Stdio;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::contract;
use super::error::{Doing, LaunchError};
use super::job::{Identity, Meeting};
use super::options::{GpuList, Options};
use super::processes;
use super::signals::{Signals, asks_to_end};
use super::spawn::{Program, Rank};
use super::supervise::wait;

/// The beginning of the line that says where the ranks meet.
const MEETS: &str = "mprun: the ranks meet at ";

/// How long the host of rank 0 may take to say that.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest line that is read: an order holds an environment, of which Linux passes on a few megabytes at most.
const LONGEST: usize = 64 << 20;

/// Variables that say where a process is and who started it. The ranks of other hosts keep what they find there.
const OF_A_HOST: [&str; 18] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "MAIL",
    "HOSTNAME",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "TERM",
    "TMPDIR",
    "DISPLAY",
    "XAUTHORITY",
    "WAYLAND_DISPLAY",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "NOTIFY_SOCKET",
];
const OF_A_SESSION: [&str; 3] = ["SSH_", "XDG_", "DBUS_"];

/// A host and its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub name: String,
    pub first: usize,
    pub count: usize,
}

/// Reads `NAME[:RANKS],…`.
pub(super) fn parse(text: &str) -> Result<Vec<(String, Option<usize>)>, String> {
    let mut names = BTreeSet::new();
    let host = |item: &str| {
        let (name, count) = match item.split_once(':') {
            Some((name, count)) => match count.parse::<usize>() {
                Ok(count) if count > 0 => (name, Some(count)),
                _ => return Err(format!("{item:?}: expected NAME:RANKS, with one rank or more")),
            },
            None => (item, None),
        };
        // It becomes a word of a command line, and of one that a shell reads.
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-@%+".contains(c);
        if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
            return Err(format!("{name:?} is no name of a host"));
        }
        if !names.insert(name.to_owned()) {
            return Err(format!("{name} is named twice"));
        }
        Ok((name.to_owned(), count))
    };
    text.split(',').map(host).collect()
}

/// Gives each host its ranks: as many as it says, in order; or, where none says so, equal shares, the first hosts one more.
pub(super) fn divide(
    hosts: &[(String, Option<usize>)],
    ranks: Option<usize>,
) -> Result<Vec<Host>, LaunchError> {
    let said = hosts.iter().any(|(_, count)| count.is_some());
    let most = |count: &Option<usize>| count.unwrap_or(1);
    let room = hosts.iter().map(|(_, count)| most(count)).fold(0, usize::saturating_add);
    let size = ranks.unwrap_or(room);
    if said && size > room {
        return Err(LaunchError::Hosts(format!("there is room for {room} ranks, not for {size}")));
    }
    let mut placed = Vec::new();
    let mut first = 0;
    for (i, (name, count)) in hosts.iter().enumerate() {
        let share = size / hosts.len() + usize::from(i < size % hosts.len());
        let count = if said { most(count).min(size - first) } else { share };
        if count > 0 {
            placed.push(Host { name: name.clone(), first, count });
        }
        first += count;
    }
    Ok(placed)
}

/// What the ranks of one host are to be.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// What both `mprun` must have been built from.
    version: String,
    /// The name of the host, if there are several.
    pub host: Option<String>,
    pub first: usize,
    pub count: usize,
    pub size: usize,
    pub per_gpu: bool,
    pub gpus: Vec<u32>,
    pub identity: Identity,
    /// Unknown to the host of rank 0, which says it.
    pub meeting: Option<Meeting>,
    pub prefix: bool,
    pub linger: Duration,
    pub kill_after: Duration,
    pub timeout: Option<Duration>,
    pub env: Vec<(OsString, OsString)>,
    folder: Option<OsString>,
    pub command: Vec<OsString>,
}

impl Order {
    /// For the only host: this one.
    pub fn for_this_host(options: &Options, size: usize) -> Result<Order, LaunchError> {
        let given = |(name, value): &(String, String)| (name.into(), value.into());
        Ok(Order {
            version: crate::version_string().to_owned(),
            host: None,
            first: 0,
            count: size,
            size,
            per_gpu: options.per_gpu,
            gpus: options.gpus.clone().map(|GpuList(list)| list).unwrap_or_default(),
            identity: Identity::new()?,
            meeting: None,
            prefix: options.prefix,
            linger: options.linger,
            kill_after: options.kill_after,
            timeout: options.timeout,
            env: options.env.iter().map(given).collect(),
            folder: None,
            command: options.command.clone(),
        })
    }

    /// For all hosts: with the environment and the folder of this process.
    fn for_hosts(options: &Options, size: usize) -> Result<Order, LaunchError> {
        let order = Order::for_this_host(options, size)?;
        let folder = std::env::current_dir().doing("find the current folder")?;
        let passed = std::env::vars_os().filter(|(name, _)| {
            let name = name.to_string_lossy();
            !OF_A_HOST.contains(&&*name)
                && !OF_A_SESSION.iter().any(|beginning| name.starts_with(beginning))
                && !contract::VARIABLES.iter().any(|(set, _)| *set == name)
        });
        let env = passed.chain(order.env).collect();
        // Only this process counts the time: two would end the job twice.
        Ok(Order { env, folder: Some(folder.into_os_string()), timeout: None, ..order })
    }

    fn line(&self) -> Result<Vec<u8>, LaunchError> {
        let mut line = serde_json::to_vec(self)
            .map_err(|error| LaunchError::Hosts(format!("the job cannot be told: {error}")))?;
        line.push(b'\n');
        Ok(line)
    }

    /// Goes where the job was started.
    pub fn enter_folder(&self) -> Result<(), LaunchError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        std::env::set_current_dir(folder)
            .map_err(|error| LaunchError::Order(format!("folder {}: {error}", folder.display())))
    }

    /// A variable that the ranks will find.
    pub fn variable(&self, name: &str) -> Option<String> {
        let given =
            self.env.iter().rfind(|(given, _)| given == name).map(|(_, value)| value.clone());
        given.or_else(|| std::env::var_os(name))?.into_string().ok()
    }
}

/// What the first `mprun` says to the one of a host.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Signal the ranks.
    Signal(i32),
    /// It is gone.
    Gone,
}

/// The standard input of the `mprun` of a host.
#[derive(Debug, Default)]
pub(super) struct Control {
    held: Vec<u8>,
}

impl Control {
    pub fn fd(&self) -> BorrowedFd<'static> {
        rustix::stdio::stdin()
    }

    /// Waits for the order.
    pub fn order(&mut self) -> Result<Order, LaunchError> {
        while !self.held.contains(&b'\n') {
            if self.read() == 0 || self.held.len() > LONGEST {
                let why = "no order came on the standard input: mprun --hosts starts this";
                return Err(LaunchError::Order(why.into()));
            }
        }
        let line = self.line().unwrap_or_default();
        let order: Order = serde_json::from_slice(&line).map_err(|error| {
            LaunchError::Order(format!(
                "the order cannot be read, perhaps of another version: {error}"
            ))
        })?;
        match crate::version_string() {
            ours if ours == order.version => Ok(order),
            ours => Err(LaunchError::Order(format!(
                "mprun here is {ours}, the one that started the job {}",
                order.version
            ))),
        }
    }

    /// Reads once; to be called when there is something.
    pub fn told(&mut self) -> Vec<Told> {
        let gone = self.read() == 0 || self.held.len() > LONGEST;
        let mut told = Vec::new();
        while let Some(line) = self.line() {
            let text = String::from_utf8_lossy(&line);
            // Another word is of a version that there is not yet; the order would have said so.
            let number = text.trim_end().strip_prefix("signal ").and_then(|n| n.parse().ok());
            told.extend(number.map(Told::Signal));
        }
        told.extend(gone.then_some(Told::Gone));
        told
    }

    fn read(&mut self) -> usize {
        let mut bytes = [0; 4096];
        let count = rustix::io::retry_on_intr(|| rustix::io::read(self.fd(), &mut bytes[..]));
        let count = count.unwrap_or(0);
        self.held.extend_from_slice(&bytes[..count]);
        count
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.held.iter().position(|byte| *byte == b'\n')?;
        Some(self.held.drain(..=end).collect())
    }
}

/// Says where the ranks meet, to the first `mprun`.
pub(super) fn say_meeting(meeting: Meeting) -> Result<(), LaunchError> {
    let place = serde_json::to_string(&meeting).unwrap_or_default();
    let mut out = io::stdout();
    writeln!(out, "{MEETS}{place}").and_then(|()| out.flush()).doing("say where the ranks meet")
}

/// The way to the `mprun` of a host; the end of its input when dropped.
pub(super) struct Line(Sender<Vec<u8>>);

impl Line {
    /// A thread writes, so that a launcher that does not read keeps nobody waiting.
    fn new(mut to: PipeWriter) -> Result<Line, LaunchError> {
        let (sender, inbox) = channel::<Vec<u8>>();
        let mut carry = move || inbox.iter().try_for_each(|bytes| to.write_all(&bytes));
        // A launcher that has ended is noticed as such.
        let thread = thread::Builder::new().name("to-a-host".to_owned());
        thread.spawn(move || drop(carry())).doing("start a thread")?;
        Ok(Line(sender))
    }

    fn say(&self, bytes: Vec<u8>) {
        // Nobody is there any more.
        let _ = self.0.send(bytes);
    }

    pub fn signal(&self, signal: i32) {
        self.say(format!("signal {signal}\n").into_bytes());
    }
}

/// A host whose launcher runs.
pub(super) struct Started {
    pub launcher: Rank,
    pub line: Line,
}

/// Starts the launcher of every host; `started` holds those that run, also after an error.
pub(super) fn start(
    options: &Options,
    hosts: &[Host],
    signals: &mut Signals,
    started: &mut Vec<Started>,
) -> Result<(), LaunchError> {
    let size = hosts.iter().map(|host| host.count).sum();
    let mut order = Order::for_hosts(options, size)?;
    let mprun = match &options.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().doing("find mprun itself")?,
    }
    .into_os_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,=@%".contains(c);
    if !mprun.to_str().is_some_and(|path| path.chars().all(plain)) {
        let why = format!(
            "the path of mprun, {}, is not one that every shell leaves alone",
            mprun.display()
        );
        return Err(LaunchError::Hosts(why));
    }
    for host in hosts {
        let words = options.launch.split_whitespace().map(OsString::from);
        let command: Vec<OsString> =
            words.chain([OsString::from(&host.name), mprun.clone(), "--agent".into()]).collect();
        let (input, to) = io::pipe().doing("make a pipe")?;
        let part = format!("the launcher of host {}", host.name);
        let program = Program { command: &command, env: &[] };
        let launcher = program.start(&part, &[], Stdio::from(input), None)?;
        started.push(Started { launcher, line: Line::new(to)? });
        order.host = Some(host.name.clone());
        (order.first, order.count) = (host.first, host.count);
        let Some(Started { launcher, line }) = started.last_mut() else { continue };
        line.say(order.line()?);
        if order.meeting.is_none() {
            let found = meeting(&mut launcher.stdout, signals);
            let ended = |why: &str| {
                let how = processes::ended(launcher.pid).map(|how| format!("; it {how}"));
                let command: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
                let how = how.unwrap_or_default();
                format!("{why} from its launcher ({}){how}", command.join(" "))
            };
            order.meeting = Some(found.map_err(|why| {
                // What it says of its end comes before what we do.
                processes::wait_shortly(launcher.pid);
                let why = ended(&why);
                processes::signal_group(launcher.pid, Signal::KILL);
                pass_on(&mut launcher.stderr);
                LaunchError::Host { host: host.name.clone(), why }
            })?);
        }
    }
    Ok(())
}

/// Writes what a launcher has said on its standard error.
fn pass_on(from: &mut PipeReader) {
    let left = rustix::io::ioctl_fionread(&*from).unwrap_or(0);
    let _ = io::copy(&mut io::Read::take(from, left), &mut io::stderr());
}

/// Reads the line that says where the ranks meet. What comes before it, perhaps of a login shell, is passed on.
fn meeting(from: &mut PipeReader, signals: &mut Signals) -> Result<Meeting, String> {
    let until = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    loop {
        let ready = wait(&[std::os::fd::AsFd::as_fd(from), signals.fd()], Some(until))
            .map_err(|error| error.to_string())?;
        if ready[1] && signals.arrived().into_iter().any(asks_to_end) {
            return Err("ended on request before a word came".into());
        }
        if !ready[0] {
            if Instant::now() >= until {
                return Err(format!("no word within {} s", PATIENCE.as_secs()));
            }
            continue;
        }
        // By single bytes: what follows the line is for another reader.
        let mut byte = [0];
        match io::Read::read(from, &mut byte) {
            Ok(1) => line.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            _ => return Err("no word".into()),
        }
        if byte[0] != b'\n' && line.len() < LONGEST {
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        match text.strip_prefix(MEETS) {
            Some(place) => {
                return serde_json::from_str(place).map_err(|_| format!("not understood: {text}"));
            }
            None => drop(io::stdout().write_all(&line)),
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(hosts: &str, ranks: Option<usize>) -> Result<Vec<(String, usize, usize)>, String> {
        let hosts = divide(&parse(hosts)?, ranks).map_err(|error| error.to_string())?;
        Ok(hosts.into_iter().map(|host| (host.name, host.first, host.count)).collect())
    }

    #[test]
    fn hosts_that_say_nothing_share_the_ranks_equally() {
        let three = |counts: [(usize, usize); 3]| {
            let names = ["a", "b", "c"].iter().zip(counts);
            Ok(names.map(|(name, (first, count))| (name.to_string(), first, count)).collect())
        };
        assert_eq!(placed("a,b,c", None), three([(0, 1), (1, 1), (2, 1)]));
        assert_eq!(placed("a,b,c", Some(8)), three([(0, 3), (3, 3), (6, 2)]));
        assert_eq!(placed("a,b,c", Some(1)), Ok(vec![("a".to_owned(), 0, 1)]));
    }

    #[test]
    fn hosts_that_say_how_many_ranks_they_take_are_filled_in_order() {
        let two = |counts: [(usize, usize); 2]| {
            let names = ["a", "b"].iter().zip(counts);
            Ok(names.map(|(name, (first, count))| (name.to_string(), first, count)).collect())
        };
        assert_eq!(placed("a:2,b:4", None), two([(0, 2), (2, 4)]));
        assert_eq!(placed("a:2,b:4", Some(3)), two([(0, 2), (2, 1)]));
        assert_eq!(placed("a,b:4", None), two([(0, 1), (1, 4)]));
        let refused = placed("a:2,b:4", Some(7)).unwrap_err();
        assert_eq!(refused, "--hosts: there is room for 6 ranks, not for 7");
    }

    #[test]
    fn what_is_no_list_of_hosts_is_refused() {
        for wrong in
            ["", ",", "a,,b", "a,a", "a:0", "a:", "a:x", "-a", "a b", "a;b", "$(a)", "[::1]"]
        {
            assert!(parse(wrong).is_err(), "{wrong:?} was taken");
        }
        assert!(parse("user@node-1.example.org:4,node_2").is_ok());
    }

    #[test]
    fn an_order_survives_the_way_to_a_host_and_one_of_another_version_is_refused() {
        let options = clap::Parser::parse_from(["mprun", "-n", "3", "-e", "A=b", "true", "x y"]);
        let mut order = Order::for_hosts(&options, 3).unwrap();
        let mut control = Control { held: order.line().unwrap() };
        let read = control.order().unwrap();
        assert_eq!((read.size, &read.command), (3, &vec!["true".into(), "x y".into()]));
        assert_eq!(read.variable("A").as_deref(), Some("b"));
        assert_eq!(read.identity.token, order.identity.token);
        assert!(!read.env.iter().any(|(name, _)| name == "HOME" || name == "MP_RANK"));
        order.version = "0.0.0".into();
        let refused = Control { held: order.line().unwrap() }.order().unwrap_err().to_string();
        assert!(refused.contains("the one that started the job 0.0.0"), "{refused}");
    }
}
