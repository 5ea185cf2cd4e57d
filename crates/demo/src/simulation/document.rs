//! The documents of a match: the complete match centre, and a small scoreboard.

use super::counts::Stat;
use super::event::{Event, EventKind, Phase};
use super::game::Game;
use super::teams::{Player, Team, tenths};
use serde_json::{Value, json};

/// Approximate size of a match centre in bytes: that of the published test of 2014.
#[cfg(test)]
pub(super) const CENTRE_BYTES: usize = 164_194;
/// Approximate size of a scoreboard in bytes.
#[cfg(test)]
pub(super) const SCOREBOARD_BYTES: usize = 5_000;
/// Maximum number of events on a scoreboard.
const SCOREBOARD_EVENTS: usize = 4;
/// Maximum number of lines of commentary on a scoreboard.
const SCOREBOARD_LINES: usize = 11;

/// Returns the match centre as JSON. `generated_ms` is the time since 1970 in milliseconds, `node` the name of the cluster's node
/// whose API makes the document.
pub(crate) fn centre(game: &Game, generated_ms: u64, node: Option<&str>) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&json!({
        "key": format!("matchcentre/{}", game.id),
        "generated_ms": generated_ms,
        "node": node,
        "version": game.ticks,
        "match": fixture(game),
        "statistics": statistics(game),
        "momentum": game.momentum.minutes,
        "events": game.report.events.iter().rev().collect::<Vec<_>>(),
        "teams": game.teams.iter().map(team_sheet).collect::<Vec<_>>(),
        "commentary": game.report.lines.iter().rev().collect::<Vec<_>>(),
    }))
}

/// Returns the scoreboard as JSON. `generated_ms` is the time since 1970 in milliseconds.
pub(crate) fn scoreboard(game: &Game, generated_ms: u64) -> serde_json::Result<Vec<u8>> {
    let ratings = game.teams.iter().enumerate().flat_map(|(side, team)| {
        let playing = team.players.iter().filter(|player| player.is_playing());
        playing.map(move |p| {
            json!({ "side": side, "number": p.number, "name": p.name, "rating": tenths(p.counts.rating_tenths()) })
        })
    });
    serde_json::to_vec(&json!({
        "key": format!("scoreboard/{}", game.id),
        "generated_ms": generated_ms,
        "version": game.ticks,
        "match": fixture(game),
        "statistics": statistics(game),
        "events": game.report.events.iter().rev().take(SCOREBOARD_EVENTS).collect::<Vec<_>>(),
        "ratings": ratings.collect::<Vec<_>>(),
        "ticker": game.report.lines.iter().rev().take(SCOREBOARD_LINES).collect::<Vec<_>>(),
    }))
}

fn fixture(game: &Game) -> Value {
    let (minute, second) = game.clock.time();
    let half_time = matches!(game.clock.phase, Phase::HalfTime | Phase::SecondHalf | Phase::FullTime);
    let [home, away] = &game.teams;
    json!({
        "id": game.id,
        "competition": "Stentor Demo League",
        "ground": home.ground,
        "referee": game.referee,
        "attendance": game.attendance,
        "weather": game.weather,
        "phase": game.clock.phase,
        "clock": {
            "minute": minute,
            "second": second,
            "stoppage_minutes": game.clock.stoppage_s / 60,
            "text": format!("{minute}:{second:02}"),
        },
        "score": game.score(),
        "score_half_time": half_time.then_some([home.counts.goals_half_time, away.counts.goals_half_time]),
        "home": side(game, 0),
        "away": side(game, 1),
    })
}

fn side(game: &Game, which: usize) -> Value {
    let team = &game.teams[which];
    let goals = game.report.events.iter().filter(|e| e.kind == EventKind::Goal && e.side == Some(which));
    let scorer = |e: &Event| {
        let player = team.players.iter().find(|p| Some(p.id) == e.player)?;
        Some(format!("{} {}", player.name, e.minute))
    };
    json!({
        "name": team.name,
        "short": team.short,
        "colour": team.colour,
        "scorers": goals.filter_map(scorer).collect::<Vec<_>>(),
    })
}

fn statistics(game: &Game) -> Vec<Value> {
    let [home, away] = &game.teams;
    let row = |name: &str, home: Value, away: Value| json!({ "name": name, "home": home, "away": away });
    let each = |name, of: &dyn Fn(&Team) -> u32| row(name, of(home).into(), of(away).into());
    let total = |team: &Team, stat| team.players.iter().map(|p| p.counts[stat]).sum::<u32>();
    let sum = |name, stat| each(name, &|team| total(team, stat));
    let actions = (home.counts.actions + away.counts.actions).max(1);
    let possession = home.counts.actions * 100 / actions;
    let expected = |team: &Team| Value::from(f64::from(team.counts.expected_goals_milli / 10) / 100.0);
    let accuracy = |team: &Team| total(team, Stat::PassesCompleted) * 100 / total(team, Stat::Passes).max(1);
    vec![
        row("Possession, %", possession.into(), (100 - possession).into()),
        row("Expected goals", expected(home), expected(away)),
        sum("Shots", Stat::Shots),
        sum("Shots on target", Stat::ShotsOnTarget),
        each("Corners", &|team| team.counts.corners),
        sum("Passes", Stat::Passes),
        each("Pass accuracy, %", &accuracy),
        sum("Dribbles won", Stat::DribblesWon),
        sum("Tackles", Stat::Tackles),
        sum("Interceptions", Stat::Interceptions),
        sum("Saves", Stat::Saves),
        sum("Fouls", Stat::Fouls),
        sum("Offsides", Stat::Offsides),
        sum("Yellow cards", Stat::YellowCards),
        sum("Red cards", Stat::RedCards),
    ]
}

fn team_sheet(team: &Team) -> Value {
    json!({
        "name": team.name,
        "coach": team.coach,
        "formation": "4-3-3",
        "substitutions": team.substitutions,
        "players": team.players.iter().map(player_sheet).collect::<Vec<_>>(),
    })
}

fn player_sheet(player: &Player) -> Value {
    json!({
        "id": player.id,
        "name": player.name,
        "number": player.number,
        "position": player.position,
        "state": player.state,
        "rating": tenths(player.counts.rating_tenths()),
        "statistics": player.counts,
        "heat_map": player.heat,
        "season": player.season,
        "form": player.form,
    })
}
