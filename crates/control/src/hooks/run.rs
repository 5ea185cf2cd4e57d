//! The task of a hook. It sends the requests, and delivers the answers to the data plane.

use super::answer::{Emits, Scope};
use super::batcher::{Answered, Batch};
use super::direct::{Direct, count_unconfirmed, recipients};
use super::failure::Cause;
use super::http::{self, Failed};
use super::options::HookKind;
use super::ports::granting;
use super::{Asker, Hook, Hooks, answer, unavailable};
use crate::signals::{Signals, stopped};
use crate::unix_time::unix_seconds;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_ports::{
    DataPlane, Denial, EventReply, FirstMessages, Identity, Principal, PublicId, Recipients,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

/// Minimum interval between log lines about a failing hook.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum time that an answer waits for space in the data plane's inbox. The question has then been refused
/// by timeout.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// An answer for the data plane.
type Delivery<'a> = Answered<Asker, &'a str>;

impl Hooks {
    /// Sends questions and notices until `stop` is set.
    pub(crate) async fn run(
        self: Arc<Self>,
        data_plane: DataPlane,
        signals: Arc<Signals>,
        stop: watch::Receiver<bool>,
    ) {
        let mut tasks = JoinSet::new();
        for hook in &self.hooks {
            tracing::info!(hook = %hook.name, "hook configured");
            let (hook, hooks, signals) = (hook.clone(), self.clone(), signals.clone());
            let runner = Runner { hook, hooks, signals, data_plane: data_plane.clone() };
            if HookKind::NOTICES.into_iter().any(|kind| runner.hook.filter.is_on(kind)) {
                tasks.spawn(runner.clone().run_notices(stop.clone()));
            }
            tasks.spawn(runner.run(stop.clone()));
        }
        if self.asks_about(HookKind::NodeLost)
            && let Some(topology) = data_plane.topology
        {
            tasks.spawn(self.clone().watch_nodes(topology, stop.clone()));
        }
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "the task of a hook has failed");
            }
        }
    }
}

/// The last log line about a failing hook.
#[derive(Default)]
pub(super) struct Logged {
    at: Option<Instant>,
    is_failing: bool,
}

#[derive(Clone)]
pub(super) struct Runner {
    pub(super) hook: Arc<Hook>,
    pub(super) hooks: Arc<Hooks>,
    signals: Arc<Signals>,
    data_plane: DataPlane,
}

impl Runner {
    async fn run(self, mut stop: watch::Receiver<bool>) {
        let hook = &self.hook;
        let mut requests: JoinSet<Option<String>> = JoinSet::new();
        // The number of each request in flight, needed if its task panics.
        let mut numbers = HashMap::new();
        let mut logged = Logged::default();
        loop {
            let mut batches = Vec::new();
            let (failed, timeout) = hook.batcher.with(|batcher| {
                let now = Instant::now();
                while let Some(batch) = batcher.poll_batch(now) {
                    batches.push(batch);
                }
                let timeout = batcher.poll_timeout(now);
                hook.metrics.waiting.set(batcher.waiting() as i64);
                hook.metrics.in_flight.set(batcher.in_flight() as i64);
                hook.metrics.breaker_open.set(i64::from(batcher.is_paused(now)));
                (batcher.take_failed(), timeout)
            });
            for batch in batches {
                let number = batch.number;
                let task = requests.spawn(self.clone().send(batch));
                numbers.insert(task.id(), number);
            }
            let failed = failed.into_iter().map(|(asker, cause)| (asker, Err(cause)));
            self.deliver(failed).await;
            let timer = async {
                match timeout {
                    Some(timeout) => sleep_until(timeout.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stopped(&mut stop) => return,
                () = hook.asked.notified() => {}
                () = timer => {}
                Some(ended) = requests.join_next_with_id() => {
                    let failure = match ended {
                        Ok((task, failure)) => {
                            numbers.remove(&task);
                            failure
                        }
                        Err(error) => {
                            if let Some(number) = numbers.remove(&error.id()) {
                                let lost = self.answered(number, Err(Cause::Broken));
                                self.deliver(lost).await;
                            }
                            Some(error.to_string())
                        }
                    };
                    self.log(&mut logged, failure);
                }
            }
        }
    }

    /// Sends one request and delivers its answers. Returns the mistake, for the log.
    async fn send(self, batch: Batch) -> Option<String> {
        let hook = &self.hook;
        let (begun, number) = (Instant::now(), batch.number);
        let body = http::body(&self.hooks.node, "questions", batch.questions.iter());
        // The charge counts the questions twice: in the body, and kept in case they are asked again.
        let held = hook.charge_body(2 * body.len());
        hook.metrics.requests.inc();
        let response = hook.sender.send(body, batch.deadline).await;
        hook.metrics.request_seconds.observe(begun.elapsed().as_secs_f64());
        drop(held);
        let invalid =
            |wrong| (Cause::Invalid, format!("the response is not as docs/hooks.md describes: {wrong}"));
        let text = response.and_then(|body| answer::text(body).map_err(invalid));
        let _held = hook.charge_body(text.as_ref().map_or(0, String::len));
        let answers = text.as_ref().map_err(Failed::clone);
        let answers = answers.and_then(|text| answer::answers(text).map_err(invalid));
        let (response, mut wrong) = match answers {
            Ok(answers) => (Ok(answers), None),
            Err((cause, text)) => {
                hook.metrics.failure(cause).inc();
                if cause.may_concern_one_question()
                    && hook.batcher.with(|batcher| batcher.ask_again(number, batch.questions))
                {
                    return Some(text);
                }
                (Err(cause), Some(text))
            }
        };
        let has_answers = response.is_ok();
        let answered = self.answered(number, response);
        let missing = answered.iter().filter(|(_, answer)| answer.is_err()).count();
        if has_answers && missing > 0 {
            hook.metrics.failure(Cause::MissingAnswer).inc_by(missing as u64);
            wrong = Some(format!("the response has no answer to {missing} of its questions"));
        }
        let invalid = self.deliver(answered).await;
        wrong.or(invalid)
    }

    fn answered<'a>(&self, number: u64, response: Result<Vec<(u64, &'a str)>, Cause>) -> Vec<Delivery<'a>> {
        self.hook.batcher.with(|batcher| batcher.handle_response(Instant::now(), number, response))
    }

    /// Delivers answers. Returns a mistake in one of them, for the log.
    async fn deliver<'a>(&self, answers: impl IntoIterator<Item = Delivery<'a>>) -> Option<String> {
        let mut wrong = None;
        for (asker, answer) in answers {
            let answer = answer.map_err(|cause| _ = self.hook.unanswered(cause));
            wrong = match asker {
                Asker::Event(_, question, namespace, session) => {
                    let read = |text: &str| self.read_reply(text, &namespace, session);
                    let (reply, found) = self.parse(answer, read, || Err(unavailable()));
                    let (reply, direct) = match reply {
                        Ok((reply, direct)) => (Ok(reply), direct),
                        Err(denial) => (Err(denial), Vec::new()),
                    };
                    self.when_space(|| question.send(reply.clone())).await;
                    self.send_to_sessions(direct).await;
                    wrong.or(found)
                }
                Asker::Access(_, question, key) => {
                    let mut keep = None;
                    let parse = |text: &str| {
                        let permission = answer::permission(text)?;
                        keep = permission.ttl;
                        Ok(permission.result)
                    };
                    let (decided, found) = self.parse(answer, parse, || self.hook.decide_without_answer());
                    if let Some(ttl) = keep {
                        self.hook.cache.with(|cache| cache.put(Instant::now(), key, ttl, decided.clone()));
                    }
                    self.when_space(|| question.send(decided.clone())).await;
                    wrong.or(found)
                }
                Asker::Connect(_, question, namespace, identity) => {
                    let mut direct = Vec::new();
                    let parse = |text: &str| {
                        let recipients = &self.recipients();
                        let scope = Scope { namespace: &namespace, session: None, recipients };
                        let admission = answer::admission(text, scope)?;
                        Ok(admission.map(|mut admission| {
                            direct = std::mem::take(&mut admission.emits.direct);
                            Arc::new(self.admitted(&identity, &namespace, admission))
                        }))
                    };
                    let without = || self.hook.decide_without_answer().map(|()| identity.clone());
                    let (admitted, found) = self.parse(answer, parse, without);
                    self.when_space(|| question.send(admitted.clone())).await;
                    self.send_to_sessions(direct).await;
                    wrong.or(found)
                }
            };
        }
        wrong
    }

    /// Parses an answer. A malformed answer counts as missing, and its mistake is returned too.
    fn parse<T>(
        &self,
        answer: Result<&str, ()>,
        parse: impl FnOnce(&str) -> Result<T, answer::Wrong>,
        without: impl FnOnce() -> T,
    ) -> (T, Option<String>) {
        match answer.map(parse) {
            Ok(Ok(parsed)) => (parsed, None),
            Ok(Err(wrong)) => {
                self.hook.metrics.failure(Cause::Invalid).inc();
                self.hook.unanswered(Cause::Invalid);
                (without(), Some(format!("an answer is not as docs/hooks.md describes: {wrong}")))
            }
            Err(()) => (without(), None),
        }
    }

    /// Reads the answer to an event of a session.
    fn read_reply(
        &self,
        text: &str,
        namespace: &str,
        session: PublicId,
    ) -> Result<Result<(EventReply, Vec<Direct>), Denial>, answer::Wrong> {
        answer::reply(text, Scope { namespace, session: Some(session), recipients: &self.recipients() })
    }

    /// Makes the counter of a message to rooms. In a cluster, it counts nothing, because other nodes may have recipients.
    fn recipients(&self) -> impl Fn(&Arc<str>) -> Recipients {
        let is_alone = self.data_plane.topology.is_none();
        move |event| if is_alone { recipients(&self.hook, event) } else { Recipients::default() }
    }

    /// Sends the messages of an answer to sessions that it names.
    async fn send_to_sessions(&self, messages: Vec<Direct>) {
        let deadline = tokio::time::Instant::now() + DELIVERY_TIMEOUT;
        for message in messages {
            let attempt = || message.send(&*self.data_plane.commands, &self.hook);
            if self.signals.when_space(Some(deadline), attempt).await.is_err() {
                count_unconfirmed(&Arc::downgrade(&self.hook), &message.event);
            }
        }
    }

    /// Returns the identity of a client that a hook has admitted.
    fn admitted(&self, identity: &Identity, namespace: &str, admission: answer::Admission) -> Identity {
        let answer::Admission { user, info, join, permissions, emits } = admission;
        let mut identity = identity.clone();
        if let Some(subject) = user {
            // A user (subject) has a meaning only together with its issuer, so the hook becomes the issuer.
            let issuer = format!("hook:{}", self.hook.name).into();
            identity.principal = Some(Principal { issuer, subject });
            // The time of confirmation. A revocation applies to identities that were confirmed before it.
            identity.issued_at.get_or_insert_with(unix_seconds);
        }
        identity.info = info.or(identity.info);
        identity.join.extend(join);
        let Emits { emit, .. } = emits;
        identity.emit = (!emit.is_empty()).then(|| Arc::new(FirstMessages::new(namespace, emit)));
        if !permissions.is_empty() {
            identity.authorizer = granting(identity.authorizer, permissions, self.hooks.clone());
        }
        identity
    }

    /// Passes an answer to the data plane. Waits while the data plane's inbox is full.
    async fn when_space(&self, attempt: impl FnMut() -> Result<(), stentor_ports::Busy>) {
        let deadline = tokio::time::Instant::now() + DELIVERY_TIMEOUT;
        // After the deadline, the answer is dropped, because the question has been refused by timeout.
        let _ = self.signals.when_space(Some(deadline), attempt).await;
    }

    /// Logs a hook's failure, at most once per [`LOG_INTERVAL`], and its end.
    pub(super) fn log(&self, logged: &mut Logged, failure: Option<String>) {
        let hook = &*self.hook.name;
        match failure {
            Some(error) => {
                let now = Instant::now();
                if logged.at.is_none_or(|at| now.saturating_duration_since(at) >= LOG_INTERVAL) {
                    logged.at = Some(now);
                    logged.is_failing = true;
                    tracing::warn!(hook, error, "a request to a hook has failed");
                }
            }
            None if logged.is_failing => {
                logged.is_failing = false;
                tracing::info!(hook, "the hook answers again");
            }
            None => {}
        }
    }
}
