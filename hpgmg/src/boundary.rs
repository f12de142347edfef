//! Dirichlet ghost cells: one-dimensional extrapolations, applied region by region.
//!
//! A region outside the domain in several directions is the tensor product of the one-dimensional
//! rule: it is extrapolated along the last of them from the region that lies outside in the others,
//! which therefore comes first. Lists of fills are data, like the lists of copies. Section 4.3 of the
//! HPGMG-FV description.

use std::ops::Range;

use crate::geometry::BoxGeometry;
use crate::options::Operator;
use crate::rows::SharedVector;
use crate::team::Team;

/// A one-dimensional rule for homogeneous Dirichlet ghosts; `x1` is the first cell inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extrapolation {
    /// Linear: near = −x1.
    Linear,
    /// Quadratic in cell averages: near = −5/2 x1 + 1/2 x2.
    Quadratic,
    /// Quartic in cell averages, two layers.
    Quartic,
    /// Quadratic in point values: near = −2 x1 + 1/3 x2.
    PointQuadratic,
}

impl Extrapolation {
    /// The rule of the operator itself, lowered where a box of `n` cells is too small for it.
    pub fn of_operator(operator: Operator, n: usize) -> Self {
        match operator {
            Operator::Fv4 => Self::Quartic,
            Operator::Fv2 => Self::Quadratic,
            Operator::P7 => Self::Linear,
            Operator::P27 => Self::PointQuadratic,
        }
        .lowered(n)
    }

    /// The rule of the highest order not above this one that boxes of `n` cells allow.
    pub fn lowered(self, n: usize) -> Self {
        match self {
            Self::Quartic if n < 4 => Self::Quadratic.lowered(n),
            Self::Quadratic | Self::PointQuadratic if n < 2 => Self::Linear,
            rule => rule,
        }
    }

    /// Weights of x1, x2, … for the layer next to the domain.
    fn near(self) -> &'static [f64] {
        match self {
            Self::Linear => &[-1.0],
            Self::Quadratic => &[-2.5, 0.5],
            Self::Quartic => &[-77.0 / 12.0, 43.0 / 12.0, -17.0 / 12.0, 3.0 / 12.0],
            Self::PointQuadratic => &[-2.0, 1.0 / 3.0],
        }
    }

    /// Weights for the second layer; without any it is zero.
    fn far(self) -> &'static [f64] {
        match self {
            Self::Quartic => &[-505.0 / 12.0, 335.0 / 12.0, -145.0 / 12.0, 27.0 / 12.0],
            _ => &[],
        }
    }
}

/// One ghost region of one box, extrapolated along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Fill {
    /// Offset of the first cell of the layer next to the domain.
    pub at: usize,
    /// Cells of that layer, one along the axis of extrapolation.
    pub dims: [usize; 3],
    /// Distance from a cell to the next one inward.
    pub inward: isize,
    /// Row pitch of the box.
    pub pitch: usize,
    /// Plane pitch of the box.
    pub plane: usize,
    /// Ghost layers to write.
    pub layers: usize,
}

/// The fills of a level and shape. Those of `stage` s lie outside the domain in s + 1 directions and
/// read regions of the stages before.
#[derive(Clone, Debug, Default)]
pub struct Fills {
    /// Fills by stage.
    pub stage: [Vec<Fill>; 3],
}

impl Fills {
    /// Fills the ghosts of `vector` by `rule`.
    pub fn apply(&self, team: &Team, vector: &mut [f64], rule: Extrapolation) {
        let shared = SharedVector::new(vector);
        for stage in &self.stage {
            let work = stage.iter().map(|f| f.dims.iter().product::<usize>()).sum();
            team.run(stage.len(), work, &|index, _| {
                // SAFETY: the fills of a stage write regions of their own and read cells of the
                // domain and of earlier stages only.
                unsafe { fill(&shared, &stage[index], rule) }
            });
        }
    }
}

/// Fills the ghosts of `f` by `rule`.
///
/// # Safety
/// Nobody else touches the cells that `f` writes or writes those that it reads.
pub unsafe fn fill(v: &SharedVector<'_>, f: &Fill, rule: Extrapolation) {
    let [ni, nj, nk] = f.dims;
    let (near, far) = (rule.near(), rule.far());
    let step = |at: usize, m: isize| (at as isize + m * f.inward) as usize;
    for k in 0..nk {
        for j in 0..nj {
            let row = f.at + j * f.pitch + k * f.plane;
            if f.inward.unsigned_abs() != 1 {
                // SAFETY: rows of different layers do not overlap; the rest by the caller's promise.
                unsafe {
                    layer(v.row(row, ni), near, |m| v.read(step(row, m), ni));
                    if f.layers > 1 {
                        layer(v.row(step(row, -1), ni), far, |m| v.read(step(row, m), ni));
                    }
                }
                continue;
            }
            // Along i a layer is a single cell of the row: read the cells inside in one piece.
            let reach = near.len();
            let low = f.inward > 0;
            // SAFETY: cells inside, by the caller's promise not written now.
            let inside = unsafe { v.read(if low { row + 1 } else { row - reach }, reach) };
            let sum = |weights: &[f64]| {
                let mut sum = 0.0;
                for (m, w) in weights.iter().enumerate() {
                    sum += w * if low { inside[m] } else { inside[reach - 1 - m] };
                }
                sum
            };
            let layers = f.layers.min(2);
            // SAFETY: ghost cells of this fill alone.
            let ghosts = unsafe { v.row(if low { row + 1 - layers } else { row }, layers) };
            ghosts[if low { layers - 1 } else { 0 }] = sum(near);
            if layers > 1 {
                ghosts[if low { 0 } else { 1 }] = sum(far);
            }
        }
    }
}

fn layer<'a>(out: &mut [f64], weights: &[f64], inside: impl Fn(isize) -> &'a [f64]) {
    if let &[a, b, c, d] = weights {
        let n = out.len();
        let (p, q, r, s) = (&inside(1)[..n], &inside(2)[..n], &inside(3)[..n], &inside(4)[..n]);
        for i in 0..n {
            out[i] = a * p[i] + b * q[i] + c * r[i] + d * s[i];
        }
        return;
    }
    out.fill(0.0);
    for (w, m) in weights.iter().zip(1..) {
        for (o, x) in out.iter_mut().zip(inside(m)) {
            *o += w * x;
        }
    }
}

/// Which face coefficients of one normal a vector holds, and where.
pub struct Faces {
    /// The normal.
    pub axis: usize,
    /// Offset of the low face of cell 0, 0, 0.
    pub origin: isize,
    /// Distances to the next cell in each direction.
    pub strides: [isize; 3],
    /// Cells in each direction; along the normal, faces.
    pub ranges: [Range<isize>; 3],
    /// Whether the first cells are the domain's.
    pub low: [bool; 3],
    /// Whether the last cells are the domain's.
    pub high: [bool; 3],
}

impl Faces {
    /// Those of the box at offset `base`, which touches the domain's faces as `low` and `high` say.
    pub fn of_box(
        g: &BoxGeometry,
        base: usize,
        axis: usize,
        low: [bool; 3],
        high: [bool; 3],
    ) -> Self {
        let n = g.n as isize;
        let mut ranges = [0..n, 0..n, 0..n];
        ranges[axis].end += 1;
        let strides = [1, g.pitch as isize, g.plane as isize];
        Self { axis, origin: (base + g.at(0, 0, 0)) as isize, strides, ranges, low, high }
    }
}

/// Extrapolates a coefficient beyond the domain, into the first ghost layer of its tangential directions, by the rule for
/// boxes of `n` cells.
pub fn extrapolate_beta(beta: &mut [f64], faces: &Faces, n: usize) {
    let weights: &[f64] = match n {
        1 => return,
        2 | 3 => &[2.0, -1.0],
        4 => &[4.0, -6.0, 4.0, -1.0],
        _ => &[5.0, -10.0, 10.0, -5.0, 1.0],
    };
    let Faces { axis, strides, ranges, .. } = faces;
    for tangent in (0..3).filter(|t| t != axis) {
        let other = 3 - axis - tangent;
        let range = &ranges[tangent];
        for (outside, side, inward) in [
            (faces.low[tangent], range.start - 1, strides[tangent]),
            (faces.high[tangent], range.end, -strides[tangent]),
        ] {
            if !outside {
                continue;
            }
            for o in ranges[other].clone() {
                for face in ranges[*axis].clone() {
                    let ghost = faces.origin
                        + face * strides[*axis]
                        + side * strides[tangent]
                        + o * strides[other];
                    beta[ghost as usize] = weights
                        .iter()
                        .zip(1..)
                        .fold(0.0, |sum, (w, m)| sum + w * beta[(ghost + m * inward) as usize]);
                }
            }
        }
    }
}
