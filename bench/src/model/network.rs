//! What a message costs: LogGP (Alexandrov, Ionescu, Schauser and Scheiman, 1995) with the parameters of a mode, over NVLink
//! within a node and over a fat tree of NICs and switches between nodes.

/// The LogGP parameters of a mode, in microseconds and bytes, between two GPUs of a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogGp {
    /// Time on the wire of the shortest message.
    pub latency: f64,
    /// Time of one end for one message.
    pub overhead: f64,
    /// Time between two messages of one rank.
    pub gap: f64,
    /// Time of a byte.
    pub per_byte: f64,
    /// What an exchange takes besides its messages: that neighbours are not ready at the same time, and that borders are work of their own.
    pub exchange: f64,
}

impl LogGp {
    /// Time from the start of a send of `bytes` until the receiver goes on.
    pub fn message(&self, bytes: f64) -> f64 {
        2.0 * self.overhead + self.latency + bytes * self.per_byte
    }
}

/// What is assumed of the network between nodes; nothing of it was measured here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FatTree {
    /// GPUs of a node, each with a NIC of its own.
    pub gpus_per_node: usize,
    /// Microseconds from NIC to NIC through one switch.
    pub nic_latency: f64,
    /// Microseconds for each further switch.
    pub hop: f64,
    /// Microseconds of a NIC for a byte.
    pub per_byte: f64,
    /// Microseconds between two messages of a NIC.
    pub gap: f64,
    /// Nodes under a switch of the first layer, and first-layer switches under one of the second.
    pub radix: usize,
}

impl FatTree {
    /// A NIC of 400 Gbit/s in switches of 64 ports: figures of its data sheets' order, to be replaced by measured ones.
    pub fn assumed(gpus_per_node: usize) -> FatTree {
        FatTree {
            gpus_per_node,
            nic_latency: 1.5,
            hop: 0.25,
            per_byte: 1.0 / 48e3,
            gap: 0.01,
            radix: 32,
        }
    }

    /// Whether two ranks are in one node.
    pub fn same_node(&self, a: usize, b: usize) -> bool {
        a / self.gpus_per_node == b / self.gpus_per_node
    }

    /// Latency between two nodes.
    pub fn latency(&self, a: usize, b: usize) -> f64 {
        let switch = |rank: usize| rank / self.gpus_per_node / self.radix;
        let further = if switch(a) == switch(b) {
            0.0
        } else if switch(a) / self.radix == switch(b) / self.radix {
            2.0
        } else {
            4.0
        };
        self.nic_latency + further * self.hop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_further_apart_the_more_switches() {
        let tree = FatTree { nic_latency: 1.0, hop: 0.5, radix: 2, ..FatTree::assumed(4) };
        assert!(tree.same_node(0, 3) && !tree.same_node(3, 4));
        // Nodes 0 and 1 share a switch, 0 and 2 a pod, 0 and 4 neither.
        let to = |node: usize| tree.latency(0, 4 * node);
        assert_eq!((to(1), to(2), to(4)), (1.0, 2.0, 3.0));
    }

    #[test]
    fn a_message_costs_both_ends_the_wire_and_its_bytes() {
        let mode = LogGp { latency: 1.0, overhead: 0.25, gap: 0.0, per_byte: 0.001, exchange: 0.0 };
        assert_eq!(mode.message(1000.0), 2.5);
    }
}
