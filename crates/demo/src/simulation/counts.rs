//! Statistics of a player in a match.

use serde::{Serialize, Serializer};
use std::ops::{Index, IndexMut};

macro_rules! stats {
    ($($name:ident $points:literal)+) => {
        /// A statistic of a player. Documents name it in snake case.
        #[derive(Clone, Copy, Debug, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub(super) enum Stat { $($name),+ }

        const STATS: &[Stat] = &[$(Stat::$name),+];
        /// Points of a rating, in hundredths, for each of a statistic.
        const POINTS: &[i64] = &[$($points),+];
    };
}

stats! {
    SecondsPlayed 0 Touches 0 Passes 0 PassesCompleted 1 PassesProgressive 0 PassesFinalThird 0 KeyPasses 10 Assists 70
    Goals 110 OwnGoals 0 Shots 0 ShotsOnTarget 12 ShotsOffTarget -5 ShotsBlocked 0 Dribbles 0 DribblesWon 6
    Tackles 8 Interceptions 8 Blocks 8 Clearances 0 Saves 25 PossessionLost -6
    Fouls -10 FoulsSuffered 0 Offsides -5 YellowCards -30 RedCards -180 DistanceM 0 Sprints 0
}

/// The numbers of all statistics of a player in this match.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts([u32; STATS.len()]);

impl Counts {
    /// Returns the player's rating in tenths, from 3.0 to 10.0. It begins with 6.5.
    pub(super) fn rating_tenths(&self) -> u32 {
        let points: i64 = POINTS.iter().zip(self.0).map(|(points, count)| points * i64::from(count)).sum();
        (650 + points).clamp(300, 1000) as u32 / 10
    }
}

impl Index<Stat> for Counts {
    type Output = u32;

    fn index(&self, stat: Stat) -> &u32 {
        &self.0[stat as usize]
    }
}

impl IndexMut<Stat> for Counts {
    fn index_mut(&mut self, stat: Stat) -> &mut u32 {
        &mut self.0[stat as usize]
    }
}

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(STATS.iter().zip(&self.0))
    }
}
