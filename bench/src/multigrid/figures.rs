//! The figures of HPGMG-FV: times and speeds by size for each number of ranks, gains over the first mode by size and number
//! of ranks, and speed by number of ranks for each size.

use super::{Measured, Plan, Solve};
use crate::result::{Axis, Figure, Plot, Point, Role, Series};

pub(super) fn all(plan: &Plan, measured: &[Measured]) -> Vec<Figure> {
    let mut counts: Vec<Option<usize>> = measured.iter().map(|point| point.ranks).collect();
    counts.dedup();
    let mut figures = Vec::new();
    for &ranks in &counts {
        let here: Vec<&Measured> = measured.iter().filter(|point| point.ranks == ranks).collect();
        figures.push(lines(
            &format!("HPGMG-FV, one solve{}", title(ranks)),
            Axis::log("cells a side", ""),
            Axis::log("solve", "ms"),
            true,
            series(plan, &here, |point| point.dim, |solve| solve.seconds * 1e3),
        ));
        let mut speeds = series(plan, &here, |point| point.dim, |solve| solve.dof_per_s);
        speeds.extend(roofline(plan, &here, ranks.unwrap_or(1)));
        figures.push(lines(
            &format!("HPGMG-FV, speed{}", title(ranks)),
            Axis::log("cells a side", ""),
            Axis::log("speed", "DOF/s"),
            false,
            speeds,
        ));
    }
    figures.extend(gains(plan, measured));
    if counts.len() > 1 {
        figures.extend(scaling(plan, measured));
    }
    figures
}

fn title(ranks: Option<usize>) -> String {
    match ranks {
        None => String::new(),
        Some(1) => ", 1 rank".into(),
        Some(ranks) => format!(", {ranks} ranks"),
    }
}

fn lines(title: &str, x: Axis, y: Axis, less_is_better: bool, series: Vec<Series>) -> Figure {
    Figure { title: title.into(), plot: Plot::Lines, x, y, less_is_better, series }
}

/// One series for each mode.
fn series(
    plan: &Plan,
    measured: &[&Measured],
    x: fn(&Measured) -> f64,
    value: fn(&Solve) -> f64,
) -> Vec<Series> {
    let one = |(place, mode): (usize, &super::Mode)| Series {
        name: mode.name.clone(),
        role: Role::Ours,
        points: measured
            .iter()
            .map(|point| Point {
                x: x(point),
                samples: point.solves[place].iter().map(value).collect(),
                p99: None,
            })
            .collect(),
    };
    plan.modes.iter().enumerate().map(one).collect()
}

/// Memory's bandwidth over the bytes of a cell.
fn roofline(plan: &Plan, measured: &[&Measured], ranks: usize) -> Option<Series> {
    let bandwidth = plan.bandwidth? * ranks as f64;
    let points: Vec<Point> = measured
        .iter()
        .filter_map(|point| {
            let samples = vec![bandwidth * 1e9 / point.bytes_per_cell?];
            Some(Point { x: point.dim, samples, p99: None })
        })
        .collect();
    let name = format!("memory at {bandwidth} GB/s");
    (!points.is_empty()).then_some(Series { name, role: Role::Floor, points })
}

/// By size, a bar for each mode but the first and each number of ranks that communicate.
fn gains(plan: &Plan, measured: &[Measured]) -> Option<Figure> {
    let base = plan.modes.first()?;
    let mut series: Vec<Series> = Vec::new();
    for point in measured.iter().filter(|point| point.ranks != Some(1)) {
        for (mode, solves) in plan.modes.iter().zip(&point.solves).skip(1) {
            let name = format!("{}{}", mode.name, title(point.ranks));
            let samples = point.solves[0].iter().zip(solves);
            let samples = samples.map(|(a, b)| (a.seconds / b.seconds - 1.0) * 100.0).collect();
            let gain = Point { x: point.dim, samples, p99: None };
            match series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(gain),
                None => series.push(Series { name, role: Role::Ours, points: vec![gain] }),
            }
        }
    }
    (!series.is_empty()).then(|| Figure {
        title: "HPGMG-FV, gain".into(),
        plot: Plot::Bars,
        x: Axis::linear("cells a side", ""),
        y: Axis::linear(&format!("gain over {}", base.name), "%"),
        less_is_better: false,
        series,
    })
}

/// For each size, speed by number of ranks.
fn scaling(plan: &Plan, measured: &[Measured]) -> Vec<Figure> {
    let mut dims: Vec<f64> = measured.iter().map(|point| point.dim).collect();
    dims.sort_by(f64::total_cmp);
    dims.dedup();
    dims.into_iter()
        .map(|dim| {
            let here: Vec<&Measured> = measured.iter().filter(|point| point.dim == dim).collect();
            lines(
                &format!("HPGMG-FV, scaling, {dim}³"),
                Axis::log("ranks", ""),
                Axis::log("speed", "DOF/s"),
                false,
                series(
                    plan,
                    &here,
                    |point| point.ranks.unwrap_or(1) as f64,
                    |solve| solve.dof_per_s,
                ),
            )
        })
        .collect()
}
