//! Ranks that are threads of one process: all are here.

use super::{MAX_RANKS, Meeting, Place, Session};
use crate::control::frame::Token;
use crate::error::{Error, Result};

pub(crate) fn place(ranks: usize) -> Result<Place> {
    let size = u32::try_from(ranks).ok().filter(|_| (1..=MAX_RANKS).contains(&ranks));
    let size = size.ok_or_else(|| Error::Variable {
        name: "World::threads".into(),
        value: ranks.to_string(),
        expected: format!("a number of ranks from 1 to {MAX_RANKS}"),
    })?;
    Ok(Place {
        rank: 0,
        size,
        local: None,
        job: String::new(),
        token: Token([0; 32]),
        gpu: None,
        meeting: Meeting::Here,
        session: Session::None,
    })
}
