//! Between levels: restriction and interpolation.
//!
//! The owner of the fine box restricts and sends the result; the owner of the coarse box sends coarse
//! cells with the ghosts that the interpolation reads, and the owner of the fine box interpolates: an
//! eighth of the volume that shipping fine values would take. Boxes that merge or move to another rank
//! are nothing but this message pattern. Sections 7 and 12 of the HPGMG-FV description.

mod interpolation;
mod restriction;

pub use interpolation::Rule;
pub(crate) use interpolation::{Interpolation, scratch_len};
pub(crate) use restriction::{Restriction, restrict_row};

use crate::block::View;
use crate::decomposition::LevelShape;
use crate::geometry::BoxGeometry;

/// One side of a transfer: a level and where this rank's boxes of it lie.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    /// The level.
    pub shape: &'a LevelShape,
    /// Layout of its boxes.
    pub geometry: &'a BoxGeometry,
    /// This rank's boxes.
    pub boxes: &'a [usize],
}

impl Side<'_> {
    fn view(&self, id: usize, corner: [isize; 3]) -> View {
        // Views of boxes that live elsewhere are never followed.
        let index = self.boxes.binary_search(&id).unwrap_or(0);
        let at = self.geometry.at(corner[0], corner[1], corner[2]);
        View {
            at: index * self.geometry.volume + at,
            pitch: self.geometry.pitch,
            plane: self.geometry.plane,
        }
    }
}

/// The coarse box under fine box `id`, and where in it the fine box lies.
fn coarse_of(fine: &LevelShape, coarse: &LevelShape, id: usize) -> (usize, [isize; 3]) {
    let ratio = fine.boxes_per_side / coarse.boxes_per_side;
    let at = fine.coordinates(id);
    let corner = at.map(|c| (c % ratio * fine.box_dim / 2) as isize);
    (coarse.id(at.map(|c| c / ratio)), corner)
}
