//! The programs at tiny sizes, as their users start them: every form is compared with a serial run, on one device and on several. On the CPU with OS
//! threads as GPU threads; the same on a GPU.

use std::process::{Command, Output};

fn dcuda(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dcuda")).args(arguments).output().expect("dcuda starts")
}

/// The arguments, with those of a case.
fn run(program: &str, case: &str) -> String {
    let arguments: Vec<&str> = [program].into_iter().chain(case.split_whitespace()).collect();
    let output = dcuda(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "dcuda {program} {case}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// How many forms it has found right.
fn right(program: &str, case: &str) -> usize {
    let said = run(program, &format!("{case} --iterations 0"));
    said.lines()
        .filter(|line| line.contains(program_name(program)) && line.contains("right"))
        .count()
}

fn program_name(program: &str) -> &str {
    if program == "pingpong" { "ping-pong" } else { program }
}

#[test]
fn the_stencil_is_the_serial_one_in_all_forms() {
    for case in [
        "--devices host --ranks 1 --lines 7 --columns 5 --levels 1",
        "--devices host,host --ranks 3 --columns 16 --levels 3 --check 6",
        "--devices host,host,host --ranks 2 --lines 1 --columns 9 --levels 2 --threads 4",
    ] {
        assert_eq!(right("stencil", case), 4, "{case}");
    }
}

#[test]
fn particles_are_those_of_the_serial_run_in_both_forms() {
    for case in [
        "--devices host --ranks 1 --cells 1 --check 20",
        "--devices host,host --ranks 3 --particles 20 --check 40",
        "--devices host,host,host --ranks 2 --cells 1 --particles 30 --cutoff 0.3 --threads 4 --check 20",
    ] {
        assert_eq!(right("particles", case), 2, "{case}");
    }
}

#[test]
fn the_product_is_the_serial_one_on_any_grid_of_devices() {
    for devices in [1, 2, 3, 4, 6] {
        let devices = vec!["host"; devices].join(",");
        let case = format!("--devices {devices} --ranks 3 --rows 20 --filled 40");
        assert_eq!(right("spmv", &case), 2, "{case}");
    }
    assert_eq!(right("spmv", "--devices host,host --ranks 7 --rows 3 --threads 2"), 2);
}

#[test]
fn what_is_exchanged_and_computed_at_once_is_right() {
    assert_eq!(right("overlap", "--devices host --ranks 5 --copied 1"), 4);
    // Both topologies, both kinds of work, by ranks and on streams.
    assert_eq!(right("overlap", "--devices host,host --ranks 2 --threads 2 --check 70"), 8);
    assert_eq!(right("overlap", "--devices host,host,host --ranks 2 --topology all-remote"), 4);
}

#[test]
fn ranks_that_compute_beside_ranks_that_wait_are_right() {
    assert_eq!(right("waiting", "--devices host,host --ranks 8 --copied 1"), 2);
    let said = run("waiting", "--devices host --ranks 16 --iterations 3 --repeats 2 --work newton");
    assert!(said.contains("% slower"), "{said}");
}

#[test]
fn every_word_goes_back_and_forth_between_pairs_of_one_device_and_of_two() {
    // Three sizes of one pair and of all, on one device and on two, and on streams.
    let case = "--devices host,host --ranks 4 --sizes 0,8,5000 --check 20";
    assert_eq!(right("pingpong", case), 15);
    assert_eq!(right("pingpong", "--devices host --ranks 2 --sizes 16 --threads 32"), 1);
    // Past others that wait, also more than a wait looks at at a time.
    let others = "--devices host,host --ranks 2 --sizes 8 --threads 32 --pending";
    assert_eq!(right("pingpong", &format!("{others} 3")), 3);
    assert_eq!(right("pingpong", &format!("{others} 100")), 3);
}

#[test]
fn times_are_printed_and_written() {
    let folder = std::env::temp_dir().join(format!("dcuda-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (program, lines, unit) in [
        ("stencil --columns 8 --levels 2", 4, "ms"),
        ("overlap --topology chain --work copy --units 3,5", 16, "eta"),
        ("pingpong --sizes 8 --pairs 1", 5, "us"),
        ("pingpong --sizes 8 --pairs 1 --one-way", 2, "GB/s"),
        ("particles --particles 5", 2, "ms"),
        ("spmv --rows 4", 2, "ms"),
    ] {
        let path = folder.join("figures.json");
        let (name, rest) = program.split_once(' ').unwrap();
        let common = "--devices host,host --ranks 2 --iterations 3 --repeats 2 --json";
        run(name, &format!("{rest} {common} {}", path.display()));
        let text = std::fs::read_to_string(&path).unwrap();
        let figures: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(figures.len(), lines, "{text}");
        assert!(figures.iter().any(|figure| figure["figure"][0] == unit), "{text}");
        assert!(figures.iter().all(|figure| figure["figure"][1]["count"] == 2), "{text}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_cannot_be_is_refused_in_one_sentence() {
    for (arguments, wanted) in [
        ("overlap --devices host --topology all-remote", "all-remote needs several devices"),
        ("waiting --devices host --ranks 12", "12 ranks: expected a multiple of 8"),
        ("pingpong --devices host --one-way", "expected an even number of devices"),
        ("pingpong --devices host --ranks 1", "needs two ranks"),
        ("pingpong --devices host --ranks 4 --pairs 3", "3 pairs: expected at most 2"),
        (
            "stencil --devices host,host --ranks 1 --nvshmem",
            "NVSHMEM takes two devices that are two GPUs",
        ),
        ("stencil --devices cuda:4000", "4000"),
        ("stencil --json /nowhere/figures.json --devices host --ranks 1", "/nowhere/figures.json"),
    ] {
        let output = dcuda(&arguments.split_whitespace().collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{arguments}: {said}");
        let no_gpu = ["driver", "without GPU code"].iter().any(|why| said.contains(why));
        assert!(
            said.contains(wanted) || arguments.contains("cuda") && no_gpu,
            "{arguments}: {said}"
        );
    }
}

mod gpu {
    use super::*;

    fn all(devices: &str) {
        let forms = [("stencil", 4), ("particles", 2), ("spmv", 2)];
        for (program, count) in forms {
            assert_eq!(right(program, &format!("--devices {devices}")), count, "{program}");
        }
        let small = format!("--devices {devices} --ranks 100");
        assert!(right("pingpong", &format!("{small} --sizes 0,8,4096,65536")) >= 8);
        assert!(right("overlap", &small) >= 2);
        assert_eq!(right("waiting", &format!("--devices {devices} --ranks 104")), 2);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn every_program_is_right_on_a_gpu() {
        all("cuda:0");
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn every_program_is_right_on_two_devices_that_share_a_gpu() {
        all("cuda:0,cuda:0");
    }

    #[test]
    #[ignore = "needs 2 GPUs"]
    fn every_program_is_right_on_two_gpus() {
        all("cuda:0,cuda:1");
    }
}
