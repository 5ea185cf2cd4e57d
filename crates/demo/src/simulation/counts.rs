//! Statistics of a player in a match.

use serde::{Serialize, Serializer};
use std::ops::{Index, IndexMut};

macro_rules! stats {
    ($($name:ident)+) => {
        /// A statistic of a player. Documents name it in snake case.
        #[derive(Clone, Copy, Debug, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub(super) enum Stat { $($name),+ }

        const STATS: &[Stat] = &[$(Stat::$name),+];
    };
}

stats! {
    SecondsPlayed Touches Passes PassesCompleted PassesProgressive PassesFinalThird KeyPasses Assists
    Goals OwnGoals Shots ShotsOnTarget ShotsOffTarget ShotsBlocked Dribbles DribblesWon
    Tackles Interceptions Blocks Clearances Saves PossessionLost
    Fouls FoulsSuffered Offsides YellowCards RedCards DistanceM Sprints
}

/// The numbers of all statistics of a player in this match.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts([u32; STATS.len()]);

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
