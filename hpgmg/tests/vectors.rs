//! Fields that the reference program printed: coefficients, ghosts, operator, transfers, one call of
//! every smoother, one V-cycle, one F-cycle.

mod common;

use hpgmg::backend::{Backend, Operators, Prolongation, Vector};
use hpgmg::cpu::Cpu;
use hpgmg::cycle::Kind;
use hpgmg::options::{Config, Operator, Smoother};
use hpgmg::transfer::Rule;
use serde::Deserialize;

#[derive(Deserialize)]
struct Field {
    field: String,
    ni: usize,
    nj: usize,
    max: f64,
    stored: bool,
    probes: Vec<Probe>,
}

#[derive(Deserialize)]
struct Probe {
    ijk: [usize; 3],
    v: f64,
}

/// `((7i + 13j + 29k + 3ij + 5jk + 11ki) mod 127 - 63) / 64` on level `l`.
fn formula(cpu: &mut Cpu, l: usize, v: Vector) {
    each(cpu, l, v, |[i, j, k], x| {
        let sum = 7 * i + 13 * j + 29 * k + 3 * i * j + 5 * j * k + 11 * k * i;
        *x = ((sum % 127) as f64 - 63.0) / 64.0;
    });
}

fn each(cpu: &mut Cpu, l: usize, v: Vector, mut f: impl FnMut([usize; 3], &mut f64)) {
    let level = cpu.level_mut(l);
    let (g, n) = (level.geometry, level.geometry.n);
    let mut field = level.take(v);
    for index in 0..level.boxes.len() {
        let [oi, oj, ok] = level.origin(index);
        for k in 0..n {
            for j in 0..n {
                for i in 0..n {
                    let at = index * g.volume + g.row(j, k) + i;
                    f([oi + i, oj + j, ok + k], &mut field[at]);
                }
            }
        }
    }
    level.put(v, field);
}

/// The value of `v` at a global cell; `faces` allows the one index beyond.
fn value(cpu: &Cpu, l: usize, v: Vector, cell: [usize; 3]) -> f64 {
    let level = cpu.level(l);
    let (g, m) = (level.geometry, level.shape.boxes_per_side);
    let b = cell.map(|c| (c / g.n).min(m - 1));
    let id = level.shape.id(b);
    let index = level.boxes.iter().position(|&x| x == id).unwrap();
    let local = [0, 1, 2].map(|a| (cell[a] - b[a] * g.n) as isize);
    level.field(v)[index * g.volume + g.at(local[0], local[1], local[2])]
}

struct Reference<'a> {
    folder: String,
    fields: Vec<Field>,
    name: &'a str,
}

impl Reference<'_> {
    /// Compares with a field of the reference. `get` gives the value at an index of its array; the part
    /// it returns `None` for is not meaningful.
    fn compare(&self, name: &str, get: impl Fn([usize; 3]) -> Option<f64>) {
        self.compare_above(name, 0.0, get);
    }

    /// As [`Self::compare`], with differences up to `floor` allowed besides.
    fn compare_above(&self, name: &str, floor: f64, get: impl Fn([usize; 3]) -> Option<f64>) {
        let field = self.fields.iter().find(|f| f.field == name);
        let field = field.unwrap_or_else(|| panic!("{}: no field {name}", self.name));
        let mut compared = 0;
        let mut check = |ijk: [usize; 3], expected: f64| {
            let Some(found) = get(ijk) else { return };
            compared += 1;
            let allowed = 1e-12 * field.max + floor;
            assert!(
                (found - expected).abs() <= allowed,
                "{} {name} at {ijk:?}: {found:e}, not {expected:e}",
                self.name
            );
        };
        for probe in &field.probes {
            check(probe.ijk, probe.v);
        }
        if field.stored {
            let bytes = std::fs::read(format!("{}/{name}.f64", self.folder)).unwrap();
            for (index, bytes) in bytes.chunks_exact(8).enumerate() {
                let ijk =
                    [index % field.ni, index / field.ni % field.nj, index / (field.ni * field.nj)];
                check(ijk, f64::from_le_bytes(bytes.try_into().unwrap()));
            }
        }
        assert!(compared > 0, "{} {name}: nothing compared", self.name);
    }

    fn cells(&self, name: &str, cpu: &Cpu, l: usize, v: Vector) {
        self.compare(name, |ijk| Some(value(cpu, l, v, ijk)));
    }

    /// A residual of a solved system: the unit roundoff of the terms that cancel in it is allowed.
    fn residual(&self, name: &str, cpu: &Cpu, v: Vector) {
        let largest = |v, f: fn(f64) -> f64| {
            cpu.level(0).field(v).iter().filter(|x| **x != 0.0).fold(0.0, |m: f64, x| m.max(f(*x)))
        };
        let diagonal = largest(Vector::Dinv, |x| 1.0 / x.abs());
        let floor = 0.5 * f64::EPSILON * 2.0 * diagonal * largest(Vector::U, f64::abs);
        self.compare_above(name, floor, |ijk| Some(value(cpu, 0, v, ijk)));
    }

    /// Ghosts of a single box. Only regions that `shape` (number of nonzero directions) reaches.
    fn ghosts(&self, name: &str, cpu: &Cpu, l: usize, v: Vector, most: usize, layers: isize) {
        let g = cpu.level(l).geometry;
        let depth = g.ghosts as isize;
        self.compare(name, |ijk| {
            let c = ijk.map(|x| x as isize - depth);
            let outside = |x: isize| (-x).max(x - (g.n as isize - 1)).max(0);
            let beyond = c.iter().filter(|x| outside(**x) > 0).count();
            if beyond > most || c.iter().any(|x| outside(*x) > layers) {
                return None;
            }
            Some(cpu.level(l).field(v)[g.at(c[0], c[1], c[2])])
        });
    }
}

fn reference(operator: &str, config: &str) -> Reference<'static> {
    let folder = format!("{}/tests/data/vectors/{operator}/{config}", env!("CARGO_MANIFEST_DIR"));
    let manifest = std::fs::read_to_string(format!("{folder}/manifest.jsonl")).unwrap();
    let fields = manifest
        .lines()
        .filter(|line| line.contains("\"field\""))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let name = Box::leak(format!("{operator} {config}").into_boxed_str());
    Reference { folder, fields, name }
}

fn compare(operator: Operator, name: &str, config: &str, box_dim: usize, boxes: usize) {
    let reference = reference(name, config);
    let with = |smoother| Config {
        operator,
        smoother,
        box_dim,
        boxes_per_rank: boxes,
        ..Config::default()
    };
    common::on_ranks(&with(Smoother::Gsrb), 1, 1, |cpu, _| {
        let (u, f, t, r) = (Vector::U, Vector::F, Vector::Temp, Vector::R);
        let same = |name: &str, cpu: &Cpu, l, v| reference.cells(name, cpu, l, v);
        same("f", cpu, 0, f);
        for (axis, name) in ["beta_i", "beta_j", "beta_k"].iter().enumerate() {
            same(name, cpu, 0, Vector::Beta(axis as u8));
        }
        same("L1_beta_i", cpu, 1, Vector::Beta(0));
        same("Dinv", cpu, 0, Vector::Dinv);
        same("L1_Dinv", cpu, 1, Vector::Dinv);
        same("L1_f", cpu, 1, f);

        formula(cpu, 0, u);
        formula(cpu, 1, u);
        same("u0", cpu, 0, u);
        same("L1_u0c", cpu, 1, u);
        if boxes == 1 {
            cpu.fill_halo(0, u)?;
            let most = match operator {
                Operator::Fv4 => 2,
                Operator::P27 => 3,
                _ => 1,
            };
            reference.ghosts("u0_bc_stencil_ghosted", cpu, 0, u, most, 2);
            if !operator.is_point_centred() {
                cpu.fill_surround(0, u, Rule::Quadratic)?;
                reference.ghosts("u0_bc_v2_box_ghosted", cpu, 0, u, 3, 2);
            }
            if operator == Operator::Fv4 {
                cpu.fill_surround(0, u, Rule::Quartic)?;
                reference.ghosts("u0_bc_v4_box_ghosted", cpu, 0, u, 3, 2);
                // The stencil reads one layer in tangential directions, one at a time, over n + 1 faces.
                for (l, name) in [(0, "beta_i_ghosted"), (1, "L1_beta_i_ghosted")] {
                    let g = cpu.level(l).geometry;
                    reference.compare(name, |ijk| {
                        let c = ijk.map(|x| x as isize - g.ghosts as isize);
                        let out = |x: isize| x < 0 || x >= g.n as isize;
                        let far = |x: isize| x < -1 || x > g.n as isize;
                        if c[0] < 0
                            || c[0] > g.n as isize
                            || far(c[1])
                            || far(c[2])
                            || (out(c[1]) && out(c[2]))
                        {
                            return None;
                        }
                        Some(cpu.level(l).field(Vector::Beta(0))[g.at(c[0], c[1], c[2])])
                    });
                }
            }
        }
        cpu.apply(0, t, u)?;
        same("Au0", cpu, 0, t);
        cpu.residual(0, t, u, f)?;
        same("res0", cpu, 0, t);
        cpu.restrict(0, t, r)?;
        same("L1_restrict_res0", cpu, 1, r);
        cpu.prolong(0, u, Prolongation::Correct)?;
        same("interp_v", cpu, 0, u);
        cpu.prolong(0, u, Prolongation::Replace)?;
        same("interp_f", cpu, 0, u);

        cpu.zero(0, u);
        cpu.cycle_levels().cycle(Kind::V, 0, &mut |step| cpu.step(step))?;
        same("vcycle1_u", cpu, 0, u);
        cpu.residual(0, t, u, f)?;
        reference.residual("vcycle1_res", cpu, t);
        cpu.cycle_levels().cycle(Kind::F, 0, &mut |step| cpu.step(step))?;
        same("fcycle_u", cpu, 0, u);
        same("L1_fcycle_u", cpu, 1, u);
        cpu.residual(0, t, u, f)?;
        reference.residual("fcycle_res", cpu, t);
        Ok(())
    });
    for (smoother, name) in [
        (Smoother::Gsrb, "smooth_gsrb"),
        (Smoother::Chebyshev, "smooth_cheby"),
        (Smoother::Jacobi, "smooth_jacobi"),
        (Smoother::L1Jacobi, "smooth_l1jacobi"),
    ] {
        common::on_ranks(&with(smoother), 1, 1, |cpu, _| {
            formula(cpu, 0, Vector::U);
            cpu.smooth(0, Vector::U, Vector::F)?;
            reference.cells(name, cpu, 0, Vector::U);
            Ok(())
        });
    }
}

const ALL: [(Operator, &str); 4] = [
    (Operator::Fv4, "fv4"),
    (Operator::Fv2, "fv2"),
    (Operator::P7, "7pt"),
    (Operator::P27, "27pt"),
];

#[test]
fn one_box_of_8_cells_agrees_in_every_cell_of_every_field() {
    for (operator, name) in ALL {
        compare(operator, name, "n8", 8, 1);
    }
}

#[test]
fn eight_boxes_agree_at_the_probes_of_every_field() {
    compare(Operator::Fv4, "fv4", "n32_2x16", 16, 8);
    compare(Operator::Fv2, "fv2", "n16_2x8", 8, 8);
    compare(Operator::P7, "7pt", "n16_2x8", 8, 8);
    compare(Operator::P27, "27pt", "n32_2x16", 16, 8);
}
