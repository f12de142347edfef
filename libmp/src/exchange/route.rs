//! How each border of each field goes to its neighbour: what kernels read of it (`ExchangeRoute`), and what the CPU does.

use gdsync::Buffer;
use gdsync::wqe::RemoteAddress;
use mp_kernels::ExchangeRoute;

use super::agreement::{Border, Own};
use super::field::Field;
use super::host::HostRoute;
use crate::data::Window;
use crate::error::{Error, Result};
use crate::transport::nic::Place;
use crate::transport::{Reach, STRIDE};

/// What routes are made of.
pub(super) struct Ends<'a> {
    /// One for each region, and that of the buffers.
    pub windows: &'a [Window<u8>],
    pub own: &'a Own,
    pub buffers: &'a Buffer<u8>,
}

impl Ends<'_> {
    /// The route of the border of field `number` with neighbour `link`, rank `peer`, which sees it as `theirs` and has it under
    /// its signal `signal`; and where cell (0, 0, 0) is for the neighbour.
    pub fn route(
        &self,
        field: &Field,
        number: usize,
        link: usize,
        peer: usize,
        theirs: &Border,
        signal: usize,
    ) -> Result<(ExchangeRoute, u64)> {
        let address = |memory: &Buffer<u8>| memory.device_address().unwrap_or_default();
        let (memory, buffers) = (address(&field.memory), address(self.buffers));
        let Border { region, send, receive, inbox } = &self.own.opening.fields[number][link];
        let shared = &self.windows[self.own.regions.len()];
        let cells = &field.borders[link].0;
        let [row, plane] = field.strides;
        let first = [0, 1, 2].map(|axis| cells[axis].start);
        let mut route = ExchangeRoute {
            first0: first[0],
            first1: first[1],
            first2: first[2],
            end0: cells[0].end,
            end1: cells[1].end,
            end2: cells[2].end,
            cell: field.cell as u32,
            cells: memory.wrapping_add(field.origin as u64),
            row,
            plane,
            ..ExchangeRoute::default()
        };
        if let Some(at) = *inbox {
            route.unpack = receive.compact(at).copy_to(buffers, receive, memory);
        }
        // The window and the box where the neighbour gets it.
        let (window, there) = match theirs.inbox {
            Some(at) => (shared, theirs.receive.compact(at)),
            None => (&self.windows[theirs.region], theirs.receive),
        };
        // Where the cells are stored: a box in the neighbour's memory or in a buffer of this rank's.
        let own = self.windows[*region].reach_of(peer)?;
        let stored = match (window.reach_of(peer)?, shared.reach_of(peer)?, own) {
            (
                Reach::Far { link: opened, memory: to, .. },
                Reach::Far { signals, own_key: buffers_key, .. },
                Reach::Far { own_key, .. },
            ) => {
                let signal = Place::at(signals).after(signal * STRIDE);
                let to = Place::at(to).after(there.at as usize);
                route.queue = opened.address();
                (route.put_to, route.to_key) = (to.address, to.rkey);
                (route.signal, route.signal_key) = (signal.address, signal.rkey);
                route.put_bytes = send.bytes();
                let outbox = self.own.outboxes[number][link];
                (route.put_from, route.from_key) = match outbox {
                    None => (memory.wrapping_add(send.at), own_key),
                    Some(at) => (buffers.wrapping_add(at), buffers_key),
                };
                outbox.map(|at| (send.compact(at), buffers))
            }
            (Reach::Near { memory: to, .. }, ..) => Some((there, to)),
            // All windows reach a rank in the same way.
            _ => None,
        };
        let Some((target, to)) = stored else { return Ok((route, 0)) };
        route.send = send.copy_to(memory, &target, to);
        [route.twin_row, route.twin_plane] = target.steps;
        Ok((route, target.origin(to, first, field.cell)))
    }

    /// The same for the CPU.
    pub fn host_route(
        &self,
        route: &ExchangeRoute,
        peer: usize,
        signal: usize,
    ) -> Result<HostRoute> {
        let mut put = None;
        if route.put_bytes > 0 {
            let sources = self.own.regions.iter().chain([self.buffers]);
            let from = sources.into_iter().find_map(|memory| {
                let at = route.put_from.checked_sub(memory.device_address()?)?;
                let end = at.checked_add(route.put_bytes)?;
                (end <= memory.len() as u64).then(|| memory.slice(at as usize..end as usize))
            });
            let op = || format!("preparing a halo exchange with rank {peer}");
            let from = from.transpose().map_err(|source| Error::Memory { op: op(), source })?;
            put = from
                .map(|from| (from, RemoteAddress { address: route.put_to, rkey: route.to_key }));
        }
        let line = self.windows[self.own.regions.len()].line_to(peer, put, signal)?;
        Ok(HostRoute { send: route.send, unpack: route.unpack, line })
    }
}

/// A route of a launch that writes nothing.
pub(super) fn without_data(route: &ExchangeRoute) -> ExchangeRoute {
    ExchangeRoute { send: Default::default(), put_bytes: 0, ..*route }
}
