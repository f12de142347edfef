//! Ways of communicating side by side: the same problem on the same ranks, solves in turn, so that all see the same
//! machine; what they find must be the same bits.

use std::fmt::Write as _;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::backend::Vector;
use crate::cpu::Cpu;
use crate::cuda::Gpu;
use crate::cycle::Solved;
use crate::enqueued::Enqueued;
use crate::error::Error;
use crate::run::Solver;
use crate::vectors::fingerprint;

/// One way and its solver.
///
/// See [`Comparison`] for an example.
pub struct Contestant<'a> {
    /// As on the command line.
    pub name: String,
    /// Its solver.
    pub solver: &'a mut dyn Contender,
}

/// A solver that others are compared with.
///
/// See [`Comparison`] for an example.
pub trait Contender: Solver {
    /// A number that tells this rank's part of the finest solution apart, every bit of every cell.
    ///
    /// # Errors
    /// What went wrong on its device or stream.
    fn cells(&mut self) -> Result<u64, Error>;
    /// Which part of the problem each rank has, in words.
    ///
    /// # Errors
    /// As [`cells`](Self::cells).
    fn distribution(&self) -> Result<String, Error>;
    /// Whether the CPU computes coarse levels for the GPU.
    fn is_hybrid(&self) -> bool {
        false
    }
    /// Time that it did so since the last call.
    fn take_time_on_cpu(&mut self) -> Duration {
        Duration::ZERO
    }
}

impl Contender for Gpu {
    fn cells(&mut self) -> Result<u64, Error> {
        Ok(fingerprint(&self.download(0, Vector::U)?))
    }

    fn distribution(&self) -> Result<String, Error> {
        Ok(Gpu::distribution(self).unwrap_or_default())
    }

    fn is_hybrid(&self) -> bool {
        self.first_on_cpu() < self.levels()
    }

    fn take_time_on_cpu(&mut self) -> Duration {
        Gpu::take_time_on_cpu(self)
    }
}

impl Contender for Cpu {
    fn cells(&mut self) -> Result<u64, Error> {
        self.fingerprint(0)
    }

    fn distribution(&self) -> Result<String, Error> {
        let shape = &self.level(0).shape;
        Ok(format!("{} boxes of {}³", shape.boxes(), shape.box_dim))
    }
}

impl Contender for Enqueued {
    fn cells(&mut self) -> Result<u64, Error> {
        self.fingerprint(0)
    }

    fn distribution(&self) -> Result<String, Error> {
        self.with(|cpu| Contender::distribution(cpu))?
    }
}

/// What one way took.
///
/// See [`Comparison`] for an example.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The way.
    pub name: String,
    /// Of the timed solves, the slowest rank's.
    pub median: Duration,
    /// The shortest and the longest.
    pub range: [Duration; 2],
    /// Median without the time that the CPU computed coarse levels, the slowest rank's: the GPU levels alone.
    pub on_gpu: Duration,
    /// All its solves found the bits of the first solve of the first way.
    pub same: bool,
}

/// The outcome on every rank.
///
/// ```
/// use std::time::Duration;
///
/// use hpgmg::comm::Alone;
/// use hpgmg::compare::{Contestant, compare};
/// use hpgmg::cpu::Cpu;
/// use hpgmg::options::Config;
///
/// let config = Config { box_dim: 16, ..Config::default() };
/// let mut one = Cpu::new(config.clone(), &Alone, 1)?;
/// let mut two = Cpu::new(config, &Alone, 2)?;
/// let comparison = compare(
///     &mut [
///         Contestant { name: "one thread".into(), solver: &mut one },
///         Contestant { name: "two threads".into(), solver: &mut two },
///     ],
///     1,
/// )?;
/// assert!(comparison.passes()); // the same bits
/// println!("{}", comparison.text());
/// # Ok::<(), hpgmg::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Cells per side.
    pub dim: usize,
    /// Solves of each.
    pub solves: usize,
    /// Which levels the ranks share, in words.
    pub distribution: String,
    /// The CPU has computed coarse levels.
    pub hybrid: bool,
    /// In the order asked for.
    pub rows: Vec<Row>,
}

/// Solves `solves` times with each, in turn, after one to warm up. Collective.
///
/// # Errors
/// When the ranks lose each other or a device fails.
pub fn compare(contestants: &mut [Contestant<'_>], solves: usize) -> Result<Comparison, Error> {
    let mut times: Vec<[Vec<Duration>; 2]> =
        contestants.iter().map(|_| Default::default()).collect();
    let mut same = vec![true; contestants.len()];
    let mut expected: Option<Vec<u64>> = None;
    let mut solved = Solved::empty();
    for turn in 0..=solves {
        for (number, Contestant { solver, .. }) in contestants.iter_mut().enumerate() {
            if !solver.active(0) {
                continue;
            }
            solver.zero_solution(0)?;
            // All begin together.
            solver.agree(0, 0.0)?;
            solver.take_time_on_cpu();
            solver.solve(0, &mut solved)?;
            let on_gpu = solved.time.saturating_sub(solver.take_time_on_cpu());
            for (times, time) in times[number].iter_mut().zip([solved.time, on_gpu]) {
                let slowest = Duration::from_secs_f64(solver.agree(0, time.as_secs_f64())?);
                if turn > 0 {
                    times.push(slowest);
                }
            }
            let mut found = vec![solved.fmax.to_bits()];
            found.extend(solved.cycles.iter().map(|cycle| cycle.residual.to_bits()));
            if turn == 0 {
                // Of every cell, once; later solves are compared by their residuals.
                found.push(solver.cells()?);
            }
            let expected = expected.get_or_insert_with(|| found.clone());
            let differs = found[..] != expected[..found.len()];
            same[number] &= solver.agree(0, f64::from(u8::from(differs)))? == 0.0;
        }
    }
    let first = contestants.first().map(|first| &first.solver);
    let dim = first.map_or(0, |solver| solver.dim(0));
    let hybrid = first.is_some_and(|solver| solver.is_hybrid());
    let distribution = first.map_or(Ok(String::new()), |solver| solver.distribution())?;
    let rows = contestants.iter().zip(times).zip(same);
    let rows = rows.map(|((contestant, [mut total, mut on_gpu]), same)| {
        let median = median(&mut total);
        let at = |index: usize| total.get(index).copied().unwrap_or_default();
        Row {
            name: contestant.name.clone(),
            median,
            range: [at(0), at(total.len().max(1) - 1)],
            on_gpu: self::median(&mut on_gpu),
            same,
        }
    });
    Ok(Comparison { dim, solves, distribution, hybrid, rows: rows.collect() })
}

/// Sorts the times.
fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    let at = |index: usize| times.get(index).copied().unwrap_or_default();
    (at((times.len().max(1) - 1) / 2) + at(times.len() / 2)) / 2
}

impl Comparison {
    /// Whether all found the same.
    pub fn passes(&self) -> bool {
        self.rows.iter().all(|row| row.same)
    }

    /// What the others are compared with: `mpi`, or else `host`, or else the first.
    fn baseline(&self) -> Option<&Row> {
        let named = |name: &str| self.rows.iter().find(|row| row.name == name);
        named("mpi").or_else(|| named("host")).or_else(|| self.rows.first())
    }

    /// As a table.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let baseline = self.baseline();
        let gain = format!("gain over {}", baseline.map_or("", |row| &row.name[..]));
        let mut header = vec!["comm", "median ms", "min", "max", &gain[..]];
        if self.hybrid {
            header.extend(["GPU levels ms", "gain"]);
        }
        header.push("bits");
        table.set_header(header);
        for row in &self.rows {
            let ms = |time: Duration| format!("{:.3}", 1e3 * time.as_secs_f64());
            let gain = |of: fn(&Row) -> Duration| {
                let over = |base: &Row| 1.0 - of(row).as_secs_f64() / of(base).as_secs_f64();
                format!("{:.1} %", 100.0 * baseline.map_or(0.0, over))
            };
            let mut cells = vec![
                row.name.clone(),
                ms(row.median),
                ms(row.range[0]),
                ms(row.range[1]),
                gain(|row| row.median),
            ];
            if self.hybrid {
                cells.extend([ms(row.on_gpu), gain(|row| row.on_gpu)]);
            }
            cells.push(if row.same { "same".into() } else { "DIFFERENT".into() });
            table.add_row(cells);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}³ cells ({}), {} solves of each in turn\n\n{table}",
            self.dim, self.distribution, self.solves
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, ms: u64, same: bool) -> Row {
        let median = Duration::from_millis(ms);
        Row { name: name.into(), median, range: [median; 2], on_gpu: median / 2, same }
    }

    #[test]
    fn gains_are_over_mpi_or_else_host_and_a_difference_is_shown() {
        let rows = vec![row("kernel", 6, true), row("host", 8, true), row("mpi", 10, true)];
        let mut comparison = Comparison {
            dim: 64,
            solves: 20,
            distribution: "in slabs".into(),
            hybrid: false,
            rows,
        };
        assert!(!comparison.text().contains("GPU levels"));
        comparison.hybrid = true;
        assert!(comparison.text().contains("GPU levels"));
        comparison.hybrid = false;
        assert!(
            comparison.text().contains("gain over mpi") && comparison.text().contains("40.0 %")
        );
        assert!(comparison.passes());
        comparison.rows.pop();
        comparison.rows[0].same = false;
        assert!(
            comparison.text().contains("gain over host") && comparison.text().contains("25.0 %")
        );
        assert!(comparison.text().contains("DIFFERENT") && !comparison.passes());
    }
}
