//! The DEVX commands that make a queue pair, as bytes: big-endian structures whose fields are counted in bits from the
//! beginning, most significant first. Pure: nothing here talks to a device.
//!
//! Source of the layouts: `mlx5_ifc.h` of the kernel and of rdma-core (`create_cq_in`, `cqc`, `create_qp_in`, `qpc`,
//! `ads`, `rst2init_qp_in`, `init2rtr_qp_in`, `rtr2rts_qp_in`).

use std::fmt;

/// A field of a structure: first bit and width.
#[derive(Clone, Copy)]
struct Field(usize, usize);

/// All commands here have this size, all answers the other.
const COMMAND: usize = 272;
pub(super) const ANSWER: usize = 16;

/// Fields of every command, and of the answer.
const OPCODE: Field = Field(0x00, 16);
const NUMBER: Field = Field(0x48, 24);
const STATUS: Field = Field(0x00, 8);
const SYNDROME: Field = Field(0x20, 32);

/// Where the contexts and what follows them begin, in bits.
const CQC: usize = 0x80;
const CQ_UMEM_OFFSET: Field = Field(0x280, 64);
const CQ_UMEM_ID: Field = Field(0x2c0, 32);
const CQ_UMEM_VALID: Field = Field(0x2e0, 1);
const QPC: usize = 0xc0;
const WQ_UMEM_OFFSET: Field = Field(QPC + 0x740, 64);
const WQ_UMEM_ID: Field = Field(QPC + 0x780, 32);
const WQ_UMEM_VALID: Field = Field(QPC + 0x7a0, 1);

mod cqc {
    use super::Field;
    pub const DBR_UMEM_VALID: Field = Field(0x06, 1);
    /// Collapsed: one entry that is overwritten.
    pub const COLLAPSED: Field = Field(0x0b, 1);
    /// Overrun is ignored: nobody says how far it has read.
    pub const OVERRUN_IGNORED: Field = Field(0x0e, 1);
    pub const DBR_UMEM_ID: Field = Field(0x20, 32);
    pub const LOG_CQ_SIZE: Field = Field(0x63, 5);
    pub const UAR_PAGE: Field = Field(0x68, 24);
    pub const EQN: Field = Field(0xb8, 8);
    pub const DBR_ADDR: Field = Field(0x1c0, 64);
}

mod qpc {
    use super::Field;
    pub const SERVICE: Field = Field(0x08, 8);
    pub const PATH_MIGRATION: Field = Field(0x13, 2);
    pub const PD: Field = Field(0x28, 24);
    pub const MTU: Field = Field(0x40, 3);
    pub const LOG_MSG_MAX: Field = Field(0x43, 5);
    pub const LOG_RQ_SIZE: Field = Field(0x49, 4);
    pub const LOG_RQ_STRIDE: Field = Field(0x4d, 3);
    pub const LOG_SQ_SIZE: Field = Field(0x51, 4);
    pub const TIMESTAMP_FORMAT: Field = Field(0x58, 2);
    pub const UAR_PAGE: Field = Field(0x68, 24);
    pub const REMOTE_QPN: Field = Field(0xa8, 24);
    pub const ADS: usize = 0xc0;
    pub const LOG_SRA_MAX: Field = Field(0x388, 3);
    pub const RETRY_COUNT: Field = Field(0x38d, 3);
    pub const RNR_RETRY: Field = Field(0x390, 3);
    pub const NEXT_SEND_PSN: Field = Field(0x3c8, 24);
    pub const CQN_SEND: Field = Field(0x3e8, 24);
    pub const LOG_RRA_MAX: Field = Field(0x488, 3);
    pub const ATOMIC_MODE: Field = Field(0x48c, 4);
    pub const REMOTE_READ: Field = Field(0x490, 1);
    pub const REMOTE_WRITE: Field = Field(0x491, 1);
    pub const REMOTE_ATOMIC: Field = Field(0x492, 1);
    pub const MIN_RNR_NAK: Field = Field(0x4a3, 5);
    pub const NEXT_RECEIVE_PSN: Field = Field(0x4a8, 24);
    pub const CQN_RECEIVE: Field = Field(0x4e8, 24);
    pub const DBR_ADDR: Field = Field(0x500, 64);
    pub const DBR_UMEM_VALID: Field = Field(0x683, 1);
    pub const DBR_UMEM_ID: Field = Field(0x720, 32);
}

/// The address path, inside the queue pair context.
mod ads {
    use super::Field;
    pub const PKEY_INDEX: Field = Field(0x10, 16);
    pub const GLOBAL_ROUTE: Field = Field(0x28, 1);
    pub const LID: Field = Field(0x30, 16);
    pub const ACK_TIMEOUT: Field = Field(0x40, 5);
    pub const GID_INDEX: Field = Field(0x48, 8);
    pub const HOP_LIMIT: Field = Field(0x58, 8);
    pub const TRAFFIC_CLASS: Field = Field(0x64, 8);
    pub const GID_HIGH: Field = Field(0x80, 64);
    pub const GID_LOW: Field = Field(0xc0, 64);
    pub const DSCP: Field = Field(0x10a, 6);
    pub const UDP_PORT: Field = Field(0x110, 16);
    /// Ethernet's priority.
    pub const PRIORITY: Field = Field(0x121, 3);
    /// InfiniBand's service level.
    pub const SERVICE_LEVEL: Field = Field(0x124, 4);
    pub const PORT: Field = Field(0x128, 8);
    pub const MAC: Field = Field(0x130, 48);
}

/// Where something lies in registered (umem) memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub umem: u32,
    pub offset: u64,
}

/// A completion queue to be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewCompletionQueue {
    pub slots: Place,
    pub log_slots: u8,
    pub record: Place,
    pub collapsed: bool,
    pub uar_page: u32,
    pub eqn: u32,
}

/// A queue pair to be made. Receives come first in its memory, then the send queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewQueuePair {
    pub domain: u32,
    pub queues: Place,
    pub record: Place,
    pub log_send_blocks: u8,
    pub log_receives: u8,
    /// log2 of a receive's size in units of 16 bytes.
    pub log_receive_stride: u8,
    pub send_completions: u32,
    pub receive_completions: u32,
    pub uar_page: u32,
    pub timestamps: Timestamps,
}

/// Where the timestamps of completions come from; a queue pair that asks for what the adapter does not have is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timestamps {
    /// The counter that runs by itself: all that adapters have that know of no other.
    FreeRunning = 0,
    /// What the adapter is set to.
    Default = 1,
}

/// How packets get to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// Within an InfiniBand subnet.
    Lid(u16),
    /// Between InfiniBand subnets.
    Global { lid: u16, gid: [u8; 16], own_index: u8 },
    /// RoCE: `udp_port` is the source port of version 2.
    Ethernet { gid: [u8; 16], mac: [u8; 6], own_index: u8, udp_port: Option<u16> },
}

/// What makes a queue pair ready to receive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receiving {
    pub port: u8,
    pub route: Route,
    /// 0 to 15; of an Ethernet port the lower three bits are the priority.
    pub service_level: u8,
    pub traffic_class: u8,
    pub remote_qpn: u32,
    pub remote_psn: u32,
    pub mtu: u8,
    pub min_rnr_nak: u8,
    pub log_incoming_reads: u8,
}

/// What makes it ready to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sending {
    pub port: u8,
    pub psn: u32,
    pub ack_timeout: u8,
    pub retries: u8,
    pub rnr_retries: u8,
    pub log_outgoing_reads: u8,
}

/// Hops that a packet may take over routers, as far as IP's default reaches.
pub(super) const HOPS: u8 = 64;

pub(super) type Command = [u8; COMMAND];
/// A question for capabilities, and the answer to it.
pub(super) type Question = [u8; 16];
pub(super) const CAPABILITIES: usize = 16 + 4096;

fn set(bytes: &mut [u8], base: usize, Field(at, width): Field, value: u64) {
    let first = base + at;
    for bit in 0..width {
        if value >> (width - 1 - bit) & 1 != 0 {
            bytes[(first + bit) / 8] |= 0x80 >> ((first + bit) % 8);
        }
    }
}

fn get(bytes: &[u8], Field(at, width): Field) -> u64 {
    (at..at + width)
        .fold(0, |value, bit| value << 1 | u64::from(bytes[bit / 8] >> (7 - bit % 8) & 1))
}

fn command(opcode: u16) -> Command {
    let mut bytes = [0; COMMAND];
    set(&mut bytes, 0, OPCODE, u64::from(opcode));
    bytes
}

pub(super) fn create_cq(cq: &NewCompletionQueue) -> Command {
    let mut bytes = command(0x400);
    for (field, value) in [
        (cqc::DBR_UMEM_VALID, 1),
        (cqc::COLLAPSED, u64::from(cq.collapsed)),
        (cqc::OVERRUN_IGNORED, u64::from(cq.collapsed)),
        (cqc::DBR_UMEM_ID, u64::from(cq.record.umem)),
        (cqc::LOG_CQ_SIZE, u64::from(cq.log_slots)),
        (cqc::UAR_PAGE, u64::from(cq.uar_page)),
        (cqc::EQN, u64::from(cq.eqn)),
        (cqc::DBR_ADDR, cq.record.offset),
    ] {
        set(&mut bytes, CQC, field, value);
    }
    set(&mut bytes, 0, CQ_UMEM_OFFSET, cq.slots.offset);
    set(&mut bytes, 0, CQ_UMEM_ID, u64::from(cq.slots.umem));
    set(&mut bytes, 0, CQ_UMEM_VALID, 1);
    bytes
}

/// Scatter-to-CQE stays off: `cs_req` and `cs_res` are 0.
pub(super) fn create_qp(qp: &NewQueuePair) -> Command {
    const RELIABLE: u64 = 0;
    const MIGRATED: u64 = 3;
    let mut bytes = command(0x500);
    for (field, value) in [
        (qpc::SERVICE, RELIABLE),
        (qpc::PATH_MIGRATION, MIGRATED),
        (qpc::PD, u64::from(qp.domain)),
        (qpc::LOG_RQ_SIZE, u64::from(qp.log_receives)),
        (qpc::LOG_RQ_STRIDE, u64::from(qp.log_receive_stride)),
        (qpc::LOG_SQ_SIZE, u64::from(qp.log_send_blocks)),
        (qpc::TIMESTAMP_FORMAT, qp.timestamps as u64),
        (qpc::UAR_PAGE, u64::from(qp.uar_page)),
        (qpc::CQN_SEND, u64::from(qp.send_completions)),
        (qpc::CQN_RECEIVE, u64::from(qp.receive_completions)),
        (qpc::DBR_ADDR, qp.record.offset),
        (qpc::DBR_UMEM_VALID, 1),
        (qpc::DBR_UMEM_ID, u64::from(qp.record.umem)),
    ] {
        set(&mut bytes, QPC, field, value);
    }
    set(&mut bytes, 0, WQ_UMEM_OFFSET, qp.queues.offset);
    set(&mut bytes, 0, WQ_UMEM_ID, u64::from(qp.queues.umem));
    set(&mut bytes, 0, WQ_UMEM_VALID, 1);
    bytes
}

/// Asks what the adapter can do of RoCE as it is set now (`query_hca_cap_in`).
pub(super) fn query_roce() -> Question {
    const OPERATION: Field = Field(0x30, 16);
    const ROCE: u64 = 4;
    const CURRENT: u64 = 1;
    let mut bytes = Question::default();
    set(&mut bytes, 0, OPCODE, 0x100);
    set(&mut bytes, 0, OPERATION, ROCE << 1 | CURRENT);
    bytes
}

/// What timestamps a queue pair may ask for, by the answer to [`query_roce`] (`roce_cap`, `qp_ts_format`): an adapter that knows
/// nothing of formats, or of RoCE, has the counter only, as the kernel's driver takes it.
pub(super) fn timestamps(answer: &[u8; CAPABILITIES]) -> Timestamps {
    const QP_TIMESTAMP_FORMAT: Field = Field(0x80 + 0x1e, 2);
    match (get(answer, STATUS), get(answer, QP_TIMESTAMP_FORMAT)) {
        (0, 1..) => Timestamps::Default,
        _ => Timestamps::FreeRunning,
    }
}

fn modify(opcode: u16, qpn: u32, port: u8) -> Command {
    let mut bytes = command(opcode);
    set(&mut bytes, 0, NUMBER, u64::from(qpn));
    set(&mut bytes, QPC + qpc::ADS, ads::PORT, u64::from(port));
    bytes
}

pub(super) fn reset_to_init(qpn: u32, port: u8, pkey_index: u16) -> Command {
    const UP_TO_8_BYTES: u64 = 3;
    let mut bytes = modify(0x502, qpn, port);
    set(&mut bytes, QPC + qpc::ADS, ads::PKEY_INDEX, u64::from(pkey_index));
    for (field, value) in [
        (qpc::PATH_MIGRATION, 3),
        (qpc::ATOMIC_MODE, UP_TO_8_BYTES),
        (qpc::REMOTE_READ, 1),
        (qpc::REMOTE_WRITE, 1),
        (qpc::REMOTE_ATOMIC, 1),
    ] {
        set(&mut bytes, QPC, field, value);
    }
    bytes
}

pub(super) fn init_to_receive(qpn: u32, to: &Receiving) -> Command {
    const LOG_LARGEST_MESSAGE: u64 = 30;
    let mut bytes = modify(0x503, qpn, to.port);
    for (field, value) in [
        (qpc::MTU, u64::from(to.mtu)),
        (qpc::LOG_MSG_MAX, LOG_LARGEST_MESSAGE),
        (qpc::REMOTE_QPN, u64::from(to.remote_qpn)),
        (qpc::LOG_RRA_MAX, u64::from(to.log_incoming_reads)),
        (qpc::MIN_RNR_NAK, u64::from(to.min_rnr_nak)),
        (qpc::NEXT_RECEIVE_PSN, u64::from(to.remote_psn)),
    ] {
        set(&mut bytes, QPC, field, value);
    }
    let mut path = |field, value| set(&mut bytes, QPC + qpc::ADS, field, value);
    let (gid, own_index) = match to.route {
        Route::Lid(lid) => {
            path(ads::LID, u64::from(lid));
            path(ads::SERVICE_LEVEL, u64::from(to.service_level));
            return bytes;
        }
        Route::Global { lid, gid, own_index } => {
            path(ads::LID, u64::from(lid));
            path(ads::SERVICE_LEVEL, u64::from(to.service_level));
            path(ads::GLOBAL_ROUTE, 1);
            (gid, own_index)
        }
        Route::Ethernet { gid, mac, own_index, udp_port } => {
            path(ads::MAC, mac.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)));
            path(ads::UDP_PORT, u64::from(udp_port.unwrap_or(0)));
            path(ads::PRIORITY, u64::from(to.service_level & 7));
            // Version 1 has no IP header, and so no DSCP.
            path(ads::DSCP, udp_port.map_or(0, |_| u64::from(to.traffic_class >> 2)));
            (gid, own_index)
        }
    };
    let gid = u128::from_be_bytes(gid);
    path(ads::GID_HIGH, (gid >> 64) as u64);
    path(ads::GID_LOW, gid as u64);
    path(ads::GID_INDEX, u64::from(own_index));
    path(ads::HOP_LIMIT, u64::from(HOPS));
    path(ads::TRAFFIC_CLASS, u64::from(to.traffic_class));
    bytes
}

pub(super) fn receive_to_send(qpn: u32, to: &Sending) -> Command {
    let mut bytes = modify(0x504, qpn, to.port);
    for (field, value) in [
        (qpc::LOG_SRA_MAX, u64::from(to.log_outgoing_reads)),
        (qpc::RETRY_COUNT, u64::from(to.retries)),
        (qpc::RNR_RETRY, u64::from(to.rnr_retries)),
        (qpc::NEXT_SEND_PSN, u64::from(to.psn)),
    ] {
        set(&mut bytes, QPC, field, value);
    }
    set(&mut bytes, QPC + qpc::ADS, ads::ACK_TIMEOUT, u64::from(to.ack_timeout));
    bytes
}

/// What the firmware says to a command that it refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub status: u8,
    pub syndrome: u32,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the firmware refuses: status {:#x}, syndrome {:#x}", self.status, self.syndrome)
    }
}

/// The number that an answer carries: that of the new queue.
pub(super) fn answer(bytes: &[u8; ANSWER]) -> Result<u32, Refusal> {
    match get(bytes, STATUS) as u8 {
        0 => Ok(get(bytes, NUMBER) as u32),
        status => Err(Refusal { status, syndrome: get(bytes, SYNDROME) as u32 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that are not zero, with their offsets. The expected ones were computed apart from this file, from the
    /// lists of fields in rdma-core's tests (`mlx5_prm_structs.py`).
    fn words(bytes: &Command) -> Vec<(usize, u32)> {
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|k| bytes[at + k]));
        (0..COMMAND).step_by(4).map(|at| (at, word(at))).filter(|(_, word)| *word != 0).collect()
    }

    #[test]
    fn a_completion_queue_is_asked_for_with_every_field_in_its_place() {
        let bytes = create_cq(&NewCompletionQueue {
            slots: Place { umem: 0x5566_7788, offset: 0x1234_5678_9000 },
            log_slots: 13,
            record: Place { umem: 0xa1b2_c3d4, offset: 0x1040 },
            collapsed: true,
            uar_page: 0x12_3456,
            eqn: 0x9a,
        });
        let expected = [
            (0x000, 0x0400_0000),
            (0x010, 0x0212_0000),
            (0x014, 0xa1b2_c3d4),
            (0x01c, 0x0d12_3456),
            (0x024, 0x0000_009a),
            (0x04c, 0x0000_1040),
            (0x050, 0x0000_1234),
            (0x054, 0x5678_9000),
            (0x058, 0x5566_7788),
            (0x05c, 0x8000_0000),
        ];
        assert_eq!(words(&bytes), expected);
    }

    #[test]
    fn a_queue_pair_is_asked_for_with_every_field_in_its_place() {
        let bytes = create_qp(&NewQueuePair {
            domain: 0xab_cdef,
            queues: Place { umem: 0x0102_0304, offset: 0x7000 },
            record: Place { umem: 0x0bad_cafe, offset: 0x1000 },
            log_send_blocks: 11,
            log_receives: 9,
            log_receive_stride: 2,
            send_completions: 0x11_1213,
            receive_completions: 0x21_2223,
            uar_page: 0x34_5678,
            timestamps: Timestamps::Default,
        });
        let expected = [
            (0x000, 0x0500_0000),
            (0x018, 0x0000_1800),
            (0x01c, 0x00ab_cdef),
            (0x020, 0x004a_5840),
            (0x024, 0x0034_5678),
            (0x094, 0x0011_1213),
            (0x0b4, 0x0021_2223),
            (0x0bc, 0x0000_1000),
            (0x0e8, 0x1000_0000),
            (0x0fc, 0x0bad_cafe),
            (0x104, 0x0000_7000),
            (0x108, 0x0102_0304),
            (0x10c, 0x8000_0000),
        ];
        assert_eq!(words(&bytes), expected);
    }

    #[test]
    fn timestamps_are_asked_for_as_the_adapter_has_them() {
        let mut question = [0; 16];
        (question[0], question[7]) = (1, 9);
        assert_eq!(query_roce(), question);
        let mut answer = [0; CAPABILITIES];
        assert_eq!(timestamps(&answer), Timestamps::FreeRunning);
        for format in [1, 2] {
            answer[16 + 3] = format;
            assert_eq!(timestamps(&answer), Timestamps::Default);
        }
        // A refusal, of an adapter without RoCE.
        answer[0] = 5;
        assert_eq!(timestamps(&answer), Timestamps::FreeRunning);
        let pair = NewQueuePair {
            domain: 0,
            queues: Place { umem: 0, offset: 0 },
            record: Place { umem: 0, offset: 0 },
            log_send_blocks: 0,
            log_receives: 0,
            log_receive_stride: 0,
            send_completions: 0,
            receive_completions: 0,
            uar_page: 0,
            timestamps: Timestamps::FreeRunning,
        };
        let word =
            |pair: &NewQueuePair| words(&create_qp(pair)).into_iter().find(|word| word.0 == 0x20);
        assert_eq!(word(&pair), None);
        let default = NewQueuePair { timestamps: Timestamps::Default, ..pair };
        assert_eq!(word(&default), Some((0x20, 0x40)));
    }

    const QPN: u32 = 0x77_8899;

    fn receiving(port: u8, route: Route) -> Receiving {
        Receiving {
            port,
            route,
            service_level: 5,
            traffic_class: 0x6a,
            remote_qpn: 0x44_5566,
            remote_psn: 0xfe_dcba,
            mtu: 5,
            min_rnr_nak: 12,
            log_incoming_reads: 4,
        }
    }

    #[test]
    fn the_states_are_reached_over_ethernet() {
        let expected = [
            (0x000, 0x0502_0000),
            (0x008, 0x0077_8899),
            (0x018, 0x0000_1800),
            (0x030, 0x0000_0203),
            (0x054, 0x0002_0000),
            (0x0a8, 0x0003_e000),
        ];
        assert_eq!(words(&reset_to_init(QPN, 2, 0x203)), expected);
        let route = Route::Ethernet {
            gid: std::array::from_fn(|k| k as u8 + 1),
            mac: [10, 11, 12, 13, 14, 15],
            own_index: 3,
            udp_port: Some(0xdcba),
        };
        let expected = [
            (0x000, 0x0503_0000),
            (0x008, 0x0077_8899),
            (0x020, 0xbe00_0000),
            (0x02c, 0x0044_5566),
            (0x038, 0x0003_0040),
            (0x03c, 0x06a0_0000),
            (0x040, 0x0102_0304),
            (0x044, 0x0506_0708),
            (0x048, 0x090a_0b0c),
            (0x04c, 0x0d0e_0f10),
            (0x050, 0x001a_dcba),
            (0x054, 0x5002_0a0b),
            (0x058, 0x0c0d_0e0f),
            (0x0a8, 0x0080_0000),
            (0x0ac, 0x0cfe_dcba),
        ];
        assert_eq!(words(&init_to_receive(QPN, &receiving(2, route))), expected);
        let sending = Sending {
            port: 2,
            psn: 0x13_579b,
            ack_timeout: 18,
            retries: 7,
            rnr_retries: 6,
            log_outgoing_reads: 4,
        };
        let expected = [
            (0x000, 0x0504_0000),
            (0x008, 0x0077_8899),
            (0x038, 0x9000_0000),
            (0x054, 0x0002_0000),
            (0x088, 0x0087_c000),
            (0x090, 0x0013_579b),
        ];
        assert_eq!(words(&receive_to_send(QPN, &sending)), expected);
    }

    #[test]
    fn within_an_infiniband_subnet_the_lid_is_the_route() {
        let expected = [
            (0x000, 0x0503_0000),
            (0x008, 0x0077_8899),
            (0x020, 0xbe00_0000),
            (0x02c, 0x0044_5566),
            (0x034, 0x0000_1234),
            (0x054, 0x0501_0000),
            (0x0a8, 0x0080_0000),
            (0x0ac, 0x0cfe_dcba),
        ];
        let receiving = receiving(1, Route::Lid(0x1234));
        assert_eq!(words(&init_to_receive(QPN, &receiving)), expected);
        let route = Route::Global { lid: 0x1234, gid: [7; 16], own_index: 0 };
        let global = words(&init_to_receive(QPN, &Receiving { route, ..receiving }));
        for expected in [(0x034, 0x0080_1234), (0x03c, 0x06a0_0000), (0x054, 0x0501_0000)] {
            assert!(global.contains(&expected), "{expected:x?}: {global:x?}");
        }
    }

    #[test]
    fn an_answer_is_a_number_or_a_refusal() {
        let mut bytes = [0; ANSWER];
        bytes[8..12].copy_from_slice(&0x0012_3456u32.to_be_bytes());
        assert_eq!(answer(&bytes), Ok(0x12_3456));
        bytes[0] = 3;
        bytes[4..8].copy_from_slice(&0xdead_beefu32.to_be_bytes());
        let refusal = Refusal { status: 3, syndrome: 0xdead_beef };
        assert_eq!(answer(&bytes), Err(refusal));
        assert!(refusal.to_string().contains("0xdeadbeef"));
    }
}
