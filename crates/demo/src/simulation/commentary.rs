//! The lines of the commentary.

use super::event::{Phase, Shot};
use super::random::Random;
use super::teams::{Team, any_team};

/// Returns line `n` of the commentary before the match.
pub(super) fn before(random: &mut Random, teams: &[Team; 2], n: usize) -> String {
    let [us, them] = if random.chance(500) { [&teams[0], &teams[1]] } else { [&teams[1], &teams[0]] };
    let player = &us.players[random.below(us.players.len())];
    let (many, few) = (random.between(4, 9), random.between(1, 3));
    match n % 8 {
        0 => format!(
            "Form guide: {} have won {many} of their last twelve league matches and lost {few}; the last of them \
             against {}.",
            us.name,
            any_team(random)
        ),
        1 => format!(
            "{} warms up in front of the away end. {} says that the number {} is fit again and may play all ninety \
             minutes.",
            player.name, us.coach, player.number
        ),
        2 => format!(
            "The last time these two met, {} came from {few} down to draw; {} scored in the final minutes that \
             afternoon.",
            us.name, player.name
        ),
        3 => format!(
            "{} on {}: \"They have lost {few} of their last ten away. We know what we have to do, and the fans will \
             help us.\"",
            us.coach, them.name
        ),
        4 => format!(
            "Team news from {}: no changes in the back four, {} keeps his place, and the bench has an average age of \
             2{few}.",
            us.name, player.name
        ),
        5 => format!(
            "The pitch at {} was relaid in summer and looks perfect. The {} supporters have been singing for an hour \
             by now.",
            teams[0].ground, us.name
        ),
        6 => format!(
            "{} has had a hand in {many} goals this season, {few} of them from set pieces. {} will have an eye on him \
             today.",
            player.name, them.name
        ),
        _ => format!(
            "Statistics: {} concede {many} goals for every ten of {}, but have kept {few} clean sheets in the last \
             five matches.",
            us.name, them.name
        ),
    }
}

pub(super) fn kick_off(team: &Team, half: Phase) -> String {
    match half {
        Phase::FirstHalf => format!("The match is under way. {} kick off, from left to right.", team.name),
        _ => format!("The second half begins. {} with the ball, no changes so far.", team.name),
    }
}

pub(super) fn whistle(teams: &[Team; 2], phase: Phase) -> String {
    let [home, away] = teams;
    let score = format!("{} {}-{} {}", home.name, home.counts.goals, away.counts.goals, away.name);
    match phase {
        Phase::HalfTime => format!("The referee blows for half time: {score}."),
        _ => format!("It's all over: {score}."),
    }
}

/// Returns a line for a minute without an event.
pub(super) fn colour(random: &mut Random, teams: &[Team; 2], side: usize) -> String {
    let (us, them) = (&teams[side], &teams[1 - side]);
    let playing: Vec<_> = us.players.iter().filter(|p| p.is_playing()).collect();
    // Chooses two different players. A side always has at least seven.
    let first = random.below(playing.len());
    let second = (first + 1 + random.below(playing.len().saturating_sub(1).max(1))) % playing.len();
    let (one, two) = (playing[first], playing[second]);
    match random.below(6) {
        0 => format!(
            "{} keep the ball moving across the back line, patiently, while {} stay compact in their own half and wait \
             for a mistake.",
            us.name, them.name
        ),
        1 => format!(
            "{} looks for {} down the channel, but the pass has too much on it and runs out. {} throw, deep in their \
             own half.",
            one.name, two.name, them.name
        ),
        2 => format!(
            "Good pressing by {}, who win it back high up the pitch. {} drives at the defence and earns his side a \
             throw-in.",
            us.name, one.name
        ),
        3 => format!(
            "{} drops deep to collect the ball and turns away from his man. The tempo has gone up, and {} look \
             stretched now.",
            one.name, them.name
        ),
        4 => format!(
            "A long spell of possession for {}. {} and {} exchange passes on the left, looking for a way through the \
             lines.",
            us.name, one.name, two.name
        ),
        _ => format!(
            "{} clear the first ball, {} picks up the second one and starts again. The noise in the stadium is growing \
             by the minute.",
            them.name, one.name
        ),
    }
}

pub(super) fn substitution(team: &Team, out: usize, on: usize) -> String {
    let (out, on) = (&team.players[out], &team.players[on]);
    format!("Substitution, {}: {} comes on for {}.", team.name, on.name, out.name)
}

pub(super) fn card(random: &mut Random, name: &str, team: &str, off: bool) -> String {
    match (off, random.below(2)) {
        (true, _) => format!("Red card! {name} ({team}) is sent off and leaves his side a player short."),
        (false, 0) => format!("Yellow card for {name} ({team}) for a late challenge."),
        (false, _) => format!("{name} ({team}) is booked for stopping a counter-attack."),
    }
}

pub(super) fn penalty(team: &Team) -> String {
    format!("Penalty for {}! The referee points to the spot without a second of hesitation.", team.name)
}

pub(super) fn corner(random: &mut Random, teams: &[Team; 2], side: usize, taker: usize) -> String {
    let team = &teams[side];
    let from = random.pick(&["left", "right"]);
    format!("Corner for {} from the {from}, taken by {}.", team.name, team.players[taker].name)
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
    let name = &team.players[shooter].name;
    let how = random.pick(&["with his right foot", "with his left foot", "with a header", "on the volley"]);
    let after = assist.map(|n| format!(" after a pass by {}", team.players[n].name)).unwrap_or_default();
    match outcome {
        Shot::Goal => {
            let [home, away] = teams;
            format!(
                "Goal! {} {}-{} {}. {name} scores {how}{after}.",
                home.name, home.counts.goals, away.counts.goals, away.name
            )
        }
        Shot::Saved => format!("{name} ({}) shoots {how}{after}; saved by the goalkeeper.", team.name),
        Shot::Blocked => format!("{name} ({}) shoots {how}{after}, but it's blocked.", team.name),
        Shot::Wide => format!("{name} ({}) misses {how}{after}.", team.name),
    }
}
