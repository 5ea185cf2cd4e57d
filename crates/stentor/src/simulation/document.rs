//! What the upstream serves of a match: the whole match centre, or a small scoreboard.

use super::game::{Event, EventKind, Game, Line, Phase};
use super::teams::{Counts, FormEntry, GRID_X, GRID_Y, Player, PlayerState, Position, Season, Team, tenths};
use serde::Serialize;

/// About so many bytes has a match centre: what the published test of 2014 used.
#[cfg(test)]
pub(super) const CENTRE_BYTES: usize = 164_194;
/// About so many bytes has a scoreboard.
#[cfg(test)]
pub(super) const SCOREBOARD_BYTES: usize = 5_000;
/// Events on a scoreboard.
const SCOREBOARD_EVENTS: usize = 4;
/// Lines of commentary on a scoreboard.
const SCOREBOARD_LINES: usize = 11;

#[derive(Serialize)]
struct Centre<'a> {
    key: String,
    generated_ms: u64,
    version: u64,
    #[serde(rename = "match")]
    fixture: Fixture<'a>,
    statistics: Vec<Statistic>,
    momentum: &'a [i64],
    events: Vec<&'a Event>,
    teams: Vec<TeamSheet<'a>>,
    commentary: Vec<&'a Line>,
}

#[derive(Serialize)]
struct Scoreboard<'a> {
    key: String,
    generated_ms: u64,
    version: u64,
    #[serde(rename = "match")]
    fixture: Fixture<'a>,
    statistics: Vec<Statistic>,
    events: Vec<&'a Event>,
    ratings: Vec<Rating<'a>>,
    ticker: Vec<&'a Line>,
}

#[derive(Serialize)]
struct Fixture<'a> {
    id: u32,
    competition: &'static str,
    ground: &'a str,
    referee: &'a str,
    attendance: i64,
    weather: &'a str,
    phase: Phase,
    clock: Clock,
    score: [u32; 2],
    score_half_time: Option<[u32; 2]>,
    home: Side<'a>,
    away: Side<'a>,
}

#[derive(Serialize)]
struct Clock {
    minute: u32,
    second: u32,
    stoppage_minutes: u32,
    text: String,
}

#[derive(Serialize)]
struct Side<'a> {
    name: &'a str,
    short: &'a str,
    colour: &'a str,
    scorers: Vec<String>,
}

#[derive(Serialize)]
struct Statistic {
    name: &'static str,
    home: Figure,
    away: Figure,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Figure {
    Count(u32),
    Share(f64),
}

#[derive(Serialize)]
struct Rating<'a> {
    side: usize,
    number: u32,
    name: &'a str,
    rating: f64,
}

#[derive(Serialize)]
struct TeamSheet<'a> {
    name: &'a str,
    coach: &'a str,
    formation: &'static str,
    substitutions: u32,
    players: Vec<PlayerSheet<'a>>,
}

#[derive(Serialize)]
struct PlayerSheet<'a> {
    id: u64,
    name: &'a str,
    number: u32,
    position: Position,
    state: PlayerState,
    rating: f64,
    statistics: &'a Counts,
    heat_map: &'a [[u16; GRID_X]; GRID_Y],
    season: &'a Season,
    form: &'a [FormEntry],
}

/// The match centre as JSON; `generated_ms` is the time since 1970.
pub(crate) fn centre(game: &Game, generated_ms: u64) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Centre {
        key: format!("matchcentre/{}", game.id),
        generated_ms,
        version: game.ticks(),
        fixture: fixture(game),
        statistics: statistics(game),
        momentum: &game.momentum,
        events: game.events.iter().rev().collect(),
        teams: game.teams.iter().map(team_sheet).collect(),
        commentary: game.lines.iter().rev().collect(),
    })
}

/// The scoreboard as JSON; `generated_ms` is the time since 1970.
pub(crate) fn scoreboard(game: &Game, generated_ms: u64) -> serde_json::Result<Vec<u8>> {
    let ratings = game.teams.iter().enumerate().flat_map(|(side, team)| {
        let playing = team.players.iter().filter(|player| player.is_playing());
        playing.map(move |p| Rating {
            side,
            number: p.number,
            name: &p.name,
            rating: tenths(p.rating_tenths()),
        })
    });
    serde_json::to_vec(&Scoreboard {
        key: format!("scoreboard/{}", game.id),
        generated_ms,
        version: game.ticks(),
        fixture: fixture(game),
        statistics: statistics(game),
        events: game.events.iter().rev().take(SCOREBOARD_EVENTS).collect(),
        ratings: ratings.collect(),
        ticker: game.lines.iter().rev().take(SCOREBOARD_LINES).collect(),
    })
}

fn fixture(game: &Game) -> Fixture<'_> {
    let (minute, second) = game.clock();
    let half_time = matches!(game.phase, Phase::HalfTime | Phase::SecondHalf | Phase::FullTime);
    let [home, away] = &game.teams;
    Fixture {
        id: game.id,
        competition: "Stentor Demo League",
        ground: home.ground,
        referee: &game.referee,
        attendance: game.attendance,
        weather: game.weather,
        phase: game.phase,
        clock: Clock {
            minute,
            second,
            stoppage_minutes: game.stoppage_s / 60,
            text: format!("{minute}:{second:02}"),
        },
        score: game.score(),
        score_half_time: half_time.then_some([home.counts.goals_half_time, away.counts.goals_half_time]),
        home: side(game, 0),
        away: side(game, 1),
    }
}

fn side(game: &Game, which: usize) -> Side<'_> {
    let team = &game.teams[which];
    let goals = game.events.iter().filter(|e| e.kind == EventKind::Goal && e.side == Some(which));
    let scorer = |e: &Event| {
        let player = team.players.iter().find(|p| Some(p.id) == e.player)?;
        Some(format!("{} {}", player.name, e.minute))
    };
    Side {
        name: team.name,
        short: team.short,
        colour: team.colour,
        scorers: goals.filter_map(scorer).collect(),
    }
}

fn statistics(game: &Game) -> Vec<Statistic> {
    let [home, away] = &game.teams;
    let each = |name, of: &dyn Fn(&Team) -> u32| Statistic {
        name,
        home: Figure::Count(of(home)),
        away: Figure::Count(of(away)),
    };
    let total = |team: &Team, of: fn(&Counts) -> u32| team.players.iter().map(|p| of(&p.counts)).sum::<u32>();
    let sum = |name, of: fn(&Counts) -> u32| each(name, &|team| total(team, of));
    let actions = (home.counts.actions + away.counts.actions).max(1);
    let possession = home.counts.actions * 100 / actions;
    let expected = |team: &Team| Figure::Share(f64::from(team.counts.expected_goals_milli / 10) / 100.0);
    let accuracy = |team: &Team| total(team, |c| c.passes_completed) * 100 / total(team, |c| c.passes).max(1);
    vec![
        Statistic {
            name: "Possession, %",
            home: Figure::Count(possession),
            away: Figure::Count(100 - possession),
        },
        Statistic { name: "Expected goals", home: expected(home), away: expected(away) },
        sum("Shots", |c| c.shots),
        sum("Shots on target", |c| c.shots_on_target),
        each("Corners", &|team| team.counts.corners),
        sum("Passes", |c| c.passes),
        each("Pass accuracy, %", &accuracy),
        sum("Dribbles won", |c| c.dribbles_won),
        sum("Tackles", |c| c.tackles),
        sum("Interceptions", |c| c.interceptions),
        sum("Saves", |c| c.saves),
        sum("Fouls", |c| c.fouls),
        sum("Offsides", |c| c.offsides),
        sum("Yellow cards", |c| c.yellow_cards),
        sum("Red cards", |c| c.red_cards),
    ]
}

fn team_sheet(team: &Team) -> TeamSheet<'_> {
    TeamSheet {
        name: team.name,
        coach: &team.coach,
        formation: "4-3-3",
        substitutions: team.substitutions,
        players: team.players.iter().map(player_sheet).collect(),
    }
}

fn player_sheet(player: &Player) -> PlayerSheet<'_> {
    PlayerSheet {
        id: player.id,
        name: &player.name,
        number: player.number,
        position: player.position,
        state: player.state,
        rating: tenths(player.rating_tenths()),
        statistics: &player.counts,
        heat_map: &player.heat,
        season: &player.season,
        form: &player.form,
    }
}
