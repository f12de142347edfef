//! What the two sides of a connection between hosts say first: the format's version, and the secrets of both queue pairs.
//! Nothing else is looked at before.

use subtle::ConstantTimeEq;

use super::frame::{Frame, HEADER, VERSION};
use crate::nic::soft::state::Violation;

/// Whom a connection is from and for. `to` and `from` are secrets of the two queue pairs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Greeting {
    pub qpn: u32,
    pub to: u64,
    pub from: u64,
}

/// In a time that does not tell how much of a secret was guessed.
impl PartialEq for Greeting {
    fn eq(&self, other: &Greeting) -> bool {
        let secrets = self.to.ct_eq(&other.to) & self.from.ct_eq(&other.from);
        self.qpn == other.qpn && bool::from(secrets)
    }
}

impl Greeting {
    /// The hello that says it.
    pub fn hello(&self) -> [u8; HEADER] {
        let Greeting { qpn, to, from } = *self;
        Frame::Hello { version: VERSION, qpn, to, from }.encode(0)
    }

    /// The datagram that says it, and where this side's queue pair of the device is.
    pub fn knock(&self, number: u32, first: u32, ready: bool) -> [u8; HEADER] {
        let Greeting { qpn, to, from } = *self;
        Frame::Knock { version: VERSION, qpn, to, from, number, first, ready }.encode(0)
    }

    /// Whether the first frame of a connection is the hello that says this.
    ///
    /// # Errors
    /// What it is instead.
    pub fn hear(&self, frame: Frame) -> Result<(), Violation> {
        let Frame::Hello { version, qpn, to, from } = frame else {
            return Err(Violation::Other("something before its hello"));
        };
        if version != VERSION {
            return Err(Violation::Other("another version of the format"));
        }
        match *self == (Greeting { qpn, to, from }) {
            true => Ok(()),
            false => Err(Violation::Other("a hello for somebody else")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hello_of_the_peer_is_heard() {
        let peer = Greeting { qpn: 7, to: 1, from: 2 };
        let said = |bytes: [u8; HEADER]| peer.hear(Frame::decode(bytes).unwrap().0);
        assert_eq!(said(peer.hello()), Ok(()));
        for other in [Greeting { qpn: 8, ..peer }, Greeting { to: 3, ..peer }] {
            assert_eq!(said(other.hello()), Err(Violation::Other("a hello for somebody else")));
        }
        assert_eq!(
            said(Frame::Ping.encode(0)),
            Err(Violation::Other("something before its hello"))
        );
        let old = Frame::Hello { version: VERSION + 1, qpn: 7, to: 1, from: 2 };
        assert_eq!(said(old.encode(0)), Err(Violation::Other("another version of the format")));
    }
}
