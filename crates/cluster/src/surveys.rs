//! Questions of this node to others, until they are answered. Sans-I/O.

use crate::NodeId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Nodes that haven't answered after this time are reported as missing.
pub const SURVEY_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of questions that wait for answers.
pub(crate) const SURVEYS_MAX: usize = 1_024;

struct Survey<T> {
    /// Nodes that haven't answered.
    waiting: BTreeSet<NodeId>,
    /// Nodes that couldn't answer.
    failed: BTreeSet<NodeId>,
    answers: Vec<T>,
    deadline: Instant,
}

/// The result of a survey.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Surveyed<T> {
    /// The answers, in the order of their arrival.
    pub(crate) answers: Vec<T>,
    /// Nodes that didn't answer in time, or couldn't.
    pub(crate) missing: BTreeSet<NodeId>,
}

/// The surveys of one node, by number.
pub(crate) struct Surveys<T> {
    next: u64,
    pending: HashMap<u64, Survey<T>>,
    /// Deadlines by number. All surveys last equally long, so a greater number has a later deadline.
    deadlines: BTreeMap<u64, Instant>,
}

impl<T> Default for Surveys<T> {
    fn default() -> Self {
        Self { next: 1, pending: HashMap::new(), deadlines: BTreeMap::new() }
    }
}

impl<T> Surveys<T> {
    /// Begins a survey of these nodes. Returns `None` if too many surveys wait.
    pub(crate) fn begin(&mut self, now: Instant, nodes: impl IntoIterator<Item = NodeId>) -> Option<u64> {
        if self.pending.len() >= SURVEYS_MAX {
            return None;
        }
        let id = self.next;
        self.next += 1;
        let deadline = now + SURVEY_TIMEOUT;
        let waiting = nodes.into_iter().collect();
        self.pending.insert(id, Survey { waiting, failed: BTreeSet::new(), answers: Vec::new(), deadline });
        self.deadlines.insert(id, deadline);
        Some(id)
    }

    /// Handles a node's answer. `None` if the node can't answer. The first answer of a node counts.
    pub(crate) fn handle_answer(&mut self, id: u64, node: NodeId, answer: Option<T>) {
        let Some(survey) = self.pending.get_mut(&id) else { return };
        if survey.waiting.remove(&node) {
            match answer {
                Some(answer) => survey.answers.push(answer),
                None => {
                    survey.failed.insert(node);
                }
            }
        }
    }

    /// Handles a node's death: surveys stop waiting for that node.
    pub(crate) fn handle_left(&mut self, node: NodeId) {
        for survey in self.pending.values_mut() {
            survey.waiting.remove(&node);
        }
    }

    /// Returns the result of a survey, if all nodes have answered or the survey has timed out.
    pub(crate) fn poll(&mut self, now: Instant, id: u64) -> Option<Surveyed<T>> {
        let survey = self.pending.get(&id)?;
        if !survey.waiting.is_empty() && now < survey.deadline {
            return None;
        }
        let Survey { mut waiting, mut failed, answers, .. } = self.pending.remove(&id)?;
        self.deadlines.remove(&id);
        failed.append(&mut waiting);
        Some(Surveyed { answers, missing: failed })
    }

    /// The numbers of the surveys that have a result.
    pub(crate) fn finished(&self, now: Instant) -> Vec<u64> {
        let is_finished = |survey: &Survey<T>| survey.waiting.is_empty() || now >= survey.deadline;
        self.pending.iter().filter(|(_, survey)| is_finished(survey)).map(|(id, _)| *id).collect()
    }

    /// The earliest deadline of a survey.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first_key_value().map(|(_, deadline)| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    #[test]
    fn a_survey_ends_when_all_have_answered() {
        let now = Instant::now();
        let mut surveys = Surveys::default();
        let id = surveys.begin(now, NODES);
        let other = surveys.begin(now, NODES);
        let (Some(id), Some(other)) = (id, other) else { panic!("there is room") };
        surveys.handle_answer(id, NodeId(2), Some("b"));
        surveys.handle_answer(id, NodeId(2), Some("twice"));
        surveys.handle_answer(id, NodeId(9), Some("a stranger"));
        surveys.handle_answer(other + 1, NodeId(1), Some("unknown"));
        surveys.handle_answer(id, NodeId(1), None);
        assert_eq!(surveys.poll(now, id), None);
        surveys.handle_answer(id, NodeId(3), Some("c"));
        assert_eq!(surveys.finished(now), [id]);
        let result = Surveyed { answers: vec!["b", "c"], missing: [NodeId(1)].into() };
        assert_eq!(surveys.poll(now, id), Some(result));
        assert_eq!(surveys.poll(now, id), None);
    }

    #[test]
    fn silent_nodes_are_missing_and_dead_ones_are_not_waited_for() {
        let now = Instant::now();
        let mut surveys = Surveys::default();
        let Some(id) = surveys.begin(now, NODES) else { panic!("there is room") };
        surveys.handle_answer(id, NodeId(2), Some(7));
        assert_eq!(surveys.poll_timeout(), Some(now + SURVEY_TIMEOUT));
        surveys.handle_left(NodeId(3));
        assert_eq!(surveys.poll(now, id), None);
        let result = surveys.poll(now + SURVEY_TIMEOUT, id);
        assert_eq!(result, Some(Surveyed { answers: vec![7], missing: [NodeId(1)].into() }));
        assert_eq!(surveys.poll_timeout(), None);
    }

    #[test]
    fn too_many_surveys_are_refused_until_some_have_ended() {
        let now = Instant::now();
        let mut surveys: Surveys<()> = Surveys::default();
        let ids: Vec<_> = (0..SURVEYS_MAX).filter_map(|_| surveys.begin(now, NODES)).collect();
        assert_eq!(ids.len(), SURVEYS_MAX);
        assert_eq!(surveys.begin(now, NODES), None);
        assert!(surveys.poll(now + SURVEY_TIMEOUT, ids[0]).is_some());
        assert!(surveys.begin(now, NODES).is_some());
    }

    #[test]
    fn a_survey_of_nobody_ends_at_once() {
        let now = Instant::now();
        let mut surveys: Surveys<()> = Surveys::default();
        let Some(id) = surveys.begin(now, []) else { panic!("there is room") };
        assert_eq!(surveys.poll(now, id), Some(Surveyed { answers: vec![], missing: [].into() }));
    }
}
