//! The lock-free parts of the workspace under loom. The files are those that the libraries are built from, not copies; what
//! stands here is only who calls them in which order.
//!
//! Each model also runs on sources that `build.rs` has broken, in one place each, and has to fail there: a model that passes
//! whatever the source says would show nothing.
#![cfg(all(loom, test))]
// A model uses its part of a file.
#![allow(dead_code)]

#[path = "../../gdsync/src/memory/access.rs"]
mod access;
#[path = "../../gdsync/src/nic/soft/doze.rs"]
mod doze;
#[path = "../../gdsync/src/nic/soft/inbox.rs"]
mod inbox;
#[path = "../../libmp/src/transport/line.rs"]
mod line;
#[path = "../../gdsync/src/watchdog/outstanding.rs"]
mod outstanding;
#[path = "../../libmp/src/ownership.rs"]
mod ownership;
#[path = "../../gdsync/src/nic/soft/pace.rs"]
mod pace;
#[path = "../../libmp/src/transport/packet.rs"]
mod packet;
#[path = "../../libmp/src/data/positions.rs"]
mod positions;
#[path = "../../gdsync/src/nic/soft/rest.rs"]
mod rest;
#[path = "../../gdsync/src/watchdog/vigil.rs"]
mod vigil;

mod lock;
mod lockstep;
mod mailbox;
mod message;
mod packets;
mod rings;
mod sleep;
mod watchdog;

/// One module for each broken source, with the model that has to notice.
mod broken {
    include!(concat!(env!("OUT_DIR"), "/broken.rs"));
}

/// The ignored test of this name panics.
fn fails(test: &str) {
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    let ran = program.args(["--exact", test, "--ignored", "--nocapture"]).output().unwrap();
    let said = [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(said[0].contains("running 1 test"), "{said:?}");
    assert!(!ran.status.success() && said[1].contains("panicked at"), "not noticed: {said:?}");
}

#[test]
fn a_mailbox_gives_every_blob_once_in_order_and_no_slot_to_two() {
    mailbox::model();
}

#[test]
fn credit_and_arrival_hand_the_buffer_to_and_fro() {
    message::model();
}

#[test]
fn messages_in_lockstep_need_no_credit() {
    lockstep::model();
}

#[test]
fn packets_give_every_message_once_whole_and_no_slot_to_two() {
    packets::model();
}

#[test]
fn rings_of_tagged_messages_give_every_message_once_whole_and_no_room_to_two() {
    rings::model();
}

#[test]
fn a_message_of_a_few_lines_is_whole_when_its_first_is_seen() {
    rings::in_lines();
}

#[test]
fn a_lock_that_is_taken_from_its_owner_lets_one_in_at_a_time() {
    lock::model();
}

#[test]
fn an_engine_that_goes_to_sleep_misses_neither_doorbell_nor_command() {
    sleep::model();
}

#[test]
fn an_abort_releases_every_wait_that_it_does_not_refuse() {
    watchdog::abort();
}

#[test]
fn a_signal_that_comes_while_waits_are_released_is_kept() {
    watchdog::late_signal();
}
