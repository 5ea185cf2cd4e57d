//! Teams and their players: invented names and statistics.

use super::counts::Counts;
use super::random::Random;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Number of columns of a heat map, from the own goal to the opponent's.
pub(super) const GRID_X: usize = 20;
/// Number of rows of a heat map, from the left to the right.
pub(super) const GRID_Y: usize = 13;
/// Number of players of a team: eleven and the bench.
pub(super) const TEAM_SIZE: usize = 23;

/// The names in `names.json`.
#[derive(Deserialize)]
struct Names<'a> {
    /// Name, abbreviation, colour and ground of each team.
    #[serde(borrow)]
    teams: Vec<[&'a str; 4]>,
    #[serde(borrow)]
    given: Vec<&'a str>,
    #[serde(borrow)]
    family: Vec<&'a str>,
}

/// A mistake in the file is a bug of this program.
static NAMES: LazyLock<Names<'static>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("names.json")).unwrap_or_else(|error| panic!("names.json: {error}"))
});

/// A team in a match.
#[derive(Clone, Debug)]
pub(super) struct Team {
    pub(super) name: &'static str,
    pub(super) short: &'static str,
    pub(super) colour: &'static str,
    pub(super) ground: &'static str,
    pub(super) coach: String,
    /// The starting players come first.
    pub(super) players: Vec<Player>,
    pub(super) counts: TeamCounts,
    pub(super) substitutions: u32,
}

/// A player in a match.
#[derive(Clone, Debug)]
pub(super) struct Player {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) number: u32,
    pub(super) position: Position,
    pub(super) state: PlayerState,
    pub(super) counts: Counts,
    pub(super) heat: [[u16; GRID_X]; GRID_Y],
    pub(super) season: Value,
    pub(super) form: Vec<Value>,
}

/// The position of a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Position {
    Goalkeeper,
    Defender,
    Midfielder,
    Forward,
}

/// Tells whether a player is on the pitch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PlayerState {
    OnPitch,
    Bench,
    Substituted,
    SentOff,
}

/// Statistics of a team in this match, in addition to the sums over its players.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TeamCounts {
    pub(super) goals: u32,
    pub(super) goals_half_time: u32,
    pub(super) actions: u32,
    pub(super) corners: u32,
    /// Expected goals, in thousandths.
    pub(super) expected_goals_milli: u32,
}

/// Number of past matches listed for each player.
const FORM_ENTRIES: i64 = 10;

impl Player {
    pub(super) fn is_playing(&self) -> bool {
        self.state == PlayerState::OnPitch
    }
}

/// Returns a value in tenths as a number with one decimal.
pub(super) fn tenths(n: u32) -> f64 {
    f64::from(n) / 10.0
}

/// Returns the teams of match `id` in a round. `draw` determines the round's draw. Matches of a round have
/// different teams, as long as there are enough teams. The first team plays at home.
pub(super) fn teams(random: &mut Random, draw: &mut Random, id: u32) -> [Team; 2] {
    let mut order: Vec<usize> = (0..NAMES.teams.len()).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, draw.below(last + 1));
    }
    let home = 2 * (id as usize).saturating_sub(1) % order.len();
    [team(random, order[home]), team(random, order[home + 1])]
}

fn team(random: &mut Random, which: usize) -> Team {
    let [name, short, colour, ground] = NAMES.teams[which];
    let mut taken = Vec::new();
    let players = (0..TEAM_SIZE)
        .map(|n| {
            let name = loop {
                let name = person(random);
                if !taken.contains(&name) {
                    break name;
                }
            };
            taken.push(name.clone());
            player(random, which, n, name)
        })
        .collect();
    let coach = person(random);
    Team { name, short, colour, ground, coach, players, counts: TeamCounts::default(), substitutions: 0 }
}

/// Returns a random name.
pub(super) fn person(random: &mut Random) -> String {
    format!("{} {}", random.pick(&NAMES.given), random.pick(&NAMES.family))
}

/// Returns the name of a random team, for texts about past matches.
pub(super) fn any_team(random: &mut Random) -> &'static str {
    NAMES.teams[random.below(NAMES.teams.len())][0]
}

/// Returns the position of player `n` in a 4-3-3, or on a bench with players for all positions.
fn position(n: usize) -> Position {
    match n {
        0 | 11 | 12 => Position::Goalkeeper,
        1..=4 | 13..=16 => Position::Defender,
        5..=7 | 17..=19 => Position::Midfielder,
        _ => Position::Forward,
    }
}

fn player(random: &mut Random, team: usize, n: usize, name: String) -> Player {
    Player {
        id: 100_000 + team as u64 * 100 + n as u64,
        name,
        number: n as u32 + 1,
        position: position(n),
        state: if n < 11 { PlayerState::OnPitch } else { PlayerState::Bench },
        counts: Counts::default(),
        heat: [[0; GRID_X]; GRID_Y],
        season: season(random, position(n)),
        form: (0..FORM_ENTRIES).map(|week| form_entry(random, week)).collect(),
    }
}

/// Makes statistics of a player's season before this match.
fn season(random: &mut Random, position: Position) -> Value {
    let appearances = random.between(11, 30);
    let forward = i64::from(position == Position::Forward) * 8;
    json!({
        "appearances": appearances,
        "starts": appearances - random.between(0, 9),
        "minutes": appearances * random.between(60, 90),
        "goals": random.between(0, 3 + forward),
        "assists": random.between(0, 6),
        "shots": random.between(10, 30 + forward),
        "key_passes": random.between(10, 40),
        "pass_accuracy_percent": random.between(71, 93),
        "tackles": random.between(10, 60),
        "interceptions": random.between(10, 45),
        "aerial_duels_won": random.between(10, 70),
        "fouls": random.between(10, 35),
        "yellow_cards": random.between(0, 8),
        "red_cards": random.between(0, 1),
        "rating": random.between(62, 79) as f64 / 10.0,
        "market_value_eur": random.between(15, 600) * 100_000,
        "height_cm": random.between(168, 199),
        "weight_kg": random.between(64, 92),
        "born": format!("{}-{:02}-{:02}", random.between(1992, 2006), random.between(1, 12), random.between(1, 28)),
        "preferred_foot": random.pick(&["right", "right", "right", "left", "both"]),
    })
}

/// Makes the entry of a past match.
fn form_entry(random: &mut Random, week: i64) -> Value {
    json!({
        "date": format!("2026-{:02}-{:02}", 10 - week / 4, 28 - (week % 4) * 7),
        "opponent": any_team(random),
        "venue": random.pick(&["home", "away"]),
        "result": format!("{}-{}", random.between(0, 4), random.between(0, 3)),
        "minutes": random.between(45, 90),
        "goals": random.between(0, 1),
        "assists": random.between(0, 1),
        "touches": random.between(25, 95),
        "pass_accuracy_percent": random.between(68, 95),
        "rating": random.between(55, 88) as f64 / 10.0,
    })
}
