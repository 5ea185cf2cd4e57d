//! Questions of the data plane, asked on its threads: events, permissions, and identities of clients.

use super::options::HookKind;
use super::question::{self, Connection};
use super::{Asker, Client, Hook, Hooks, source_of, unavailable};
use crate::access::allows;
use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use stentor_auth::{Attributes, Permissions, Rule};
use stentor_hub::Topic;
use stentor_ports::{
    Access, Answer, Answers, Asking, Authentication, Authenticator, Authorizer, Busy, Charge, Class,
    ClientEvent, ClientFacts, Credentials, Decision, Denial, EventSink, Identity, IdentityReply, Question,
    ReservedSession, SignatureWork, Ticket,
};

impl EventSink for Hooks {
    fn takes(&self, namespace: &str, name: &str, is_known: bool) -> bool {
        self.handler(namespace, name, is_known).is_some()
    }

    fn rooms_max(&self) -> usize {
        self.most_rooms(HookKind::Event)
    }

    fn handle(&self, event: &ClientEvent<'_>) -> Result<(), Denial> {
        let hook = self.handler(event.namespace, event.name, false).ok_or_else(unavailable)?;
        let client = Client { number: source_of(event.session), address: event.source };
        let asker = Asker::Event(client, event.later(), event.namespace.into(), event.session);
        hook.ask(HookKind::Event, asker, |id| question::event(id, event, hook.rooms_max))
            .map_err(|_| unavailable())
    }
}

impl Hooks {
    /// Returns the maximum number of a session's rooms that any hook receives with this question or notice.
    pub(super) fn most_rooms(&self, kind: HookKind) -> usize {
        let hooks = self.hooks.iter().filter(|hook| hook.filter.is_on(kind));
        hooks.map(|hook| hook.rooms_max).max().unwrap_or(0)
    }

    /// Returns the hook that handles an event: the first one that names the event or else, without `by_name`,
    /// the first one whose patterns match.
    fn handler(&self, namespace: &str, name: &str, by_name: bool) -> Option<&Hook> {
        let takes =
            |by_name| self.hooks.iter().find(|hook| hook.filter.takes_event(namespace, name, by_name));
        takes(true).or_else(|| if by_name { None } else { takes(false) }).map(|hook| &**hook)
    }

    /// Returns the first hook that is asked about an action, with the kind of the question and its topic.
    fn decider<'a>(&self, access: Access<'a>) -> Option<(&Hook, HookKind, Cow<'a, Topic>)> {
        let (kind, topic) = match access {
            // Seeing a room's members needs the permission to subscribe to the room.
            Access::Subscribe(topic) | Access::Presence(topic) => (HookKind::Subscribe, Cow::Borrowed(topic)),
            Access::Publish(room) => (HookKind::Publish, Cow::Owned(Topic::Room(room.clone()))),
            Access::Connect { .. } | Access::History(_) => return None,
        };
        let (namespace, name) = match &*topic {
            Topic::Room(room) | Topic::Presence(room) => (Some(room.namespace()), room.name()),
            Topic::Feed(key) => (None, key.as_str()),
        };
        let hook = self.hooks.iter().find(|hook| hook.filter.takes_topic(kind, namespace, name))?;
        Some((hook, kind, topic))
    }

    /// Asks a hook about a permission that the rules don't deny.
    fn decide(&self, question: &Question<'_>) -> Decision {
        let Some((hook, kind, topic)) = self.decider(question.access) else { return Decision::Allow };
        let topic = &*topic;
        let session = question.session.map(|session| session.to_string());
        let key = cache_key(kind, session.as_deref(), question.identity, topic);
        if let Some(decided) = hook.cache.with(|cache| cache.find(Instant::now(), &key)) {
            hook.metrics.cached.inc();
            return decision(decided);
        }
        let namespace = match topic {
            Topic::Room(room) | Topic::Presence(room) => Some(room.namespace()),
            Topic::Feed(_) => None,
        };
        let rooms = question.rooms.take(hook.rooms_max);
        let connection = Connection {
            session: session.as_deref(),
            namespace,
            rooms: Some((&rooms, hook.rooms_max)),
            ..Connection::default()
        };
        let write = |id| question::access(id, kind, connection, question.identity, topic);
        // A client that isn't connected yet has no session, so its number is made from its identity.
        let subject =
            question.identity.and_then(|identity| identity.principal.as_ref()).map(|user| &user.subject);
        let number = question.session.map_or_else(|| source_of(subject), source_of);
        let client = Client { number, address: question.source };
        match hook.ask(kind, Asker::Access(client, question.later(), key), write) {
            Ok(()) => Decision::Pending,
            Err(_) => decision(hook.decide_without_answer()),
        }
    }
}

fn decision(decided: Result<(), Denial>) -> Decision {
    decided.map_or_else(Decision::Deny, |()| Decision::Allow)
}

/// Returns the cache key of an answer. It has the user, or the session of an anonymous client, and the topic.
pub(super) fn cache_key(
    kind: HookKind,
    session: Option<&str>,
    identity: Option<&Identity>,
    topic: &Topic,
) -> Box<str> {
    let mut key = kind.name().to_owned();
    // Each part has its length, so that different parts never result in the same key.
    let mut part = |tag: char, text: &str| _ = write!(key, "{tag}{}:{text}", text.len());
    match identity.and_then(|identity| identity.principal.as_ref()) {
        Some(principal) => {
            part('i', &principal.issuer);
            part('u', &principal.subject);
        }
        None => part('s', session.unwrap_or_default()),
    }
    match topic {
        Topic::Room(room) | Topic::Presence(room) => {
            part('n', room.namespace());
            part('r', room.name());
        }
        Topic::Feed(feed) => part('f', feed.as_str()),
    }
    key.into()
}

/// An authorizer that asks hooks about permissions that the inner authorizer doesn't deny.
#[derive(Debug)]
pub struct HookAuthorizer {
    inner: Option<Arc<dyn Authorizer>>,
    hooks: Arc<Hooks>,
}

impl HookAuthorizer {
    /// Makes an authorizer. It denies everything that `inner` denies, and asks hooks about all else.
    pub fn new(inner: Option<Arc<dyn Authorizer>>, hooks: Arc<Hooks>) -> Self {
        Self { inner, hooks }
    }
}

impl Authorizer for HookAuthorizer {
    fn cancel(&self, ticket: Ticket) {
        self.inner.iter().for_each(|inner| inner.cancel(ticket));
        self.hooks.cancel(ticket);
    }

    fn authorize(&self, question: &Question<'_>) -> Decision {
        match self.inner.as_ref().map_or(Decision::Allow, |inner| inner.authorize(question)) {
            Decision::Allow => self.hooks.decide(question),
            decision => decision,
        }
    }

    fn is_cacheable(&self, access: Access<'_>) -> bool {
        self.hooks.decider(access).is_none()
            && self.inner.as_ref().is_none_or(|inner| inner.is_cacheable(access))
    }
}

/// An authorizer that also allows the grants of a `connect` hook.
#[derive(Debug)]
struct Granting {
    inner: Arc<dyn Authorizer>,
    grants: Permissions,
    hooks: Arc<Hooks>,
}

/// Makes an authorizer that also allows what `rules` allow. Hooks are also asked about permissions by these
/// rules.
pub(super) fn granting(
    inner: Arc<dyn Authorizer>,
    rules: Vec<Rule>,
    hooks: Arc<Hooks>,
) -> Arc<dyn Authorizer> {
    Arc::new(Granting { inner, grants: Permissions::new(rules), hooks })
}

impl Authorizer for Granting {
    fn cancel(&self, ticket: Ticket) {
        self.inner.cancel(ticket);
        self.hooks.cancel(ticket);
    }

    fn authorize(&self, question: &Question<'_>) -> Decision {
        match self.inner.authorize(question) {
            // The rules of a hook don't refer to claims, so the attributes are empty.
            Decision::Deny(_) if allows(&self.grants, Some(&Attributes::default()), question.access) => {
                self.hooks.decide(question)
            }
            decision => decision,
        }
    }

    fn is_cacheable(&self, access: Access<'_>) -> bool {
        self.inner.is_cacheable(access)
    }
}

/// An authorizer that allows everything.
#[derive(Debug)]
struct Anything;

impl Authorizer for Anything {
    fn authorize(&self, _: &Question<'_>) -> Decision {
        Decision::Allow
    }

    fn is_cacheable(&self, _access: Access<'_>) -> bool {
        true
    }
}

/// Maximum number of clients whose tokens are being verified. Above it, the oldest client is refused.
const VERIFYING_MAX: usize = 10_000;

/// A client whose token is being verified.
pub(super) struct Verifying {
    reply: IdentityReply,
    address: Option<IpAddr>,
    protocol: &'static str,
    namespace: Option<Box<str>>,
    origin: Option<Box<str>>,
    user_agent: Option<Box<str>>,
    traceparent: Option<Box<str>>,
    session: Option<Arc<ReservedSession>>,
    _charge: Charge,
}

impl Hooks {
    /// Handles the late result of a token's verification, as [`HookAuthenticator`] handles a result at once.
    fn identify(self: &Arc<Self>, ticket: Ticket, answer: Result<Arc<Identity>, Denial>) -> Result<(), Busy> {
        let client = {
            let mut verifying = self.verifying.lock();
            let at = verifying.iter().position(|client| client.reply.ticket() == ticket);
            at.and_then(|at| verifying.remove(at))
        };
        let Some(client) = client else { return Ok(()) };
        let answer = match answer {
            Ok(identity) => {
                let Verifying {
                    reply,
                    address,
                    protocol,
                    namespace,
                    origin,
                    user_agent,
                    traceparent,
                    session,
                    _charge,
                } = &client;
                let [namespace, origin, user_agent, traceparent] =
                    [namespace, origin, user_agent, traceparent].map(Option::as_deref);
                let client =
                    ClientFacts { address: *address, protocol, namespace, origin, user_agent, traceparent };
                let credentials = Credentials { user: None, token: None, client, session: session.as_ref() };
                match HookAuthenticator::identified(self, reply.clone(), &identity, &credentials, true) {
                    Authentication::Accepted(identity) => Ok(identity),
                    Authentication::Refused(denial) => Err(denial),
                    Authentication::Pending | Authentication::Postponed => return Ok(()),
                }
            }
            Err(denial) => Err(denial),
        };
        client.reply.send(answer)
    }

    /// Removes a client whose token was verified at once, or that has disconnected. Its entry is probably one
    /// of the last.
    fn forget(&self, ticket: Ticket) {
        let mut verifying = self.verifying.lock();
        if let Some(at) = verifying.iter().rposition(|client| client.reply.ticket() == ticket) {
            verifying.remove(at);
        }
    }

    /// Records a client whose token is being verified.
    fn verifies(&self, reply: IdentityReply, credentials: &Credentials<'_>) {
        let ClientFacts { address, protocol, namespace, origin, user_agent, traceparent } =
            credentials.client;
        let [namespace, origin, user_agent, traceparent] =
            [namespace, origin, user_agent, traceparent].map(|text| text.map(Box::<str>::from));
        let texts = [&namespace, &origin, &user_agent, &traceparent].into_iter().flatten();
        let bytes = size_of::<Verifying>() + texts.map(|text| text.len()).sum::<usize>();
        let mut verifying = self.verifying.lock();
        if verifying.len() >= VERIFYING_MAX
            && let Some(oldest) = verifying.pop_front()
        {
            // If the core's inbox is full, a timeout refuses the client in the same way.
            let _ = oldest.reply.send(Err(unavailable()));
        }
        verifying.push_back(Verifying {
            reply,
            address,
            protocol,
            namespace,
            origin,
            user_agent,
            traceparent,
            session: credentials.session.cloned(),
            _charge: Charge::of(self.ledger.clone(), Class::Hooks, bytes),
        });
    }
}

/// Receives the late results of token verifications, and asks hooks about the identities.
struct Verified(Arc<Hooks>);

impl Answers for Verified {
    fn answer(&self, ticket: Ticket, answer: Answer) -> Result<(), Busy> {
        match answer {
            Answer::Identity(answer) => self.0.identify(ticket, answer),
            Answer::Permission(_) | Answer::Event(_) => Ok(()),
        }
    }
}

/// An authenticator that asks hooks about connecting clients, after their tokens have been verified.
pub struct HookAuthenticator {
    inner: Option<Arc<dyn Authenticator>>,
    hooks: Arc<Hooks>,
    /// Receives the late answers of `inner`.
    verified: Arc<dyn Answers>,
}

impl fmt::Debug for HookAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookAuthenticator").field("inner", &self.inner).field("hooks", &self.hooks).finish()
    }
}

impl HookAuthenticator {
    /// Makes an authenticator. It refuses clients that `inner` refuses. Without `inner`, clients are
    /// anonymous until a hook identifies them, and have every permission that no hook denies.
    pub fn new(inner: Option<Arc<dyn Authenticator>>, hooks: Arc<Hooks>) -> Self {
        Self { inner, verified: Arc::new(Verified(hooks.clone())), hooks }
    }

    /// Continues after the token's verification: asks a hook about the client, or answers the client.
    pub(super) fn identified(
        hooks: &Arc<Hooks>,
        reply: IdentityReply,
        identity: &Identity,
        credentials: &Credentials<'_>,
        is_verified: bool,
    ) -> Authentication {
        let authorizer = Arc::new(HookAuthorizer::new(Some(identity.authorizer.clone()), hooks.clone()));
        let reserved = credentials.session.cloned();
        let session = reserved.as_ref().map(|reserved| reserved.id.to_string());
        let identity = Arc::new(Identity { authorizer, reserved, ..identity.clone() });
        let namespace = credentials.client.namespace.unwrap_or("/");
        let takes = |hook: &&Arc<Hook>| {
            hook.filter.is_on(HookKind::Connect) && hook.filter.takes_namespace(namespace)
        };
        let Some(hook) = hooks.hooks.iter().find(takes) else { return Authentication::Accepted(identity) };
        // A verified token isn't sent to the backend, which needs only its claims.
        let token = credentials.token.filter(|_| !is_verified);
        let write =
            |id| question::connect(id, session.as_deref(), &credentials.client, token, Some(&identity));
        let address = credentials.client.source();
        let client = Client { number: source_of(address), address };
        let asker = Asker::Connect(client, reply, namespace.into(), identity.clone());
        match hook.ask(HookKind::Connect, asker, write) {
            Ok(()) => Authentication::Pending,
            Err(_) => match hook.decide_without_answer() {
                Ok(()) => Authentication::Accepted(identity),
                Err(denial) => Authentication::Refused(denial),
            },
        }
    }
}

impl Authenticator for HookAuthenticator {
    fn authenticate(
        &self,
        asking: Asking<'_>,
        credentials: &Credentials<'_>,
        work: &mut SignatureWork,
    ) -> Authentication {
        match &self.inner {
            None => {
                let anybody = Identity::anonymous(Arc::new(Anything));
                Self::identified(&self.hooks, asking.later(), &anybody, credentials, false)
            }
            Some(inner) => {
                // Records the client before the verification starts, because the answer may arrive at once on
                // another thread.
                self.hooks.verifies(asking.later(), credentials);
                let inner_asking = Asking::new(asking.ticket, &self.verified);
                match inner.authenticate(inner_asking, credentials, work) {
                    Authentication::Pending => Authentication::Pending,
                    known => {
                        self.hooks.forget(asking.ticket);
                        match known {
                            Authentication::Accepted(identity) => {
                                Self::identified(&self.hooks, asking.later(), &identity, credentials, true)
                            }
                            other => other,
                        }
                    }
                }
            }
        }
    }

    fn cancel(&self, ticket: Ticket) {
        self.hooks.forget(ticket);
        self.inner.iter().for_each(|inner| inner.cancel(ticket));
        self.hooks.cancel(ticket);
    }

    fn decides_publishing(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.decides_publishing())
    }

    fn reserves_sessions(&self) -> bool {
        self.hooks.asks_about(HookKind::Connect)
    }

    fn generation(&self) -> u64 {
        self.inner.as_ref().map_or(0, |inner| inner.generation())
    }

    fn is_revoked(&self, identity: &Identity) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.is_revoked(identity))
    }
}
