//! The GPUs of ranks: an ordinal for each, all different, or the same for all. Whether there are such GPUs is not known here.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use anyhow::{Context, Result};

/// Ranks that [`Gpus`] are of.
pub const RANKS: RangeInclusive<usize> = 2..=8;

/// The GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpus(Vec<u32>);

impl Gpus {
    /// Those of two ranks.
    pub fn two(first: u32, second: u32) -> Gpus {
        Gpus(vec![first, second])
    }

    /// How many ranks have one.
    pub fn ranks(&self) -> usize {
        self.0.len()
    }

    /// Whether all ranks are on one.
    pub fn is_shared(&self) -> bool {
        self.0.first() == self.0.last()
    }

    /// That of a rank.
    ///
    /// # Errors
    /// There is no such rank.
    pub fn of(&self, rank: usize) -> Result<u32> {
        let gpu = self.0.get(rank).copied();
        gpu.with_context(|| format!("rank {rank} has no GPU: expected ranks on {self}"))
    }
}

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (rank, gpu) in self.0.iter().enumerate() {
            let between = match rank {
                0 => "",
                _ if rank + 1 == self.0.len() => " and ",
                _ => ", ",
            };
            write!(f, "{between}cuda:{gpu}")?;
        }
        Ok(())
    }
}

impl FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Gpus, String> {
        let parsed: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
        let gpus = parsed.map_err(|_| {
            format!("{text:?} is not of the form FIRST,SECOND[,THIRD…], for example 0,1")
        })?;
        let (least, most) = (RANKS.start(), RANKS.end());
        if !RANKS.contains(&gpus.len()) {
            return Err(format!("{text:?} names {}: expected {least} to {most} GPUs", gpus.len()));
        }
        let mut different = gpus.clone();
        different.sort_unstable();
        different.dedup();
        if different.len() != gpus.len() && different.len() != 1 {
            return Err(format!(
                "{text:?} has some ranks share a GPU: expected one for each rank, or one for all"
            ));
        }
        Ok(Gpus(gpus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_all_different_or_the_same_for_all() {
        for (text, ranks, shared, shown) in [
            ("0,1", 2, false, "cuda:0 and cuda:1"),
            ("3,1,0,2", 4, false, "cuda:3, cuda:1, cuda:0 and cuda:2"),
            (
                "0,1,2,3,4,5,6,7",
                8,
                false,
                "cuda:0, cuda:1, cuda:2, cuda:3, cuda:4, cuda:5, cuda:6 and cuda:7",
            ),
            ("0,0", 2, true, "cuda:0 and cuda:0"),
            ("2,2,2,2", 4, true, "cuda:2, cuda:2, cuda:2 and cuda:2"),
        ] {
            let gpus: Gpus = text.parse().unwrap();
            assert_eq!((gpus.ranks(), gpus.is_shared()), (ranks, shared), "{text}");
            assert_eq!(gpus.to_string(), shown);
            assert_eq!(gpus.of(0).unwrap().to_string(), text[..1]);
            let error = gpus.of(ranks).unwrap_err().to_string();
            assert_eq!(error, format!("rank {ranks} has no GPU: expected ranks on {shown}"));
        }
    }

    #[test]
    fn what_names_no_gpus_for_ranks_is_refused_with_what_was_expected() {
        for (text, words) in [
            ("0", "names 1: expected 2 to 8 GPUs"),
            ("0,1,2,3,4,5,6,7,8", "names 9: expected 2 to 8 GPUs"),
            ("0,0,0,0,0,0,0,0,0", "names 9: expected 2 to 8 GPUs"),
            ("0,0,1", "has some ranks share a GPU"),
            ("0,1,0", "has some ranks share a GPU"),
            ("0,0,1,1", "has some ranks share a GPU"),
            ("", "is not of the form"),
            ("all", "is not of the form"),
            ("0,one", "is not of the form"),
            ("0,1,", "is not of the form"),
            ("0:1", "is not of the form"),
            ("0:1,2", "is not of the form"),
            ("0, 1", "is not of the form"),
            ("0,-1", "is not of the form"),
            ("0,4294967296", "is not of the form"),
        ] {
            let error = text.parse::<Gpus>().unwrap_err();
            assert!(error.starts_with(&format!("{text:?} {words}")), "{text}: {error}");
        }
    }
}
