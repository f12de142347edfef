//! How many ranks, and which GPU each gets. Counts the machine's GPUs where that was asked; opens no
//! device and makes no context.

use super::error::LaunchError;

/// The size of the job and the GPUs its ranks get in turn (empty: none were asked for).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub size: usize,
    gpus: Vec<u32>,
}

impl Placement {
    /// What is asked for, each GPU of this machine or those of `list`, with `count` to count the GPUs of the machine.
    pub fn choose(
        ranks: Option<usize>,
        per_gpu: bool,
        list: &[u32],
        count: impl FnOnce() -> Result<u32, String>,
    ) -> Result<Placement, LaunchError> {
        let gpus = if per_gpu {
            (0..count().map_err(LaunchError::Gpus)?).collect()
        } else {
            list.to_vec()
        };
        let size = match ranks {
            Some(ranks) => ranks,
            None if gpus.is_empty() => return Err(LaunchError::NoSize),
            None => gpus.len(),
        };
        Ok(Placement { size, gpus })
    }

    /// The GPU of a rank of this host.
    pub fn gpu(&self, rank: usize) -> Option<u32> {
        (!self.gpus.is_empty()).then(|| self.gpus[rank % self.gpus.len()])
    }
}

/// Number of GPUs that the CUDA driver shows this process (`CUDA_VISIBLE_DEVICES` counts), at least
/// one. The error is a sentence.
pub(super) fn count() -> Result<u32, String> {
    match gdsync::Driver::load() {
        Ok(driver) if driver.device_count() > 0 => Ok(driver.device_count()),
        Ok(_) => Err("the CUDA driver sees no GPU".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Options;
    use super::*;
    use clap::Parser;

    fn place(arguments: &[&str], gpus: Result<u32, String>) -> Result<Placement, LaunchError> {
        let arguments = [&["mprun"], arguments, &["true"]].concat();
        let options = Options::try_parse_from(arguments).unwrap();
        let list = options.gpus.map(|list| list.0).unwrap_or_default();
        Placement::choose(options.ranks, options.per_gpu, &list, || gpus)
    }

    fn given(placement: &Placement) -> Vec<Option<u32>> {
        (0..placement.size).map(|rank| placement.gpu(rank)).collect()
    }

    #[test]
    fn per_gpu_starts_one_rank_a_gpu_unless_told_how_many() {
        assert_eq!(given(&place(&["--per-gpu"], Ok(2)).unwrap()), [Some(0), Some(1)]);
        let three = place(&["--per-gpu", "-n", "3"], Ok(2)).unwrap();
        assert_eq!(given(&three), [Some(0), Some(1), Some(0)]);
    }

    #[test]
    fn a_list_of_gpus_is_dealt_in_its_order() {
        assert_eq!(given(&place(&["--gpus", "3,1"], Ok(0)).unwrap()), [Some(3), Some(1)]);
        let three = place(&["--gpus", "3,1", "-n", "3"], Ok(0)).unwrap();
        assert_eq!(given(&three), [Some(3), Some(1), Some(3)]);
    }

    #[test]
    fn without_a_gpu_option_no_rank_gets_one_and_n_is_needed() {
        assert_eq!(given(&place(&["-n", "2"], Ok(8)).unwrap()), [None, None]);
        assert!(matches!(place(&[], Ok(8)), Err(LaunchError::NoSize)));
    }

    #[test]
    fn per_gpu_without_a_driver_is_an_error_in_one_sentence() {
        let error = place(&["--per-gpu"], Err("no CUDA driver".into())).unwrap_err();
        assert_eq!(error.to_string(), "--per-gpu: no CUDA driver");
    }
}
