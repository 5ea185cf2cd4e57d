//! The lines of the commentary. `commentary.json` has them by occasion, with words in braces for names and numbers.

use super::event::{Phase, Shot};
use super::random::Random;
use super::teams::{Team, any_team};
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::LazyLock;

/// The lines of each occasion, at least one. A mistake in the file is a bug of this program.
static LINES: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let lines = serde_json::from_str(include_str!("commentary.json"));
    lines.unwrap_or_else(|error| panic!("commentary.json: {error}"))
});

/// Returns line `n` of an occasion. The lines take turns.
fn line(occasion: &str, n: usize, values: &[(&str, &dyn Display)]) -> String {
    let lines = &LINES[occasion];
    let fill = |line: String, (name, value): &(&str, &dyn Display)| {
        line.replace(&format!("{{{name}}}"), &value.to_string())
    };
    values.iter().fold(lines[n % lines.len()].to_owned(), fill)
}

/// Returns line `n` of the commentary before the match.
pub(super) fn before(random: &mut Random, teams: &[Team; 2], n: usize) -> String {
    let [us, them] = if random.chance(500) { [&teams[0], &teams[1]] } else { [&teams[1], &teams[0]] };
    let player = &us.players[random.below(us.players.len())];
    let (many, few, other) = (random.between(4, 9), random.between(1, 3), any_team(random));
    let (ground, coach, number) = (teams[0].ground, &us.coach, player.number);
    let names: [(&str, &dyn Display); 4] =
        [("us", &us.name), ("them", &them.name), ("player", &player.name), ("coach", coach)];
    let numbers: [(&str, &dyn Display); 5] =
        [("many", &many), ("few", &few), ("other", &other), ("ground", &ground), ("number", &number)];
    line("before", n, &[&names[..], &numbers].concat())
}

pub(super) fn kick_off(team: &Team, half: Phase) -> String {
    let occasion = if half == Phase::FirstHalf { "first_half" } else { "second_half" };
    line(occasion, 0, &[("us", &team.name)])
}

pub(super) fn whistle(teams: &[Team; 2], phase: Phase) -> String {
    let occasion = if phase == Phase::HalfTime { "half_time" } else { "full_time" };
    line(occasion, 0, &score(teams))
}

/// The names and the goals of both teams.
fn score([home, away]: &[Team; 2]) -> [(&str, &dyn Display); 4] {
    let (goals, against) = (&home.counts.goals, &away.counts.goals);
    [("home", &home.name), ("goals", goals), ("against", against), ("away", &away.name)]
}

/// Returns a line for a minute without an event.
pub(super) fn quiet(random: &mut Random, teams: &[Team; 2], side: usize) -> String {
    let (us, them) = (&teams[side], &teams[1 - side]);
    let playing: Vec<_> = us.players.iter().filter(|p| p.is_playing()).collect();
    // Chooses two different players. A side always has at least seven.
    let first = random.below(playing.len());
    let second = (first + 1 + random.below(playing.len().saturating_sub(1).max(1))) % playing.len();
    let (player, other) = (&playing[first].name, &playing[second].name);
    let names: [(&str, &dyn Display); 4] =
        [("us", &us.name), ("them", &them.name), ("player", player), ("other", other)];
    line("quiet", random.below(LINES["quiet"].len()), &names)
}

pub(super) fn substitution(team: &Team, out: usize, on: usize) -> String {
    let [out, on] = [out, on].map(|n| &team.players[n].name);
    line("substitution", 0, &[("us", &team.name), ("player", on), ("other", out)])
}

pub(super) fn card(random: &mut Random, name: &str, team: &str, off: bool) -> String {
    let occasion = if off { "red_card" } else { "yellow_card" };
    line(occasion, random.below(2), &[("player", &name), ("us", &team)])
}

pub(super) fn penalty(team: &Team) -> String {
    line("penalty", 0, &[("us", &team.name)])
}

pub(super) fn corner(random: &mut Random, teams: &[Team; 2], side: usize, taker: usize) -> String {
    let team = &teams[side];
    line("corner", random.below(2), &[("us", &team.name), ("player", &team.players[taker].name)])
}

pub(super) fn shot(
    random: &mut Random,
    teams: &[Team; 2],
    side: usize,
    shooter: usize,
    assist: Option<usize>,
    outcome: Shot,
) -> String {
    let team = &teams[side];
    let how = random.pick(&LINES["shot"]);
    let after = assist.map(|n| format!(" after a pass by {}", team.players[n].name)).unwrap_or_default();
    let occasion = match outcome {
        Shot::Goal => "goal",
        Shot::Saved => "saved",
        Shot::Blocked => "blocked",
        Shot::Wide => "wide",
    };
    let player: [(&str, &dyn Display); 4] =
        [("player", &team.players[shooter].name), ("us", &team.name), ("how", &how), ("after", &after)];
    line(occasion, 0, &[&score(teams)[..], &player].concat())
}
