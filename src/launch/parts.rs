//! What a job consists of for the `mprun` that looks after it: ranks, or, for the one that was told the hosts of a job,
//! hosts, each with an `mprun` that looks after its ranks. Names only.

/// The parts of a job, each of which is a process and what it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// So many ranks of this host, from the first on.
    Ranks { first: usize, count: usize },
    /// Hosts, by the names that the user gave them.
    Hosts(Vec<String>),
}

impl Parts {
    pub fn len(&self) -> usize {
        match self {
            Parts::Ranks { count, .. } => *count,
            Parts::Hosts(names) => names.len(),
        }
    }

    /// What a message calls one.
    pub fn name(&self, part: usize) -> String {
        match self {
            Parts::Ranks { first, .. } => format!("rank {}", first + part),
            Parts::Hosts(names) => {
                format!("the launcher of host {}", names.get(part).map_or("?", String::as_str))
            }
        }
    }

    /// What a message calls some of them.
    pub fn noun(&self, count: usize) -> &'static str {
        match (self, count) {
            (Parts::Ranks { .. }, 1) => "rank",
            (Parts::Ranks { .. }, _) => "ranks",
            (Parts::Hosts(_), 1) => "host",
            (Parts::Hosts(_), _) => "hosts",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_called_by_their_rank_in_the_job_or_their_host() {
        let ranks = Parts::Ranks { first: 4, count: 2 };
        assert_eq!(
            (ranks.name(1), ranks.noun(1), ranks.noun(2)),
            ("rank 5".into(), "rank", "ranks")
        );
        let hosts = Parts::Hosts(vec!["a".into(), "b".into()]);
        assert_eq!((hosts.name(1), hosts.noun(1)), ("the launcher of host b".into(), "host"));
        assert_eq!(hosts.len(), 2);
    }
}
