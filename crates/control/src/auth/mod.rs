//! Authentication and authorization of clients: the data plane's [`Authenticator`], by tokens and rules of
//! `stentor-auth`.
//!
//! [`Auth`] is made before both planes, because the data plane uses it from its first connection. It checks
//! tokens on the threads of the cores, without waiting: a token is in the cache of verified tokens, or its
//! signature is verified. A token whose key is unknown waits for a fetch of its issuer's keys ([`schedule`]),
//! made by the task of [`Auth::run`]. The data plane then receives the answer as a command.
//!
//! **Invariant.** A URL is never derived from a token. Keys come from configured URLs, and verify only tokens
//! of their issuer. Log lines, messages and metrics contain no token and no part of a token.

mod authorizer;
mod fetch;
mod issuers;
pub(crate) mod metrics;
mod options;
mod schedule;
mod shared;

pub use fetch::reach_issuer;
pub use options::{AuthOptions, IssuerOptions};
pub(crate) use shared::NAME_BYTES_MAX;

use crate::current::Current;
use crate::error::Error;
use crate::signals::stopped;
use crate::unix_time::unix_seconds;
use authorizer::ClientAuthorizer;
use issuers::{FailureLog, Fetched, IssuerState, Issuers, Waiting};
use metrics::AuthMetrics;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stentor_auth::{
    Attributes, Claims, Digest, Full, Permissions, Refused, Revocation, Revocations, TOKEN_BYTES_MAX,
    TokenCache, TokenFacts, Unverified,
};
use stentor_hub::Room;
use stentor_ports::{
    Asking, Authentication, Authenticator, Charge, Class, Credentials, Denial, Identity, Ledger,
    PROXY_ISSUER, Principal, ProxyUser, SignatureWork,
};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at};

/// Number of parts of the cache. Each has its own lock, so that cores rarely wait for each other.
const SHARDS: usize = 16;
/// Approximate size in bytes of a cached token without its text: the identity with its claims.
const IDENTITY_BYTES: usize = 1024;
/// Refusals of one kind are logged at most once within this many seconds.
const LOG_SECONDS: u64 = 60;
/// Interval at which ended revocations are removed.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(10);

/// Accepts or refuses tokens, and decides what clients may do. Made by [`Auth::new`], run by [`Control::start`](crate::Control::start).
pub struct Auth {
    settings: Current<Settings>,
    /// The rules for all clients, which change when the configuration is reloaded.
    permissions: Arc<Current<Permissions>>,
    anonymous: Arc<Identity>,
    /// `None` if no proxy names users.
    proxy_lifetime: Option<Duration>,
    cache: [Mutex<Shard>; SHARDS],
    /// Incremented before the cache is cleared. A token whose verification began before isn't stored.
    cache_epoch: AtomicU64,
    revocations: RwLock<Revoked>,
    generation: AtomicU64,
    /// Notified when the settings were replaced.
    replaced: Notify,
    /// Issuers of earlier settings, for whose keys clients may still wait.
    former: Mutex<Vec<Arc<IssuerState>>>,
    /// Time of the last logged refusal of each kind, in seconds since 1970.
    logged: [AtomicU64; Refused::LABELS.len()],
    pub(crate) metrics: AuthMetrics,
}

/// The settings that [`Auth::replace`] replaces, without the permissions.
#[derive(Default)]
struct Settings {
    allow_anonymous: bool,
    issuers: Issuers,
}

/// The list of revocations, with its charge.
struct Revoked {
    list: Revocations,
    charge: Charge,
}

/// Reason why a token isn't verified.
enum Failure {
    Refused(Refused),
    /// No known key verifies the token, but the issuer may have published another key since.
    OtherKey(Refused, Arc<IssuerState>),
    /// The remaining time of this turn is too short to verify the signature.
    Postponed,
}

impl From<Refused> for Failure {
    fn from(error: Refused) -> Self {
        Self::Refused(error)
    }
}

fn authentication(accepted: Result<Arc<Identity>, Denial>) -> Authentication {
    match accepted {
        Ok(identity) => Authentication::Accepted(identity),
        Err(denial) => Authentication::Refused(denial),
    }
}

struct Shard {
    tokens: TokenCache<Arc<Identity>>,
    charge: Charge,
}

stentor_ports::opaque_debug!(Auth, "Auth");

impl Settings {
    fn new(options: &AuthOptions, before: &Self) -> Result<Self, Error> {
        let issuers = Issuers::new(options, &before.issuers)?;
        Ok(Self { allow_anonymous: options.allow_anonymous, issuers })
    }
}

/// Checks whether the keys of an issuer may come from a URL.
///
/// # Errors
/// Returns the expected form. A URL without TLS isn't allowed, because an attacker on the network could
/// replace the keys.
pub fn check_jwks_url(url: &str) -> Result<(), &'static str> {
    fetch::parse_url(url).map(|_| ())
}

impl AuthOptions {
    /// Reports whether [`Auth::new`] would accept these options. Reads the files that they name.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub fn check(&self) -> Result<(), Error> {
        Settings::new(self, &Settings::default()).map(|_| ())
    }
}

impl Auth {
    /// Makes the authenticator without opening connections. Charges memory to `ledger`.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub fn new(options: &AuthOptions, ledger: &Arc<Ledger>) -> Result<Arc<Self>, Error> {
        let metrics = AuthMetrics::default();
        let permissions = Arc::new(Current::new(Permissions::new(options.permissions.clone())));
        let anonymous = ClientAuthorizer::new(permissions.clone(), None, None, metrics.clone());
        let shard = || Shard {
            tokens: TokenCache::new(options.token_cache_bytes_max / SHARDS),
            charge: Charge::new(ledger.clone(), Class::Tokens),
        };
        let lifetime =
            options.token_lifetime_max.max(options.proxy_lifetime.unwrap_or_default()) + options.leeway;
        Ok(Arc::new(Self {
            settings: Current::new(Settings::new(options, &Settings::default())?),
            permissions,
            anonymous: Arc::new(Identity::anonymous(Arc::new(anonymous))),
            proxy_lifetime: options.proxy_lifetime,
            cache: std::array::from_fn(|_| Mutex::new(shard())),
            cache_epoch: AtomicU64::new(0),
            revocations: RwLock::new(Revoked {
                list: Revocations::new(options.revocations_max, lifetime.as_secs()),
                charge: Charge::new(ledger.clone(), Class::Tokens),
            }),
            generation: AtomicU64::new(0),
            replaced: Notify::new(),
            former: Mutex::default(),
            logged: Default::default(),
            metrics,
        }))
    }

    /// Replaces the issuers, the permissions and `allow_anonymous`. Unchanged issuers keep their fetched
    /// keys. Earlier decisions become invalid ([`Authenticator::generation`]). Other options apply after a
    /// restart.
    ///
    /// # Errors
    /// [`Error::Setting`]. The settings are then unchanged.
    pub fn replace(&self, options: &AuthOptions) -> Result<(), Error> {
        let before = self.settings.load();
        self.settings.store(Settings::new(options, &before)?);
        let settings = self.settings.load();
        let removed = before.issuers.iter().filter(|issuer| !settings.issuers.has(issuer)).cloned();
        self.former.lock().extend(removed);
        self.permissions.store(Permissions::new(options.permissions.clone()));
        self.clear_cache();
        self.generation.fetch_add(1, Ordering::Release);
        self.replaced.notify_one();
        Ok(())
    }

    /// Fetches keys and removes ended revocations until `stop` is set.
    pub(crate) async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        // Dropping the set aborts the tasks.
        let mut tasks = JoinSet::new();
        let mut fetching: Vec<(Arc<IssuerState>, Arc<Notify>)> = Vec::new();
        let mut expiry = interval_at(Instant::now() + EXPIRY_INTERVAL, EXPIRY_INTERVAL);
        loop {
            while tasks.try_join_next().is_some() {}
            let settings = self.settings.load();
            fetching.retain(|(issuer, is_gone)| {
                let stays = settings.issuers.has(issuer);
                if !stays {
                    is_gone.notify_one();
                }
                stays
            });
            for issuer in settings.issuers.iter().filter(|issuer| issuer.remote.is_some()) {
                if !fetching.iter().any(|(other, _)| Arc::ptr_eq(other, issuer)) {
                    let is_gone = Arc::new(Notify::new());
                    fetching.push((issuer.clone(), is_gone.clone()));
                    tasks.spawn(self.clone().fetch_keys(issuer.clone(), is_gone));
                }
            }
            let former = std::mem::take(&mut *self.former.lock());
            for issuer in former {
                self.answer(issuer.give_up()).await;
            }
            tokio::select! {
                () = stopped(&mut stop) => return,
                () = self.replaced.notified() => {}
                _ = expiry.tick() => self.change_revocations(unix_seconds(), |_, _| {}),
            }
        }
    }

    /// Fetches the keys of an issuer until its configuration is changed or removed.
    async fn fetch_keys(self: Arc<Self>, issuer: Arc<IssuerState>, is_gone: Arc<Notify>) {
        let mut log = FailureLog::default();
        loop {
            let fetched = tokio::select! {
                biased;
                () = is_gone.notified() => return,
                fetched = issuer.next_fetch(&self.metrics, &mut log) => fetched,
            };
            let Some(fetched) = fetched else { return };
            if fetched.has_changed {
                self.clear_cache();
            }
            self.answer(fetched).await;
        }
    }

    /// Answers clients that have waited for a fetch.
    async fn answer(&self, fetched: Fetched) {
        let now = unix_seconds();
        for client in fetched.waiting {
            // Threads of the control plane serve no client connections, so verification has no time budget here.
            let mut work = SignatureWork::new(Duration::MAX);
            let answer = match self.verify(&client.token, None, now, &mut work) {
                Ok(identity) => self.accept(identity, client.user.as_ref()),
                Err(Failure::OtherKey(Refused::Key, _)) if !fetched.is_success => Err(self.unavailable()),
                Err(Failure::OtherKey(error, _) | Failure::Refused(error)) => Err(self.refuse(&error)),
                Err(Failure::Postponed) => Err(self.unavailable()),
            };
            // If the core's inbox is full, the client is refused with `unavailable` after a timeout.
            let _ = client.reply.send(answer);
            // Each answer takes as long as the verification of a signature.
            tokio::task::yield_now().await;
        }
    }

    fn shard(&self, token: Digest) -> MutexGuard<'_, Shard> {
        self.cache[token.shard(SHARDS)].lock()
    }

    fn clear_cache(&self) {
        self.cache_epoch.fetch_add(1, Ordering::AcqRel);
        for shard in &self.cache {
            let mut shard = shard.lock();
            shard.change(&self.metrics, TokenCache::clear);
        }
    }

    /// Verifies a token if `work` has time for its signature. Caches an accepted token's identity by the
    /// token's digest.
    fn verify(
        &self,
        token: &str,
        digest: Option<Digest>,
        now: u64,
        work: &mut SignatureWork,
    ) -> Result<Arc<Identity>, Failure> {
        let epoch = self.cache_epoch.load(Ordering::Acquire);
        let settings = self.settings.load();
        let parsed = Unverified::parse(token)?;
        let issuer = settings.issuers.find(parsed.issuer()?).ok_or(Refused::Issuer)?;
        let keys = issuer.keys();
        let may_have_other_key = issuer.remote.is_some() && parsed.may_have_other_key(&keys);
        let time = parsed.verification_time(&issuer.rules, &keys);
        if !time.is_zero() && !work.take(time) {
            return Err(Failure::Postponed);
        }
        let claims = parsed.verify(&issuer.rules, &keys, now).map_err(|error| {
            let is_by_key = matches!(error, Refused::Key | Refused::Signature);
            if is_by_key && may_have_other_key {
                Failure::OtherKey(error, issuer.clone())
            } else {
                Failure::Refused(error)
            }
        })?;
        let expires_at = claims.expires_at;
        let identity = Arc::new(self.identity(claims)?);
        self.metrics.accepted.inc();
        let digest = digest.unwrap_or_else(|| Digest::of(token));
        let bytes = IDENTITY_BYTES + 4 * token.len();
        let kept = identity.clone();
        let mut shard = self.shard(digest);
        // If the epoch has changed, the token's key may have been removed, and this shard may already have
        // been cleared.
        if self.cache_epoch.load(Ordering::Acquire) == epoch {
            shard.change(&self.metrics, |tokens| tokens.insert(digest, kept, bytes, expires_at));
        }
        Ok(identity)
    }

    fn identity(&self, claims: Claims) -> Result<Identity, Refused> {
        let Claims { issuer, subject, token_id, issued_at, expires_at, grants, join, info, attributes } =
            claims;
        let principal = Principal { issuer, subject };
        let rooms = join.iter().map(|name| Room::plain(name));
        let join =
            rooms.collect::<Result<_, _>>().map_err(|error| Refused::Grants(format!("join: {error}")))?;
        let grants = (!grants.is_empty()).then(|| Permissions::new(grants));
        let authorizer =
            ClientAuthorizer::new(self.permissions.clone(), Some(attributes), grants, self.metrics.clone());
        Ok(Identity {
            principal: Some(principal.clone()),
            token_principal: Some(principal),
            token_id,
            issued_at: Some(issued_at),
            expires_at: Some(expires_at),
            info: info.map(Into::into),
            join,
            emit: None,
            reserved: None,
            authorizer: Arc::new(authorizer),
        })
    }

    /// Accepts an identity unless it is revoked. If an authenticating proxy names a `user`, the token must be that user's, and the
    /// client has the identity by the proxy.
    fn accept(&self, identity: Arc<Identity>, user: Option<&ProxyUser>) -> Result<Arc<Identity>, Denial> {
        if self.is_revoked(&identity) {
            self.metrics.refuse("revoked");
            return Err(Denial::TOKEN_REVOKED);
        }
        let Some(user) = user else { return Ok(identity) };
        if identity.token_principal.as_ref().is_none_or(|principal| principal.subject != user.subject) {
            self.metrics.refuse("other_user");
            return Err(Denial::new("token_invalid", "the token is not of the user that the proxy names"));
        }
        self.accept_user(user)
    }

    /// Accepts the user that an authenticating proxy names, unless it is revoked, or named too long ago.
    fn accept_user(&self, user: &ProxyUser) -> Result<Arc<Identity>, Denial> {
        let lifetime = self.proxy_lifetime.unwrap_or_default();
        let expires_at = user.issued_at.saturating_add(lifetime.as_secs());
        if expires_at <= unix_seconds() {
            self.metrics.refuse("expired");
            return Err(Denial::new("token_expired", "the proxy named the user too long ago"));
        }
        let principal = Principal { issuer: PROXY_ISSUER.into(), subject: user.subject.clone() };
        let attributes = Attributes::of_user(PROXY_ISSUER, &user.subject, &user.groups);
        let authorizer =
            ClientAuthorizer::new(self.permissions.clone(), Some(attributes), None, self.metrics.clone());
        let identity = Arc::new(Identity {
            principal: Some(principal.clone()),
            token_principal: Some(principal),
            issued_at: Some(user.issued_at),
            expires_at: Some(expires_at),
            ..Identity::anonymous(Arc::new(authorizer))
        });
        let identity = self.accept(identity, None)?;
        self.metrics.accepted.inc();
        Ok(identity)
    }

    /// Counts and logs the refusal of a token.
    fn refuse(&self, error: &Refused) -> Denial {
        let label = error.label();
        self.metrics.refuse(label);
        if let Some(at) = Refused::LABELS.iter().position(|known| *known == label) {
            let (now, logged) = (unix_seconds(), &self.logged[at]);
            let before = logged.load(Ordering::Relaxed);
            let is_due = now >= before + LOG_SECONDS;
            if is_due && logged.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                // The text of an error about grants may quote the token.
                let error: &dyn fmt::Display = if matches!(error, Refused::Grants(_)) {
                    &"the token's claim stentor is invalid"
                } else {
                    error
                };
                tracing::info!(
                    reason = label,
                    "{error}; the client is refused. Others are counted for a minute"
                );
            }
        }
        Denial::new(error.code(), error.to_string())
    }

    /// Refuses a client because the keys of its token's issuer are unknown.
    fn unavailable(&self) -> Denial {
        self.metrics.refuse("unavailable");
        let message = "the keys of the token's issuer are not known yet; try again later";
        Denial { retry: true, ..Denial::new("unavailable", message) }
    }

    /// Returns the issuer if there is exactly one.
    pub(crate) fn only_issuer(&self) -> Option<Arc<str>> {
        let settings = self.settings.load();
        match settings.issuers.iter().count() {
            0 => self.proxy_lifetime.map(|_| PROXY_ISSUER.into()),
            _ if self.proxy_lifetime.is_some() => None,
            _ => settings.issuers.only().cloned(),
        }
    }

    /// Adds an entry to the list of revocations.
    ///
    /// # Errors
    /// [`Full`] if the list is full.
    pub(crate) fn revoke(&self, revocation: Revocation) -> Result<(), Full> {
        self.change_revocations(unix_seconds(), |list, now| list.add(revocation, now))
    }

    /// Returns the list of revocations, each with the time until which it is kept, in seconds since 1970.
    pub(crate) fn revocations(&self) -> Vec<(Revocation, u64)> {
        let mut all: Vec<_> = self.change_revocations(unix_seconds(), |list, _| list.iter().collect());
        all.sort();
        all
    }

    /// Removes entries that have ended by `now` (seconds since 1970), applies a change to the list, and
    /// updates its charge.
    fn change_revocations<T>(&self, now: u64, change: impl FnOnce(&mut Revocations, u64) -> T) -> T {
        let mut revoked = self.revocations.write();
        let Revoked { list, charge } = &mut *revoked;
        list.expire(now);
        let changed = change(list, now);
        charge.set(list.bytes());
        self.metrics.revocations.set(i64::try_from(list.len()).unwrap_or(i64::MAX));
        changed
    }
}

impl Shard {
    /// Applies a change to the cache, and updates its charge.
    fn change(&mut self, metrics: &AuthMetrics, change: impl FnOnce(&mut TokenCache<Arc<Identity>>)) {
        let before = self.tokens.bytes() as i64;
        change(&mut self.tokens);
        let now = self.tokens.bytes();
        self.charge.set(now);
        metrics.cache_bytes.inc_by(now as i64 - before);
    }
}

impl Auth {
    /// Checks the token of a client. Returns `Pending` if the client waits for a fetch of keys.
    fn check(
        &self,
        asking: Asking<'_>,
        token: &str,
        user: Option<&ProxyUser>,
        work: &mut SignatureWork,
    ) -> Authentication {
        let now = unix_seconds();
        let digest = (token.len() <= TOKEN_BYTES_MAX).then(|| Digest::of(token));
        if let Some(digest) = digest {
            let mut known = None;
            self.shard(digest).change(&self.metrics, |tokens| known = tokens.find(digest, now));
            if let Some(identity) = known {
                self.metrics.cached.inc();
                return authentication(self.accept(identity, user));
            }
        }
        let denial = match self.verify(token, digest, now, work) {
            Ok(identity) => return authentication(self.accept(identity, user)),
            Err(Failure::Postponed) => return Authentication::Postponed,
            Err(Failure::OtherKey(error, issuer)) => {
                if issuer.wait(Waiting::new(asking.later(), token, user, &self.metrics)) {
                    return Authentication::Pending;
                }
                if error == Refused::Key { self.unavailable() } else { self.refuse(&error) }
            }
            Err(Failure::Refused(error)) => self.refuse(&error),
        };
        Authentication::Refused(denial)
    }
}

impl Authenticator for Auth {
    fn authenticate(
        &self,
        asking: Asking<'_>,
        credentials: &Credentials<'_>,
        work: &mut SignatureWork,
    ) -> Authentication {
        match (credentials.token, credentials.user) {
            (Some(token), user) => self.check(asking, token, user, work),
            (None, Some(user)) => authentication(self.accept_user(user)),
            (None, None) if self.settings.load().allow_anonymous => {
                self.metrics.anonymous.inc();
                Authentication::Accepted(self.anonymous.clone())
            }
            (None, None) => {
                self.metrics.refuse("missing");
                Authentication::Refused(Denial::TOKEN_MISSING)
            }
        }
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn is_revoked(&self, identity: &Identity) -> bool {
        let Identity { principal, token_principal, token_id, issued_at, .. } = identity;
        let issued_at = issued_at.unwrap_or(0);
        let list = &self.revocations.read().list;
        let is_token_revoked = token_principal.as_ref().is_some_and(|Principal { issuer, subject }| {
            list.is_revoked(TokenFacts { issuer, subject, token_id: token_id.as_deref(), issued_at })
        });
        // A user that a hook has set in place of the token's user is checked too.
        let named = principal.as_ref().filter(|_| principal != token_principal);
        is_token_revoked
            || named.is_some_and(|user| list.is_user_revoked(&user.issuer, &user.subject, issued_at))
    }
}
