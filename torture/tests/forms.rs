//! A short storm of each form, as threads of one process and through each path between them.

use std::process::Command;

fn storm(form: &str, path: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_mp-torture"))
        .args(["storm", "--threads", "2", "--seconds", "0.3", "--form", form])
        .env("MP_PATH", path)
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{form}, {path}: {}: {err}", output.status);
    assert!(out.contains("\"messages\":") && !err.contains("WRONG"), "{form}, {path}: {out}{err}");
}

#[test]
fn a_storm_started_by_the_host_finds_nothing_wrong() {
    storm("host", "auto");
}

#[test]
fn a_storm_on_streams_finds_nothing_wrong() {
    storm("stream", "auto");
}

#[test]
fn a_storm_in_kernels_finds_nothing_wrong() {
    storm("kernel", "auto");
}

#[test]
fn a_storm_through_the_software_nic_finds_nothing_wrong() {
    storm("mixed", "nic");
    storm("mixed", "nic-tcp");
}

#[test]
fn its_status_says_what_happened_where_its_words_are_lost() {
    let torture = env!("CARGO_BIN_EXE_mp-torture");
    let unheard = |arguments: &[&str]| mp_program::absurd::unheard(torture, arguments).unwrap();
    assert_eq!(unheard(&["storm", "--threads=2", "--seconds=0.1"]), [Some(0); 2]);
    assert_eq!(unheard(&["table", "/nowhere.json", "-o", "/nowhere/x"]), [Some(2); 2]);
}
