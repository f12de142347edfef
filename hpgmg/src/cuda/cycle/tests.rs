//! Every way to do the steps of a cycle finds the bits of the plain one, on the CPU.

use super::super::device::{LEG_BYTES_32, LEG_BYTES_48};
use super::super::machine::Machine;
use super::super::resident::HELD_BYTES;
use super::*;
use crate::cuda::solves::{self, Place};
use crate::options::{Config, Equation, Operator};

/// Solution after a call of the smoother that begins with `start`, restricted residual and norm of the residual.
fn passes(gpu: &Gpu, start: &[f64]) -> (Vec<f64>, Vec<f64>, u64) {
    let level = &gpu.levels[0];
    let u = level.u().unwrap();
    // SAFETY: nothing is enqueued.
    unsafe { u.as_mut_slice() }.unwrap().copy_from_slice(start);
    gpu.smooth(0, Vector::F, false).unwrap();
    gpu.residual_restrict(0, Vector::F).unwrap();
    gpu.stream.fill(&gpu.scalars, 0).unwrap();
    gpu.residual_norm(0).unwrap();
    gpu.wait().unwrap();
    let norm = gpu.scalars.to_vec().unwrap()[Scalar::Residual as usize];
    // An odd number of whole sweeps leaves it in the scratch vector.
    let solution = if level.in_place() { Vector::U } else { Vector::Temp };
    if !level.in_place() {
        level.change_places();
    }
    (gpu.download(0, solution).unwrap(), gpu.download(1, Vector::R).unwrap(), norm)
}

#[test]
fn what_works_by_tiles_finds_the_bits_of_what_does_not() {
    let config = Config { box_dim: 64, equation: Equation::Helmholtz, ..Config::default() };
    let mut gpu = Place::Host.alone(&config);
    gpu.smooth(0, Vector::F, true).unwrap();
    gpu.wait().unwrap();
    let start = gpu.levels[0].u().unwrap().to_vec().unwrap();
    assert!(gpu.sweep(0).is_none());
    let expected = passes(&gpu, &start);
    assert!(f64::from_bits(expected.2) > 0.0);
    // One layer of blocks, and several.
    for multiprocessors in [1, 32] {
        let kernels = gpu.kernels.tiled.as_ref().unwrap();
        let tiled = Tiled::new(kernels, &gpu.levels[0], false, multiprocessors).unwrap();
        gpu.tiled[0] = Some(tiled);
        assert!(passes(&gpu, &start) == expected, "{multiprocessors} multiprocessors");
    }
}

/// A block there goes on until it waits for others, so that whatever it does too early is done.
#[test]
fn blocks_that_run_together_find_the_bits_of_launches() {
    // The levels of 48 have those of 24 below them, each with rows that are no whole warps.
    let sizes = [
        (32, Equation::Poisson, LEG_BYTES_32),
        (32, Equation::Helmholtz, LEG_BYTES_32),
        (48, Equation::Poisson, LEG_BYTES_48),
    ];
    for (box_dim, equation, bytes) in sizes {
        let config = Config { box_dim, equation, ..Config::default() };
        let found = |together_memory| {
            let (shared, cut) = (solves::shared(&config), Default::default());
            let machine = Machine { together_memory, ..Machine::host() };
            let mut gpu = Gpu::on(shared, machine, None, cut, solves::LIMIT).unwrap();
            assert_eq!(gpu.leg(0).is_some(), together_memory > 0);
            solves::found(&mut gpu)
        };
        assert!(found(bytes as u32) == found(0), "{box_dim} {equation:?}");
    }
}

#[test]
fn levels_held_in_shared_memory_find_the_bits_of_those_in_memory() {
    // Of 2ⁿ cells by a cluster and by one block, down to two cells a side, with fv2 to one; and of 3 · 2ⁿ, in boxes so small that ghosts
    // come from fewer cells.
    let (clusters, none) = ((9, 0), (8, 0));
    let fv4 = Config { box_dim: 16, ..Config::default() };
    let fv2 = Config { operator: Operator::Fv2, ..fv4.clone() };
    let with = |smoother, of: &Config| Config { smoother, ..of.clone() };
    let helmholtz = |of: &Config| Config { equation: Equation::Helmholtz, ..of.clone() };
    let of_three = |of: &Config| Config { boxes_per_rank: 27, ..of.clone() };
    for (config, compute, name) in [
        (fv4.clone(), clusters, "hpgmg_fv4_held"),
        (with(Smoother::L1Jacobi, &fv4), clusters, "hpgmg_fv4_held"),
        (helmholtz(&fv4), none, "hpgmg_fv4_held_alone"),
        (with(Smoother::Chebyshev, &of_three(&fv4)), clusters, "hpgmg_fv4_held_3"),
        (fv2.clone(), clusters, "hpgmg_fv2_held"),
        (with(Smoother::L1Jacobi, &fv2), clusters, "hpgmg_fv2_held"),
        (helmholtz(&fv2), none, "hpgmg_fv2_held_alone"),
        (with(Smoother::Chebyshev, &fv2), none, "hpgmg_fv2_held_alone"),
        (of_three(&fv2), clusters, "hpgmg_fv2_held_3"),
    ] {
        let found = |shared_memory, name| {
            let (shared, cut) = (solves::shared(&config), Default::default());
            let machine = Machine { shared_memory, compute, ..Machine::host() };
            let mut gpu = Gpu::on(shared, machine, None, cut, solves::LIMIT).unwrap();
            assert_eq!(gpu.coarsest.kernel.name(), name);
            solves::found(&mut gpu)
        };
        let resident =
            if name.contains("fv2") { "hpgmg_fv2_resident" } else { "hpgmg_fv4_resident" };
        assert!(found(HELD_BYTES as u32, name) == found(0, resident), "{name}");
    }
}

type Below = (Vec<f64>, Vec<f64>, u64);

/// What the level below the finest has after its right-hand side was restricted and its smoother called twice: the solution, what
/// is restricted of its residual, and the largest. Of several ranks it is on different ones, zero elsewhere, and of the last each has its own.
fn below_the_finest(gpu: &Gpu) -> Below {
    gpu.restrict(0, Vector::F, false).unwrap();
    gpu.smooth(1, Vector::R, true).unwrap();
    // Three changes of place: what follows is told apart from U by nothing but where it is.
    assert_eq!(gpu.levels[1].in_place(), gpu.sweep(1).is_none());
    gpu.residual_restrict(1, Vector::R).unwrap();
    gpu.smooth(1, Vector::R, false).unwrap();
    assert!(gpu.levels[1].in_place());
    gpu.stream.fill(&gpu.scalars, 0).unwrap();
    gpu.residual_norm(1).unwrap();
    gpu.wait().unwrap();
    let norm = gpu.scalars.to_vec().unwrap()[Scalar::Residual as usize];
    (gpu.download(1, Vector::U).unwrap(), gpu.download(2, Vector::R).unwrap(), norm)
}

#[test]
fn ranks_sweep_over_their_planes_at_once_and_find_the_bits_of_one() {
    use crate::cuda::Mode;
    use crate::cuda::solves::Way;

    let config = Config { box_dim: 128, equation: Equation::Helmholtz, ..Config::default() };
    let expected = below_the_finest(&Place::Host.alone(&config));
    // Levels up to 32³, or to 16³ only, are whole on each.
    for (mode, along, multiprocessors, direct_halo, whole) in [
        (Mode::Kernel, &[[1, 1, 2]], 1, true, 32),
        (Mode::Kernel, &[[1, 1, 4]], 32, false, 16),
        (Mode::Stream, &[[1, 1, 2]], 32, true, 16),
        (Mode::Staged, &[[1, 1, 4]], 1, true, 32),
    ] {
        let way = Way { along, direct_halo, ..Way::new(mode, whole, false) };
        let worlds = libmp::World::threads(along[0].iter().product()).unwrap();
        let small = |machine| {
            crate::cuda::tiles::LEAST_HERE.set(64);
            Machine { multiprocessors, ..machine }
        };
        let work = |gpu: &mut Gpu| {
            assert!(gpu.sweep(1).is_some() && gpu.levels[1].grid.around == 3);
            below_the_finest(gpu)
        };
        let ranks = Place::Host.each(worlds, &config, way, small, work).unwrap();
        let all = |part: fn(&Below) -> &Vec<f64>| {
            let mut parts = ranks.iter().map(part);
            let first = parts.next().unwrap().clone();
            parts.fold(first, |sum, part| sum.iter().zip(part).map(|(a, b)| a + b).collect())
        };
        assert!(all(|found| &found.0) == expected.0, "{way:?}");
        match whole {
            32 => assert!(ranks.iter().all(|found| found.1 == expected.1), "{way:?}"),
            _ => assert!(all(|found| &found.1) == expected.1, "{way:?}"),
        }
        assert_eq!(ranks.iter().map(|found| found.2).max(), Some(expected.2), "{way:?}");
    }
}
