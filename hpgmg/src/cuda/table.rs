//! Every operator with every smoother and boundary, in every way of communicating: the table of `docs/hpgmg-gpu.md`, each cell of
//! which is solved here, on the host by the same kernels and on a GPU if there is one. And every cycle, bottom solver and equation.

use clap::ValueEnum;

use super::Mode;
use super::solves::{Place, Way, found};
use crate::known::{Verdict, judge, known, name};
use crate::options::{Bottom, Boundary, Config, Cycle, Equation, Operator, Smoother};
use crate::run::{Effort, run};

/// How several ranks communicate, as the command line names it.
const WAYS: [(&str, Mode); 3] =
    [("kernel", Mode::Kernel), ("stream", Mode::Stream), ("host", Mode::Staged)];

/// The cells of a row.
fn cells(operator: Operator, boundary: Boundary) -> impl Iterator<Item = Config> {
    let config = Config { operator, boundary, box_dim: 16, ..Config::default() };
    let smoothers = Smoother::value_variants().iter();
    smoothers.map(move |&smoother| Config { smoother, ..config.clone() })
}

fn rows() -> impl Iterator<Item = (Operator, Boundary)> {
    let operators = Operator::value_variants().iter();
    operators.flat_map(|&operator| {
        Boundary::value_variants().iter().map(move |&boundary| (operator, boundary))
    })
}

/// What the page says.
fn table() -> String {
    let ways: Vec<String> = WAYS.iter().map(|(way, _)| format!("`{way}`")).collect();
    let mut text = String::from("| `--operator` | `--boundary` |");
    let headings =
        Smoother::value_variants().iter().map(|&s| format!(" `--smoother {}` |", name(s)));
    text.extend(headings);
    text += "\n|---|---|";
    text.extend(Smoother::value_variants().iter().map(|_| "---|"));
    for (operator, boundary) in rows() {
        text += &format!("\n| `{}` | `{}` |", name(operator), name(boundary));
        text.extend(cells(operator, boundary).map(|_| format!(" alone, {} |", ways.join(", "))));
    }
    text
}

#[test]
fn the_page_about_gpus_has_the_table_of_what_is_tested_here() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/hpgmg-gpu.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (begin, end) = ("<!-- operators -->\n", "\n<!-- end -->");
    let (before, rest) = text.split_once(begin).unwrap();
    let (found, after) = rest.split_once(end).unwrap();
    if std::env::var_os("MP_REGENERATE").is_some() {
        std::fs::write(page, format!("{before}{begin}{}{end}{after}", table())).unwrap();
    } else {
        assert_eq!(found, table(), "MP_REGENERATE=1 cargo test -p hpgmg writes it anew");
    }
}

/// The CPU's solution.
fn is_the_cpus(place: Place, config: &Config) {
    let off = place.difference(config);
    assert!(off == 0.0, "{config:?}: {off:e}");
}

/// One rank finds the CPU's bits, and several find those in every way of communicating.
fn in_every_way(place: Place, config: &Config, ranks: usize, graph: bool) {
    is_the_cpus(place, config);
    let one = found(&mut place.alone(config));
    for (_, mode) in WAYS {
        let several =
            place.together(config, ranks, Way::new(mode, 8, graph && mode != Mode::Staged));
        assert_eq!(several.numbers, one.numbers, "{config:?} {mode:?}");
        assert!(several.u == one.u, "{config:?} {mode:?}");
    }
}

fn row(place: Place, (operator, boundary): (Operator, Boundary)) {
    cells(operator, boundary).for_each(|config| in_every_way(place, &config, 2, true));
}

/// Boxes of the CPU's, in whose order sums are formed, and neighbours on two sides around the domain and within it.
fn with_boxes(place: Place) {
    for (operator, boundary) in rows().filter(|row| place.is_fast() || row.1 == Boundary::Periodic)
    {
        let config =
            Config { operator, boundary, box_dim: 16, boxes_per_rank: 8, ..Config::default() };
        in_every_way(place, &config, 3, false);
    }
}

/// Every cycle, bottom solver and equation; where a solve takes long, every pair of two of them and the operator.
fn every_cycle(place: Place) {
    for (number, (operator, boundary)) in rows().enumerate() {
        for &cycle in Cycle::value_variants() {
            for &bottom in Bottom::value_variants() {
                for &equation in Equation::value_variants() {
                    let box_dim = 16;
                    let turn = number + cycle as usize + bottom as usize + equation as usize;
                    if !place.is_fast() && turn % 2 == 1 {
                        continue;
                    }
                    let config = Config {
                        operator,
                        boundary,
                        cycle,
                        bottom,
                        equation,
                        box_dim,
                        ..Config::default()
                    };
                    is_the_cpus(place, &config);
                }
            }
        }
    }
}

/// The reference program's numbers, wherever it has been run on grids of these sizes; where a solve takes long, with GSRB and
/// BiCGStab.
fn reference(place: Place, sizes: &[usize]) -> usize {
    let mut checked = 0;
    for (operator, boundary) in rows() {
        for config in cells(operator, boundary) {
            for &cycle in Cycle::value_variants() {
                for &bottom in Bottom::value_variants() {
                    for &equation in Equation::value_variants() {
                        for &box_dim in sizes {
                            let config =
                                Config { cycle, bottom, equation, box_dim, ..config.clone() };
                            let usual =
                                (config.smoother, bottom) == (Smoother::Gsrb, Bottom::Bicgstab);
                            if !(usual || place.is_fast()) || known(&config, box_dim).is_none() {
                                continue;
                            }
                            checked += 1;
                            let mut solver = place.alone(&config);
                            let outcome = run(&mut solver, Effort::Solves(1), |_, _, _| {});
                            let verdict = judge(&config, &outcome.unwrap());
                            assert!(matches!(verdict, Verdict::Pass(_)), "{config:?}: {verdict:?}");
                        }
                    }
                }
            }
        }
    }
    checked
}

/// The tests of a place; each row by itself, so that they run at the same time.
macro_rules! tests {
    ($place:expr, [$($row:ident: $operator:ident, $boundary:ident;)*], $sizes:expr, $least:expr, #[$when:meta]) => {
        $(
            #[test]
            #[$when]
            fn $row() {
                let _turn = $place.turn();
                row($place, (Operator::$operator, Boundary::$boundary));
            }
        )*

        #[test]
        #[$when]
        fn three_ranks_find_the_bits_of_one_and_of_the_cpus_boxes() {
            let _turn = $place.turn();
            with_boxes($place);
        }

        #[test]
        #[$when]
        fn eight_ranks_in_boxes_find_the_bits_of_one_on_every_path() {
            let _turn = $place.turn();
            eight_boxes($place);
        }

        #[test]
        #[$when]
        fn six_ranks_in_unequal_boxes_find_the_bits_of_one() {
            let _turn = $place.turn();
            unequal_boxes($place);
        }

        #[test]
        #[$when]
        fn two_hosts_of_two_ranks_find_the_bits_of_one() {
            let _turn = $place.turn();
            on_two_hosts($place);
        }

        #[test]
        #[$when]
        fn every_operator_and_boundary_finds_the_bits_of_one_in_boxes() {
            let _turn = $place.turn();
            every_operator_in_boxes($place);
        }

        #[test]
        #[$when]
        fn coarser_levels_go_to_fewer_ranks_without_another_bit() {
            let _turn = $place.turn();
            step_by_step($place);
        }

        #[test]
        #[$when]
        fn every_cycle_bottom_solver_and_equation_finds_the_cpus_bits() {
            let _turn = $place.turn();
            every_cycle($place);
        }

        #[test]
        #[$when]
        fn the_reference_programs_numbers_come_out() {
            let _turn = $place.turn();
            let checked = reference($place, $sizes);
            assert!(checked >= $least, "{checked} cases");
        }
    };
    ($place:expr, $sizes:expr, $least:expr, #[$when:meta]) => {
        tests!($place, [
            fv4_finds_the_cpus_bits_in_every_way: Fv4, Dirichlet;
            fv4_around_finds_the_cpus_bits_in_every_way: Fv4, Periodic;
            fv2_finds_the_cpus_bits_in_every_way: Fv2, Dirichlet;
            fv2_around_finds_the_cpus_bits_in_every_way: Fv2, Periodic;
            p7_finds_the_cpus_bits_in_every_way: P7, Dirichlet;
            p7_around_finds_the_cpus_bits_in_every_way: P7, Periodic;
            p27_finds_the_cpus_bits_in_every_way: P27, Dirichlet;
            p27_around_finds_the_cpus_bits_in_every_way: P27, Periodic;
        ], $sizes, $least, #[$when]);
    };
}

/// Ranks that share the levels in so many parts find the bits of one, however they reach each other.
fn in_parts(place: Place, config: &Config, way: Way, paths: &[&str]) {
    let one = found(&mut place.alone(config));
    for path in paths {
        let through = libmp::Config::from_variables([("MP_PATH", *path)]).unwrap();
        let ranks = way.along[0].iter().product();
        let worlds = libmp::World::threads_with_config(ranks, &through).unwrap();
        let several = place.in_worlds(worlds, config, way).unwrap();
        assert_eq!(several.numbers, one.numbers, "{config:?} {way:?} {path}");
        assert!(several.u == one.u, "{config:?} {way:?} {path}");
    }
}

/// How a domain that ends, and one that wraps around, is cut into boxes here.
fn boxes(boundary: Boundary) -> &'static [[usize; 3]] {
    match boundary {
        Boundary::Dirichlet => &[[2, 2, 1]],
        Boundary::Periodic => &[[1, 2, 2]],
    }
}

/// Every operator and boundary in boxes, with each smoother in one of the ways.
fn every_operator_in_boxes(place: Place) {
    for (number, (operator, boundary)) in rows().enumerate() {
        for (turn, config) in cells(operator, boundary).enumerate() {
            let (_, mode) = WAYS[(number + turn) % WAYS.len()];
            let way = Way { along: boxes(boundary), ..Way::new(mode, 8, false) };
            in_parts(place, &config, way, &["auto"]);
        }
    }
}

/// Eight boxes, in every way, through memory and by NICs. On one GPU, whose channels waiting kernels of eight ranks would all hold, so
/// that nothing that a NIC copies there got through: for this test there have to be more of them.
fn eight_boxes(place: Place) {
    place.with_channels();
    let config = Config { box_dim: 16, ..Config::default() };
    for (_, mode) in WAYS {
        let way = Way { along: &[[2, 2, 2]], ..Way::new(mode, 8, false) };
        in_parts(place, &config, way, &["auto", "nic", "nic-tcp"]);
    }
    let way = Way { along: &[[2, 2, 2]], ..Way::new(Mode::Kernel, 8, place == Place::Gpu) };
    in_parts(place, &config, Way { direct_halo: false, ..way }, &["auto"]);
}

/// Boxes of unequal size along each axis, in every way.
fn unequal_boxes(place: Place) {
    let config = Config { box_dim: 32, ..Config::default() };
    for (_, mode) in WAYS {
        for along in [&[[1, 3, 2]], &[[3, 1, 2]]] {
            let paths: &[&str] = if mode == Mode::Kernel { &["auto", "nic"] } else { &["auto"] };
            in_parts(place, &config, Way { along, ..Way::new(mode, 8, false) }, paths);
        }
    }
}

/// Coarser levels on fewer ranks, step by step: boxes to boxes, to slabs, and to all.
fn step_by_step(place: Place) {
    let config = Config { box_dim: 32, ..Config::default() };
    for (_, mode) in WAYS {
        let along: &[[usize; 3]] = &[[2, 2, 2], [1, 1, 2]];
        in_parts(place, &config, Way { along, ..Way::new(mode, 8, false) }, &["auto"]);
    }
    let along: &[[usize; 3]] = &[[1, 2, 2], [1, 1, 2]];
    let around = Config { boundary: Boundary::Periodic, operator: Operator::Fv2, ..config };
    let way = |mode| Way { along, ..Way::new(mode, 8, false) };
    in_parts(place, &around, way(Mode::Staged), &["auto"]);
    in_parts(place, &around, way(Mode::Kernel), &["nic"]);
}

/// Worlds of four ranks, two on each of two hosts that this process plays.
fn two_hosts() -> Vec<libmp::World> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port = port.to_string();
    let world = |rank: usize| {
        let (number, local) = (rank.to_string(), (rank % 2).to_string());
        let node = format!("host {}", rank / 2);
        let variables = [
            ("RANK", number.as_str()),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", &local),
            ("LOCAL_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", &port),
            ("MP_NODE", &node),
        ];
        libmp::World::with_config(&libmp::Config::from_variables(variables).unwrap()).unwrap()
    };
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..4)
            .map(|rank| {
                scope.spawn({
                    let world = &world;
                    move || world(rank)
                })
            })
            .collect();
        started.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Two hosts of two ranks: neighbours on the same host by mapped memory, those on the other by the NIC, in the same kernels.
fn on_two_hosts(place: Place) {
    let config = Config { box_dim: 16, ..Config::default() };
    let one = found(&mut place.alone(&config));
    for (_, mode) in WAYS {
        for along in [&[[2, 1, 2]], &[[1, 1, 4]]] {
            let way = Way { along, ..Way::new(mode, 8, false) };
            let several = place.in_worlds(two_hosts(), &config, way).unwrap();
            assert_eq!(several.numbers, one.numbers, "{way:?}");
            assert!(several.u == one.u, "{way:?}");
        }
    }
}

mod host {
    use super::*;

    tests!(Place::Host, &[16], 10, #[cfg(not(miri))]);
}

mod gpu {
    use super::*;

    tests!(Place::Gpu, &[16, 32, 64, 128], 50, #[ignore = "needs a CUDA GPU"]);
}
