//! Questions of this node to others, until they are answered. Sans-I/O.

use crate::NodeId;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Nodes that haven't answered after this time are reported as missing.
pub const SURVEY_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of questions that wait for answers.
pub(crate) const SURVEYS_MAX: usize = 1_024;
/// Maximum number of questions that wait for a node which has been silent for [`SILENCE_MAX`]. Further ones ask the node but don't wait for it,
/// so that a dead node leaves room for questions to others.
const SILENT_MAX: usize = 64;
/// Time without an answer to any question after which a node is silent.
const SILENCE_MAX: Duration = Duration::from_millis(250);

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

/// A node that is being asked.
struct Asked {
    /// Number of questions that wait for the node.
    count: usize,
    /// Time of the node's last answer, or of the first of these questions.
    heard_at: Instant,
}

/// The surveys of one node, by number.
pub(crate) struct Surveys<T> {
    next: u64,
    pending: HashMap<u64, Survey<T>>,
    /// Deadlines by number. All surveys last equally long, so a greater number has a later deadline.
    deadlines: BTreeMap<u64, Instant>,
    /// The nodes for which surveys wait.
    asked: HashMap<NodeId, Asked>,
}

impl<T> Default for Surveys<T> {
    fn default() -> Self {
        Self { next: 1, pending: HashMap::new(), deadlines: BTreeMap::new(), asked: HashMap::new() }
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
        let (waiting, failed) = nodes.into_iter().partition(|node| self.wait_for(*node, now));
        self.pending.insert(id, Survey { waiting, failed, answers: Vec::new(), deadline });
        self.deadlines.insert(id, deadline);
        Some(id)
    }

    /// Counts a question that waits for a node. Returns `false` if it doesn't wait, because too many wait for a silent node.
    fn wait_for(&mut self, node: NodeId, now: Instant) -> bool {
        let asked = self.asked.entry(node).or_insert(Asked { count: 0, heard_at: now });
        let waits = asked.count < SILENT_MAX || now < asked.heard_at + SILENCE_MAX;
        asked.count += usize::from(waits);
        waits
    }

    /// A question waits for a node no more.
    fn forget(asked: &mut HashMap<NodeId, Asked>, node: NodeId) {
        if let Entry::Occupied(mut entry) = asked.entry(node) {
            entry.get_mut().count -= 1;
            if entry.get().count == 0 {
                entry.remove();
            }
        }
    }

    /// Handles a node's answer. `None` if the node can't answer. The first answer of a node counts.
    pub(crate) fn handle_answer(&mut self, now: Instant, id: u64, node: NodeId, answer: Option<T>) {
        if let Some(asked) = self.asked.get_mut(&node) {
            asked.heard_at = now;
        }
        let Some(survey) = self.pending.get_mut(&id) else { return };
        if survey.waiting.remove(&node) {
            Self::forget(&mut self.asked, node);
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
        self.asked.remove(&node);
    }

    /// Returns the result of a survey, if all nodes have answered or the survey has timed out.
    pub(crate) fn poll(&mut self, now: Instant, id: u64) -> Option<Surveyed<T>> {
        let survey = self.pending.get(&id)?;
        if !survey.waiting.is_empty() && now < survey.deadline {
            return None;
        }
        let Survey { mut waiting, mut failed, answers, .. } = self.pending.remove(&id)?;
        self.deadlines.remove(&id);
        waiting.iter().for_each(|node| Self::forget(&mut self.asked, *node));
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
        surveys.handle_answer(now, id, NodeId(2), Some("b"));
        surveys.handle_answer(now, id, NodeId(2), Some("twice"));
        surveys.handle_answer(now, id, NodeId(9), Some("a stranger"));
        surveys.handle_answer(now, other + 1, NodeId(1), Some("unknown"));
        surveys.handle_answer(now, id, NodeId(1), None);
        assert_eq!(surveys.poll(now, id), None);
        surveys.handle_answer(now, id, NodeId(3), Some("c"));
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
        surveys.handle_answer(now, id, NodeId(2), Some(7));
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
    fn questions_to_a_silent_node_leave_room_for_others() {
        let start = Instant::now();
        let mut surveys = Surveys::default();
        let mut ids: Vec<u64> = (0..SILENT_MAX + 9).filter_map(|_| surveys.begin(start, NODES)).collect();
        let is_waiting = |surveys: &mut Surveys<()>, now, id| surveys.poll(now, id).is_none();
        // The nodes have time to answer.
        let now = start + SILENCE_MAX;
        for id in &ids {
            surveys.handle_answer(now, *id, NodeId(1), Some(()));
            surveys.handle_answer(now, *id, NodeId(2), Some(()));
        }
        assert!(ids.iter().all(|id| is_waiting(&mut surveys, now, *id)));
        // Further questions don't wait for the third one, whatever their number.
        for _ in 0..2 * SURVEYS_MAX {
            let Some(id) = surveys.begin(now, NODES) else { panic!("there is room") };
            assert!(is_waiting(&mut surveys, now, id));
            surveys.handle_answer(now, id, NodeId(1), Some(()));
            surveys.handle_answer(now, id, NodeId(2), Some(()));
            let result = surveys.poll(now, id).map(|result| (result.answers.len(), result.missing));
            assert_eq!(result, Some((2, [NodeId(3)].into())));
        }
        // Each answer ends the silence.
        surveys.handle_answer(now, ids.remove(0), NodeId(3), Some(()));
        let Some(id) = surveys.begin(now, [NodeId(3)]) else { panic!("there is room") };
        assert!(is_waiting(&mut surveys, now, id));
        assert!(ids.iter().all(|id| surveys.poll(start + SURVEY_TIMEOUT, *id).is_some()));
        surveys.handle_left(NodeId(3));
        assert!(surveys.poll(now, id).is_some());
        assert!(surveys.asked.is_empty());
    }

    #[test]
    fn a_survey_of_nobody_ends_at_once() {
        let now = Instant::now();
        let mut surveys: Surveys<()> = Surveys::default();
        let Some(id) = surveys.begin(now, []) else { panic!("there is room") };
        assert_eq!(surveys.poll(now, id), Some(Surveyed { answers: vec![], missing: [].into() }));
    }
}
