//! What rules allow, and to whom.

use std::fmt;

/// What a client can do with a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Receive what is published.
    Subscribe,
    /// Publish.
    Publish,
    /// List the members of a room.
    Presence,
    /// Receive what was published before.
    History,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Subscribe, Self::Publish, Self::Presence, Self::History];

    /// Its name in rules.
    pub fn name(self) -> &'static str {
        match self {
            Self::Subscribe => "subscribe",
            Self::Publish => "publish",
            Self::Presence => "presence",
            Self::History => "history",
        }
    }
}

/// Several actions.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Actions(u8);

impl Actions {
    /// Reads their names.
    ///
    /// # Errors
    /// There is none, or an unknown one.
    pub fn parse<S: AsRef<str>>(names: &[S]) -> Result<Self, String> {
        if names.is_empty() {
            return Err("allow names nothing; expected subscribe, publish, presence or history".into());
        }
        names.iter().map(AsRef::as_ref).try_fold(Self::default(), |actions, name| {
            let known = Action::ALL.into_iter().find(|action| action.name() == name);
            let known = known.ok_or_else(|| {
                format!("{name:?} can't be allowed; expected subscribe, publish, presence or history")
            })?;
            Ok(actions.with(Self(1 << known as u8)))
        })
    }

    /// Whether one of them is this.
    pub fn has(self, action: Action) -> bool {
        self.0 & 1 << action as u8 != 0
    }

    /// These and others.
    #[must_use]
    pub fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

impl fmt::Display for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            Action::ALL.into_iter().filter(|action| self.has(*action)).map(Action::name).collect();
        f.write_str(&names.join(", "))
    }
}

impl fmt::Debug for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Actions({self})")
    }
}

/// Which clients a rule is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recipients {
    /// Those with a token.
    #[default]
    Users,
    /// Also anonymous ones.
    Anyone,
}
