//! How a connection over RDMA devices begins.
//!
//! Only when it is wanted, here or there, is a queue pair of the device made. A message to a queue pair that is not ready yet
//! is lost, and the device waits for long before it sends it again, as it should when the connection is up. So a side knocks:
//! it says which queue pair it has and whether that is connected, as a datagram, again and again until it hears something. Who
//! hears where the peer's queue pair is connects its own, and who hears that the peer's is connected sends its hello over the
//! connection, as over TCP; nothing else is sent before, or looked at.

use std::time::{Duration, Instant};

use super::RdmaWire;
use crate::nic::soft::rdma::Knock;
use crate::verbs::{
    Access, DatagramRoute, Endpoint, Init, QueuePair, ReadyToSend, Result, RetryPolicy,
    SendOperation,
};

/// After how long a side knocks again; twice as long each time, up to a limit.
const KNOCK_AGAIN: Duration = Duration::from_millis(10);
const MOST_DOUBLINGS: u32 = 5;
/// How often the device sends again. One more would be the most, but to rdma_rxe that means for ever.
const RETRIES: u8 = 6;
/// Waits of the device for a receive of the peer: for ever, the peer's silence has its own limit.
const NOT_READY_RETRIES: u8 = 7;

/// How far a connection has come.
pub(super) enum Stage {
    /// Nobody has wanted it.
    Idle,
    /// This side has a queue pair and does not know the peer's.
    Alone(QueuePair<Init>),
    Connected(QueuePair<ReadyToSend>),
    /// It could not be made.
    Broken,
}

/// How often a side has knocked, and when it does so again.
pub(super) struct Knocking {
    route: DatagramRoute,
    times: u32,
    again: Instant,
}

impl RdmaWire {
    /// The next step towards the peer, if it is time.
    pub(super) fn approach(&mut self, wanted: bool) -> Result<()> {
        if self.said {
            return Ok(());
        }
        let knock = self.port.knocked(&self.expected)?;
        if matches!(self.stage, Stage::Idle) && (wanted || knock.is_some()) {
            let (pair, completions) = self.port.queue_pair()?;
            let access = self.port.device_use().map_or(Access::LOCAL, |_| Access::ALL);
            self.stage = Stage::Alone(pair.init(self.port.port(), access)?);
            self.completions = Some(completions);
            let route = self.port.datagrams().route(&self.peer)?;
            self.knocking = Some(Knocking { route, times: 0, again: Instant::now() });
        }
        if let Some(knock) = knock {
            self.connect(knock)?;
            // The peer waits for an answer.
            self.knocking.iter_mut().for_each(|knocking| knocking.again = Instant::now());
        }
        let is_connected = matches!(self.stage, Stage::Connected(_));
        if is_connected && (self.heard || knock.is_some_and(|knock| knock.ready)) {
            self.said = true;
            let hello = self.greeting.hello();
            self.post_message(None, SendOperation::SendInline { data: &hello, imm: Some(0) })?;
        }
        self.knock()
    }

    /// Connects this side's queue pair, once it is known where the peer's is.
    fn connect(&mut self, Knock { number, first, .. }: Knock) -> Result<()> {
        let pair = match std::mem::replace(&mut self.stage, Stage::Broken) {
            Stage::Alone(pair) => pair,
            other => {
                self.stage = other;
                return Ok(());
            }
        };
        // All repetitions together: the device rounds up to a power of two.
        let timeout = self.patience / (2 * (u32::from(RETRIES) + 1));
        let retries =
            RetryPolicy { timeout, retries: RETRIES, not_ready_retries: NOT_READY_RETRIES };
        let peer = Endpoint { qp_num: number & 0x00ff_ffff, psn: first & 0x00ff_ffff, ..self.peer };
        self.stage = Stage::Connected(pair.connect(&peer)?.ready_to_send(&retries)?);
        Ok(())
    }

    /// Says that this side is there, if it is time.
    fn knock(&mut self) -> Result<()> {
        let (end, ready) = match &self.stage {
            Stage::Alone(pair) => (pair.endpoint(), false),
            Stage::Connected(pair) => (pair.endpoint(), true),
            Stage::Idle | Stage::Broken => return Ok(()),
        };
        let Some(Knocking { route, times, again }) = &mut self.knocking else { return Ok(()) };
        let now = Instant::now();
        if now >= *again {
            let word = self.greeting.knock(end.qp_num, end.psn, ready);
            // Of too many under way some are lost, as any may be.
            if let Err(error) = self.port.datagrams().send(route, &word) {
                tracing::debug!("knocking: {error}");
            }
            *again = now + KNOCK_AGAIN * (1 << (*times).min(MOST_DOUBLINGS));
            *times += 1;
        }
        Ok(())
    }
}
