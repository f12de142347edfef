//! The hub, driven by hand: no sockets, no clock.

use super::*;
use proptest::prelude::*;

const TIMEOUT: Duration = Duration::from_secs(9);

fn heartbeat() -> Heartbeat {
    Heartbeat { interval: Duration::from_secs(1), silence: Duration::from_secs(3) }
}

fn peer(rank: u32) -> PeerInfo {
    PeerInfo { host: format!("n{rank}"), node: format!("n{rank}"), pid: rank }
}

fn running(size: u32, now: Instant) -> Hub {
    let mut hub = Hub::new(size, heartbeat(), now, TIMEOUT);
    for rank in 0..size {
        hub.join(rank, peer(rank));
    }
    let welcomes = hub.take_outputs();
    assert_eq!(welcomes.len(), size as usize);
    assert!(welcomes.iter().all(|(_, message, _)| matches!(message, Message::Welcome { .. })));
    hub
}

fn enter(group: u64, turn: u64, call: Call, timeout: Duration) -> Message {
    Message::Enter {
        group,
        turn,
        call,
        timeout_ms: timeout.as_millis() as u64,
        what: call.to_string(),
        team: None,
    }
}

fn nothing() -> Payload {
    Arc::from([])
}

/// The one cause that all ranks were told.
fn the_end(hub: &mut Hub) -> Cause {
    let outputs = hub.take_outputs();
    let mut causes = outputs.into_iter().map(|(_, message, _)| match message {
        Message::Ended { cause } => cause,
        other => panic!("{other:?}"),
    });
    let cause = causes.next().expect("nobody was told");
    assert!(causes.all(|other| other == cause));
    cause
}

#[test]
fn a_start_that_takes_long_says_who_is_missing() {
    let now = Instant::now();
    let mut hub = Hub::new(4, heartbeat(), now, TIMEOUT);
    hub.join(0, peer(0));
    hub.join(2, peer(2));
    let after = |seconds: u64| now + Duration::from_secs(seconds);
    assert_eq!(hub.next_deadline(), Some(after(2)));
    assert_eq!(hub.reminder(after(1)), None);
    assert_eq!(
        hub.reminder(after(2)).unwrap(),
        "rank 0 waits for ranks 1 and 3 of 4, for MP_INIT_TIMEOUT=9 s in all"
    );
    assert_eq!(hub.reminder(after(3)), None);
    hub.join(1, peer(1));
    assert!(hub.reminder(after(4)).unwrap().contains("waits for rank 3 of 4"));
    assert_eq!(hub.next_deadline(), Some(after(8)));
    hub.join(3, peer(3));
    assert_eq!(hub.reminder(after(8)), None, "all are there");
}

#[test]
fn a_rank_that_is_gone_ends_the_start_and_not_a_world_that_runs() {
    let now = Instant::now();
    let mut hub = Hub::new(3, heartbeat(), now, TIMEOUT);
    hub.join(0, peer(0));
    hub.gone(7, "n7".into(), "it was killed".into());
    assert!(hub.assembling(), "there is no rank 7");
    hub.gone(2, "n2".into(), "it was killed".into());
    let cause = the_end(&mut hub).to_string();
    assert_eq!(cause, "rank 2 on n2 is lost: it was killed before all ranks had met");
    let mut hub = running(2, now);
    hub.gone(1, "n1".into(), "it was killed".into());
    assert!(!hub.over(), "its connection says so");
}

#[test]
fn a_barrier_completes_when_the_last_rank_enters_and_not_before() {
    let now = Instant::now();
    let mut hub = running(3, now);
    for turn in 0..3 {
        for rank in [2, 0] {
            hub.handle(rank, enter(WORLD, turn, Call::Barrier, TIMEOUT), nothing(), now);
            assert!(hub.take_outputs().is_empty());
        }
        hub.handle(1, enter(WORLD, turn, Call::Barrier, TIMEOUT), nothing(), now);
        let told: Vec<u32> = hub.take_outputs().into_iter().map(|(rank, ..)| rank).collect();
        assert_eq!(told, [0, 1, 2]);
    }
}

#[test]
fn a_start_that_is_not_complete_names_who_is_missing_and_who_was_turned_away() {
    let now = Instant::now();
    let mut hub = Hub::new(4, heartbeat(), now, TIMEOUT);
    hub.join(0, peer(0));
    hub.join(2, peer(2));
    hub.note("a:1: wrong token".into());
    assert_eq!(hub.sign_of_life(), Message::Waiting { missing: vec![1, 3] });
    hub.tick(now + TIMEOUT - Duration::from_millis(1));
    assert!(hub.take_outputs().is_empty());
    hub.tick(now + TIMEOUT);
    let Cause::Incomplete { missing, size, refused, .. } = the_end(&mut hub) else { panic!() };
    assert_eq!((missing, size, refused), (vec![1, 3], 4, vec!["a:1: wrong token".to_string()]));
}

#[test]
fn the_earliest_deadline_of_those_who_wait_ends_a_collective_and_names_who_did_not_enter() {
    let now = Instant::now();
    let mut hub = running(3, now);
    hub.handle(0, enter(WORLD, 0, Call::Barrier, TIMEOUT), nothing(), now);
    hub.handle(2, enter(WORLD, 0, Call::Barrier, TIMEOUT / 3), nothing(), now);
    assert_eq!(hub.next_deadline(), Some(now + TIMEOUT / 3));
    hub.tick(now + TIMEOUT / 3);
    let Cause::Late { what, missing, waited_ms } = the_end(&mut hub) else { panic!() };
    assert_eq!((&what[..], missing, waited_ms), ("barrier", vec![(1, "n1".into())], 3000));
}

#[test]
fn the_first_failure_is_the_one_that_everybody_is_told() {
    let now = Instant::now();
    let mut hub = running(3, now);
    hub.lost(2, Loss::Unfinished);
    let cause = the_end(&mut hub);
    assert_eq!(cause, Cause::Lost { rank: 2, host: "n2".into(), how: Loss::Unfinished });
    hub.lost(1, Loss::Unfinished);
    hub.handle(0, enter(WORLD, 0, Call::Barrier, TIMEOUT), nothing(), now);
    hub.tick(now + TIMEOUT * 2);
    assert!(hub.take_outputs().is_empty());
}

#[test]
fn a_group_is_forgotten_when_its_last_member_releases_it() {
    let now = Instant::now();
    let mut hub = running(2, now);
    let split = Call::Split { color: Some(1), key: 0 };
    for rank in 0..2 {
        hub.handle(rank, enter(WORLD, 0, split, TIMEOUT), nothing(), now);
    }
    assert_eq!(hub.groups.len(), 2);
    hub.handle(0, Message::Release { group: 1 }, nothing(), now);
    assert_eq!(hub.groups.len(), 2);
    hub.handle(1, Message::Release { group: 1 }, nothing(), now);
    assert_eq!(hub.groups.len(), 1);
}

#[test]
fn a_rank_in_a_group_that_is_not_its_own_breaks_the_protocol() {
    let now = Instant::now();
    let mut hub = running(2, now);
    for (rank, color) in [(0, 1), (1, 2)] {
        let call = Call::Split { color: Some(color), key: 0 };
        hub.handle(rank, enter(WORLD, 0, call, TIMEOUT), nothing(), now);
    }
    hub.take_outputs();
    hub.handle(0, enter(2, 0, Call::Barrier, TIMEOUT), nothing(), now);
    let text = the_end(&mut hub).to_string();
    assert!(text.contains("rank 0 on n0") && text.contains("not in that group"), "{text}");
}

/// The first collective of a rank in a team.
fn first(group: u64, team: &[u32]) -> Message {
    Message::Enter {
        group,
        turn: 0,
        call: Call::Barrier,
        timeout_ms: 1000,
        what: "barrier".into(),
        team: Some(team.into()),
    }
}

#[test]
fn a_team_is_founded_by_its_first_call_and_forgotten_when_all_have_released_it() {
    let now = Instant::now();
    let mut hub = running(3, now);
    let team = team_number(WORLD, 1, &[2, 0]);
    for rank in [0, 2] {
        assert!(hub.take_outputs().is_empty());
        hub.handle(rank, first(team, &[2, 0]), nothing(), now);
    }
    let replied: Vec<u32> = hub.take_outputs().into_iter().map(|(rank, ..)| rank).collect();
    assert_eq!(replied, [2, 0]);
    hub.handle(2, enter(team, 1, Call::Barrier, TIMEOUT), nothing(), now);
    hub.handle(0, enter(team, 1, Call::Barrier, TIMEOUT), nothing(), now);
    assert_eq!(hub.take_outputs().len(), 2);
    for rank in [0, 2] {
        assert_eq!(hub.groups.len(), 2);
        hub.handle(rank, Message::Release { group: team }, nothing(), now);
    }
    assert_eq!(hub.groups.len(), 1);
}

#[test]
fn members_with_different_teams_in_mind_are_named_at_the_deadline() {
    let now = Instant::now();
    let mut hub = running(3, now);
    let (pair, all) = (team_number(WORLD, 1, &[0, 1]), team_number(WORLD, 1, &[0, 1, 2]));
    assert_ne!(pair, all);
    hub.handle(0, first(pair, &[0, 1]), nothing(), now);
    let later = now + Duration::from_millis(10);
    hub.handle(1, first(all, &[0, 1, 2]), nothing(), later);
    assert_eq!(hub.next_deadline(), Some(now + Duration::from_secs(1)));
    hub.tick(now + Duration::from_secs(1));
    let Cause::Late { missing, .. } = the_end(&mut hub) else { panic!("not late") };
    assert_eq!(missing, [(1, "n1".to_owned())]);
}

#[test]
fn a_team_that_cannot_be_one_breaks_the_protocol() {
    let now = Instant::now();
    let team = team_number(WORLD, 1, &[0, 1]);
    let bad: [(u64, &[u32]); 5] =
        [(team, &[]), (team, &[1, 2]), (team, &[0, 0]), (team, &[0, 3]), (7, &[0, 1])];
    for (number, members) in bad {
        let mut hub = running(3, now);
        hub.handle(0, first(number, members), nothing(), now);
        let text = the_end(&mut hub).to_string();
        assert!(text.contains("rank 0 on n0") && text.contains("a team of"), "{text}");
    }
    let mut hub = running(3, now);
    hub.handle(0, first(team, &[0, 1]), nothing(), now);
    hub.handle(1, first(team, &[1, 0]), nothing(), now);
    assert!(the_end(&mut hub).to_string().contains("two teams of one number"));
}

#[test]
fn numbers_of_teams_differ_with_everything_that_makes_a_team() {
    let mut numbers = std::collections::BTreeSet::new();
    let mut count = 0;
    for of in [WORLD, 1, 2, team_number(WORLD, 1, &[0, 1])] {
        for founded in 0..20 {
            for a in 0..8 {
                for b in 0..8 {
                    numbers.insert(team_number(of, founded, &[a, b]));
                    numbers.insert(team_number(of, founded, &[a, b, 9]));
                    count += 2;
                }
            }
        }
    }
    assert_eq!(numbers.len(), count);
    assert!(numbers.iter().all(|&number| is_team(number)));
}

#[test]
fn two_processes_with_one_rank_end_the_start_with_both_named() {
    let now = Instant::now();
    let mut hub = Hub::new(3, heartbeat(), now, TIMEOUT);
    hub.join(0, peer(0));
    hub.join(1, peer(1));
    hub.join(1, PeerInfo { pid: 77, ..peer(1) });
    let text = the_end(&mut hub).to_string();
    assert!(text.contains("rank 1") && text.contains("77"), "{text}");
}

/// What a rank, sane or not, may send.
fn any_message() -> impl Strategy<Value = Message> {
    let call = prop_oneof![
        Just(Call::Barrier),
        Just(Call::AllGather),
        Just(Call::Finish),
        (0..4u32).prop_map(|root| Call::Broadcast { root }),
        (proptest::option::of(0..3u64), -2..2i64)
            .prop_map(|(color, key)| Call::Split { color, key }),
    ];
    prop_oneof![
        8 => (0..3u64, 0..4u64, call, any::<u64>()).prop_map(|(group, turn, call, timeout_ms)| {
            Message::Enter { group, turn, call, timeout_ms, what: "x".into(), team: None }
        }),
        1 => Just(Message::Alive),
        2 => proptest::collection::vec(0..4u32, 0..3).prop_map(|team| {
            first(team_number(WORLD, 1, &team), &team)
        }),
        1 => (0..3u64).prop_map(|group| Message::Release { group }),
    ]
}

proptest! {
    #[test]
    fn whatever_ranks_send_the_hub_answers_only_ranks_that_exist_and_ends_at_most_once(
        script in proptest::collection::vec((0..3u32, any_message(), 0..5u64), 0..if cfg!(miri) { 10 } else { 60 }),
    ) {
        let mut now = Instant::now();
        let mut hub = running(3, now);
        let mut ended = 0;
        for (rank, message, seconds) in script {
            now += Duration::from_secs(seconds);
            hub.tick(now);
            hub.handle(rank, message, nothing(), now);
            for (to, message, _) in hub.take_outputs() {
                prop_assert!(to < 3);
                ended += usize::from(matches!(message, Message::Ended { .. }));
            }
        }
        prop_assert!(ended == 0 || ended == 3);
        prop_assert_eq!(ended == 3, matches!(hub.phase, Phase::Failed));
    }
}
