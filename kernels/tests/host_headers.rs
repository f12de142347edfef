//! The device headers compiled by the host's C++ compiler, OS threads playing GPU threads: compiles the program in
//! `tests/host/` once and runs each of its cases as a test. `tools/host-headers --tsan` runs the same program under
//! ThreadSanitizer.

use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// A case that has not ended by then hangs.
const CASE_DEADLINE: Duration = Duration::from_secs(120);

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The C++ compiler that `cc` finds (`CXX`, else the system's), with the flags of the host build.
fn compiler() -> Command {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++20").opt_level(1).debug(true).cargo_metadata(false);
    build.target(env!("MP_TARGET")).host(env!("MP_TARGET"));
    let mut command = build.try_get_compiler().expect("a C++ compiler").to_command();
    command.args(["-pthread", "-Wall", "-Wextra", "-Werror", "-I"]);
    command.arg(crate_folder().join("include"));
    command
}

fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| extensions.iter().any(|e| end == *e)))
        .collect();
    found.sort();
    found
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command.output().unwrap();
    let failure = || format!("{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(failure()) }
}

/// Compiled once, also if that fails.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host-headers");
        let sources = files(&crate_folder().join("tests/host"), &["cpp"]);
        let object = |source: &PathBuf| {
            program.with_file_name(source.file_stem().unwrap()).with_extension("o")
        };
        // As many at a time as the machine has cores.
        let rest = Mutex::new(sources.iter());
        let work = || {
            std::iter::from_fn(|| rest.lock().unwrap().next()).try_for_each(|source| {
                succeed(compiler().arg("-c").arg(source).arg("-o").arg(object(source)))
            })
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().unwrap())
        })?;
        let objects = sources.iter().map(object);
        succeed(compiler().args(objects).arg("-o").arg(&program)).map(|()| program)
    });
    program.as_deref().unwrap_or_else(|failure| panic!("{failure}"))
}

/// Runs the program with one argument and returns whether it succeeded and what it printed. A program that hangs is
/// killed and fails the test.
fn run(argument: &str) -> (bool, String) {
    // A file, not a pipe: nobody reads while the program runs.
    let mut printed = tempfile::tempfile().unwrap();
    let mut child = Command::new(program())
        .arg(argument)
        .stdout(printed.try_clone().unwrap())
        .stderr(printed.try_clone().unwrap())
        .spawn()
        .unwrap();
    let end = Instant::now() + CASE_DEADLINE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut text = String::new();
    printed.rewind().unwrap();
    printed.read_to_string(&mut text).unwrap();
    let status = status.unwrap_or_else(|| panic!("{argument} hangs\n{text}"));
    (status.success(), text)
}

fn run_case(name: &str) {
    let (success, printed) = run(name);
    assert!(success && printed.starts_with(&format!("ok     {name}\n")), "{printed}");
}

macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                run_case(stringify!($name));
            }
        )+

        #[test]
        fn every_case_of_the_program_is_a_test_here() {
            let (_, listed) = run("--list");
            let mut here = vec![$(stringify!($name)),+];
            here.sort_unstable();
            assert_eq!(listed.lines().collect::<Vec<_>>(), here);
        }
    };
}

cases! {
    a_barrier_orders_what_the_ranks_wrote_before,
    a_barrier_that_ended_without_all_is_come_to_again,
    a_barrier_orders_what_the_threads_of_a_block_wrote,
    a_barrier_without_order_still_waits_for_all,
    a_block_that_stays_away_ends_the_meetings_of_all_that_wait_for_one_another,
    a_bounded_ping_pong_goes_both_ways_and_is_timed,
    a_bounded_ping_pong_without_a_partner_reports_the_round_and_writes_no_time,
    a_collective_whose_partner_does_not_come_reports_and_ends,
    a_failed_request_fails_and_those_before_it_are_complete,
    a_failed_wait_kernel_reports_what_it_expected_and_saw,
    a_copy_brings_every_byte_from_any_place_to_any_other_and_touches_no_more,
    a_full_queue_holds_back_who_posts_until_the_nic_goes_on,
    a_full_queue_whose_nic_never_goes_on_ends_by_the_deadline,
    a_group_raises_a_signal_once_behind_what_all_of_it_wrote,
    a_group_whose_signals_do_not_come_gives_up_in_time,
    a_message_of_a_cpu_is_fetched_and_said_to_be,
    a_message_that_never_comes_is_a_failure_of_every_thread_and_reported,
    a_peer_that_fails_ends_flush_and_quiet_with_path_failed,
    a_plate_in_strips_is_the_plate_in_one_piece,
    a_put_and_a_signal_of_a_block_are_in_order_and_sums_say_that_all_blocks_have_put,
    a_put_returns_before_it_is_executed_and_flush_and_quiet_wait_for_it,
    a_reader_whose_writer_never_comes_reports_and_ends,
    a_relay_reads_the_word_once_a_while_for_all_that_wait,
    a_send_in_one_piece_waits_for_the_posted_buffer,
    a_sender_of_packets_waits_when_all_slots_are_taken,
    a_signal_of_parts_comes_behind_all_of_them_though_blocks_have_queues_of_their_own,
    a_signal_past_the_expected_value_satisfies_the_wait,
    a_signal_raised_during_the_wait_ends_it,
    a_signal_that_is_already_there_ends_the_wait_at_once,
    a_signal_that_is_there_counts_even_when_the_abort_word_is_set,
    a_thousand_device_ranks_turn_a_ring,
    a_timeout_of_zero_still_polls_for_one_interval,
    a_value_short_of_the_expected_one_does_not_end_the_wait,
    a_vote_tells_all_threads_whether_any_said_yes,
    a_wait_for_a_completion_ends_by_deadline_and_by_abort,
    a_wait_that_lasts_acquires_at_its_end,
    a_wait_times_out_not_before_its_timeout_and_says_what_it_saw,
    a_window_refuses_what_lies_outside,
    a_word_that_shrinks_ends_the_wait_for_less,
    abort_is_reported_before_a_timeout_that_has_passed_as_well,
    all_of_a_list_are_waited_for_by_the_threads_of_a_group,
    an_abort_ends_meetings,
    an_abort_ends_sends_and_receives,
    an_abort_is_seen_after_a_few_polls_however_long_each_takes,
    an_abort_word_set_before_ends_the_wait_too,
    an_abort_word_that_stays_zero_is_no_abort,
    an_all_reduce_gives_every_rank_the_same,
    an_unbounded_ping_pong_plays_the_same_game,
    atomics_of_many_threads_at_once_have_results_of_their_own,
    atomics_on_a_mapped_share_that_a_nic_changes_go_by_the_nic,
    barriers_that_are_met_at_again_and_again_are_runs_like_others,
    blocks_and_warps_wait_one_after_another_without_mixing_their_results,
    blocks_of_different_sizes_pass_messages,
    blocks_put_to_ranks_at_once_and_quiet_means_all_of_it,
    blocks_share_a_list_of_steps,
    blocks_take_turns_in_the_order_in_which_they_start,
    blocks_that_meet_see_what_those_they_name_have_written,
    broadcasts_carry_the_leaders_value_one_after_another,
    clocks_go_forward,
    counters_go_on_from_where_they_are,
    device_ranks_all_hear_of_one_put,
    device_ranks_answer_the_questions_of_fompi_na,
    device_ranks_are_not_left_waiting_for_threads_that_have_ended,
    device_ranks_copy_nothing_where_source_and_target_are_one,
    device_ranks_count_past_the_end_of_a_word,
    device_ranks_hear_of_collectives_that_nobody_waits_in,
    device_ranks_in_a_crowd_lose_nothing,
    device_ranks_keep_what_nobody_waits_for_and_say_when_there_is_no_room,
    device_ranks_know_their_numbers,
    device_ranks_match_notifications_by_window_source_and_tag,
    device_ranks_meet_in_barriers_and_none_laps,
    device_ranks_name_the_one_that_does_not_come,
    device_ranks_of_a_lost_world_end,
    device_ranks_of_a_step_ahead_count_only_if_windows_are_any,
    device_ranks_of_more_devices_than_a_desk_has_room_for,
    device_ranks_open_no_more_windows_than_there_are_numbers,
    device_ranks_open_windows_of_any_kind_and_use_their_numbers_again,
    device_ranks_overwrite_nothing_when_no_credit_comes,
    device_ranks_put_and_get_any_bytes_from_and_to_any_place,
    device_ranks_put_and_get_much,
    device_ranks_put_and_get_rows_of_any_width_between_arrays_of_any,
    device_ranks_put_to_each_other_in_random_pairs,
    device_ranks_read_what_another_block_wrote_in_place,
    device_ranks_refuse_what_lies_outside_and_write_and_notify_nothing,
    device_ranks_see_what_those_saw_that_notify_them,
    device_ranks_see_what_was_put_before_a_notification,
    device_ranks_take_nothing_when_they_are_too_late,
    device_ranks_that_send_to_each_other_before_they_wait_get_on,
    device_ranks_that_send_to_one_that_sleeps_are_held_back_and_the_others_are_not,
    device_ranks_wait_for_more_than_a_ring_holds,
    device_ranks_wait_for_one_that_starts_late,
    device_ranks_write_lines_whole_and_never_wait_for_a_reader,
    entries_that_the_cpu_rings_are_passed_over,
    every_block_has_one_duty_and_senders_come_first,
    every_kind_of_collective_by_lanes,
    every_kind_of_collective_by_packets,
    every_kind_of_collective_by_several_rings,
    every_thread_of_a_block_learns_how_the_wait_ended,
    every_thread_of_a_grid_runs_once_with_its_ids,
    every_thread_of_blocks_and_warps_has_the_status_of_its_wait,
    fences_around_relaxed_words_order_data,
    gets_bring_what_is_there_to_any_memory_at_once,
    half_a_word_is_waited_for_whatever_the_other_half_holds,
    lists_of_steps_mean_what_their_steps_mean_one_after_another,
    litmus_notices_a_signal_that_comes_before_its_put,
    litmus_of_messages_on_many_channels,
    litmus_of_puts_and_signals_on_many_channels,
    messages_as_packets_arrive_whole_and_in_order,
    messages_in_a_row_and_beside_a_computation_arrive,
    messages_in_one_piece_arrive_whole_and_in_order,
    messages_of_any_length_and_alignment_arrive,
    more_blocks_than_a_block_has_threads_are_refused,
    more_blocks_than_the_queue_can_free_are_refused,
    more_than_a_collective_has_room_for_is_refused_by_every_thread,
    no_bytes_and_a_signal_go_to_a_rank_without_memory,
    numbers_of_16_bits_are_rounded_to_nearest_even,
    numbers_that_no_block_has_are_nobodys,
    of_many_failures_at_once_one_is_reported_whole,
    one_doorbell_serves_many_that_are_ready,
    one_of_a_list_ends_the_wait_and_is_named,
    one_thread_passes_messages_to_another,
    outside_a_launch_a_thread_is_a_grid_of_one,
    packets_go_on_past_32_bits_of_the_epoch,
    positions_go_on_past_the_16_bits_of_a_completion,
    prepared_puts_gets_and_waits_count_their_starts,
    puts_are_there_when_the_signal_is,
    ranks_that_the_handle_has_no_room_for_are_reached_by_the_table,
    requests_that_are_flushed_make_no_request_before_them_complete,
    rows_that_do_not_all_lie_in_a_share_are_refused,
    strided_puts_and_gets_reach_every_row_and_nothing_between,
    the_abort_word_ends_a_wait_that_is_under_way,
    the_first_failure_stays_in_the_report,
    the_last_block_of_a_launch_tells_that_all_have_done_their_parts,
    the_last_block_of_several_sees_what_the_others_wrote,
    the_last_entry_of_several_blocks_is_waited_for_like_any,
    the_pattern_tells_words_and_seeds_apart,
    the_reader_notices_words_that_are_not_the_pattern,
    the_stencil_of_the_dcuda_paper_is_the_one_computed_alone,
    the_store_and_wait_kernels_meet,
    the_wait_kernel_compares_in_every_way,
    threads_that_leave_early_are_not_waited_for,
    two_halves_of_an_all_reduce_by_several_rings,
    values_are_compared_without_sign_and_without_wrapping,
    values_go_through_a_nic_like_any_bytes,
    values_of_a_window_are_put_and_got_by_a_thread,
    what_blocks_of_a_cluster_store_to_each_other_arrives_in_its_turn,
    what_blocks_post_arrives_once_and_in_place,
    what_every_thread_of_a_block_wrote_is_there_after_one_signal,
    what_many_threads_add_at_once_is_all_there_and_all_they_got_is_different,
    what_threads_post_arrives_once_and_in_place,
    what_warps_post_arrives_once_and_in_place,
    words_of_a_window_are_changed_in_every_way_and_width,
    words_of_both_widths_load_store_add_and_exchange,
    words_of_either_width_are_compared_by_their_type,
}

#[test]
fn each_public_header_compiles_by_itself() {
    let folder = crate_folder().join("include/mp");
    let mut headers = files(&folder, &["cuh"]);
    headers.extend(files(&folder.join("host"), &["hpp"]));
    assert!(headers.len() >= 8, "{headers:?}");
    for header in headers {
        // As an #include of a source file: #pragma once is a warning in a main file.
        let include = format!("-include{}", header.display());
        succeed(compiler().args([&include, "-fsyntax-only", "-x", "c++", "/dev/null"])).unwrap();
    }
}
