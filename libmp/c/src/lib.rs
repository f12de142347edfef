//! [`libmp`] for C and C++: the functions of `include/mp.h`, which documents them. This crate is the bridge only: it turns
//! pointers into handles, errors into codes and texts, and lets no panic through.
//!
//! * A function that can fail returns an [`Status`]; the text of the last failure of a thread is [`mp_last_error`].
//! * A pointer that must not be NULL and is, and every value that makes no sense, is [`Status::Argument`], and the text names the
//!   argument. Pointers that dangle cannot be found out.
//! * Handles belong to the caller, who gives them back with the function that the header names. They keep what they need of
//!   each other alive, so the order does not matter – except that a world is finished last.

mod collective;
mod device;
mod exchange;
mod handle;
mod message;
mod region;
mod status;
mod stream;
mod tagged;
mod window;
mod word;
mod world;

pub use collective::*;
pub use exchange::*;
pub use message::*;
pub use region::*;
pub use status::{Status, mp_last_error, mp_status_name};
pub use stream::*;
pub use tagged::*;
pub use window::*;
pub use word::*;
pub use world::*;
