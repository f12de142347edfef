//! Halo exchanges.

use std::ffi::{c_int, c_void};

use libmp::Exchange;
use libmp::exchange::{Cells, Field, NEIGHBOURS_MAX, Neighbour, Phase};

use crate::handle::{api, array, borrow, device, give, place, take};
use crate::region::MpRegion;
use crate::status::{Failure, Result};
use crate::stream::MpStream;
use crate::world::MpComm;

/// `mp_exchange`.
pub struct MpExchange(Exchange);

/// `mp_neighbour` of the header.
#[repr(C)]
pub struct MpNeighbour {
    rank: c_int,
    here: u64,
    there: u64,
}

/// `mp_cells` of the header.
#[repr(C)]
pub struct MpCells {
    first: [c_int; 3],
    end: [c_int; 3],
}

/// `mp_field` of the header.
#[repr(C)]
pub struct MpField {
    region: *const MpRegion,
    cell: usize,
    origin: isize,
    row: usize,
    plane: usize,
    send: *const MpCells,
    receive: *const MpCells,
    buffered: c_int,
}

impl MpCells {
    fn cells(&self) -> Cells {
        [0, 1, 2].map(|axis| self.first[axis]..self.end[axis])
    }
}

/// The number of a field; none for -1.
fn field(number: c_int) -> Option<usize> {
    // What is no number of a field either is refused as one that there is not.
    (number != -1).then(|| usize::try_from(number).unwrap_or(usize::MAX))
}

/// The field with its borders.
///
/// # Safety
/// As [`borrow`] of all that it points to.
unsafe fn described(from: &MpField, neighbours: &[Option<Neighbour>]) -> Result<Field> {
    let count = neighbours.len();
    // SAFETY: the caller's promise.
    let (region, send, receive) = unsafe {
        let (send, receive) =
            (array(from.send, count, "send")?, array(from.receive, count, "receive")?);
        (borrow(from.region, "region")?, send, receive)
    };
    let strides = [from.row, from.plane];
    let described = Field::of_bytes(&region.0.buffer().bytes(), from.cell, from.origin, strides);
    let borders = neighbours.iter().zip(send.iter().zip(receive));
    let borders = borders.filter(|(neighbour, _)| neighbour.is_some());
    Ok(borders.fold(described.buffered(from.buffered != 0), |field, (_, (send, receive))| {
        field.border(send.cells(), receive.cells())
    }))
}

api! {
    /// Prepares the exchange of the borders of fields.
    fn mp_exchange_create(
        comm: *const MpComm,
        on: c_int,
        neighbours: *const MpNeighbour,
        neighbour_count: usize,
        fields: *const MpField,
        field_count: usize,
        exchange: *mut *mut MpExchange,
    ) {
        place(exchange, "exchange")?;
        let comm = &borrow(comm, "comm")?.0;
        let neighbour = |&MpNeighbour { rank, here, there }: &MpNeighbour| {
            let rank = if rank == -1 { return None } else { usize::try_from(rank) };
            Some(Neighbour { rank: rank.unwrap_or(usize::MAX), here, there })
        };
        let neighbours = array(neighbours, neighbour_count, "neighbours")?;
        let neighbours: Vec<_> = neighbours.iter().map(neighbour).collect();
        let fields = array(fields, field_count, "fields")?.iter();
        let fields = fields.map(|field| described(field, &neighbours)).collect::<Result<Vec<_>>>()?;
        give(exchange, MpExchange(comm.exchange(&device(on)?, &neighbours, &fields)?), "exchange")?;
    }

    /// The `mp::Exchange` that a kernel takes.
    fn mp_exchange_handle(
        exchange: *const MpExchange,
        read: c_int,
        written: c_int,
        waits: c_int,
        handle: *mut c_void,
        bytes: usize,
    ) {
        let phase = Phase { read: field(read), written: field(written), waits: waits != 0 };
        let whole = borrow(exchange, "exchange")?.0.handle::<NEIGHBOURS_MAX>(phase)?;
        let (head, link) = (size_of_val(&whole.head), size_of_val(&whole.links[0]));
        let needed = head + whole.head.count as usize * link;
        if bytes < needed || bytes > size_of_val(&whole) || !(bytes - head).is_multiple_of(link) {
            let what = format!(
                "{bytes}, an mp::Exchange of {} neighbours or more has at least {needed}", whole.head.count
            );
            return Err(Failure::argument("bytes", what));
        }
        if handle.is_null() {
            return Err(Failure::argument("handle", "is NULL"));
        }
        let from = std::ptr::from_ref(&whole).cast::<u8>();
        // The links are at its end: with fewer it is shorter.
        std::ptr::copy_nonoverlapping(from, handle.cast(), bytes);
    }

    /// Sends the border of a field.
    fn mp_exchange_start_on_stream(
        exchange: *const MpExchange,
        written: c_int,
        stream: *const MpStream,
    ) {
        let written = field(written).unwrap_or(usize::MAX);
        borrow(exchange, "exchange")?.0.start_on(&borrow(stream, "stream")?.stream, written)?;
    }

    /// Waits for the neighbours.
    fn mp_exchange_wait_on_stream(
        exchange: *const MpExchange,
        read: c_int,
        stream: *const MpStream,
    ) {
        borrow(exchange, "exchange")?.0.wait_on(&borrow(stream, "stream")?.stream, field(read))?;
    }

    /// Gives an exchange back.
    fn mp_exchange_free(exchange: *mut MpExchange) {
        drop(take(exchange, "exchange")?);
    }
}
