//! Explains to authors of rules why a client has a permission, or lacks it.

use crate::actions::{Action, Actions, Recipients};
use crate::attributes::Attributes;
use crate::pattern::has;
use crate::permissions::{Permissions, Rule, Topic};
use std::cell::RefCell;
use std::fmt;

/// The effect of the rules on a topic, for one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// All allowed actions.
    pub allowed: Actions,
    /// Each rule that applies to the topic, or would apply with other claims, with the rule's number (from
    /// 1).
    pub reasons: Vec<(usize, Reason)>,
}

/// The effect of a rule on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The rule matches and allows actions.
    Allows {
        /// The matching pattern.
        pattern: String,
        /// The allowed actions.
        actions: Actions,
    },
    /// The rule would match with other claims.
    Claim {
        /// The pattern.
        pattern: String,
        /// The claim.
        claim: String,
        /// The claim's values as JSON. `None` if the client doesn't have the claim.
        value: Option<String>,
    },
    /// The rule matches, but not for anonymous clients.
    UsersOnly {
        /// The matching pattern.
        pattern: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allows { pattern, actions } => write!(f, "{pattern} matches and allows {actions}"),
            Self::Claim { pattern, claim, value: None } => {
                write!(f, "{pattern} doesn't match: the client has no claim {claim}")
            }
            Self::Claim { pattern, claim, value: Some(value) } => {
                write!(f, "{pattern} doesn't match: the claim {claim} is {value}")
            }
            Self::UsersOnly { pattern } => {
                write!(
                    f,
                    "{pattern} matches, but not for clients without a token (to = \"anyone\" includes them)"
                )
            }
        }
    }
}

impl Permissions {
    /// Explains the permissions of a client for a topic. Takes time linear in the number of rules.
    pub fn explain(&self, attributes: Option<&Attributes>, topic: Topic<'_>) -> Explanation {
        let reasons = self.rules().iter().enumerate();
        let reasons =
            reasons.filter_map(|(n, rule)| Some((n + 1, reason(rule, attributes, topic)?))).collect();
        Explanation { allowed: self.actions(attributes, topic), reasons }
    }
}

impl Explanation {
    /// Iterates over the numbers of the rules that allow an action.
    pub fn rules_that_allow(&self, action: Action) -> impl Iterator<Item = usize> {
        self.reasons.iter().filter_map(move |(n, reason)| match reason {
            Reason::Allows { actions, .. } if actions.has(action) => Some(*n),
            _ => None,
        })
    }
}

fn reason(rule: &Rule, attributes: Option<&Attributes>, topic: Topic<'_>) -> Option<Reason> {
    let name = match topic {
        Topic::Feed(name) | Topic::Room { name, .. } => name,
    };
    let patterns = rule.patterns(topic);
    if let Some(pattern) = patterns.iter().find(|pattern| pattern.matches(name, attributes)) {
        let pattern = pattern.to_string();
        return Some(if attributes.is_none() && rule.to == Recipients::Users {
            Reason::UsersOnly { pattern }
        } else {
            Reason::Allows { pattern, actions: rule.allow }
        });
    }
    patterns.iter().find_map(|pattern| {
        // The first claim that prevents a match, because its value differs from the name's.
        let differing = RefCell::new(None);
        let would_match = pattern.matches_by(name, &|claim, value| {
            if !has(attributes, claim, value) {
                differing.borrow_mut().get_or_insert_with(|| claim.to_owned());
            }
            !value.is_empty()
        });
        let claim = differing.into_inner().filter(|_| would_match)?;
        let value = attributes.and_then(|attributes| attributes.claim_text(&claim));
        Some(Reason::Claim { pattern: pattern.to_string(), claim, value })
    })
}
