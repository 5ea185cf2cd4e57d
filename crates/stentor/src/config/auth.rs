//! Checks `[auth]`, `[[auth.issuers]]` and `[[permissions]]` together.

use super::schema::{Anonymous, AuthProxy, Issuer, Permission, To};
use super::value::HeaderName;
use super::{Config, SourceLocation, Sources, options_of};
use stentor_auth::{Action, Actions, Algorithm, Recipients, Rule, ambiguous_patterns};
use stentor_control::{AuthOptions, check_jwks_url};
use stentor_edge::ProxyUsers;
use stentor_ports::{Networks, PROXY_ISSUER};

impl Config {
    /// Returns `true` if clients must authenticate, or if permissions apply to anonymous clients.
    pub(crate) fn has_auth(&self) -> bool {
        let has_users = !self.issuers.is_empty() || self.auth_proxy.user_header.get().is_some();
        has_users || self.auth.anonymous == Anonymous::Allow
    }

    /// Returns the options of the sections, after the configuration has been loaded. `None` means that all
    /// clients are anonymous and have all permissions.
    pub(crate) fn auth_options(&self) -> Option<AuthOptions> {
        if !self.has_auth() {
            return None;
        }
        let mut options = options_of(&self.auth).auth;
        options.allow_anonymous = self.auth.anonymous == Anonymous::Allow;
        options.issuers = self.issuers.iter().map(|issuer| options_of(issuer).issuer).collect();
        options.permissions = self.permission_rules();
        options.proxy_lifetime = self.auth_proxy.users().map(|_| self.auth_proxy.lifetime);
        Some(options)
    }

    /// Returns the rules of `[[permissions]]` in order, and the rule that the older key `rooms.publish`
    /// means.
    pub(crate) fn permission_rules(&self) -> Vec<Rule> {
        let mut rules: Vec<_> =
            self.permissions.iter().filter_map(|permission| permission.rule().ok()).collect();
        if self.rooms.publish {
            let everything = Actions::parse(&["publish"])
                .and_then(|publish| Rule::new(&[], &[], &["**"], None, publish, Recipients::Anyone));
            rules.extend(everything.ok());
        }
        rules
    }
}

impl AuthProxy {
    /// Returns the options of the data plane. `None` if no proxy names users.
    pub(crate) fn users(&self) -> Option<ProxyUsers> {
        let secret = self.secret_header.get().zip(self.secret.0.as_ref());
        Some(ProxyUsers {
            user_header: self.user_header.get()?,
            groups_header: self.groups_header.get(),
            from: Networks::parse(&self.from).unwrap_or_default(),
            secret: secret.map(|(name, secret)| (name, secret.reveal().into())),
        })
    }
}

impl Permission {
    /// Returns the rule, or its mistake.
    fn rule(&self) -> Result<Rule, String> {
        self.rule_with(Actions::parse(&self.allow)?)
    }

    fn rule_with(&self, allow: Actions) -> Result<Rule, String> {
        let Self { topics, feeds, rooms, namespace, to, .. } = self;
        let to = match to {
            To::Users => Recipients::Users,
            To::Anyone => Recipients::Anyone,
        };
        let namespace = Some(namespace.as_str()).filter(|namespace| !namespace.is_empty());
        Rule::new(topics, feeds, rooms, namespace, allow, to)
    }
}

/// Records the mistakes.
pub(super) fn check(sources: &mut Sources) {
    proxy(sources);
    // A section may be set only by keys in the environment, so their location is used too.
    let head = sources.location("auth", "");
    let mentioned = sources.locations.keys.iter().find(|((section, _), _)| section == "auth");
    let mentioned =
        Some(head).filter(|head| *head != SourceLocation::Default).or(mentioned.map(|(_, at)| at.clone()));
    if let Some(location) = mentioned
        && !sources.config.has_auth()
    {
        let text = "[auth] has no [[auth.issuers]], so that no client could connect; add one, or set anonymous = \"allow\"";
        sources.problem(location, text);
    } else if !sources.config.permissions.is_empty() && !sources.config.has_auth() {
        let location = sources.location("permissions[0]", "allow");
        sources.problem(location, "[[permissions]] need [auth]: without it, clients may do everything");
    }
    issuers(sources);
    permissions(sources);
    rooms_publish(sources);
}

fn proxy(sources: &mut Sources) {
    let proxy = sources.config.auth_proxy.clone();
    let AuthProxy { user_header, groups_header, from, secret_header, secret, .. } = &proxy;
    let [user, groups, secret_name] = [user_header, groups_header, secret_header].map(HeaderName::get);
    let mut wrong = Vec::new();
    if user.is_none() {
        if proxy != AuthProxy::default() {
            wrong.push(("user_header", "required: the header in which the proxy names the user".to_owned()));
        }
    } else if from.is_empty() {
        let text = "required: the addresses of the proxies; proxies.trusted doesn't count".to_owned();
        wrong.push(("from", text));
    }
    if let Err(error) = Networks::parse(from) {
        wrong.push(("from", error.to_string()));
    } else if from.iter().any(|network| network.ends_with("/0")) {
        wrong.push(("from", "with every address, every client could name any user".to_owned()));
    }
    let names = [user, groups, secret_name.clone()].map(|name| name.map(|name| name.to_ascii_lowercase()));
    let [user, groups, secret_lower] = &names;
    if user.is_some() && (user == groups || user == secret_lower)
        || groups.is_some() && groups == secret_lower
    {
        wrong.push(("user_header", "the headers must have different names".to_owned()));
    }
    // A check without the server's environment doesn't know the secret.
    let is_unknown = sources.config.secrets.is_sample() && secret.0.is_none();
    if secret_name.is_some() != secret.0.is_some() && !is_unknown {
        let text = "secret_header and secret need each other: set STENTOR_AUTH_PROXY_SECRET".to_owned();
        wrong.push(("secret_header", text));
    }
    let has_mistake = !wrong.is_empty();
    for (key, text) in wrong {
        let written =
            |key| Some(sources.location("auth.proxy", key)).filter(|at| *at != SourceLocation::Default);
        let places = [key, "user_header", "groups_header", "from", "secret_header", "secret", "lifetime"];
        let location = places.into_iter().find_map(written).unwrap_or(SourceLocation::Default);
        sources.problem(location, format!("{key} in [auth.proxy]: {text}"));
    }
    if !has_mistake && names[0].is_some() && secret_name.is_none() {
        let text = "[auth.proxy] has no secret_header: each process at an address in from can name any user";
        sources.warn(sources.location("auth.proxy", ""), text);
    }
}

fn issuers(sources: &mut Sources) {
    let mut issuers = std::mem::take(&mut sources.config.issuers);
    let secrets = sources.config.secrets.clone();
    for n in 0..issuers.len() {
        let location = |key| sources.locations.keys.get(&(format!("auth.issuers[{n}]"), key)).cloned();
        let unset = issuers[n].keys.fill(&secrets);
        let mut wrong: Vec<_> = unset.into_iter().map(|text| ("keys", text)).collect();
        wrong.extend(issuer_mistakes(&issuers[n], &issuers[..n]));
        // Missing required keys have already been reported. Mistakes of other missing keys are reported at
        // the line of `issuer`.
        let is_required = |key: &&str| ["issuer", "algorithms"].contains(key);
        let place = |key| location(key).or_else(|| location("issuer").filter(|_| !is_required(&key)));
        let wrong: Vec<_> =
            wrong.into_iter().filter_map(|(key, text)| Some((place(key)?, key, text))).collect();
        for (location, key, text) in wrong {
            sources.problem(location, format!("{key} in [[auth.issuers]]: {text}"));
        }
    }
    sources.config.issuers = issuers;
}

/// Returns the mistakes of an issuer, each with its key. `before` are the preceding issuers.
fn issuer_mistakes(issuer: &Issuer, before: &[Issuer]) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    let name = &issuer.issuer;
    if !(1..=256).contains(&name.len()) {
        wrong.push(("issuer", "expected 1 to 256 bytes".into()));
    }
    if name == PROXY_ISSUER {
        wrong.push(("issuer", "the users of [auth.proxy] have this issuer".into()));
    }
    if let Some(m) = before.iter().position(|other| other.issuer == *name) {
        wrong.push(("issuer", format!("issuer number {} has the same name", m + 1)));
    }
    let algorithms: Vec<Algorithm> = issuer.algorithms.iter().map(|name| name.0).collect();
    if algorithms.is_empty() {
        wrong.push(("algorithms", "name at least one".into()));
    }
    let has_url = !issuer.jwks_url.is_empty();
    if has_url != issuer.keys.0.is_empty() {
        wrong.push(("keys", "an issuer has either keys or a jwks_url".into()));
    }
    if has_url {
        if let Err(text) = check_jwks_url(&issuer.jwks_url) {
            wrong.push(("jwks_url", text.into()));
        }
        if issuer.audience.is_empty() {
            let text =
                "required with jwks_url: the issuer makes tokens for others, too, which would be accepted";
            wrong.push(("audience", text.into()));
        }
        let secret = algorithms.iter().find(|algorithm| algorithm.is_secret());
        if let Some(algorithm) = secret {
            wrong.push((
                "algorithms",
                format!("{algorithm} needs a secret in keys; the keys at a jwks_url are public"),
            ));
        }
        return wrong;
    }
    let keys: Vec<_> = issuer.keys.0.iter().map(|key| key.key()).collect();
    for (n, key) in keys.iter().enumerate() {
        let text = match key {
            Err(text) => text.clone(),
            Ok(key) if algorithms.iter().any(|algorithm| key.is_for(*algorithm)) => continue,
            Ok(_) => "it is for none of the algorithms".into(),
        };
        wrong.push(("keys", format!("key number {}: {text}", n + 1)));
    }
    let is_unused = |algorithm: &&Algorithm| !keys.iter().flatten().any(|key| key.is_for(**algorithm));
    if let Some(algorithm) = algorithms.iter().find(is_unused)
        && !keys.is_empty()
        && keys.iter().all(Result::is_ok)
    {
        let bytes = algorithm.secret_bytes_min();
        let need = bytes.map_or_else(String::new, |bytes| format!(" (a secret of at least {bytes} bytes)"));
        wrong.push(("algorithms", format!("no key is for {algorithm}{need}")));
    }
    wrong
}

fn permissions(sources: &mut Sources) {
    let permissions = sources.config.permissions.clone();
    for (n, permission) in permissions.iter().enumerate() {
        let location = |key| sources.location(&format!("permissions[{n}]"), key);
        let allow = location("allow");
        let names = ["topics", "feeds", "rooms"].map(location).into_iter();
        let names =
            names.filter(|names| *names != SourceLocation::Default).min_by_key(|names| names.to_string());
        let any = Actions::parse(&["subscribe"]).and_then(|any| permission.rule_with(any));
        let wrong = [
            (names.unwrap_or_else(|| allow.clone()), any.map(|_| ())),
            (allow, Actions::parse(&permission.allow).map(|_| ())),
        ];
        for (location, result) in wrong {
            // A missing required key has already been reported.
            if let (Err(text), true) = (result, location != SourceLocation::Default) {
                sources.problem(location, format!("[[permissions]] number {}: {text}", n + 1));
            }
        }
    }
    if sources.config.has_auth() && permissions.is_empty() && !sources.config.rooms.publish {
        let text = "there are no [[permissions]]: clients may do only what their tokens grant";
        sources.warn(SourceLocation::Default, text);
    }
    for (one, other) in ambiguous_patterns(&sources.config.permission_rules()) {
        let text = format!(
            "[[permissions]]: {one:?} and {other:?} may match the same name: the value of a claim may contain the other's text. \
             Separate the claim by / or :"
        );
        sources.warn(SourceLocation::Default, text);
    }
}

/// Checks the older key `rooms.publish`, which has another meaning with `[auth]`.
fn rooms_publish(sources: &mut Sources) {
    if !sources.config.rooms.publish || !sources.config.has_auth() {
        return;
    }
    let location = sources.location("rooms", "publish");
    let publishes = |permission: &Permission| {
        Actions::parse(&permission.allow).is_ok_and(|allow| allow.has(Action::Publish))
    };
    if sources.config.permissions.iter().any(publishes) {
        let text = "publish in [rooms] and [[permissions]] with \"publish\" exclude each other: publish = true allows \
                    every client to publish to every room; remove it";
        sources.problem(location, text);
        return;
    }
    let text = "publish = true in [rooms] is deprecated with [auth]. It means: [[permissions]] rooms = [\"**\"], allow = [\"publish\"], \
                to = \"anyone\". Write that instead, or narrow it";
    sources.warn(location, text);
}
