//! Actions on the pitch, one at a time: passes, dribbles, shots, fouls.
//!
//! The chances are in thousandths, and chosen so that a match has about 26 shots, 10 corners, 4 cards and 2.8
//! goals, like a real match. A test checks the averages.

use super::commentary;
use super::counts::Stat;
use super::event::{EventKind, Shot};
use super::game::Game;
use super::teams::{GRID_X, GRID_Y, PlayerState, Position};

/// The first column from which players shoot.
const SHOT_FROM: usize = 14;
/// The first column of the penalty area.
const BOX_FROM: usize = 17;
/// A team with fewer players than this loses no further player.
const PLAYERS_MIN: usize = 8;

impl Game {
    /// Lets this side kick off.
    pub(super) fn kick_off(&mut self, side: usize) {
        self.side = side;
        self.ball = (GRID_X / 2 - 1, GRID_Y / 2);
        self.passer = None;
        self.holder = self.someone(side, GRID_X / 2);
    }

    /// The player with the ball shoots, passes or dribbles, or a foul ends the move.
    pub(super) fn act(&mut self) {
        self.touch();
        let (x, _) = self.ball;
        let shoots = match x {
            _ if x >= BOX_FROM => 70,
            _ if x >= SHOT_FROM => 19,
            _ => 0,
        };
        if self.random.chance(shoots) {
            return self.shoot();
        }
        match self.random.below(1000) {
            0..810 => self.pass(),
            810..982 => self.dribble(),
            _ => self.foul(),
        }
    }

    fn touch(&mut self) {
        let (x, y) = self.ball;
        let team = &mut self.teams[self.side];
        team.counts.actions += 1;
        let player = &mut team.players[self.holder];
        player.counts[Stat::Touches] += 1;
        player.heat[y][x] = player.heat[y][x].saturating_add(1);
        if x >= SHOT_FROM {
            self.momentum.add(self.side, 3);
        }
    }

    fn pass(&mut self) {
        let (x, y) = self.ball;
        let from = self.holder;
        let step = self.random.between(-4, 4);
        let to_x = (x as i64 + step).clamp(0, GRID_X as i64 - 1) as usize;
        let to_y = (y as i64 + self.random.between(-4, 4)).clamp(0, GRID_Y as i64 - 1) as usize;
        let completed = self.random.chance(930u32.saturating_sub(19 * to_x as u32));
        let counts = &mut self.teams[self.side].players[from].counts;
        counts[Stat::Passes] += 1;
        counts[Stat::PassesProgressive] += u32::from(step >= 3);
        counts[Stat::PassesFinalThird] += u32::from(to_x >= SHOT_FROM);
        if to_x >= BOX_FROM && self.random.chance(12) {
            let forward = self.someone(self.side, to_x);
            self.teams[self.side].players[forward].counts[Stat::Offsides] += 1;
            return self.lose();
        }
        if !completed {
            self.teams[self.side].players[from].counts[Stat::PossessionLost] += 1;
            self.lose();
            let counts = &mut self.teams[self.side].players[self.holder].counts;
            if to_x >= BOX_FROM {
                counts[Stat::Clearances] += 1
            } else {
                counts[Stat::Interceptions] += 1
            }
            return;
        }
        self.teams[self.side].players[from].counts[Stat::PassesCompleted] += 1;
        self.ball = (to_x, to_y);
        self.holder = self.someone(self.side, to_x);
        self.passer = (self.holder != from).then_some(from);
    }

    fn dribble(&mut self) {
        let (x, y) = self.ball;
        let won = self.random.chance(620);
        let counts = &mut self.teams[self.side].players[self.holder].counts;
        counts[Stat::Dribbles] += 1;
        counts[Stat::DribblesWon] += u32::from(won);
        counts[Stat::PossessionLost] += u32::from(!won);
        if won {
            self.ball = ((x + 1).min(GRID_X - 1), y);
        } else {
            self.lose();
            self.teams[self.side].players[self.holder].counts[Stat::Tackles] += 1;
        }
    }

    /// Gives the ball to the other side, at the ball's current position.
    fn lose(&mut self) {
        let (x, y) = self.ball;
        self.side = 1 - self.side;
        self.ball = (GRID_X - 1 - x, GRID_Y - 1 - y);
        self.passer = None;
        self.holder = self.someone(self.side, self.ball.0);
    }

    fn foul(&mut self) {
        let (x, _) = self.ball;
        self.teams[self.side].players[self.holder].counts[Stat::FoulsSuffered] += 1;
        let other = 1 - self.side;
        let offender = self.someone(other, GRID_X - 1 - x);
        self.teams[other].players[offender].counts[Stat::Fouls] += 1;
        let card = self.random.below(1000);
        if card < 75 {
            self.card(other, offender, card < 5);
        }
        if x >= BOX_FROM && self.random.chance(250) {
            let text = commentary::penalty(&self.teams[self.side]);
            self.add_commentary(text);
            self.passer = None;
            self.shot(760);
        }
    }

    /// Shows a player a yellow card, or a red card if `straight` is `true` or if it is the player's second
    /// yellow card.
    fn card(&mut self, side: usize, offender: usize, straight: bool) {
        let playing = self.teams[side].players.iter().filter(|p| p.is_playing()).count();
        let player = &mut self.teams[side].players[offender];
        let off = straight || player.counts[Stat::YellowCards] > 0;
        if off && (playing < PLAYERS_MIN || player.position == Position::Goalkeeper) {
            return;
        }
        if off {
            player.counts[Stat::RedCards] += 1;
            player.state = PlayerState::SentOff;
        } else {
            player.counts[Stat::YellowCards] += 1;
        }
        let kind = if off { EventKind::RedCard } else { EventKind::YellowCard };
        let (id, name) = (player.id, player.name.clone());
        let text = commentary::card(&mut self.random, &name, self.teams[side].name, off);
        self.event(kind, Some(side), Some(id), text);
    }

    fn shoot(&mut self) {
        let near = self.ball.0.saturating_sub(SHOT_FROM) as u32;
        let centre = GRID_Y.abs_diff(2 * self.ball.1 + 1) as u32;
        let expected = (25 + near * 30).saturating_sub(centre * 6).max(12);
        self.shot(expected);
    }

    /// Makes the player with the ball shoot. The shot is a goal with the probability `expected`, in
    /// thousandths.
    fn shot(&mut self, expected: u32) {
        let (side, shooter) = (self.side, self.holder);
        let outcome = if self.random.chance(expected) {
            Shot::Goal
        } else {
            [Shot::Saved, Shot::Saved, Shot::Blocked, Shot::Wide, Shot::Wide][self.random.below(5)]
        };
        let team = &mut self.teams[side];
        team.counts.expected_goals_milli += expected;
        team.counts.goals += u32::from(outcome == Shot::Goal);
        let counts = &mut team.players[shooter].counts;
        counts[Stat::Shots] += 1;
        counts[Stat::Goals] += u32::from(outcome == Shot::Goal);
        counts[Stat::ShotsOnTarget] += u32::from(matches!(outcome, Shot::Goal | Shot::Saved));
        counts[Stat::ShotsOffTarget] += u32::from(outcome == Shot::Wide);
        counts[Stat::ShotsBlocked] += u32::from(outcome == Shot::Blocked);
        let assist = self.passer.take();
        if let Some(passer) = assist {
            let counts = &mut team.players[passer].counts;
            counts[Stat::KeyPasses] += 1;
            counts[Stat::Assists] += u32::from(outcome == Shot::Goal);
        }
        let id = team.players[shooter].id;
        self.momentum.add(side, 12);
        let text = commentary::shot(&mut self.random, &self.teams, side, shooter, assist, outcome);
        let kind = if outcome == Shot::Goal { EventKind::Goal } else { EventKind::Shot };
        self.event(kind, Some(side), Some(id), text);
        self.after_shot(outcome);
    }

    fn after_shot(&mut self, outcome: Shot) {
        let (side, other) = (self.side, 1 - self.side);
        match outcome {
            Shot::Goal => return self.kick_off(other),
            Shot::Saved => {
                if let Some(keeper) = self.teams[other]
                    .players
                    .iter_mut()
                    .find(|p| p.is_playing() && p.position == Position::Goalkeeper)
                {
                    keeper.counts[Stat::Saves] += 1;
                }
            }
            Shot::Blocked => {
                let defender = self.someone(other, 1);
                self.teams[other].players[defender].counts[Stat::Blocks] += 1;
            }
            Shot::Wide => {}
        }
        let corner = match outcome {
            Shot::Blocked => 700,
            Shot::Saved => 520,
            _ => 60,
        };
        if self.random.chance(corner) {
            self.teams[side].counts.corners += 1;
            self.ball = (GRID_X - 2, if self.random.chance(500) { 0 } else { GRID_Y - 1 });
            self.holder = self.someone(side, GRID_X - 4);
            let text = commentary::corner(&mut self.random, &self.teams, side, self.holder);
            let id = self.teams[side].players[self.holder].id;
            self.event(EventKind::Corner, Some(side), Some(id), text);
        } else {
            self.ball = (GRID_X - 1, GRID_Y / 2);
            self.lose();
        }
    }

    /// Returns a player of `side` who is likely to be in column `x`.
    fn someone(&mut self, side: usize, x: usize) -> usize {
        let likely = match x {
            0..=2 => [Position::Goalkeeper, Position::Defender],
            3..=8 => [Position::Defender, Position::Midfielder],
            9..=13 => [Position::Midfielder, Position::Forward],
            _ => [Position::Forward, Position::Midfielder],
        };
        let first = likely[usize::from(self.random.chance(350))];
        let players = &self.teams[side].players;
        let start = self.random.below(players.len());
        let around =
            || (0..players.len()).map(|n| (start + n) % players.len()).filter(|n| players[*n].is_playing());
        around().find(|n| players[*n].position == first).or_else(|| around().next()).unwrap_or(0)
    }
}
