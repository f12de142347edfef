//! Ranks for the tests: threads of this process, threads that meet over TCP like processes, and processes, which are this
//! test binary executed again.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use libmp::{Config, Deadline, Device, Operation, Result, World, wait_all};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// The deadline of what should simply happen.
pub fn soon() -> Deadline {
    Deadline::after(SOON)
}

/// What should simply happen does so within this, on a slow and busy machine too. It is shorter than the silence that
/// [`mprun`] lets ranks bear: what is only found by silence comes too late.
pub const SOON: Duration = Duration::from_secs(40);

/// A timeout that a test waits for: long enough for what the ranks do before, on a busy machine too.
pub const PASSES: Duration = Duration::from_secs(1);

/// Runs `rank` on each of the worlds in a thread of its own; results in rank order.
pub fn on_threads<T: Send>(worlds: Vec<World>, rank: impl Fn(World) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let rank = &rank;
        let ranks: Vec<_> =
            worlds.into_iter().map(|world| scope.spawn(move || rank(world))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank panicked")).collect()
    })
}

/// The same, but every rank keeps its world until all are through: the slower ones do not find it lost.
pub fn stay_to_the_end<T: Send>(worlds: Vec<World>, rank: impl Fn(&World) -> T + Sync) -> Vec<T> {
    /// Counts a rank that is through, or panics, and waits for the others.
    struct Stay<'a>(&'a AtomicUsize, usize);
    impl Drop for Stay<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::AcqRel);
            let until = Instant::now() + 2 * SOON;
            while self.0.load(Ordering::Acquire) < self.1 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    let (through, all) = (AtomicUsize::new(0), worlds.len());
    on_threads(worlds, |world| {
        let _stay = Stay(&through, all);
        rank(&world)
    })
}

/// How ranks of one host may reach each other: values of `MP_PATH`. On a machine with an RDMA device `MP_TEST_PATHS` may say
/// `nic-verbs`, as in `MP_TEST_PATHS=nic-verbs tools/rxe-vm usual …`.
pub fn paths() -> Vec<&'static str> {
    static CHOSEN: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("MP_TEST_PATHS").ok());
    match &*CHOSEN {
        None => vec!["auto", "nic", "nic-tcp"],
        Some(paths) => paths.split(' ').collect(),
    }
}

/// Those of them that go through the NIC.
pub fn nic_paths() -> Vec<&'static str> {
    paths().into_iter().filter(|path| *path != "auto").collect()
}

thread_local! {
    static PATH: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Runs `test` once for each path: [`config`] says it.
pub fn each_path(test: impl Fn()) {
    for path in paths() {
        // Shown if the test fails.
        println!("MP_PATH={path}");
        PATH.set(Some(path));
        test();
    }
    PATH.set(None);
}

/// The configuration of the environment, on the path that is tested now.
pub fn config() -> Config {
    let mut config = Config::from_env().unwrap();
    if let Some(path) = PATH.get() {
        config.path = Config::from_variables([("MP_PATH", path)]).unwrap().path;
    }
    config
}

/// Worlds of threads, one on each path.
pub fn on_every_path(ranks: usize) -> impl Iterator<Item = Vec<World>> {
    paths().into_iter().map(move |path| {
        // Shown if the test fails.
        println!("MP_PATH={path}");
        let config = Config::from_variables([("MP_PATH", path)]).unwrap();
        World::threads_with_config(ranks, &config).unwrap()
    })
}

/// Runs `rank` on so many ranks, on each path; all finish. The results of the last.
pub fn ranks<T: Send>(count: usize, rank: impl Fn(&World) -> T + Sync) -> Vec<T> {
    let run = |worlds| {
        on_threads(worlds, |world| {
            let value = rank(&world);
            world.finish().unwrap();
            value
        })
    };
    on_every_path(count).map(run).last().unwrap()
}

/// A listening socket as a launcher hands it to rank 0: its descriptor and its address.
pub fn rendezvous() -> (i32, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener.into_raw_fd(), address)
}

/// A port at which nobody listens, outside the range from which the system chooses by itself, so that nobody gets it
/// meanwhile but who asks for it. Nobody has listened there for this either: a process that another test is starting would
/// hold the socket until it runs its program, and where one listens nobody else can.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test binaries that run at the same time begin at different places.
    let first = std::process::id() as u16;
    loop {
        let port = 10_000 + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = socket.unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        if bind(&socket, &SocketAddr::from(([0; 4], port))).is_ok() {
            return port;
        }
    }
}

/// What mprun would set, and `more`.
pub fn mprun(
    rank: usize,
    size: usize,
    address: &str,
    fd: i32,
    more: &[(&str, &str)],
) -> Vec<(String, String)> {
    let mut variables = vec![
        ("MP_RANK".to_owned(), rank.to_string()),
        ("MP_SIZE".to_owned(), size.to_string()),
        ("MP_RENDEZVOUS".to_owned(), address.to_owned()),
        ("MP_INIT_TIMEOUT".to_owned(), "60".into()),
        ("MP_TIMEOUT".to_owned(), "60".into()),
        ("MP_HEARTBEAT_TIMEOUT".to_owned(), "60".into()),
    ];
    if rank == 0 && fd >= 0 {
        variables.push(("MP_RENDEZVOUS_FD".to_owned(), fd.to_string()));
    }
    variables.extend(more.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
    variables
}

/// Ranks that meet over TCP as processes do, but are threads: `adapt` changes the configuration of each, `rank` is what it
/// does with what came of its start.
pub fn over_tcp<T: Send>(
    size: usize,
    more: &[(&str, &str)],
    adapt: impl Fn(usize, &mut Config) + Sync,
    rank: impl Fn(usize, Result<World>) -> T + Sync,
) -> Vec<T> {
    let (fd, address) = rendezvous();
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|number| {
                let (adapt, rank, address) = (&adapt, &rank, &address);
                scope.spawn(move || {
                    let mut config =
                        Config::from_variables(mprun(number, size, address, fd, more)).unwrap();
                    adapt(number, &mut config);
                    rank(number, World::with_config(&config))
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank panicked")).collect()
    })
}

/// A rank of a ring that the host turns without end, with messages of `words` words: says that it is ready, and ends with what
/// goes wrong, or when a message is not there for `patience`.
pub fn ring_without_end(world: &World, words: usize, patience: Duration) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let region = || world.alloc::<u64>(&Device::Host, words);
    let send = world.peer((rank + 1) % size)?.send(&region()?, 1).prepare()?;
    let recv = world.peer((rank + size - 1) % size)?.recv(&region()?, 1).prepare()?;
    world.barrier()?;
    say("ready");
    loop {
        recv.start()?;
        send.start()?;
        let both: [&dyn Operation; 2] = [&recv, &send];
        wait_all(&both, Deadline::after(patience))?;
    }
}

/// What a rank process prints for its parent starts with this.
pub const MARK: &str = "RANK SAYS ";

/// Says something to the parent.
pub fn say(text: impl std::fmt::Display) {
    println!("\n{MARK}{text}");
}

/// A rank process and what it says.
pub struct Rank {
    child: Child,
    said: Receiver<String>,
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Rank {
    /// Starts this test binary again, to run its test `a_rank` as `program`. Descriptor `keep` stays open in it.
    pub fn start(program: &str, variables: &[(String, String)], keep: Option<i32>) -> Rank {
        Rank::start_under(&[], program, variables, keep)
    }

    /// The same by a command that starts what follows it.
    pub fn start_under(
        prefix: &[&str],
        program: &str,
        variables: &[(String, String)],
        keep: Option<i32>,
    ) -> Rank {
        let binary = std::env::current_exe().unwrap();
        let mut command = match prefix {
            [] => Command::new(binary),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(binary);
                command
            }
        };
        command.args(["a_rank", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        for name in libmp::config::VARIABLES {
            command.env_remove(name);
        }
        command.envs(variables.iter().cloned()).env("TEST_PROGRAM", program);
        command.stdout(Stdio::piped()).stdin(Stdio::null());
        if let Some(fd) = keep {
            // SAFETY: fcntl is async-signal-safe, and nothing else happens between fork and exec.
            unsafe {
                command.pre_exec(move || match libc::fcntl(fd, libc::F_SETFD, 0) {
                    -1 => Err(std::io::Error::last_os_error()),
                    _ => Ok(()),
                })
            };
        }
        let mut child = command.spawn().unwrap();
        let (sender, said) = channel();
        let output = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
                if let Some(text) = line.strip_prefix(MARK)
                    && sender.send(text.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Rank { child, said }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// What it says next; `None` if it ends without.
    pub fn next(&self, within: Duration) -> Option<String> {
        match self.said.recv_timeout(within) {
            Ok(text) => Some(text),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("a rank said nothing for {within:?}"),
        }
    }

    /// It runs, and has said nothing more.
    pub fn is_silent(&self) -> bool {
        self.said.try_recv() == Err(TryRecvError::Empty)
    }

    /// Waits for its end: its exit code, if it was not killed.
    pub fn end(&mut self, within: Duration) -> Option<i32> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "a rank did not end within {within:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a signal to a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }
}

/// Starts `size` rank processes as mprun would.
pub fn start_mprun(program: &str, size: usize, more: &[(&str, &str)]) -> Vec<Rank> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let fd = listener.as_raw_fd();
    (0..size)
        .map(|rank| {
            let variables = mprun(rank, size, &address, fd, more);
            Rank::start(program, &variables, (rank == 0).then_some(fd))
        })
        .collect()
}
