//! Which vector instructions this machine has, and code compiled for them.

/// The vector instructions to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// What every machine of the architecture has.
    Baseline,
    /// 256-bit vectors.
    Avx2,
    /// 512-bit vectors.
    Avx512,
}

impl Isa {
    /// The widest this machine has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512bw")
            {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") {
                return Self::Avx2;
            }
        }
        Self::Baseline
    }

    /// Calls `f` compiled for these instructions; `f` and what it calls must be inlined for that to
    /// have an effect.
    #[inline(always)]
    pub fn call<R>(self, f: impl FnOnce() -> R) -> R {
        match self {
            // SAFETY: `detect` has seen the features.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { call_avx512(f) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { call_avx2(f) },
            _ => f(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
fn call_avx512<R>(f: impl FnOnce() -> R) -> R {
    f()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn call_avx2<R>(f: impl FnOnce() -> R) -> R {
    f()
}
