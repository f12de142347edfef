//! Building the hierarchy of one rank: storage, prepared communication, coefficients on every level,
//! the diagonal of the operator and the bound of its spectrum. Section 4.4 of the HPGMG-FV description
//! for the ghosts of the coefficients.

use crate::backend::{Backend, Operators, Vector};
use crate::boundary::{Faces, extrapolate_beta};
use crate::comm::{Comm, CommError};
use crate::cpu::Cpu;
use crate::decomposition::{LevelShape, hierarchy};
use crate::diagonal;
use crate::error::Error;
use crate::field::Field;
use crate::geometry::BoxGeometry;
use crate::halo::{Entity, Halo, Shape};
use crate::isa::Isa;
use crate::level::{Level, tiles};
use crate::operators;
use crate::options::{Bottom, Boundary, Config, Equation, Operator, Smoother};
use crate::pencils;
use crate::problem::Problem;
use crate::rows::SharedVector;
use crate::slab::{Part, Slab};
use crate::team::Team;
use crate::timers::Timers;
use crate::transfer::{self, Interpolation, Restriction, Rule, Side};

/// Kinds of messages; a tag is a level and a kind.
#[derive(Clone, Copy)]
enum Kind {
    Stencil = 0,
    Surround = 1,
    Faces = 2,
    Restrict = 5,
    RestrictFaces = 6,
    Correct = 9,
    Replace = 10,
}

fn tag(l: usize, kind: Kind, offset: usize) -> i32 {
    (l as i32) << 4 | (kind as i32 + offset as i32)
}

/// The vectors a level needs.
pub fn vectors_of(config: &Config, is_bottom: bool) -> Vec<Vector> {
    let mut vectors = vec![Vector::Temp, Vector::U, Vector::F, Vector::R, Vector::Dinv];
    vectors.extend((0..3).map(Vector::Beta));
    if config.equation == Equation::Helmholtz {
        vectors.push(Vector::Alpha);
    }
    if config.smoother == Smoother::L1Jacobi {
        vectors.push(Vector::L1Inv);
    }
    if is_bottom {
        let work = match config.bottom {
            Bottom::Bicgstab => 8,
            Bottom::Cg => 4,
            Bottom::Smoother => 0,
        };
        vectors.extend((0..work).map(Vector::Krylov));
    }
    vectors
}

/// Bytes of the vectors of `boxes(level)` boxes per level.
pub fn memory(config: &Config, shapes: &[LevelShape], boxes: impl Fn(&LevelShape) -> usize) -> u64 {
    let of = |(l, shape): (usize, &LevelShape)| {
        let volume = BoxGeometry::new(shape.box_dim, config.operator.radius()).volume;
        let vectors = vectors_of(config, l + 1 == shapes.len()).len();
        (boxes(shape) * volume * vectors * size_of::<f64>()) as u64
    };
    shapes.iter().enumerate().map(of).sum()
}

impl Cpu {
    /// Builds this rank's part of the hierarchy, with `threads` threads. Collective over `comm`.
    ///
    /// # Errors
    /// [`Error`] when the configuration has no decomposition or the ranks lose each other.
    pub fn new(config: Config, comm: &dyn Comm, threads: usize) -> Result<Self, Error> {
        Self::with_slabs(config, comm, threads, &[], &mut |_| Ok(()))
    }

    /// As [`new`](Self::new), but of the first levels only these parts are set up, which others then solve on;
    /// `agree` gives the largest of what all who do so have. The domain does not wrap then.
    ///
    /// # Errors
    /// As [`new`](Self::new); those of `agree`.
    pub(crate) fn with_slabs(
        config: Config,
        comm: &dyn Comm,
        threads: usize,
        parts: &[Part],
        agree: &mut dyn FnMut(&mut [f64]) -> Result<(), CommError>,
    ) -> Result<Self, Error> {
        let shapes = hierarchy(&config, comm.size())?;
        let n = config.box_dim;
        let scratch = operators::scratch_len(n).max(transfer::scratch_len(n));
        let team = Team::new(threads, scratch).map_err(Error::Threads)?;
        // The first level in boxes.
        let first = parts.len();
        let mut levels = Vec::with_capacity(shapes.len());
        for l in 0..shapes.len() {
            levels.push(build_level(&config, comm, &team, &shapes, l, l < first)?);
        }
        prepare_transfers(&config, comm, &mut levels)?;
        let timers = Timers::new(levels.len());
        let isa = Isa::detect();
        let mut cpu = Self {
            config,
            levels,
            team,
            isa,
            timers,
            bottom_iterations: 0,
            #[cfg(test)]
            injected: Default::default(),
        };
        if first == 0 {
            cpu.fill_finest();
        } else {
            cpu.fill_slabs(parts, agree)?;
        }
        // Where the domain wraps, whatever the equation: the point values of a right-hand side of mean zero have another.
        if cpu.config.boundary == Boundary::Periodic && cpu.active(0) {
            let mean = cpu.mean(0, Vector::F)?;
            cpu.shift(0, Vector::F, -mean);
        }
        cpu.coarsen_coefficients(comm, first)?;
        for l in first..cpu.levels.len() {
            if cpu.config.operator == Operator::Fv4 {
                cpu.extend_coefficients(comm, l)?;
            }
            if cpu.active(l) {
                diagonal::build(&mut cpu, l)?;
            }
        }
        for l in first..(pencils::STARTS - 1).min(cpu.levels.len() - 1) {
            if cpu.active(l) {
                cpu.restrict(l, Vector::F, Vector::F)?;
            }
        }
        cpu.timers.reset();
        Ok(cpu)
    }

    /// The levels of which only `parts` are set up; coefficients and right-hand side of the one after them.
    fn fill_slabs(
        &mut self,
        parts: &[Part],
        agree: &mut dyn FnMut(&mut [f64]) -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        let Self { levels, team, config, isa, .. } = self;
        let dim = |l: usize| levels[l].shape.dim;
        let mut slabs: Vec<Slab> = (0..parts.len())
            .map(|l| Slab::new(config, dim(l), parts[l].clone()))
            .chain([Slab::new(config, dim(parts.len()), [0, 1, 2].map(|_| 0..dim(parts.len())))])
            .collect();
        let (boundary, h) = (config.boundary, levels[0].shape.h);
        let problem = Problem::new(config.operator, boundary, config.equation.a(), h);
        pencils::fill(team, *isa, &problem, &mut slabs);
        if let Some(whole) = slabs.pop() {
            levels[parts.len()].copy_from(&whole);
        }
        let mut lambda = Vec::with_capacity(slabs.len());
        for (l, slab) in slabs.iter_mut().enumerate() {
            if self.config.operator == Operator::Fv4 {
                slab.extend_coefficients(self.levels[l].geometry.n);
            }
            lambda.push(slab.build_diagonal(&self.team, &diagonal::discrete(self, l)));
        }
        agree(&mut lambda)?;
        for ((level, slab), lambda) in self.levels.iter_mut().zip(slabs).zip(lambda) {
            level.slab = Some(slab);
            level.lambda_max = lambda;
        }
        Ok(())
    }

    /// Coefficients and right-hand side of level 0, from the formulas.
    fn fill_finest(&mut self) {
        let Self { levels, team, config, .. } = self;
        let level = &mut levels[0];
        let (g, h) = (level.geometry, level.shape.h);
        let problem = Problem::new(config.operator, config.boundary, config.equation.a(), h);
        for index in 0..level.boxes.len() {
            let origin = level.origin(index);
            let base = index * g.volume;
            // Face coefficients (normal 0, 1, 2), then the right-hand side.
            for normal in [Some(0), Some(1), Some(2), None] {
                let [x, y, z] = std::array::from_fn(|axis| {
                    let faces = normal == Some(axis);
                    problem.along(origin[axis], g.n + usize::from(faces), faces)
                });
                let target = normal.map_or(Vector::F, |axis| Vector::Beta(axis as u8));
                let out = SharedVector::new(&mut level.fields[target.index()]);
                team.run(z.len(), x.len() * y.len() * z.len(), &|k, _| {
                    for (j, y) in y.iter().enumerate() {
                        // SAFETY: every plane is one task's.
                        let row = unsafe { out.row(base + g.row(j, k), x.len()) };
                        problem.row(normal, &x, y, &z[k], row);
                    }
                });
            }
        }
        level.fields[Vector::Alpha.index()].fill(1.0);
    }

    /// Coefficients of the levels coarser than `first`, by restriction.
    fn coarsen_coefficients(&mut self, comm: &dyn Comm, first: usize) -> Result<(), Error> {
        for l in first..self.levels.len() - 1 {
            let (upper, lower) = self.levels.split_at_mut(l + 1);
            let (fine, coarse) = (&upper[l], &mut lower[0]);
            for axis in 0..3 {
                let v = Vector::Beta(axis as u8);
                let mut target = coarse.take(v);
                let mut restriction = Restriction::new(
                    comm,
                    side(fine),
                    side(coarse),
                    Entity::Faces(axis),
                    tag(l, Kind::RestrictFaces, axis),
                )?;
                restriction.run(&self.team, self.isa, fine.field(v), &mut target)?;
                coarse.put(v, target);
            }
            coarse.fields[Vector::Alpha.index()].fill(1.0);
        }
        Ok(())
    }

    /// Ghosts of the coefficients: beyond the domain by extrapolation, then from the neighbours.
    fn extend_coefficients(&mut self, comm: &dyn Comm, l: usize) -> Result<(), Error> {
        let level = &mut self.levels[l];
        let (g, m) = (level.geometry, level.shape.boxes_per_side);
        for axis in 0..3 {
            let mut beta = level.take(Vector::Beta(axis as u8));
            if self.config.boundary == Boundary::Dirichlet {
                for (index, &id) in level.boxes.iter().enumerate() {
                    let at = level.shape.coordinates(id);
                    let (low, high) = (at.map(|c| c == 0), at.map(|c| c + 1 == m));
                    let faces = Faces::of_box(&g, index * g.volume, axis, low, high);
                    extrapolate_beta(&mut beta, &faces, g.n);
                }
            }
            let mut halo = Halo::new(
                comm,
                &level.shape,
                self.config.boundary,
                &g,
                &level.boxes,
                Shape::Box,
                Entity::Faces(axis),
                tag(l, Kind::Faces, axis),
            )?;
            halo.run(&self.team, &mut beta, None)?;
            level.put(Vector::Beta(axis as u8), beta);
        }
        Ok(())
    }
}

fn build_level(
    config: &Config,
    comm: &dyn Comm,
    team: &Team,
    shapes: &[LevelShape],
    l: usize,
    in_slabs: bool,
) -> Result<Level, Error> {
    let shape = &shapes[l];
    let geometry = BoxGeometry::new(shape.box_dim, config.operator.radius());
    let boxes = shape.boxes_of(comm.rank());
    let mut fields: Vec<Field> = (0..Vector::COUNT).map(|_| Field::default()).collect();
    for v in vectors_of(config, l + 1 == shapes.len()).into_iter().filter(|_| !in_slabs) {
        fields[v.index()] = Field::zeros(boxes.len() * geometry.volume, geometry.ghosts);
    }
    let stencil = match config.operator {
        Operator::Fv4 => Shape::NoCorners,
        Operator::Fv2 | Operator::P7 => Shape::Star,
        Operator::P27 => Shape::Box,
    };
    let halo = |shape_of: Shape, kind: Kind| {
        let tag = tag(l, kind, 0);
        let entity = Entity::Cells;
        Halo::new(comm, shape, config.boundary, &geometry, &boxes, shape_of, entity, tag)
    };
    let stencil_halo = halo(stencil, Kind::Stencil)?;
    let surround =
        if stencil == Shape::Box { None } else { Some(halo(Shape::Box, Kind::Surround)?) };
    let mut members: Vec<usize> =
        shapes[l..].iter().flat_map(|s| s.rank_of_box.iter().map(|&r| r as usize)).collect();
    members.sort_unstable();
    members.dedup();
    let group = comm.group(&members)?;
    let reach = config.operator.radius();
    let (early, late) = tiles(&geometry, boxes.len(), &stencil_halo, reach, team.threads());
    Ok(Level {
        shape: shape.clone(),
        geometry,
        boxes,
        fields,
        halo: stencil_halo,
        surround,
        early,
        late,
        restriction: None,
        correction: None,
        prolongation: None,
        lambda_max: 0.0,
        group,
        partials: vec![0.0; shape.boxes()],
        slab: None,
    })
}

fn side(level: &Level) -> Side<'_> {
    Side { shape: &level.shape, geometry: &level.geometry, boxes: &level.boxes }
}

fn prepare_transfers(config: &Config, comm: &dyn Comm, levels: &mut [Level]) -> Result<(), Error> {
    let (correct, replace) = Rule::of_operator(config.operator);
    for l in 0..levels.len() - 1 {
        let (fine, coarse) = (side(&levels[l]), side(&levels[l + 1]));
        let restriction =
            Restriction::new(comm, fine, coarse, Entity::Cells, tag(l, Kind::Restrict, 0))?;
        let correction = Interpolation::new(comm, fine, coarse, correct, tag(l, Kind::Correct, 0))?;
        let prolongation = if replace == correct {
            None
        } else {
            Some(Interpolation::new(comm, fine, coarse, replace, tag(l, Kind::Replace, 0))?)
        };
        levels[l].restriction = Some(restriction);
        levels[l].correction = Some(correction);
        levels[l].prolongation = prolongation;
    }
    Ok(())
}
