//! A connection over TCP that is dialed, and when it is dialed again. Who dials is the engine.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::wire::greeting::Greeting;

/// How long after it was turned away a queue pair dials again; twice as long each time, up to a limit.
const DIAL_AGAIN: Duration = Duration::from_millis(20);
const MOST_DOUBLINGS: u32 = 5;

/// A connection over TCP that this side dials: where to, what it says, what it must hear. The peer's NIC turns it away
/// when too many others are at its door, or the peer is late; then it dials again.
#[derive(Clone, Copy)]
pub(crate) struct Dial {
    pub to: SocketAddr,
    pub greeting: Greeting,
    pub expected: Greeting,
    turned_away: u32,
    again: Option<Instant>,
}

impl Dial {
    pub fn new(to: SocketAddr, greeting: Greeting, expected: Greeting) -> Dial {
        Dial { to, greeting, expected, turned_away: 0, again: None }
    }

    /// The peer has turned it away: it is due later.
    pub fn turn_away(&mut self, now: Instant) {
        self.again = Some(now + DIAL_AGAIN * (1 << self.turned_away.min(MOST_DOUBLINGS)));
        self.turned_away += 1;
    }

    /// Whether it is time to dial once more. True once for each time.
    pub fn is_due(&mut self, now: Instant) -> bool {
        self.again.take_if(|again| *again <= now).is_some()
    }
}
