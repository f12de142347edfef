//! What is chosen for so many ranks and cells, and what a user may say instead.

use super::*;

fn dims(finest: usize) -> Vec<usize> {
    let mut dims = vec![finest];
    while dims[dims.len() - 1] % 2 == 0 && dims[dims.len() - 1] > 16 {
        dims.push(dims[dims.len() - 1] / 2);
    }
    dims
}

fn chosen(finest: usize, ranks: usize) -> Division {
    Division::new(&Config::default(), &dims(finest), ranks, Cut::default()).unwrap()
}

#[test]
fn few_ranks_have_slabs_and_many_have_boxes() {
    for ranks in [2, 3, 4, 8] {
        for finest in [64, 96, 128, 192, 256, 384, 512, 768, 1024] {
            let division = chosen(finest, ranks);
            for l in 0..division.whole() {
                assert_eq!(division.along(l), [1, 1, ranks], "{finest} {ranks}");
            }
        }
    }
    assert_eq!(chosen(1024, 16).along(0), [1, 1, 16]);
    let mut of_27 = chosen(768, 27).along(0);
    of_27.sort_unstable();
    assert_eq!(of_27, [3, 3, 3]);
    // Half as many neighbours make up for a few more bytes.
    assert_eq!(chosen(1024, 64).along(0), [2, 4, 8]);
    // Seven are prime to all sizes: planes are cut unequally.
    assert_eq!(chosen(256, 7).along(0), [1, 1, 7]);
    assert_eq!(chosen(256, 1).whole(), 0);
}

#[test]
fn a_level_of_64_cells_is_whole_where_its_exchanges_cost_more_than_what_they_save() {
    let largest = |finest, ranks, host| {
        let cut = Cut { host, ..Cut::default() };
        let division = Division::new(&Config::default(), &dims(finest), ranks, cut).unwrap();
        finest >> division.whole()
    };
    for finest in [64, 128, 256, 512] {
        assert_eq!(largest(finest, 2, 2), 64, "{finest}");
    }
    assert_eq!([largest(512, 2, 1), largest(512, 4, 4)], [64, 64]);
    // Eight would get seven eighths of it from each other.
    assert_eq!([largest(512, 8, 8), largest(1024, 64, 8)], [32, 32]);
    // With other smoothers it is cut, and what the user says is done.
    let chebyshev = Config { smoother: Smoother::Chebyshev, ..Config::default() };
    let of = |config: &Config, whole| {
        let cut = Cut { whole, ..Cut::default() };
        128 >> Division::new(config, &dims(128), 2, cut).unwrap().whole()
    };
    assert_eq!(of(&chebyshev, WHOLE), 32);
    assert_eq!([16, 32, 64].map(|cells| of(&Config::default(), [cells; 2])), [16, 32, 64]);
}

#[test]
fn coarse_levels_of_many_ranks_go_to_fewer_step_by_step() {
    let division = chosen(1024, 64);
    let steps: Vec<usize> =
        (0..=division.whole()).map(|l| division.along(l).iter().product()).collect();
    assert!(steps.is_sorted_by(|one, next| one >= next), "{steps:?}");
    assert_eq!(steps.last(), Some(&1));
    assert!(steps.iter().any(|&ranks| 1 < ranks && ranks < 64), "{steps:?}");
    // What is chosen costs no more than to stay, and than slabs.
    let dims = dims(1024);
    let levels = launches(Cycle::F, &dims[..dims.len() - 1], SWEEPS);
    for other in [[4, 4, 4], [1, 8, 8], [2, 4, 8]] {
        let other = Division::of(&dims, &[other], 32).unwrap();
        assert!(division.cost(&levels, usize::MAX) <= other.cost(&levels, usize::MAX), "{other:?}");
    }
}

#[test]
fn between_hosts_bytes_weigh_more() {
    let on = |host| {
        let cut = Cut { host, ..Cut::default() };
        Division::new(&Config::default(), &dims(512), 16, cut).unwrap().along(0)
    };
    assert_eq!(on(16), [1, 1, 16]);
    // Half of a box's surface is within a host of eight.
    assert_eq!(on(8), [2, 4, 2]);
}

#[test]
fn many_ranks_are_divided_and_go_to_all_in_steps_that_are_short_enough() {
    for (finest, ranks) in [(1024, 4096), (8192, 4096), (4096, 512), (256, 12), (512, 24)] {
        let division = chosen(finest, ranks);
        assert_eq!(division.along(0).iter().product::<usize>(), ranks, "{finest} {ranks}");
    }
    let steps = Division::of(&dims(1024), &[[16, 16, 16]], 32).unwrap().along;
    assert_eq!(steps[3..], [[16; 3], [2; 3], [1; 3]]);
    assert_eq!(ends([1, 1, 128]), Some(vec![[1, 1, 16], [1, 1, 2], [1; 3]]));
    assert_eq!([ends([1, 1, 11]), ends([1, 22, 1])], [None, None]);
}

#[test]
fn a_level_with_too_few_cells_for_the_ranks_is_not_cut() {
    let dims = [64, 32, 16, 8, 4, 2, 1];
    let whole = |limit| Division::of(&dims, &[[1, 1, 8]], limit).unwrap().whole();
    assert_eq!([whole(16), whole(8), whole(1)], [2, 2, 2]);
    assert_eq!(Division::of(&[16, 8, 4, 2, 1], &[[1, 1, 16]], 1), None);
    // Along i half a part is pairs of cells.
    assert_eq!(Division::of(&[18, 9], &[[2, 1, 1]], 1), None);
    assert_eq!(Division::of(&[18, 9], &[[1, 2, 1]], 1).unwrap().whole(), 1);
    assert_eq!(Division::of(&[24, 12, 6, 3], &[[1, 4, 1]], 1).unwrap().whole(), 1);
}

#[test]
fn bytes_and_neighbours_are_those_of_a_rank_in_the_middle() {
    let sent = |along, n| Division::of(&[n, n / 2], &[along], 1).unwrap().sent(0, n);
    assert_eq!(sent([1, 1, 4], 96), Sent { bytes: 2 * 2 * 96 * 96 * 8, neighbours: 2 });
    let corner = Sent { bytes: 8 * (3 * 2 * 48 * 48 + 3 * 4 * 48 + 8), neighbours: 7 };
    assert_eq!(sent([2, 2, 2], 96), corner);
    assert_eq!(sent([3, 3, 3], 96).neighbours, 26);
}

#[test]
fn neighbours_are_neighbours_of_each_other_and_groups_agree() {
    let dims = dims(256);
    let steps = vec![[4, 2, 4], [2, 2, 2], [1, 1, 2], [1, 1, 1]];
    let division = Division::by_level(&dims, steps).unwrap();
    for rank in 0..32 {
        for l in 0..3 {
            for code in 0..27i8 {
                let direction = [code % 3 - 1, code / 3 % 3 - 1, code / 9 - 1];
                for around in [false, true] {
                    let Some(peer) = division.toward(l, rank, direction, around) else {
                        continue;
                    };
                    let back = direction.map(|step| -step);
                    assert_eq!(division.toward(l, peer, back, around), Some(rank));
                    let (here, there) = (division.place(l, rank), division.place(l, peer));
                    for axis in 0..3 {
                        let along = division.along(l)[axis] as isize;
                        let expected =
                            (here[axis] as isize + isize::from(direction[axis])).rem_euclid(along);
                        assert_eq!(there[axis] as isize, expected);
                    }
                }
            }
            for axis in 0..3 {
                let all = division.gathered(l + 1, rank, axis);
                assert!(all.contains(&rank));
                for &other in &all {
                    assert_eq!(division.gathered(l + 1, other, axis), all);
                    assert_eq!(
                        division.place(l + 1, other)[axis],
                        division.place(l + 1, rank)[axis]
                    );
                }
            }
        }
    }
}

#[test]
fn what_the_user_says_is_done_or_refused_with_the_reason() {
    let dims = dims(64);
    fn cut(along: &[Along]) -> Cut<'_> {
        Cut { whole: [16; 2], along, ..Cut::default() }
    }
    let said = |along: &[Along], ranks| Division::new(&Config::default(), &dims, ranks, cut(along));
    assert_eq!(said(&[[2, 2, 2]], 8).unwrap().along, [[2, 2, 2], [2, 2, 2], [1; 3]]);
    assert_eq!(said(&[[2, 2, 2], [1, 1, 2]], 8).unwrap().along, [[2, 2, 2], [1, 1, 2], [1; 3]]);
    let error = said(&[[2, 2, 2]], 4).unwrap_err().to_string();
    assert!(error.contains("2x2x2") && error.contains("number of ranks"), "{error}");
    assert!(said(&[[17, 1, 1]], 17).unwrap_err().to_string().contains("too small"));
    let around = Config { boundary: Boundary::Periodic, ..Config::default() };
    let error = Division::new(&around, &dims, 2, cut(&[[2, 1, 1]])).unwrap_err().to_string();
    assert!(error.contains("wraps around"), "{error}");
}
