//! How a queue pair is made: sizes of its queues, form of its completions, patience with its peer.

use std::time::Duration;

use super::error::{Error, Result};
use super::wire::WireKind;
use crate::wqe::MAX_QUEUE_BLOCKS;

/// How completions are written.
///
/// See [`QueuePairOptions`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CompletionMode {
    /// A ring with a slot for each: the reader polls by owner bit, in order, and says how far it is.
    #[default]
    Ring,
    /// One slot that every completion overwrites; any number of readers, on CPU and GPU, look at the index in it and
    /// say nothing. A failure there says that the requests before it are complete; requests that are flushed after
    /// it overwrite it, and then only those that a reader had seen complete are known to be: all others count as failed.
    Collapsed,
}

/// Who posts to the send queue of a queue pair.
///
/// See [`QueuePairOptions`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Posters {
    /// The CPU, streams and kernels.
    #[default]
    All,
    /// Kernels of its device alone. An adapter may then have the queues in the device's own memory, where kernels look for room
    /// and completions without a way over the bus ([`mlx5::Placement`](super::mlx5::Placement)). The CPU asks how far they are.
    Kernels,
}

/// Options of a queue pair. Change what differs from [`QueuePairOptions::default`].
///
/// ```
/// use std::time::Duration;
///
/// use gdsync::Device;
/// use gdsync::nic::soft::{SoftNic, SoftNicOptions};
/// use gdsync::nic::{CompletionMode, Nic, Posters, QueuePairOptions};
/// use gdsync::wqe::{Operation, WorkRequest};
///
/// let nic = SoftNic::open(&SoftNicOptions::default())?;
/// let options = QueuePairOptions {
///     send_completions: CompletionMode::Collapsed, // kernels read no ring
///     transport_timeout: Duration::from_secs(1),
///     ..QueuePairOptions::default()
/// };
/// let for_kernels = nic.queue_pair(&Device::Host, &options)?.device_view()?;
/// assert_eq!(for_kernels.blocks, 1024);
///
/// let theirs = QueuePairOptions { posters: Posters::Kernels, ..options };
/// let refused = nic.queue_pair(&Device::Host, &theirs)?.post(&WorkRequest::new(Operation::Nop));
/// assert!(refused.unwrap_err().to_string().ends_with("only kernels of host post to it"));
///
/// let wrong = QueuePairOptions { send_blocks: 48, ..QueuePairOptions::default() };
/// let refused = nic.queue_pair(&Device::Host, &wrong).unwrap_err();
/// assert_eq!(refused.to_string(), "send_blocks is 48: a power of two from 32 to 32768");
/// # Ok::<(), gdsync::nic::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePairOptions {
    /// 64-byte basic blocks of the send queue: a power of two from 32 to 32768. An entry takes one to sixteen.
    pub send_blocks: usize,
    /// Entries of the receive queue: a power of two from 1 to 32768.
    pub receive_entries: usize,
    /// Data segments a receive may have: a power of two from 1 to 32.
    pub receive_segments: usize,
    /// How completions of the send queue are written.
    pub send_completions: CompletionMode,
    /// How completions of the receive queue are written.
    pub receive_completions: CompletionMode,
    /// How often a request is repeated when the peer has no receive posted: 0 to 6; 7 for ever, as on hardware.
    pub receiver_not_ready_retries: u8,
    /// How long before such a repetition.
    pub receiver_not_ready_delay: Duration,
    /// How long the peer may be silent, or the connection take, before requests fail as "transport retry exceeded". Within
    /// a host only a process that is stopped counts as silent: one that runs may wait long for a processor, and one that
    /// has ended is noticed at once.
    pub transport_timeout: Duration,
    /// Who posts to its send queue. [`Posters::Kernels`] goes with collapsed send completions.
    pub posters: Posters,
    /// The only wire that it will be connected over, where that is known before: it then has no memory for the others.
    pub wire: Option<WireKind>,
}

impl Default for QueuePairOptions {
    fn default() -> Self {
        QueuePairOptions {
            send_blocks: 1024,
            receive_entries: 256,
            receive_segments: 1,
            send_completions: CompletionMode::Ring,
            receive_completions: CompletionMode::Ring,
            receiver_not_ready_retries: 7,
            receiver_not_ready_delay: Duration::from_micros(100),
            transport_timeout: Duration::from_secs(5),
            posters: Posters::All,
            wire: None,
        }
    }
}

impl QueuePairOptions {
    /// Checks every range.
    pub(crate) fn validate(&self) -> Result<()> {
        let sizes = [
            (
                "send_blocks",
                self.send_blocks,
                32,
                MAX_QUEUE_BLOCKS,
                "a power of two from 32 to 32768",
            ),
            (
                "receive_entries",
                self.receive_entries,
                1,
                MAX_QUEUE_BLOCKS,
                "a power of two from 1 to 32768",
            ),
            ("receive_segments", self.receive_segments, 1, 32, "a power of two from 1 to 32"),
        ];
        for (option, value, min, max, expected) in sizes {
            if !value.is_power_of_two() || !(min..=max).contains(&value) {
                return Err(Error::Option { option, value: value.to_string(), expected });
            }
        }
        if self.posters == Posters::Kernels && self.send_completions == CompletionMode::Ring {
            let expected = "Posters::Kernels needs CompletionMode::Collapsed: kernels read no ring";
            return Err(Error::Option {
                option: "send_completions",
                value: "Ring".into(),
                expected,
            });
        }
        if self.receiver_not_ready_retries > 7 {
            let value = self.receiver_not_ready_retries.to_string();
            let expected = "expected 0 to 6, or 7 for ever";
            return Err(Error::Option { option: "receiver_not_ready_retries", value, expected });
        }
        if !(Duration::from_millis(10)..=Duration::from_secs(3600))
            .contains(&self.transport_timeout)
        {
            let value = format!("{:?}", self.transport_timeout);
            let expected = "expected 10 ms to an hour";
            return Err(Error::Option { option: "transport_timeout", value, expected });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_refused_by_name() {
        assert!(QueuePairOptions::default().validate().is_ok());
        let refused = |change: fn(&mut QueuePairOptions)| {
            let mut options = QueuePairOptions::default();
            change(&mut options);
            options.validate().unwrap_err().to_string()
        };
        assert_eq!(
            refused(|o| o.send_blocks = 48),
            "send_blocks is 48: a power of two from 32 to 32768"
        );
        assert!(refused(|o| o.send_blocks = 65536).starts_with("send_blocks is 65536"));
        assert!(refused(|o| o.receive_entries = 0).starts_with("receive_entries is 0"));
        assert!(refused(|o| o.receive_segments = 64).starts_with("receive_segments is 64"));
        assert!(refused(|o| o.receiver_not_ready_retries = 8).contains("7 for ever"));
        assert!(refused(|o| o.posters = Posters::Kernels).contains("kernels read no ring"));
        assert!(refused(|o| o.transport_timeout = Duration::ZERO).contains("10 ms"));
    }
}
