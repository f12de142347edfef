//! A queue pair that the engine shares with the threads that ring it: its lock, and who does what was rung.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock, TryLockError};

use super::{Slot, SlotParts};
use crate::cuda::device::lock;
use crate::nic::soft::keys::KeyTable;

/// How often a thread that rings tries the lock: longer than the engine takes to see that there is nothing to do.
const TRIES: usize = 64;

/// A queue pair that the engine shares with the threads that ring it. Whoever has the lock executes it, in the order of its
/// queue. A thread that rings stores its doorbell before it tries the lock; whatever it then does not do itself, or cannot
/// since another one has the lock, it wakes the engine for. The engine does not wait for a caller: it looks again, and
/// does not sleep before it has looked.
pub(crate) struct SharedSlot {
    pub qpn: u32,
    pub token: u64,
    /// What the system has said of its socket, and nobody has told it: readable, writable. Not under the lock, which a thread
    /// that sends much has for long.
    ready: [AtomicBool; 2],
    slot: Mutex<Slot>,
}

impl SharedSlot {
    pub fn new(parts: SlotParts) -> SharedSlot {
        let (qpn, token) = (parts.qpn, parts.token);
        SharedSlot { qpn, token, ready: Default::default(), slot: Mutex::new(Slot::new(parts)) }
    }

    /// A socket event: for who has the queue pair next.
    pub fn ready(&self, readable: bool, writable: bool) {
        for (ready, said) in self.ready.iter().zip([readable, writable]) {
            if said {
                ready.store(true, Ordering::Release);
            }
        }
    }

    /// The queue pair, for what has to be told to it.
    pub fn lock(&self) -> MutexGuard<'_, Slot> {
        lock(&self.slot)
    }

    /// The queue pair, if nobody else has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, Slot>> {
        match self.slot.try_lock() {
            Ok(slot) => Some(slot),
            Err(TryLockError::Poisoned(slot)) => Some(slot.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The queue pair, if nobody else has it, to be driven: it knows what was said of its socket.
    pub fn try_drive(&self) -> Option<MutexGuard<'_, Slot>> {
        let mut slot = self.try_lock()?;
        let [readable, writable] = self
            .ready
            .each_ref()
            .map(|ready| ready.load(Ordering::Relaxed) && ready.swap(false, Ordering::Acquire));
        if readable || writable {
            slot.ready(readable, writable);
        }
        Some(slot)
    }

    /// By a thread that has rung: executes what is quickly done, and sends what goes over a socket if no GPU has a part in
    /// it. False if there is, or may be, something left to do.
    pub fn execute(&self, keys: &RwLock<KeyTable>, of_the_cpu: bool) -> bool {
        let mut tries = (0..TRIES).map(|_| {
            let slot = self.try_drive();
            if slot.is_none() {
                std::hint::spin_loop();
            }
            slot
        });
        let Some(mut slot) = tries.find_map(|slot| slot) else { return false };
        keys.try_read().is_ok_and(|keys| slot.execute(&keys, of_the_cpu))
    }
}
