//! The phases of a match.
//!
//! ```text
//! before ──▶ first half ──▶ half time ──▶ second half ──▶ full time
//! ```

use super::clock::SECONDS_PER_TICK;
use super::commentary;
use super::counts::Stat;
use super::event::{EventKind, Phase};
use super::game::Game;
use super::teams::{PlayerState, TEAM_SIZE};

const ACTIONS_PER_TICK: usize = 3;
const SUBSTITUTIONS_MAX: u32 = 5;

impl Game {
    /// Advances the match by one second of real time.
    pub(super) fn tick(&mut self) {
        self.ticks += 1;
        if matches!(self.clock.phase, Phase::FirstHalf | Phase::SecondHalf) {
            self.play();
        } else if let Some(half) = self.clock.wait() {
            self.begin(half);
        }
    }

    fn begin(&mut self, half: Phase) {
        let longest = if half == Phase::FirstHalf { 4 } else { 7 };
        self.clock.begin_half(half, 60 * self.random.between(1, longest) as u32);
        let side = usize::from(half == Phase::SecondHalf);
        self.kick_off(side);
        let text = commentary::kick_off(&self.teams[side], half);
        self.event(EventKind::KickOff, None, None, text);
    }

    fn play(&mut self) {
        let is_minute_over = self.clock.play();
        for player in self.teams.iter_mut().flat_map(|team| &mut team.players).filter(|p| p.is_playing()) {
            player.counts[Stat::SecondsPlayed] += SECONDS_PER_TICK;
            player.counts[Stat::DistanceM] += 10;
        }
        for _ in 0..ACTIONS_PER_TICK {
            self.act();
        }
        if is_minute_over {
            self.minute_is_over();
        }
        if self.clock.is_half_over() {
            self.end_half();
        }
    }

    fn minute_is_over(&mut self) {
        self.momentum.end_minute();
        let text = commentary::quiet(&mut self.random, &self.teams, self.side);
        self.add_commentary(text);
        for side in 0..2 {
            let runner = self.random.below(TEAM_SIZE);
            self.teams[side].players[runner].counts[Stat::Sprints] += 1;
            if self.clock.phase == Phase::SecondHalf
                && self.clock.elapsed_s > 8 * 60
                && self.random.chance(110)
            {
                self.substitute(side);
            }
        }
    }

    fn substitute(&mut self, side: usize) {
        let team = &self.teams[side];
        if team.substitutions >= SUBSTITUTIONS_MAX {
            return;
        }
        let out = self.random.below(10) + 1;
        if !team.players[out].is_playing() {
            return;
        }
        let fits = |n: &usize| {
            let candidate = &team.players[*n];
            candidate.state == PlayerState::Bench && candidate.position == team.players[out].position
        };
        let Some(on) = (11..team.players.len()).find(fits) else { return };
        let team = &mut self.teams[side];
        team.substitutions += 1;
        team.players[out].state = PlayerState::Substituted;
        team.players[on].state = PlayerState::OnPitch;
        let text = commentary::substitution(team, out, on);
        let id = team.players[on].id;
        if self.side == side && self.holder == out {
            self.holder = on;
        }
        self.event(EventKind::Substitution, Some(side), Some(id), text);
    }

    fn end_half(&mut self) {
        let (phase, kind) = match self.clock.phase {
            Phase::FirstHalf => (Phase::HalfTime, EventKind::HalfTime),
            _ => (Phase::FullTime, EventKind::FullTime),
        };
        let text = commentary::whistle(&self.teams, phase);
        self.event(kind, None, None, text);
        self.clock.begin_break(phase);
        if phase == Phase::HalfTime {
            for team in &mut self.teams {
                team.counts.goals_half_time = team.counts.goals;
            }
        }
    }
}
