//! Memory of other processes: the test binary starts itself again as the peer. Host memory everywhere, device memory
//! where there is a GPU.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use common::{Outcome, on_host_and_cuda, soon};
use gdsync::{Arg, Device, Dims, Error, PeerHandle, PeerMemory, PeerPath, Space};

on_host_and_cuda!(
    a_peer_process_writes_into_exported_memory,
    two_processes_signal_each_other,
    memory_of_a_killed_peer_stays_mapped_and_the_next_map_is_refused,
    small_allocations_are_exported_each_at_its_own_place,
);

/// The peer: this test binary with the test `peer` selected, told what to do on its standard input.
struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

impl Peer {
    fn start(device: &Device) -> Result<Peer, Box<dyn std::error::Error>> {
        let kind = if device.as_cuda().is_some() { "cuda" } else { "host" };
        let mut child = Command::new(std::env::current_exe()?)
            .args(["peer", "--exact", "--nocapture", "--include-ignored"])
            .env("MP_TEST_PEER", kind)
            // On another GPU, where there is one.
            .env(
                "MP_TEST_GPU",
                if gdsync::CudaDevice::count().unwrap_or(0) > 1 { "1" } else { "0" },
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no stdin")?;
        let output = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        Ok(Peer { child, input, output })
    }

    fn tell(&mut self, order: &str, handle: &PeerHandle) -> Outcome {
        writeln!(self.input, "{order}\t{}", serde_json::to_string(handle)?)?;
        Ok(self.input.flush()?)
    }

    fn hear(&mut self) -> Result<String, Box<dyn std::error::Error>> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err("the peer ended".into());
            }
            if let Some((_, text)) = line.trim_end().split_once("peer: ") {
                return Ok(text.to_owned());
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The peer's side; does nothing unless it was started as one.
#[test]
#[ignore = "started by the tests above"]
fn peer() -> Outcome {
    let Ok(kind) = std::env::var("MP_TEST_PEER") else { return Ok(()) };
    let device = if kind == "cuda" { common::gpu() } else { Device::Host };
    let stream = device.stream()?;
    let mut kept = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line?;
        let (order, handle) = line.split_once('\t').ok_or("no tab")?;
        let handle: PeerHandle = serde_json::from_str(handle)?;
        match order {
            "fill" => {
                let memory = PeerMemory::map(&handle, &device)?;
                let staging = device.alloc_pinned::<u8>(memory.buffer.len())?;
                staging.write(&vec![0x5a; memory.buffer.len()])?;
                stream.copy(&memory.buffer, &staging)?;
                stream.synchronize(soon())?;
                println!("peer: filled {} over {}", memory.buffer.len(), memory.path);
            }
            "pong" => {
                let words = PeerMemory::map(&handle, &device)?.buffer.cast::<u64>()?;
                for round in 1..=100 {
                    stream.wait_signal(&words.word(0)?, round, Duration::from_secs(10))?;
                    stream.signal(&words.word(1)?, round)?;
                }
                stream.synchronize(soon())?;
                println!("peer: played");
            }
            "export" => {
                let own = device.alloc::<u64>(64)?;
                own.write(&[11; 64])?;
                println!("peer: {}", serde_json::to_string(&own.export()?)?);
                kept.push(own);
            }
            other => return Err(format!("no order {other:?}").into()),
        }
    }
    Ok(())
}

fn a_peer_process_writes_into_exported_memory(device: &Device) -> Outcome {
    let mut peer = Peer::start(device)?;
    for space in [Space::Pinned, Space::Device] {
        let memory = gdsync::Buffer::<u8>::new(device, space, 100_000)?;
        peer.tell("fill", &memory.slice(1000..60_000)?.export()?)?;
        let path = if space == Space::Device && device.as_cuda().is_some() {
            PeerPath::CudaIpc
        } else {
            PeerPath::SharedMemory
        };
        assert_eq!(peer.hear()?, format!("filled 59000 over {path}"));
        let bytes = memory.to_vec()?;
        assert!(
            bytes[..1000].iter().all(|byte| *byte == 0)
                && bytes[60_000..].iter().all(|byte| *byte == 0)
        );
        assert!(bytes[1000..60_000].iter().all(|byte| *byte == 0x5a));
    }
    Ok(())
}

fn two_processes_signal_each_other(device: &Device) -> Outcome {
    let mut peer = Peer::start(device)?;
    let words = device.alloc_pinned::<u64>(2)?;
    peer.tell("pong", &words.export()?)?;
    let stream = device.stream()?;
    for round in 1..=100 {
        stream.signal(&words.word(0)?, round)?;
        stream.wait_signal(&words.word(1)?, round, Duration::from_secs(10))?;
    }
    stream.synchronize(soon())?;
    assert_eq!(peer.hear()?, "played");
    assert_eq!(words.to_vec()?, [100, 100]);
    Ok(())
}

fn memory_of_a_killed_peer_stays_mapped_and_the_next_map_is_refused(device: &Device) -> Outcome {
    let mut peer = Peer::start(device)?;
    let dummy = device.alloc_pinned::<u64>(1)?.export()?;
    peer.tell("export", &dummy)?;
    let handle: PeerHandle = serde_json::from_str(&peer.hear()?)?;
    let memory = PeerMemory::map(&handle, device)?.buffer.cast::<u64>()?;
    let (stream, copy) = (device.stream()?, device.alloc_pinned::<u64>(64)?);
    stream.copy(&copy, &memory)?;
    stream.synchronize(soon())?;
    assert_eq!(copy.to_vec()?, [11; 64]);
    drop(peer); // kill -9, while the memory is mapped here.
    if device.as_cuda().is_none() {
        assert_eq!(memory.to_vec()?, [11; 64], "host memory outlives its owner");
    }
    // Device memory may hold anything now, but using the mapping harms nobody.
    stream.copy(&copy, &memory)?;
    stream.synchronize(soon())?;
    drop(memory);
    match PeerMemory::map(&handle, device) {
        Err(Error::PeerUnreachable { pid, .. }) => assert_eq!(pid, handle.pid()),
        Err(Error::Cuda { .. }) if device.as_cuda().is_some() => {}
        other => panic!("{other:?}"),
    }
    let alive = device.alloc::<u64>(10)?;
    alive.write(&[3; 10])?;
    assert_eq!(alive.to_vec()?, [3; 10]);
    Ok(())
}

fn small_allocations_are_exported_each_at_its_own_place(device: &Device) -> Outcome {
    let mut peer = Peer::start(device)?;
    let small = (0..8).map(|_| device.alloc::<u64>(32)).collect::<Result<Vec<_>, _>>()?;
    peer.tell("fill", &small[5].export()?)?;
    peer.hear()?;
    for (i, buffer) in small.iter().enumerate() {
        let expected = if i == 5 { 0x5a5a_5a5a_5a5a_5a5a } else { 0 };
        assert_eq!(buffer.to_vec()?, [expected; 32], "allocation {i}");
    }
    Ok(())
}

/// Two GPUs of one process: a kernel on the one writes a payload and then a signal into the other's memory, whose kernel
/// checks every word of every round.
fn a_payload_arrives_before_its_signal() -> Outcome {
    let (here, there) = (Device::cuda(0)?, Device::cuda(1).or_else(|_| Device::cuda(0))?);
    let words = 1024usize;
    let data = there.alloc::<u64>(words)?;
    let (ping, pong) = (there.alloc::<u64>(1)?, here.alloc::<u64>(1)?);
    let data_here = PeerMemory::map(&data.export()?, &here)?.buffer;
    let ping_here = PeerMemory::map(&ping.export()?, &here)?.buffer;
    let pong_there = PeerMemory::map(&pong.export()?, &there)?.buffer;
    let address = |found: Option<u64>| found.ok_or("no device address");
    let rounds = 20_000u64;
    let sides = [
        (
            &here,
            address(data_here.device_address())?,
            address(pong.device_address())?,
            address(ping_here.device_address())?,
            true,
        ),
        (
            &there,
            address(data.device_address())?,
            address(ping.device_address())?,
            address(pong_there.device_address())?,
            false,
        ),
    ];
    // Before a kernel runs, for which loading may wait.
    let load = |device: &Device| {
        common::kernels(device.as_cuda().ok_or("no GPU")?, &["mp_message_passing"])
    };
    let modules = [load(&here)?, load(&there)?];
    let mut running = Vec::new();
    for ((device, data, mine, peer, writes), module) in sides.into_iter().zip(&modules) {
        let bounds = mp_kernels::WaitBounds { abort: 0, timeout_ns: 10_000_000_000 };
        let results = device.alloc_pinned::<u64>(8)?;
        let at = |index: u64| {
            results.device_address().map(|base| base + 8 * index).ok_or("no device address")
        };
        let (report, mismatches, done) = (at(0)?, at(4)?, at(5)?);
        let stream = device.stream()?;
        let kernel = module.kernel("mp_message_passing")?;
        let (writes, words, base) = (u32::from(writes), words as u64, 0u64);
        let args = [
            Arg::new(&writes),
            Arg::new(&data),
            Arg::new(&words),
            Arg::new(&mine),
            Arg::new(&peer),
            Arg::new(&base),
            Arg::new(&rounds),
            Arg::new(&bounds),
            Arg::new(&report),
            Arg::new(&mismatches),
            Arg::new(&done),
        ];
        // SAFETY: the kernel's signature; the buffers outlive the synchronise below.
        unsafe { stream.launch(&kernel, Dims::linear(1, 256), &args)? };
        running.push((stream, results));
    }
    for (stream, results) in &running {
        stream.synchronize(soon())?;
        let results = results.to_vec()?;
        assert_eq!(results[0] & 0xffff_ffff, 0, "a wait failed: {results:?}");
        assert_eq!(results[4..6], [0, rounds], "mismatches, rounds");
    }
    Ok(())
}

mod gpu {
    #[test]
    #[ignore = "needs a CUDA GPU, two for NVLink"]
    fn a_payload_arrives_before_its_signal() -> super::common::Outcome {
        super::a_payload_arrives_before_its_signal()
    }
}
