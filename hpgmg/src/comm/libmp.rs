//! Ranks of a libmp world: processes of any launcher, or threads of this process. Messages are prepared sends and
//! receives, started and waited for by the CPU or on streams; reductions are prepared all-reduces of the CPU.

use std::sync::Arc;
use std::time::Duration;

use gdsync::{Buffer, PeerMemory, Stream};
use libmp::{
    Collective, Communicator, Deadline, Device, Operation, Recv, ReduceOp, Region, Send, World,
};

use super::{Comm, CommError, Exchange, Group, Message, Starter};
use crate::error::Error;

/// One rank of a libmp world.
///
/// See [`Enqueued`](crate::enqueued::Enqueued) for an example.
pub struct LibmpComm {
    world: Communicator,
    local_rank: usize,
    gpu: Option<String>,
    limit: Duration,
}

impl LibmpComm {
    /// libmp's communicator of the ranks.
    pub fn communicator(&self) -> &Communicator {
        &self.world
    }

    /// The ranks of `world`; no wait lasts longer than `limit`.
    pub fn new(world: &World, limit: Duration) -> Self {
        let gpu = world.assigned_gpu().map(str::to_owned);
        Self { world: world.with_timeout(limit), local_rank: world.local_rank(), gpu, limit }
    }
}

/// Runs `body` as the ranks that `worlds` are, each on a thread if there are several, and returns what the first
/// returns. A rank that fails ends the world for the others, which then name it.
///
/// # Errors
/// The first error of a rank, a cause before its consequences.
pub fn run<T: std::marker::Send>(
    mut worlds: Vec<World>,
    limit: Duration,
    body: impl Fn(&LibmpComm) -> Result<T, Error> + Sync,
) -> Result<T, Error> {
    let rank = |world: World| {
        let result = body(&LibmpComm::new(&world, limit));
        match result {
            Ok(value) => world.finish().map(|()| value).map_err(|e| CommError::from(e).into()),
            Err(error) => {
                // If the world has ended already, its cause stays.
                world.abort(error.to_string());
                Err(error)
            }
        }
    };
    if worlds.len() == 1
        && let Some(world) = worlds.pop()
    {
        return rank(world);
    }
    let results: Vec<Result<T, Error>> = std::thread::scope(|scope| {
        let spawn = |world: World| {
            let name = format!("rank-{}", world.rank());
            std::thread::Builder::new().name(name).spawn_scoped(scope, || rank(world))
        };
        let started: Vec<_> = worlds.into_iter().map(spawn).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, Result<T, Error>>| {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        started.into_iter().map(|handle| handle.map_err(Error::Threads).and_then(join)).collect()
    });
    let mut values = Vec::new();
    let mut consequence = None;
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(Error::Comm(error)) if error.is_about_another_rank() => {
                consequence = consequence.or(Some(error));
            }
            Err(error) => return Err(error),
        }
    }
    match (consequence, values.into_iter().next()) {
        (Some(error), _) => Err(error.into()),
        (None, Some(value)) => Ok(value),
        (None, None) => Err(Error::Threads(std::io::Error::other("a run of no ranks"))),
    }
}

impl Comm for LibmpComm {
    fn rank(&self) -> usize {
        self.world.rank()
    }

    fn size(&self) -> usize {
        self.world.size()
    }

    fn name(&self) -> &'static str {
        "libmp, host"
    }

    fn communicator(&self) -> Option<&Communicator> {
        Some(&self.world)
    }

    fn as_libmp(&self) -> Option<&LibmpComm> {
        Some(self)
    }

    fn local_rank(&self) -> Option<usize> {
        Some(self.local_rank)
    }

    fn assigned_gpu(&self) -> Option<&str> {
        self.gpu.as_deref()
    }

    fn prepare_for(
        &self,
        device: &Device,
        tag: i32,
        messages: &[Message],
    ) -> Result<Box<dyn Exchange>, CommError> {
        // The CPU sends it, so it is the host's memory, and a GPU sees it mapped.
        let alloc =
            |len| -> Result<Region<f64>, CommError> { Ok(self.world.alloc(&Device::Host, len)?) };
        let seen = |region: &Region<f64>| -> Result<Buffer<f64>, CommError> {
            let mapped = || PeerMemory::map(&region.buffer().export()?, device)?.buffer.cast();
            match device {
                Device::Host => Ok(region.buffer().clone()),
                Device::Cuda(_) => Ok(mapped()?),
            }
        };
        let links = messages
            .iter()
            .map(|message| {
                let peer = self.world.peer(message.peer)?;
                let mut link = Link { peer: message.peer, send: None, receive: None, seen: None };
                if message.send > 0 {
                    let region = alloc(message.send)?;
                    let send = peer.send(&region, tag as u64).prepare()?;
                    link.send = Some((region, send));
                }
                if message.receive > 0 {
                    let region = alloc(message.receive)?;
                    let receive = peer.recv(&region, tag as u64).prepare()?;
                    // From here on the buffer is with the sender whenever it is not being read, so that a send finds it.
                    receive.start()?;
                    link.receive = Some((region, receive));
                }
                if let (Some((send, _)), Some((receive, _))) = (&link.send, &link.receive) {
                    link.seen = Some([seen(send)?, seen(receive)?]);
                }
                Ok(link)
            })
            .collect::<Result<_, CommError>>()?;
        let links = Links { rank: self.rank(), tag, limit: self.limit, links };
        Ok(Box::new(LibmpExchange { links: Arc::new(links), starter: Starter::Caller }))
    }

    fn group(&self, members: &[usize]) -> Result<Option<Box<dyn Group>>, CommError> {
        let member = members.binary_search(&self.rank()).is_ok();
        let Some(group) = self.world.split(member.then_some(0), self.rank() as i64)? else {
            return Ok(None);
        };
        let all = group.prepare_collective(&Device::Host, MANY * size_of::<f64>())?;
        Ok(Some(Box::new(LibmpGroup { size: group.size(), all })))
    }
}

struct Link {
    peer: usize,
    send: Option<(Region<f64>, Send)>,
    receive: Option<(Region<f64>, Recv)>,
    /// Memory of both, as the device sees it.
    seen: Option<[Buffer<f64>; 2]>,
}

/// The prepared messages of one phase.
///
/// See [`Enqueued`](crate::enqueued::Enqueued) for an example.
pub struct Links {
    rank: usize,
    tag: i32,
    limit: Duration,
    links: Vec<Link>,
}

impl Links {
    /// Enqueues the sends: behind what fills their buffers, and before what fills them again.
    ///
    /// # Errors
    /// When libmp refuses; what ended the world.
    pub fn send_on(&self, stream: &Stream) -> Result<(), CommError> {
        for (_, send) in self.links.iter().filter_map(|link| link.send.as_ref()) {
            send.start_on(stream)?;
        }
        Ok(())
    }

    /// Makes the stream wait for all messages to receive.
    ///
    /// # Errors
    /// As [`send_on`](Self::send_on).
    pub fn wait_on(&self, stream: &Stream) -> Result<(), CommError> {
        for (_, receive) in self.links.iter().filter_map(|link| link.receive.as_ref()) {
            receive.wait_on(stream)?;
        }
        Ok(())
    }

    /// Makes the stream give the received buffers back.
    ///
    /// # Errors
    /// As [`send_on`](Self::send_on).
    pub fn post_on(&self, stream: &Stream) -> Result<(), CommError> {
        for (_, receive) in self.links.iter().filter_map(|link| link.receive.as_ref()) {
            receive.start_on(stream)?;
        }
        Ok(())
    }

    /// Waits until what was sent has arrived.
    fn settle(&self) -> Result<(), CommError> {
        let deadline = Deadline::after(self.limit);
        let mut sends = self.links.iter().filter_map(|link| link.send.as_ref());
        Ok(sends.try_for_each(|(_, send)| send.wait(deadline))?)
    }
}

struct LibmpExchange {
    links: Arc<Links>,
    starter: Starter,
}

impl LibmpExchange {
    fn on_stream(&self) -> bool {
        self.starter == Starter::Stream
    }
}

impl Exchange for LibmpExchange {
    fn begin(&mut self) -> Result<(), CommError> {
        if self.on_stream() { Ok(()) } else { self.links.settle() }
    }

    fn send_buffer(&mut self, index: usize) -> &mut [f64] {
        let Some((region, _)) = &self.links.links[index].send else { return &mut [] };
        // SAFETY: `begin` has seen the last send of it complete, or the stream has, and the next is not started before
        // `start`, or behind the task that calls this; no other view of the region exists, and `&mut self` keeps this the
        // only slice.
        unsafe { region.as_mut_slice() }.unwrap_or_default()
    }

    fn buffers(&self, index: usize) -> Option<[Buffer<f64>; 2]> {
        self.links.links[index].seen.clone()
    }

    fn start(&mut self, index: usize) -> Result<(), CommError> {
        match &self.links.links[index].send {
            Some((_, send)) if !self.on_stream() => Ok(send.start()?),
            _ => Ok(()),
        }
    }

    fn first(&mut self, waiting: &[usize]) -> Result<usize, CommError> {
        if self.starter != Starter::Task {
            return Ok(0);
        }
        let receive = |index: &usize| self.links.links[*index].receive.as_ref();
        let all: Vec<&dyn Operation> =
            waiting.iter().filter_map(|index| Some(&receive(index)?.1 as _)).collect();
        Ok(libmp::wait_any(&all, Deadline::after(self.links.limit))?)
    }

    fn receive(&mut self, index: usize) -> Result<&[f64], CommError> {
        let Links { rank, tag, limit, links } = &*self.links;
        let link = &links[index];
        let Some((region, receive)) = &link.receive else { return Ok(&[]) };
        if !self.on_stream() {
            receive.wait(Deadline::after(*limit))?;
        }
        let sent = receive.message_len()?.unwrap_or_default() as usize / size_of::<f64>();
        if sent != region.len() {
            let (from, to, tag) = (link.peer, *rank, *tag);
            return Err(CommError::Length { from, to, tag, sender: sent, receiver: region.len() });
        }
        // SAFETY: the receive is complete, and is not started again before `end`, which needs `&mut self`, or behind the
        // task that calls this.
        Ok(unsafe { region.as_slice() }?)
    }

    fn end(&mut self) -> Result<(), CommError> {
        if self.on_stream() {
            return Ok(());
        }
        for (_, receive) in self.links.links.iter().filter_map(|link| link.receive.as_ref()) {
            receive.start()?;
        }
        Ok(())
    }

    fn hand_over(&mut self, starter: Starter) -> Result<Option<Arc<Links>>, CommError> {
        self.links.settle()?;
        self.starter = starter;
        Ok((self.on_stream() && !self.links.links.is_empty()).then(|| self.links.clone()))
    }
}

// Solvers with messages of libmp go from thread to thread (`crate::enqueued`).
const _: fn() = || {
    fn may_be_sent<T: std::marker::Send>() {}
    may_be_sent::<LibmpExchange>();
    may_be_sent::<LibmpGroup>();
};

/// Elements that the others handle at a time.
const MANY: usize = 256;

struct LibmpGroup {
    size: usize,
    all: Collective,
}

impl LibmpGroup {
    fn reduce(&mut self, op: ReduceOp, values: &mut [f64]) -> Result<(), CommError> {
        if self.size == 1 {
            return Ok(());
        }
        for chunk in values.chunks_mut(MANY) {
            self.all.all_reduce_slice(op, chunk)?;
        }
        Ok(())
    }
}

impl Group for LibmpGroup {
    fn size(&self) -> usize {
        self.size
    }

    fn max(&mut self, values: &mut [f64]) -> Result<(), CommError> {
        self.reduce(ReduceOp::Max, values)
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<(), CommError> {
        self.reduce(ReduceOp::Sum, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::on_threads;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn a_ring_of_messages_arrives_in_order_many_times() {
        on_threads(3, LIMIT, |comm| {
            let (left, right) = ((comm.rank() + 2) % 3, (comm.rank() + 1) % 3);
            let messages = [
                Message { peer: left, send: 0, receive: 2 },
                Message { peer: right, send: 2, receive: 0 },
            ];
            let mut ring = comm.prepare(7, &messages)?;
            for round in 0..500 {
                ring.begin()?;
                ring.send_buffer(1).copy_from_slice(&[comm.rank() as f64, round as f64]);
                ring.start(1)?;
                assert_eq!(ring.receive(0)?, [left as f64, round as f64]);
                ring.end()?;
            }
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn reductions_agree_on_all_members_and_leave_others_out() {
        on_threads(4, LIMIT, |comm| {
            let group = comm.group(&[0, 2, 3])?;
            assert_eq!(group.is_none(), comm.rank() == 1);
            if let Some(mut group) = group {
                let mut sums: Vec<f64> = (0..300).map(|i| (comm.rank() * i) as f64).collect();
                group.sum(&mut sums)?;
                let mut max = [comm.rank() as f64];
                group.max(&mut max)?;
                assert_eq!((sums[299], max[0]), (1495.0, 3.0));
            }
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn the_maximum_is_not_a_number_if_a_members_value_is_none_whichever_member_that_is() {
        for bad in 0..3 {
            on_threads(3, LIMIT, |comm| {
                let Some(mut group) = comm.group(&[0, 1, 2])? else { panic!("a member") };
                let mut values = [if comm.rank() == bad { f64::NAN } else { 1.0 }, 2.0];
                group.max(&mut values)?;
                assert!(values[0].is_nan() && values[1] == 2.0, "{bad}: {values:?}");
                Ok(())
            })
            .unwrap();
        }
    }

    #[test]
    fn a_message_that_never_comes_is_an_error_that_names_the_peer_and_its_tag() {
        let error = on_threads(2, Duration::from_millis(200), |comm| {
            let peer = 1 - comm.rank();
            let mut exchange = comm.prepare(3, &[Message { peer, send: 1, receive: 1 }])?;
            exchange.begin()?;
            if comm.rank() == 0 {
                exchange.receive(0)?;
            }
            Ok(())
        });
        let error = Box::<dyn std::error::Error>::from(error.unwrap_err());
        let text = mp_program::sentence(error.as_ref());
        assert!(text.contains("rank 1") && text.contains("tag 3"), "{text}");
    }

    #[test]
    fn ranks_that_disagree_on_a_length_are_told() {
        let error = on_threads(2, LIMIT, |comm| {
            let (rank, peer) = (comm.rank(), 1 - comm.rank());
            let mut exchange = comm.prepare(1, &[Message { peer, send: 2 - rank, receive: 2 }])?;
            exchange.begin()?;
            exchange.start(0)?;
            exchange.receive(0)?;
            Ok(())
        });
        let text = error.unwrap_err().to_string();
        assert!(text.contains("1 elements at the sender, 2 at the receiver"), "{text}");
    }
}
