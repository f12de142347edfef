//! Ranks that are stopped, by a signal or a debugger: the user is told soon, and after as long as the ranks of a world may
//! be silent they count as gone, so that ranks which are still starting do not wait for them. Looks at nothing itself.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::parts::Parts;

/// Who is stopped and continued sooner than this is nobody's business.
const QUIET: Duration = Duration::from_secs(2);
/// Between two looks: at first, and later, when a start has become unlikely.
const SOON: Duration = Duration::from_millis(500);
const LATER: Duration = Duration::from_secs(5);
const START: Duration = Duration::from_secs(60);

/// The ranks that were stopped when last looked at.
#[derive(Debug)]
pub(super) struct Stopped {
    parts: Parts,
    limit: Duration,
    begin: Instant,
    looked: Instant,
    ranks: BTreeMap<usize, Rank>,
}

#[derive(Debug, Clone, Copy)]
struct Rank {
    process: i32,
    since: Instant,
    told: bool,
}

impl Stopped {
    /// `limit`: after which a stopped rank is given up.
    pub fn new(parts: Parts, limit: Duration, now: Instant) -> Stopped {
        Stopped { parts, limit, begin: now, looked: now, ranks: BTreeMap::new() }
    }

    fn pause(&self) -> Duration {
        if self.looked < self.begin + START { SOON } else { LATER }
    }

    /// When [`Stopped::look`] wants to be called.
    pub fn deadline(&self) -> Instant {
        self.looked + self.pause()
    }

    /// Takes in which ranks are stopped now, with their process. Returns what the user is to be told.
    pub fn look(&mut self, stopped: &[(usize, i32)], now: Instant) -> Vec<String> {
        // Not looked for so long: this process was stopped itself, most likely with the others.
        if now > self.deadline() + QUIET / 2 {
            self.ranks.clear();
        }
        self.looked = now;
        self.ranks.retain(|rank, _| stopped.iter().any(|(still, _)| still == rank));
        for &(rank, process) in stopped {
            self.ranks.entry(rank).or_insert(Rank { process, since: now, told: false });
        }
        let mut told = Vec::new();
        for (rank, Rank { process, since, told: already }) in &mut self.ranks {
            if !*already && now >= *since + QUIET {
                *already = true;
                let limit = self.limit.as_secs_f64();
                let name = self.parts.name(*rank);
                told.push(format!(
                    "{name} (process {process}) is stopped (state T of ps); ranks that are starting give it up after {limit} s"
                ));
            }
        }
        told
    }

    /// The rank that has been stopped for longer than the limit, if any, longest first; and how long.
    pub fn given_up(&self) -> Option<(usize, Duration)> {
        let (rank, longest) = self.ranks.iter().min_by_key(|(_, rank)| rank.since)?;
        let long = self.looked.saturating_duration_since(longest.since);
        (long >= self.limit).then_some((*rank, long))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// Looks every half second from `from` on, until `until`; what was told, and when.
    fn looks(
        stopped: &mut Stopped,
        who: &[(usize, i32)],
        [from, until]: [Instant; 2],
    ) -> Vec<(Duration, String)> {
        let mut told = Vec::new();
        let mut now = from;
        while now <= until {
            told.extend(stopped.look(who, now).into_iter().map(|text| (now - from, text)));
            now += SOON;
        }
        told
    }

    #[test]
    fn a_stopped_rank_is_named_once_after_two_seconds_and_given_up_at_the_limit() {
        let now = Instant::now();
        let mut stopped = Stopped::new(Parts::Ranks { first: 0, count: 4 }, LIMIT, now);
        let told = looks(&mut stopped, &[(3, 77)], [now, now + LIMIT - SOON]);
        let [(after, text)] = &told[..] else { panic!("{told:?}") };
        assert_eq!(*after, QUIET);
        assert!(text.starts_with("rank 3 (process 77) is stopped"), "{text}");
        assert_eq!(stopped.given_up(), None);
        stopped.look(&[(3, 77)], now + LIMIT);
        assert_eq!(stopped.given_up(), Some((3, LIMIT)));
        stopped.look(&[], now + LIMIT + SOON);
        assert_eq!(stopped.given_up(), None, "it goes on");
    }

    #[test]
    fn ranks_that_go_on_in_between_or_were_stopped_together_with_mprun_are_not_named() {
        let now = Instant::now();
        let mut stopped = Stopped::new(Parts::Ranks { first: 0, count: 4 }, LIMIT, now);
        let almost = now + QUIET - SOON;
        assert_eq!(looks(&mut stopped, &[(0, 7)], [now, almost]), []);
        assert_eq!(stopped.look(&[], now + QUIET), [""; 0]);
        assert_eq!(stopped.look(&[(0, 7)], now + QUIET + SOON), [""; 0]);
        // Nobody looked for a minute.
        assert_eq!(stopped.look(&[(0, 7)], now + START), [""; 0]);
        assert_eq!(stopped.given_up(), None);
    }
}
