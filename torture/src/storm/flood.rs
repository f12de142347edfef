//! The fast part of a storm: hundreds of short messages of all pairs of ranks at once, again and again, with nothing between
//! the rounds but the messages themselves. What comes is compared word by word, as everywhere.

use libmp::{Operation, Stream, World, wait_all};

use super::plan::{Plan, mix, word};
use super::play::{End, Half, Play, Stop, UNTOUCHED, deadline, prepare};
use crate::mark::Mark;

/// What a round adds to a message's name.
const ROUND: u64 = 0xd134_2543_de82_ef95;

/// An end and what it needs every round.
struct Place<'a> {
    half: &'a Half,
    /// The name of its message in round 0.
    name: u64,
    /// Words of the message.
    len: usize,
}

impl Play<'_> {
    /// One generation: prepared, used, dropped.
    pub(super) fn flood(
        &mut self,
        world: &World,
        stream: &Stream,
        plan: &Plan,
        name: [u64; 2],
        mark: &Mark,
    ) -> Result<(), Stop> {
        let halves = prepare(world, plan)?;
        let place = |half| place(half, plan, name);
        // On the one stream a send must not wait in front of this rank's own receive.
        let (sends, recvs): (Vec<&Half>, Vec<&Half>) =
            halves.iter().partition(|half| matches!(half.end, End::Send(_)));
        let sends: Vec<Place<'_>> = sends.into_iter().map(place).collect();
        let recvs: Vec<Place<'_>> = recvs.into_iter().map(place).collect();
        let all: Vec<&dyn Operation> =
            recvs.iter().chain(&sends).map(|place| place.half.operation()).collect();
        let mut scratch = Vec::new();
        // A stream waits for what its peer has prepared, so all prepare before any starts.
        world.barrier()?;
        for round in 0..plan.rounds {
            // Each round begins with another one.
            let turn = mix(&[round]) as usize;
            for place in rotated(&recvs, turn) {
                self.post(place, stream, &mut scratch)?;
                self.count(world, mark)?;
            }
            for place in rotated(&sends, turn) {
                self.fill(place, round, stream, &mut scratch)?;
                self.count(world, mark)?;
            }
            wait_all(&all, deadline())?;
            for place in &recvs {
                self.check(place, round, name)?;
            }
        }
        // Nobody drops what another still uses.
        Ok(world.barrier()?)
    }

    fn post(&self, place: &Place<'_>, stream: &Stream, scratch: &mut Vec<u64>) -> Result<(), Stop> {
        let Half { region, end, on_stream, .. } = place.half;
        let End::Recv(recv) = end else { return Ok(()) };
        scratch.clear();
        scratch.resize(region.len(), UNTOUCHED);
        region.write(scratch)?;
        Ok(if *on_stream { recv.start_on(stream) } else { recv.start() }?)
    }

    fn fill(
        &self,
        place: &Place<'_>,
        round: u64,
        stream: &Stream,
        scratch: &mut Vec<u64>,
    ) -> Result<(), Stop> {
        let Half { region, end, on_stream, .. } = place.half;
        let End::Send(send) = end else { return Ok(()) };
        let name = in_round(place.name, round);
        scratch.clear();
        scratch.extend((0..region.len()).map(|at| word(name, at)));
        region.write(scratch)?;
        Ok(if *on_stream { send.start_on(stream) } else { send.start() }?)
    }

    fn check(&mut self, place: &Place<'_>, round: u64, name: [u64; 2]) -> Result<(), Stop> {
        let Half { number, region, end, .. } = place.half;
        self.messages += 1;
        let (sent, len) = (in_round(place.name, round), place.len);
        let expected = |at| if at < len { word(sent, at) } else { UNTOUCHED };
        self.compare(
            format_args!("message {number} of the flood in round {round}"),
            name,
            &region.to_vec()?,
            expected,
        )?;
        match end {
            End::Recv(recv) if recv.message_len()? != Some(8 * len as u64) => {
                let found = recv.message_len()?;
                Err(Stop::Wrong(format!(
                    "message {number} of the flood in round {round}: its length is {found:?}"
                )))
            }
            _ => Ok(()),
        }
    }
}

fn place<'a>(half: &'a Half, plan: &Plan, [world, generation]: [u64; 2]) -> Place<'a> {
    let name = mix(&[world, generation, half.number as u64]);
    Place { half, name, len: plan.messages[half.number].len }
}

fn in_round(name: u64, round: u64) -> u64 {
    name.wrapping_add(round.wrapping_mul(ROUND))
}

/// All of them, beginning somewhere.
fn rotated<'a, 'b>(
    places: &'a [Place<'b>],
    turn: usize,
) -> impl Iterator<Item = &'a Place<'b>> + use<'a, 'b> {
    let first = turn % places.len().max(1);
    places[first..].iter().chain(&places[..first])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_later_every_word_of_a_message_is_another() {
        let name = mix(&[1, 2, 3]);
        for round in 0..300 {
            let (now, then) = (in_round(name, round), in_round(name, round + 1));
            assert!((0..512).all(|at| word(now, at) != word(then, at)));
        }
    }
}
