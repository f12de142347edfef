//! One rank, no launcher.

use super::{Meeting, Place, Session};
use crate::config::Config;
use crate::control::frame::Token;

pub(super) fn place(config: &Config) -> Place {
    Place {
        rank: 0,
        size: 1,
        local: None,
        job: String::new(),
        token: Token([0; 32]),
        gpu: config.variables.get("MP_GPU").map(str::to_owned),
        meeting: Meeting::Here,
        session: Session::None,
    }
}
