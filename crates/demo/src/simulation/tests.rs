//! Tests that a seed always produces the same world, that documents have their sizes, and that matches are
//! realistic.

use super::counts::Stat;
use super::document::{CENTRE_BYTES, SCOREBOARD_BYTES};
use super::event::Phase;
use super::*;
use serde_json::Value;

fn both(world: &mut World, id: u32, second: u64) -> (Vec<u8>, Vec<u8>) {
    let game = world.game(id, second).unwrap();
    (centre(game, 1, None).unwrap(), scoreboard(game, 1).unwrap())
}

#[test]
fn the_same_seed_plays_the_same_matches() {
    let mut in_steps = World::new(7, 3);
    for second in 0..=1500 {
        in_steps.game(2, second);
    }
    let mut at_once = World::new(7, 3);
    assert!(both(&mut in_steps, 2, 1500) == both(&mut at_once, 2, 1500));
    let mut other = World::new(8, 3);
    assert!(both(&mut other, 2, 1500) != both(&mut at_once, 2, 1500));
    assert!(both(&mut at_once, 1, 1500) != both(&mut at_once, 2, 1500));
}

#[test]
fn time_never_goes_back() {
    let mut world = World::new(1, 1);
    let late = both(&mut world, 1, 500);
    assert!(both(&mut world, 1, 10) == late);
    let next = both(&mut world, 1, 5000);
    assert!(both(&mut world, 1, 10) == next);
}

#[test]
fn the_requested_number_of_matches_is_played() {
    let mut world = World::new(1, 5);
    assert_eq!(world.matches(), 5);
    assert!(world.game(0, 0).is_none());
    assert!(world.game(5, 0).is_some());
    assert!(world.game(6, 0).is_none());
    assert!(world.game(u32::MAX, 0).is_none());
    assert_eq!(World::new(1, u32::MAX).matches(), MATCHES_MAX);
}

#[test]
fn documents_keep_their_sizes() {
    let (mut least, mut most) = ((usize::MAX, usize::MAX), (0, 0));
    for seed in 0..3 {
        let mut world = World::new(seed, 2);
        for (second, id) in (0..2 * CYCLE_TICKS).step_by(113).zip([1, 2].into_iter().cycle()) {
            let (large, small) = both(&mut world, id, second);
            least = (least.0.min(large.len()), least.1.min(small.len()));
            most = (most.0.max(large.len()), most.1.max(small.len()));
        }
    }
    let within = |n: usize, goal: usize, percent: usize| n.abs_diff(goal) * 100 <= goal * percent;
    assert!(within(least.0, CENTRE_BYTES, 5) && within(most.0, CENTRE_BYTES, 5), "{least:?} {most:?}");
    assert!(
        within(least.1, SCOREBOARD_BYTES, 20) && within(most.1, SCOREBOARD_BYTES, 20),
        "{least:?} {most:?}"
    );
}

#[test]
fn documents_are_json_and_change_every_second_of_play() {
    let mut world = World::new(3, 1);
    let mut before = (Vec::new(), Vec::new());
    for second in 0..40 {
        let now = both(&mut world, 1, second);
        assert!(now.0 != before.0 && now.1 != before.1, "second {second}");
        for document in [&now.0, &now.1] {
            let value: Value = serde_json::from_slice(document).unwrap();
            assert_eq!(value["generated_ms"], 1);
            assert_eq!(value["match"]["id"], 1);
            assert!(value["match"]["score"][0].is_u64());
        }
        before = now;
    }
}

#[test]
fn no_team_plays_twice_at_the_same_time() {
    let mut names = std::collections::HashSet::new();
    for id in 1..=10 {
        let game = World::fixture(5, id, 0);
        assert!(game.teams.iter().all(|team| names.insert(team.name)));
    }
}

/// Checks that the document has every field that the page shows.
#[test]
fn a_match_centre_has_what_a_page_needs() {
    let mut world = World::new(3, 1);
    let (large, _) = both(&mut world, 1, 600);
    let value: Value = serde_json::from_slice(&large).unwrap();
    assert_eq!(value["key"], "matchcentre/1");
    assert_eq!(value["match"]["phase"], "second_half");
    assert!(value["match"]["clock"]["text"].as_str().unwrap().contains(':'));
    assert_eq!(value["statistics"][0]["name"], "Possession, %");
    assert_eq!(value["teams"].as_array().unwrap().len(), 2);
    let player = &value["teams"][0]["players"][0];
    assert!(player["rating"].as_f64().unwrap() > 0.0);
    assert_eq!(player["heat_map"].as_array().unwrap().len(), 13);
    assert_eq!(value["commentary"].as_array().unwrap().len(), 96);
    let events = value["events"].as_array().unwrap();
    assert!(!events.is_empty() && events.len() <= 60);
    assert!(events[0]["id"].as_u64() > events[1]["id"].as_u64(), "newest first");
}

/// Averages over 100 matches are close to those of real football.
#[test]
fn match_statistics_are_realistic() {
    const MATCHES: u32 = 100;
    let (mut goals, mut shots, mut corners, mut cards, mut substitutions) = (0, 0, 0, 0, 0);
    for number in 0..u64::from(MATCHES) {
        let mut game = World::fixture(11, 1, number);
        let mut score = [0, 0];
        while game.clock.phase != Phase::FullTime {
            game.tick();
            assert!(game.ticks < CYCLE_TICKS, "a match ends within its cycle");
            let now = game.score();
            assert!(now[0] >= score[0] && now[1] >= score[1], "a goal is never taken back");
            score = now;
            for team in &game.teams {
                assert!((7..=11).contains(&team.players.iter().filter(|p| p.is_playing()).count()));
            }
        }
        goals += score[0] + score[1];
        for team in &game.teams {
            corners += team.counts.corners;
            substitutions += team.substitutions;
            let of_players: u32 = team.players.iter().map(|p| p.counts[Stat::Goals]).sum();
            assert_eq!(of_players, team.counts.goals);
            for player in &team.players {
                shots += player.counts[Stat::Shots];
                cards += player.counts[Stat::YellowCards] + player.counts[Stat::RedCards];
                assert!((30..=100).contains(&player.counts.rating_tenths()));
            }
        }
    }
    let average = |n: u32| f64::from(n) / f64::from(MATCHES);
    let figures = [average(goals), average(shots), average(corners), average(cards), average(substitutions)];
    let expect = [2.0..3.6, 20.0..32.0, 7.0..13.0, 2.5..6.0, 5.0..10.0];
    for (figure, range) in figures.iter().zip(&expect) {
        assert!(range.contains(figure), "goals, shots, corners, cards, substitutions: {figures:?}");
    }
}
