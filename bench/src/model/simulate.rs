//! One F-cycle on many ranks: a clock for each rank; after each pass with borders it sends to its neighbours and goes on when all their
//! messages of that pass have arrived. Ranks of a node share nothing but NVLink; a NIC sends one message after another. What
//! there is to do and to send is what `hpgmg-fv` does: [`FCycle`].

use hpgmg::cuda::FCycle;

use super::network::{FatTree, LogGp};

/// Microseconds of what one GPU does, fitted to one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compute {
    /// Of a launch of the kernel that does the coarsest levels at once.
    pub at_once: f64,
    /// Of a pass, whatever its size.
    pub pass: f64,
    /// Of a byte of memory that a pass moves.
    pub byte: f64,
}

impl Compute {
    /// What `at_once`, `pass` and `byte` are multiplied with.
    pub fn features(cycle: &FCycle) -> [f64; 3] {
        let mut features = [cycle.at_once() as f64, 0.0, 0.0];
        for level in cycle.levels() {
            features[1] += level.passes as f64;
            features[2] += level.bytes;
        }
        features
    }
}

/// What is simulated.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Between two GPUs of a node.
    pub mode: LogGp,
    /// Between nodes.
    pub tree: FatTree,
    /// Of one GPU.
    pub compute: Compute,
}

/// Microseconds of one F-cycle. Ranks of a node are consecutive ones.
pub fn f_cycle(machine: &Machine, cycle: &FCycle) -> f64 {
    let ranks = cycle.ranks();
    let mut clocks = Clocks { machine, now: vec![0.0; ranks], nic: vec![0.0; ranks] };
    let compute = machine.compute;
    for (l, level) in cycle.levels().iter().enumerate() {
        let pass = compute.pass + compute.byte * level.bytes / level.passes as f64;
        let borders: Vec<_> = (0..ranks).map(|rank| cycle.neighbours(l, rank)).collect();
        for number in 0..level.passes {
            clocks.now.iter_mut().for_each(|now| *now += pass);
            if number < level.exchanges {
                clocks.exchange(|rank| borders[rank].iter().copied());
            }
        }
        let gathers: Vec<_> = (0..ranks).map(|rank| cycle.gathers(l, rank)).collect();
        let stages = gathers.iter().map(Vec::len).max().unwrap_or(0);
        for stage in (0..level.restrictions).flat_map(|_| 0..stages) {
            clocks.exchange(|rank| {
                let to = gathers[rank].get(stage).into_iter();
                to.flat_map(|(others, bytes)| others.iter().map(|&other| (other, *bytes)))
            });
        }
    }
    let coarsest = compute.at_once * cycle.at_once() as f64;
    clocks.now.iter().copied().fold(0.0, f64::max) + coarsest
}

struct Clocks<'a> {
    machine: &'a Machine,
    /// When each rank has done what it has been told so far.
    now: Vec<f64>,
    /// When each rank's NIC is free.
    nic: Vec<f64>,
}

impl Clocks<'_> {
    /// Each rank sends what `messages` says, to whom and how many bytes, and goes on when what is sent to it has arrived.
    fn exchange<M: Iterator<Item = (usize, usize)>>(&mut self, messages: impl Fn(usize) -> M) {
        let mut arrived = self.now.clone();
        for from in 0..self.now.len() {
            let mut start = self.now[from];
            for (to, bytes) in messages(from) {
                let at = self.deliver(start, from, to, bytes as f64);
                arrived[to] = arrived[to].max(at);
                start += self.machine.mode.gap;
            }
            // What starts a message is not free for the sender either.
            arrived[from] = arrived[from].max(start);
        }
        arrived.iter_mut().for_each(|arrived| *arrived += self.machine.mode.exchange);
        self.now = arrived;
    }

    /// When a message that is started at `start` has been received.
    fn deliver(&mut self, start: f64, from: usize, to: usize, bytes: f64) -> f64 {
        let Machine { mode, tree, .. } = self.machine;
        if tree.same_node(from, to) {
            return start + mode.message(bytes);
        }
        let ready = start + mode.overhead;
        let sent = ready.max(self.nic[from]) + bytes * tree.per_byte.max(mode.per_byte);
        self.nic[from] = sent + tree.gap;
        sent + tree.latency(from, to) + mode.overhead
    }
}

#[cfg(test)]
mod tests {
    use hpgmg::cuda::Cut;

    use super::*;

    fn machine(gpus_per_node: usize, overhead: f64) -> Machine {
        Machine {
            mode: LogGp { latency: 1.0, overhead, gap: 0.1, per_byte: 1e-5, exchange: 0.0 },
            tree: FatTree::assumed(gpus_per_node),
            compute: Compute { at_once: 20.0, pass: 2.0, byte: 2e-7 },
        }
    }

    #[test]
    fn one_rank_takes_what_the_fit_says() {
        let (machine, cycle) = (machine(1, 1.0), FCycle::new(64, 1, Cut::default()).unwrap());
        let [visits, passes, bytes] = Compute::features(&cycle);
        let fitted = visits * 20.0 + passes * 2.0 + bytes * 2e-7;
        let simulated = f_cycle(&machine, &cycle);
        assert!((simulated - fitted).abs() < 1e-6 * fitted, "{simulated} {fitted}");
    }

    #[test]
    fn communication_costs_and_costs_more_between_nodes_and_with_more_overhead() {
        let boxes = FCycle::new(128, 8, Cut { along: &[[2, 2, 2]], ..Cut::default() }).unwrap();
        let time = |gpus, overhead| f_cycle(&machine(gpus, overhead), &boxes);
        let alone = f_cycle(&machine(8, 0.5), &FCycle::new(64, 1, Cut::default()).unwrap());
        assert!(alone < time(8, 0.5) && time(8, 0.5) < time(8, 5.0) && time(8, 0.5) < time(1, 0.5));
    }

    #[test]
    fn levels_that_fewer_ranks_share_cost_their_gathers() {
        let time = |gpus, along: &[[usize; 3]]| {
            f_cycle(
                &machine(gpus, 0.5),
                &FCycle::new(256, 8, Cut { along, ..Cut::default() }).unwrap(),
            )
        };
        let (all, fewer) = ([[2, 2, 2]], [[2, 2, 2], [2, 2, 2], [1, 1, 2]]);
        // Two stages each of three gathers more, and fewer neighbours: what is more depends on what a message costs.
        assert_ne!(time(8, &all), time(8, &fewer));
        let extra = |gpus| time(gpus, &fewer) - time(gpus, &all);
        assert_ne!(extra(1), extra(8));
    }
}
