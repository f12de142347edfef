//! Solves on a GPU against the CPU and against the reference's numbers. Named `gpu::…` so that whoever runs the tests of
//! a GPU machine finds them.

use super::Gpu;
use super::layout::Grid;
use super::solves::{Found, LIMIT, Place, SHORT, Way, cpu, found, shared};
use super::timeline::Timeline;
use super::{Cut, Mode, Team};
use crate::options::{Bottom, Config, Cycle, Equation, Operator, Smoother};

const SMOOTHERS: [Smoother; 4] =
    [Smoother::Gsrb, Smoother::Chebyshev, Smoother::Jacobi, Smoother::L1Jacobi];

#[test]
fn planes_of_several_boxes_arrive_where_the_kernels_look() {
    let config = Config { box_dim: 16, boxes_per_rank: 8, ..Config::default() };
    let cpu = cpu(&config);
    let level = cpu.level(0);
    let (grid, boxes) = (Grid::new(level.shape.dim), super::layout::Boxes::of(level));
    let mut field = vec![0.0; 8 * level.geometry.volume];
    let value = |i: usize, j: usize, k: usize| (i + 100 * j + 10_000 * k) as f64;
    for index in 0..8 {
        let [oi, oj, ok] = level.origin(index);
        for cell in 0..16 * 16 * 16 {
            let (i, j, k) = (cell % 16, cell / 16 % 16, cell / 256);
            let at = index * level.geometry.volume + level.geometry.row(j, k) + i;
            field[at] = value(oi + i, oj + j, ok + k);
        }
    }
    let mut values = vec![f64::NAN; grid.volume()];
    for k in -1..=32 {
        super::layout::gather_plane(boxes, &field, &grid, k, 0, &mut values);
    }
    for cell in 0..32 * 32 * 32 {
        let (i, j, k) = (cell % 32, cell / 32 % 32, cell / 1024);
        assert_eq!(values[grid.at(i as isize, j as isize, k as isize)], value(i, j, k));
    }
    let back = super::layout::scatter(boxes, &grid, &values);
    let interior = |field: &[f64]| -> f64 { field.iter().filter(|v| !v.is_nan()).sum() };
    assert_eq!(interior(&back), interior(&field));
}

mod gpu {
    use super::*;
    use crate::backend::Vector;
    use crate::cycle::Solved;
    use crate::run::Solver;

    fn gpu(config: &Config) -> Gpu {
        Place::Gpu.alone(config)
    }

    fn together(config: &Config, ranks: usize, mode: Mode, whole: usize, graph: bool) -> Found {
        Place::Gpu.together(config, ranks, Way::new(mode, whole, graph))
    }

    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn solutions_are_the_cpus_with_every_operator_and_smoother() {
        for operator in [Operator::Fv4, Operator::Fv2] {
            for smoother in SMOOTHERS {
                for (box_dim, boxes_per_rank) in [(16, 1), (16, 8), (16, 27), (64, 1)] {
                    let config =
                        Config { operator, smoother, box_dim, boxes_per_rank, ..Config::default() };
                    let off = Place::Gpu.difference(&config);
                    println!("{operator:?} {smoother:?} {boxes_per_rank} x {box_dim}: {off:.1e}");
                    assert!(off <= 1e-12, "{config:?}: {off:e}");
                }
            }
        }
    }

    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn solutions_are_the_cpus_on_odd_coarse_grids() {
        for boxes_per_rank in [125, 343] {
            let config = Config { box_dim: 16, boxes_per_rank, ..Config::default() };
            let off = Place::Gpu.difference(&config);
            assert!(off <= 1e-12, "{boxes_per_rank} boxes: {off:e}");
        }
    }

    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn solutions_are_the_cpus_with_every_bottom_solver_cycle_and_equation() {
        let base = Config { box_dim: 16, boxes_per_rank: 27, ..Config::default() };
        for bottom in [Bottom::Bicgstab, Bottom::Cg, Bottom::Smoother] {
            for cycle in [Cycle::F, Cycle::V, Cycle::Fv] {
                for equation in [Equation::Poisson, Equation::Helmholtz] {
                    let config = Config { bottom, cycle, equation, ..base.clone() };
                    let off = Place::Gpu.difference(&config);
                    assert!(off <= 1e-12, "{config:?}: {off:e}");
                }
            }
        }
    }

    /// Levels with a launch for both colours, compiled for their size and for any.
    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn solutions_of_large_levels_are_the_cpus_bits() {
        for box_dim in [128, 192] {
            for cycle in [Cycle::F, Cycle::V] {
                for equation in [Equation::Poisson, Equation::Helmholtz] {
                    let config = Config { box_dim, cycle, equation, ..Config::default() };
                    let off = Place::Gpu.difference(&config);
                    assert!(off == 0.0, "{config:?}: {off:e}");
                }
            }
        }
    }

    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn a_solve_launches_what_is_counted_for_it() {
        for cycle in [Cycle::F, Cycle::V] {
            let config = Config { box_dim: 128, cycle, ..Config::default() };
            let mut gpu = gpu(&config);
            gpu.use_graphs = false;
            let trace = libmp::trace::Trace::detached(0, "", 10_000);
            gpu.timeline = Some(Timeline::new(&trace, ""));
            let mut solved = Solved::empty();
            gpu.solve(0, &mut solved).unwrap();
            let enqueued = gpu.timeline.take().unwrap().enqueued();
            let times = solved.cycles.len();
            let counted = gpu.launches(gpu.coarse);
            assert!(counted.len() > 2, "{counted:?}");
            for (l, counted) in counted.iter().enumerate() {
                // Of what a leg has in one launch nothing is launched by itself.
                let legs = gpu.kernels.leg(counted.n).is_some();
                let by_itself = |count: usize| if legs { 0 } else { times * count };
                // Interpolations are written down by the level that they write.
                let count = |ends: &[&str]| {
                    let named = |name: &str| ends.iter().any(|end| name.ends_with(end));
                    let all =
                        enqueued.iter().filter(|(name, level)| *level == l as u64 && named(name));
                    all.count()
                };
                let gsrb = ["gsrb", "gsrb_16", "gsrb_64", "gsrb_128"];
                let zero = count(&["gsrb_zero"]);
                let both = count(&["sweep", "sweep_128"]);
                assert_eq!(zero, by_itself(counted.from_zero), "{cycle:?} level {l}");
                let half_sweeps = count(&gsrb) + zero + 2 * both;
                assert_eq!(half_sweeps, by_itself(counted.sweeps), "{cycle:?} level {l}");
                let whole =
                    if gpu.sweep(l).is_some() { by_itself(counted.whole_sweeps()) } else { 0 };
                assert_eq!(both, whole, "{cycle:?} level {l}");
                assert_eq!(count(&["residual_restrict"]), by_itself(counted.residuals));
                assert_eq!(count(&["correct"]), by_itself(counted.corrections));
                let launched = if legs { times * counted.sweeps / 6 } else { 0 };
                assert_eq!(
                    count(&["leg_24", "leg_32", "leg_48", "leg_64"]),
                    launched,
                    "{cycle:?} level {l}"
                );
                assert_eq!(count(&["replace_quartic"]), times * counted.solutions);
                assert_eq!(count(&["hpgmg_restrict"]), times * counted.restrictions);
                assert_eq!(count(&["residual_norm"]), times * counted.norms);
            }
        }
    }

    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn repeats_replays_and_single_launches_give_the_same_bits() {
        let config = Config { box_dim: 64, ..Config::default() };
        let mut gpu = gpu(&config);
        let mut solved = Solved::empty();
        let mut first: Option<(Vec<f64>, Vec<f64>)> = None;
        for turn in 0..40 {
            gpu.use_graphs = turn % 4 != 3;
            gpu.zero_solution(0).unwrap();
            gpu.solve(0, &mut solved).unwrap();
            let residuals: Vec<f64> = solved.cycles.iter().map(|c| c.residual).collect();
            let found = (residuals, gpu.download(0, Vector::U).unwrap());
            let expected = first.get_or_insert_with(|| found.clone());
            assert!(*expected == found, "turn {turn}");
        }
    }

    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn two_ranks_on_one_gpu_find_the_bits_of_one() {
        for (operator, smoother) in [
            (Operator::Fv4, Smoother::Gsrb),
            (Operator::Fv4, Smoother::Chebyshev),
            (Operator::Fv2, Smoother::Jacobi),
        ] {
            let config = Config { operator, smoother, box_dim: 64, ..Config::default() };
            let one = found(&mut gpu(&config));
            for (mode, whole, graph) in [
                (Mode::Kernel, 32, false),
                (Mode::Kernel, 32, true),
                (Mode::Kernel, 8, true),
                (Mode::Stream, 32, false),
                (Mode::Stream, 8, true),
                (Mode::Staged, 8, false),
            ] {
                println!("{operator:?} {smoother:?} {mode:?} {whole} {graph}");
                let two = together(&config, 2, mode, whole, graph);
                assert_eq!(two.numbers, one.numbers, "{config:?} {mode:?} {whole} {graph}");
                assert!(two.u == one.u, "{config:?} {mode:?} {whole} {graph}");
            }
        }
    }

    /// Levels whose sweeps are one launch over a rank's planes: of sizes compiled for, and any; of two such levels, the coarser one's
    /// right-hand side comes with a plane of the neighbours'.
    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn ranks_that_sweep_at_once_find_the_bits_of_one() {
        for (box_dim, cycle, ranks) in
            [(128, Cycle::F, 2), (128, Cycle::V, 4), (192, Cycle::F, 3), (256, Cycle::F, 2)]
        {
            let config = Config { box_dim, cycle, ..Config::default() };
            let one = found(&mut gpu(&config));
            for (mode, graph, direct_halo) in [
                (Mode::Kernel, false, true),
                (Mode::Kernel, true, false),
                (Mode::Stream, true, true),
                (Mode::Staged, false, true),
            ] {
                let way = Way { direct_halo, ..Way::new(mode, 32, graph) };
                println!("{box_dim} {cycle:?} {ranks} {mode:?} {graph}");
                let worlds = libmp::World::threads(ranks).unwrap();
                let several = Place::Gpu.in_worlds(worlds, &config, way).unwrap();
                assert_eq!(several.numbers, one.numbers, "{config:?} {way:?}");
                assert!(several.u == one.u, "{config:?} {way:?}");
            }
        }
    }

    /// Twelve ranks on one GPU: blocks that run together begin and go on at very different times.
    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn solves_beside_others_on_the_gpu_find_the_bits_of_one_alone() {
        Place::Gpu.with_channels();
        for cycle in [Cycle::V, Cycle::F] {
            let config = Config { box_dim: 128, cycle, ..Config::default() };
            let one = found(&mut gpu(&config)).numbers;
            let several = || {
                let worlds = libmp::World::threads(4).unwrap();
                let way = Way::new(Mode::Kernel, 32, false);
                let repeat = |gpu: &mut Gpu| {
                    for turn in 0..20 {
                        assert_eq!(found(gpu).numbers, one, "{cycle:?}, turn {turn}");
                    }
                };
                Place::Gpu.each(worlds, &config, way, |machine| machine, repeat).unwrap();
            };
            std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(several))));
        }
    }

    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn borders_packed_into_receive_buffers_and_unpacked_change_no_bit() {
        for (smoother, cycle, ranks, box_dim, boxes_per_rank, graph) in [
            (Smoother::Gsrb, Cycle::F, 2, 64, 1, false),
            (Smoother::Gsrb, Cycle::V, 2, 64, 1, true),
            (Smoother::Chebyshev, Cycle::Fv, 2, 64, 1, true),
            (Smoother::Gsrb, Cycle::V, 3, 16, 27, true),
        ] {
            let config = Config { smoother, cycle, box_dim, boxes_per_rank, ..Config::default() };
            let one = found(&mut gpu(&config));
            let way = Way { direct_halo: false, ..Way::new(Mode::Kernel, 8, graph) };
            println!("{smoother:?} {cycle:?} {ranks} {graph}");
            let worlds = libmp::World::threads(ranks).unwrap();
            let packed = Place::Gpu.in_worlds(worlds, &config, way).unwrap();
            assert_eq!(packed.numbers, one.numbers, "{config:?}");
            assert!(packed.u == one.u, "{config:?}");
        }
    }

    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn three_and_four_ranks_and_iterated_cycles_find_the_bits_of_one() {
        for (boxes_per_rank, ranks, cycle) in
            [(27, 3, Cycle::F), (64, 4, Cycle::Fv), (64, 4, Cycle::V)]
        {
            let config = Config { box_dim: 16, boxes_per_rank, cycle, ..Config::default() };
            let one = found(&mut gpu(&config));
            for mode in [Mode::Kernel, Mode::Stream, Mode::Staged] {
                let several = together(&config, ranks, mode, 16, true);
                assert_eq!(several.numbers, one.numbers, "{ranks} {mode:?}");
                assert!(several.u == one.u, "{ranks} {mode:?}");
            }
        }
    }

    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn coarse_levels_on_the_cpu_change_no_bit_in_any_mode() {
        for (operator, smoother, cycle, bottom) in [
            (Operator::Fv4, Smoother::Gsrb, Cycle::F, Bottom::Bicgstab),
            (Operator::Fv4, Smoother::Chebyshev, Cycle::Fv, Bottom::Cg),
            (Operator::Fv2, Smoother::Jacobi, Cycle::V, Bottom::Smoother),
        ] {
            let config =
                Config { operator, smoother, cycle, bottom, box_dim: 64, ..Config::default() };
            let one = found(&mut gpu(&config));
            // Levels below 4 and 8 cells a side, the paper's, all but the finest, all.
            for threshold in [2, 100, 10_000, 40_000, u64::MAX] {
                let device = super::super::open().unwrap();
                let mut alone = Gpu::new(
                    shared(&config),
                    device,
                    None,
                    Cut { threshold, ..Cut::default() },
                    LIMIT,
                )
                .unwrap();
                let alone = found(&mut alone);
                assert_eq!(alone.numbers, one.numbers, "{operator:?} {smoother:?} {threshold}");
                assert!(alone.u == one.u, "{operator:?} {smoother:?} {threshold}");
            }
            for mode in [Mode::Kernel, Mode::Stream, Mode::Staged] {
                let way = Way { threshold: 10_000, ..Way::new(mode, 8, false) };
                let two =
                    Place::Gpu.in_worlds(libmp::World::threads(2).unwrap(), &config, way).unwrap();
                assert_eq!(two.numbers, one.numbers, "{operator:?} {smoother:?} {mode:?}");
                assert!(two.u == one.u, "{operator:?} {smoother:?} {mode:?}");
            }
        }
    }

    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn ranks_that_a_nic_connects_find_the_bits_of_one() {
        let config = Config { box_dim: 32, ..Config::default() };
        let one = found(&mut gpu(&config));
        for path in ["nic", "nic-tcp"] {
            let through = libmp::Config::from_variables([("MP_PATH", path)]).unwrap();
            let solved = |mode, graph| {
                let worlds = libmp::World::threads_with_config(2, &through).unwrap();
                let way = Way::new(mode, 8, graph);
                Place::Gpu.in_worlds(worlds, &config, way)
            };
            for (mode, graph) in [
                (Mode::Stream, false),
                (Mode::Stream, true),
                (Mode::Staged, false),
                (Mode::Kernel, false),
                (Mode::Kernel, true),
            ] {
                println!("{path} {mode:?} {graph}");
                let two = solved(mode, graph).unwrap();
                assert_eq!(two.numbers, one.numbers, "{path} {mode:?}");
                assert!(two.u == one.u, "{path} {mode:?}");
            }
        }
    }

    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn a_rank_that_leaves_ends_the_others_solve_with_its_name() {
        let config = Config { box_dim: 64, ..Config::default() };
        for (mode, graph) in [(Mode::Kernel, true), (Mode::Stream, false), (Mode::Staged, false)] {
            println!("{mode:?} {graph}");
            let began = std::time::Instant::now();
            let worlds = libmp::World::threads(2).unwrap();
            let errors = std::sync::Mutex::new(Vec::new());
            std::thread::scope(|scope| {
                for world in worlds {
                    scope.spawn(|| {
                        let world = world;
                        let comm = &crate::comm::libmp::LibmpComm::new(&world, SHORT);
                        let team = Team { comm, messages: comm, mode, direct_halo: true, graph };
                        let device = super::super::open().unwrap();
                        let cut = Cut { whole: [16; 2], ..Cut::default() };
                        let mut gpu =
                            Gpu::new(shared(&config), device, Some(&team), cut, SHORT).unwrap();
                        if world.rank() == 1 {
                            // Capturing a graph the ranks still meet.
                            if graph {
                                gpu.agree(0, 0.0).unwrap();
                            }
                            return;
                        }
                        let error = gpu.solve(0, &mut Solved::empty()).unwrap_err();
                        errors.lock().unwrap().push(error.to_string());
                    });
                }
            });
            let errors = errors.into_inner().unwrap();
            assert!(errors[0].contains("rank 1"), "{mode:?}: {errors:?}");
            assert!(began.elapsed() < 2 * SHORT, "{mode:?}: {:?}", began.elapsed());
        }
    }
}
