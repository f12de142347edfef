//! Every operator with every smoother and boundary, in every way of communicating: the table of `docs/hpgmg-gpu.md`, each cell of
//! which is solved here, on the host by the same kernels and on a GPU if there is one.

use clap::ValueEnum;

use super::Mode;
use super::solves::{Found, Place, Way, found};
use crate::options::{Boundary, Config, Operator, Smoother};

/// The ways that the columns of the table name: ranks, and how they communicate.
const WAYS: [(&str, usize, Option<Mode>); 4] = [
    ("alone", 1, None),
    ("`kernel`", 2, Some(Mode::Kernel)),
    ("`stream`", 2, Some(Mode::Stream)),
    ("`host`, `mpi`", 2, Some(Mode::Staged)),
];

/// Solves a problem in every way, and returns how the solution of one rank differs from the CPU's.
fn solve_all(place: Place, config: &Config) -> f64 {
    let one = found(&mut place.alone(config));
    for (_, ranks, mode) in WAYS {
        let Some(mode) = mode else { continue };
        let several: Found = place.together(config, ranks, Way::new(mode, 8, false));
        assert_eq!(several.numbers, one.numbers, "{config:?} {mode:?}");
        assert!(several.u == one.u, "{config:?} {mode:?}");
    }
    place.difference(config)
}

fn all(place: Place, operator: Operator) {
    for boundary in Boundary::value_variants() {
        for smoother in Smoother::value_variants() {
            let config = Config {
                operator,
                smoother: *smoother,
                boundary: *boundary,
                box_dim: 16,
                boxes_per_rank: 8,
                ..Config::default()
            };
            let began = std::time::Instant::now();
            let off = solve_all(place, &config);
            println!("{operator:?} {smoother:?} {boundary:?}: {off:.1e} {:?}", began.elapsed());
            assert!(off <= 1e-12, "{config:?}: {off:e}");
        }
    }
}

mod host {
    use super::*;

    #[test]
    fn fv4_finds_the_cpus_solution_in_every_way() {
        all(Place::Host, Operator::Fv4);
    }

    #[test]
    fn fv2_finds_the_cpus_solution_in_every_way() {
        all(Place::Host, Operator::Fv2);
    }

    #[test]
    fn p7_finds_the_cpus_solution_in_every_way() {
        all(Place::Host, Operator::P7);
    }

    #[test]
    fn p27_finds_the_cpus_solution_in_every_way() {
        all(Place::Host, Operator::P27);
    }
}
