//! The loaded libraries, one for the process, never unloaded: providers keep threads and handlers of their own.

use super::error::Result;
use gdsync_sys::{LoadError, Verbs, VerbsDmabuf};
use std::sync::{Arc, OnceLock};

/// libibverbs.
pub(super) fn verbs() -> Result<&'static Verbs> {
    static VERBS: OnceLock<Result<Verbs, Arc<LoadError>>> = OnceLock::new();
    Ok(VERBS.get_or_init(|| Verbs::load().map_err(Arc::new)).as_ref().map_err(Arc::clone)?)
}

/// What newer versions of libibverbs have for dma-bufs.
pub(super) fn dmabuf() -> Result<&'static VerbsDmabuf> {
    static DMABUF: OnceLock<Result<VerbsDmabuf, Arc<LoadError>>> = OnceLock::new();
    Ok(DMABUF.get_or_init(|| VerbsDmabuf::load().map_err(Arc::new)).as_ref().map_err(Arc::clone)?)
}
