//! What an mlx5 adapter does for a queue pair: the objects that make it read and write the memory of the queues.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::address::{QueuePairAddress, route};
use super::command::{self, NewCompletionQueue, NewQueuePair, Place, Receiving, Sending};
use super::objects::{Object, Opened, Uar, Umem};
use super::ordering;
use super::placement::Placement;
use crate::cuda::dma_buf;
use crate::device::Device;
use crate::memory::Buffer;
use crate::nic::address::Address;
use crate::nic::error::{Error, Result};
use crate::nic::options::{CompletionMode, QueuePairOptions};
use crate::nic::provider::Provider;
use crate::nic::queue_memory::QueueMemory;
use crate::nic::queue_pair::QueuePair;
use crate::nic::wire::WireKind;
use crate::verbs::Port;

/// Reads and atomics that a queue pair has under way, and serves, at once: 2 to this.
const LOG_READS: u8 = 4;
/// Packets are sent so often again.
const RETRIES: u8 = 7;

/// What a step of making a queue pair got, for those who watch: name of the step, result in words.
pub type Observer<'a> = &'a mut dyn FnMut(&'static str, String);

/// The objects that make the adapter read and write the memory of a queue pair.
struct Mlx5Provider {
    // In the order in which they go: nothing is taken from under the adapter.
    pair: Object,
    _send_completions: Object,
    _receive_completions: Object,
    _umem: Umem,
    _memory: QueueMemory,
    opened: Arc<Opened>,
    uar: Arc<Uar>,
    own: QueuePairAddress,
    address: Address,
    port: Port,
    options: QueuePairOptions,
    connected: AtomicBool,
}

/// Makes a queue pair of an mlx5 adapter, telling `observer` of each step.
pub(super) fn queue_pair(
    opened: &Arc<Opened>,
    port: &Port,
    device: &Device,
    options: &QueuePairOptions,
    observer: Observer<'_>,
) -> Result<QueuePair> {
    options.validate()?;
    if options.receive_entries * options.receive_segments < 4 {
        return Err(Error::Option {
            option: "receive_entries",
            value: options.receive_entries.to_string(),
            expected: "the receives of an mlx5 queue pair have 64 bytes or more together",
        });
    }
    let domain = opened.domain_number()?;
    observer("number of the protection domain", format!("{domain:#x}"));
    let eqn = opened.event_queue()?;
    observer("event queue", format!("{eqn}"));
    let uar = Arc::new(Uar::new(opened)?);
    let kind = match uar.is_combining() {
        false => "uncached",
        true => "combining writes, as this kernel has no uncached ones; a newer one has",
    };
    observer("page of doorbell registers", format!("{:#x}, {kind}", uar.page()));
    let timestamps = opened.timestamps();
    observer("timestamps of completions", format!("{timestamps:?}"));
    let doorbell = doorbell(device, &uar)?;
    observer("doorbell mapped for the device", format!("{device}"));
    let (memory, umem, placement) = place_queues(opened, device, options, doorbell)?;
    let offsets = memory.layout;
    observer("memory of the queues", format!("{} bytes {placement}", offsets.len));
    observer("queues registered", format!("umem {:#x}", umem.id()));
    let place = |offset: usize| Place { umem: umem.id(), offset: offset as u64 };
    let completion_queue = |what, mode, entries: usize, slots, record| {
        let collapsed = mode == CompletionMode::Collapsed;
        Object::create(
            opened,
            what,
            &command::create_cq(&NewCompletionQueue {
                slots: place(slots),
                log_slots: if collapsed { 0 } else { log2(entries) },
                record: place(record),
                collapsed,
                uar_page: uar.page(),
                eqn,
            }),
        )
    };
    let sends = completion_queue(
        "a completion queue for sends",
        options.send_completions,
        options.send_blocks,
        offsets.send_completions,
        offsets.send_consumer,
    )?;
    observer("completion queue for sends", format!("{:#x}", sends.number));
    let receives = completion_queue(
        "a completion queue for receives",
        options.receive_completions,
        options.receive_entries,
        offsets.receive_completions,
        offsets.receive_consumer,
    )?;
    observer("completion queue for receives", format!("{:#x}", receives.number));
    let pair = Object::create(
        opened,
        "a queue pair",
        &command::create_qp(&NewQueuePair {
            domain,
            queues: place(offsets.queues),
            record: place(offsets.record),
            log_send_blocks: log2(options.send_blocks),
            log_receives: log2(options.receive_entries),
            log_receive_stride: log2(options.receive_segments),
            send_completions: sends.number,
            receive_completions: receives.number,
            uar_page: uar.page(),
            timestamps,
        }),
    )?;
    observer("queue pair", format!("{:#x}", pair.number));
    pair.modify(
        "the state INIT",
        &command::reset_to_init(pair.number, port.number, port.pkey_index),
    )?;
    observer(
        "state INIT",
        format!("port {}, index {} of its partition keys", port.number, port.pkey_index),
    );
    let own = own_address(port, pair.number)?;
    let qpn = pair.number;
    let provider = Box::new(Mlx5Provider {
        pair,
        _send_completions: sends,
        _receive_completions: receives,
        _umem: umem,
        _memory: memory.clone(),
        opened: opened.clone(),
        uar,
        address: Address::of_mlx5(own.clone()),
        own,
        port: port.clone(),
        options: options.clone(),
        connected: AtomicBool::new(false),
    });
    QueuePair::new(qpn, device, options, memory, provider)
}

impl Provider for Mlx5Provider {
    fn address(&self) -> &Address {
        &self.address
    }

    fn connect(&self, peer: &Address, wire: Option<WireKind>) -> Result<()> {
        let (qpn, port) = (self.pair.number, self.port.number);
        let refused = |why| Error::Connect { qpn, why, process: None };
        let peer = peer.mlx5().map_err(refused)?;
        if let Some(other) = wire.filter(|wire| *wire != WireKind::Rdma) {
            return Err(refused(format!("an mlx5 adapter has no wire over {other}")));
        }
        let receiving = Receiving {
            port,
            route: route(&self.port, peer, |own| self.opened.next_hop(&self.port, own, peer.gid))?,
            service_level: self.port.service_level,
            traffic_class: self.port.traffic_class,
            remote_qpn: peer.qpn,
            remote_psn: peer.psn,
            // One to five.
            mtu: self.port.mtu.min(peer.mtu).number() as u8,
            min_rnr_nak: not_ready_code(self.options.receiver_not_ready_delay),
            log_incoming_reads: LOG_READS,
        };
        self.pair.modify("the state RTR", &command::init_to_receive(qpn, &receiving))?;
        let sending = Sending {
            port,
            psn: self.own.psn,
            ack_timeout: timeout_code(self.options.transport_timeout),
            retries: RETRIES,
            rnr_retries: self.options.receiver_not_ready_retries,
            log_outgoing_reads: LOG_READS,
        };
        self.pair.modify("the state RTS", &command::receive_to_send(qpn, &sending))?;
        self.connected.store(true, Ordering::Release);
        Ok(())
    }

    /// This side is ready to send; an adapter is not told when the peer is.
    fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    /// An adapter reports by completions only.
    fn lost(&self) -> Option<String> {
        None
    }

    /// It needs nobody to wake it; the doorbell has to leave the processor.
    fn rung(&self, _hurry: bool) {
        if self.uar.is_combining() {
            ordering::flush_combined_writes();
        }
    }

    fn stopped(&self) -> Option<Error> {
        None
    }
}

/// Memory for queues, registered: where it is best, or where it can be.
fn place_queues(
    opened: &Arc<Opened>,
    device: &Device,
    options: &QueuePairOptions,
    doorbell: Buffer<u64>,
) -> Result<(QueueMemory, Umem, Placement)> {
    let mut placement = Placement::choose(device, options.posters);
    if !matches!(placement, Placement::Pinned { .. }) {
        let memory = QueueMemory::resident(device, options, doorbell.clone())?;
        if placement == Placement::DmaBuf {
            match register(opened, &memory, &placement) {
                Ok(umem) => return Ok((memory, umem, placement)),
                Err(why) => placement = Placement::Address { why },
            }
        }
        if let Placement::Address { why } = &placement {
            match register(opened, &memory, &placement) {
                Ok(umem) => return Ok((memory, umem, placement)),
                Err(by_address) => {
                    let why = format!("no dma-buf, {why}; by its address, {by_address}");
                    placement = Placement::Pinned { why };
                }
            }
        }
    }
    let memory = QueueMemory::with_doorbell(device, options, Some(doorbell))?;
    let (base, len) = memory.whole();
    // SAFETY: who gets both drops the umem before the memory.
    let umem = unsafe { Umem::new(opened, base, len)? };
    Ok((memory, umem, placement))
}

/// Registers queues in the memory of a GPU, or says why not.
fn register(
    opened: &Arc<Opened>,
    memory: &QueueMemory,
    placement: &Placement,
) -> Result<Umem, String> {
    let queues = memory.in_device_memory().ok_or("it has none")?;
    let address = queues.device_address().ok_or("it has no address")?;
    let (gpu, len) = (queues.device().as_cuda().ok_or("it is no GPU's")?, queues.size());
    let umem = if *placement == Placement::DmaBuf {
        let (fd, offset) = dma_buf::export(gpu, address, len)?;
        // SAFETY: who gets both drops the umem before the memory.
        unsafe { Umem::of_dma_buf(opened, fd.as_fd(), offset, len) }
    } else {
        // SAFETY: as above. The kernel pins the pages behind a GPU's address only if nvidia-peermem claims them, and fails otherwise.
        unsafe { Umem::new(opened, std::ptr::without_provenance_mut(address as usize), len) }
    };
    umem.map_err(|error| error.to_string())
}

/// The doorbell register as a word that the CPU and the device write.
fn doorbell(device: &Device, uar: &Arc<Uar>) -> Result<Buffer<u64>> {
    const PAGE: usize = 4096;
    let nowhere =
        || Error::Route { why: "the adapter's page of doorbell registers has no address".into() };
    let (page, register) = uar.addresses().ok_or_else(nowhere)?;
    let offset = register.as_ptr() as usize % PAGE;
    // SAFETY: the page is mapped as long as the UAR lives, which the buffer holds.
    let page = unsafe { Buffer::<u8>::from_io_memory(device, page, PAGE, Box::new(uar.clone()))? };
    Ok(page.slice(offset..offset + 8)?.cast()?)
}

fn own_address(port: &Port, qpn: u32) -> Result<QueuePairAddress> {
    let mut random = [0; 4];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| crate::Error::os("getrandom", "a first sequence number", e))?;
    let gid = port.gid.ok_or_else(|| Error::Route { why: "this port has no GID".into() })?;
    Ok(QueuePairAddress {
        qpn,
        psn: u32::from_ne_bytes(random) & 0xff_ffff,
        link_layer: port.link_layer,
        mtu: port.mtu,
        lid: port.lid,
        gid: gid.gid,
    })
}

/// Of a power of two that was checked to be one.
fn log2(value: usize) -> u8 {
    value.trailing_zeros() as u8
}

/// The exponent n of 4.096 µs × 2ⁿ so that all tries together take `timeout` or longer.
fn timeout_code(timeout: Duration) -> u8 {
    let tries = |n: u8| Duration::from_nanos(4096) * (1 << n) * (u32::from(RETRIES) + 1);
    (1..28).find(|n| tries(*n) >= timeout).unwrap_or(28)
}

/// The code of the shortest delay that is `delay` or longer (IBTA volume 1, table "Encoding for RNR NAK Timer Field").
fn not_ready_code(delay: Duration) -> u8 {
    // In units of 10 µs, codes 1 to 31; code 0 is the longest, 655.36 ms.
    const UNITS: [u64; 31] = [
        1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
        2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    let found = UNITS.iter().position(|units| Duration::from_micros(10 * units) >= delay);
    found.map_or(0, |at| at as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_given_up_after_the_timeout_and_not_before() {
        for timeout in [Duration::from_millis(10), Duration::from_secs(1), Duration::from_secs(60)]
        {
            let code = timeout_code(timeout);
            let all = Duration::from_nanos(4096) * (1 << code) * 8;
            assert!(all >= timeout && all < 2 * timeout, "{timeout:?}: {code}, {all:?}");
        }
        assert_eq!(timeout_code(Duration::from_secs(1_000_000)), 28);
    }

    #[test]
    fn delays_of_a_receiver_that_is_not_ready_are_rounded_up() {
        assert_eq!(not_ready_code(Duration::ZERO), 1);
        assert_eq!(not_ready_code(Duration::from_micros(10)), 1);
        assert_eq!(not_ready_code(Duration::from_micros(11)), 2);
        assert_eq!(not_ready_code(Duration::from_micros(640)), 12);
        assert_eq!(not_ready_code(Duration::from_micros(491_520)), 31);
        assert_eq!(not_ready_code(Duration::from_secs(1)), 0);
    }
}
