//! The phases of a match.
//!
//! ```text
//! before ──▶ first half ──▶ half time ──▶ second half ──▶ full time
//! ```

use super::commentary;
use super::counts::Stat;
use super::event::{EventKind, Phase};
use super::game::{Game, HALF_S};
use super::teams::{PlayerState, TEAM_SIZE};

/// Seconds of match time per second of real time.
pub(crate) const SECONDS_PER_TICK: u32 = 6;
const BEFORE_TICKS: u64 = 20;
const HALF_TIME_TICKS: u64 = 30;
const ACTIONS_PER_TICK: usize = 3;
const SUBSTITUTIONS_MAX: u32 = 5;

impl Game {
    /// Advances the match by one second of real time.
    pub(super) fn tick(&mut self) {
        self.ticks += 1;
        self.phase_ticks += 1;
        match self.phase {
            Phase::Before if self.phase_ticks >= BEFORE_TICKS => self.begin(Phase::FirstHalf),
            Phase::HalfTime if self.phase_ticks >= HALF_TIME_TICKS => self.begin(Phase::SecondHalf),
            Phase::FirstHalf | Phase::SecondHalf => self.play(),
            Phase::Before | Phase::HalfTime | Phase::FullTime => {}
        }
    }

    fn begin(&mut self, half: Phase) {
        self.phase = half;
        self.phase_ticks = 0;
        self.clock_s = 0;
        let longest = if half == Phase::FirstHalf { 4 } else { 7 };
        self.stoppage_s = 60 * self.random.between(1, longest) as u32;
        let side = usize::from(half == Phase::SecondHalf);
        self.kick_off(side);
        let text = commentary::kick_off(&self.teams[side], half);
        self.event(EventKind::KickOff, None, None, text);
    }

    fn play(&mut self) {
        let minute = self.clock_s / 60;
        self.clock_s += SECONDS_PER_TICK;
        for player in self.teams.iter_mut().flat_map(|team| &mut team.players).filter(|p| p.is_playing()) {
            player.counts[Stat::SecondsPlayed] += SECONDS_PER_TICK;
            player.counts[Stat::DistanceM] += 10;
        }
        for _ in 0..ACTIONS_PER_TICK {
            self.act();
        }
        if self.clock_s / 60 > minute {
            self.minute_is_over();
        }
        if self.clock_s >= HALF_S + self.stoppage_s {
            self.end_half();
        }
    }

    fn minute_is_over(&mut self) {
        self.momentum.push(self.momentum_now.clamp(-100, 100));
        self.momentum_now /= 2;
        let text = commentary::colour(&mut self.random, &self.teams, self.side);
        self.add_commentary(text);
        for side in 0..2 {
            let runner = self.random.below(TEAM_SIZE);
            self.teams[side].players[runner].counts[Stat::Sprints] += 1;
            if self.phase == Phase::SecondHalf && self.clock_s > 8 * 60 && self.random.chance(110) {
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
        self.phase_ticks = 0;
        let (phase, kind) = match self.phase {
            Phase::FirstHalf => (Phase::HalfTime, EventKind::HalfTime),
            _ => (Phase::FullTime, EventKind::FullTime),
        };
        let text = commentary::whistle(&self.teams, phase);
        self.event(kind, None, None, text);
        self.phase = phase;
        if phase == Phase::HalfTime {
            for team in &mut self.teams {
                team.counts.goals_half_time = team.counts.goals;
            }
        }
    }
}
