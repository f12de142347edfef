//! A communication phase, ready to run: its lists and its prepared messages.

use std::sync::Arc;

use crate::block::{Block, Phase};
use crate::comm::libmp::Links;
use crate::comm::{Comm, CommError, Exchange, Message, Starter};

/// The lists of a phase and the messages that go with them.
pub struct Route {
    phase: Phase,
    exchange: Box<dyn Exchange>,
    /// Neighbours whose messages were not unpacked yet; room for all.
    waiting: Vec<usize>,
}

impl Route {
    /// Prepares the messages of `phase`; `cut` then cuts its lists into tasks.
    ///
    /// # Errors
    /// [`CommError`] when the library refuses.
    pub fn new(
        comm: &dyn Comm,
        tag: i32,
        mut phase: Phase,
        cut: impl FnOnce(&mut Phase),
    ) -> Result<Self, CommError> {
        let message = |n: &crate::block::Neighbour| Message {
            peer: n.rank,
            send: n.send,
            receive: n.receive,
        };
        let messages: Vec<Message> = phase.neighbours.iter().map(message).collect();
        let exchange = comm.prepare(tag, &messages)?;
        let waiting = Vec::with_capacity(messages.len());
        cut(&mut phase);
        Ok(Self { phase, exchange, waiting })
    }

    /// Blocks from field to field.
    pub fn local(&self) -> &[Block] {
        &self.phase.local
    }

    /// Packs with `pack` – blocks, buffer – what each neighbour gets, and sends it as soon as it is packed.
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    pub fn send(&mut self, pack: impl Fn(&[Block], &mut [f64])) -> Result<(), CommError> {
        self.exchange.begin()?;
        for (index, n) in self.phase.neighbours.iter().enumerate() {
            if n.send > 0 {
                pack(&n.pack, self.exchange.send_buffer(index));
                self.exchange.start(index)?;
            }
        }
        Ok(())
    }

    /// Unpacks with `unpack` – blocks, buffer – what each neighbour has sent, when it has come.
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    pub fn receive(&mut self, mut unpack: impl FnMut(&[Block], &[f64])) -> Result<(), CommError> {
        let neighbours = &self.phase.neighbours;
        self.waiting.clear();
        self.waiting.extend((0..neighbours.len()).filter(|&index| neighbours[index].receive > 0));
        while !self.waiting.is_empty() {
            let next = self.exchange.first(&self.waiting)?;
            let index = self.waiting.remove(next);
            unpack(&neighbours[index].unpack, self.exchange.receive(index)?);
        }
        self.exchange.end()
    }

    /// From now on the messages are started by `starter`; for streams the messages, if there are any.
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    pub fn hand_over(&mut self, starter: Starter) -> Result<Option<Arc<Links>>, CommError> {
        self.exchange.hand_over(starter)
    }
}
