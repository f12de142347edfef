//! Where the time of a rank goes: per level and phase.

use std::time::{Duration, Instant};

/// What a rank is doing.
///
/// See [`Timers`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Smoothing steps.
    Smooth,
    /// Residuals and applications of the operator.
    Residual,
    /// Halo exchanges and boundary fills.
    Exchange,
    /// Restriction, messages included.
    Restriction,
    /// Interpolation, messages included.
    Interpolation,
    /// The bottom solve, all of it.
    Bottom,
    /// Norms, copies and zeroing.
    Vectors,
}

impl Phase {
    /// All phases, in the order of a report.
    pub const ALL: [Phase; 7] = [
        Phase::Smooth,
        Phase::Residual,
        Phase::Exchange,
        Phase::Restriction,
        Phase::Interpolation,
        Phase::Bottom,
        Phase::Vectors,
    ];

    /// Name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Smooth => "smooth",
            Phase::Residual => "residual",
            Phase::Exchange => "exchange",
            Phase::Restriction => "restriction",
            Phase::Interpolation => "interpolation",
            Phase::Bottom => "bottom",
            Phase::Vectors => "vectors",
        }
    }
}

/// Accumulated times of one rank.
///
/// ```
/// use std::time::Instant;
///
/// use hpgmg::timers::{Phase, Timers};
///
/// let mut timers = Timers::new(1);
/// let start = Instant::now();
/// // Smooths level 0, and then takes the residual:
/// let next = timers.add(0, Phase::Smooth, start);
/// timers.add(0, Phase::Residual, next);
/// assert_eq!(timers.spent(0, Phase::Bottom).as_nanos(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Timers {
    spent: Vec<[Duration; Phase::ALL.len()]>,
    /// While set, everything counts as this phase (the bottom solve uses all operations).
    inside: Option<Phase>,
}

impl Timers {
    /// Timers of `levels` levels, all zero.
    pub fn new(levels: usize) -> Self {
        Self { spent: vec![Default::default(); levels], inside: None }
    }

    /// Adds the time since `since` and returns now.
    pub fn add(&mut self, level: usize, phase: Phase, since: Instant) -> Instant {
        let now = Instant::now();
        self.spent[level][self.inside.unwrap_or(phase) as usize] += now - since;
        now
    }

    /// Counts everything as `phase` until called with `None`.
    pub fn set_inside(&mut self, phase: Option<Phase>) {
        self.inside = phase;
    }

    /// Time spent in a phase of a level.
    pub fn spent(&self, level: usize, phase: Phase) -> Duration {
        self.spent[level][phase as usize]
    }

    /// Number of levels.
    pub fn levels(&self) -> usize {
        self.spent.len()
    }

    /// Sets all times to zero.
    pub fn reset(&mut self) {
        self.spent.fill(Default::default());
    }
}
