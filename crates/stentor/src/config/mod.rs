//! The configuration: a TOML file, the environment, and the command line.
//!
//! Order of precedence: flag, environment, file, default. [`schema`] declares the keys, [`mod@file`] and
//! [`environment`] read them, [`rules`] checks combinations of keys, [`options`] holds the options that they
//! set ([`Config::options`]), [`mod@reference`] writes docs/configuration.md.
//!
//! All mistakes are reported at once ([`finding`]), each with its location. If a line isn't TOML, the other lines are read. This module deliberately doesn't use serde, which stops at the first mistake and can't report the location
//! of a value.
//!
//! Invariant: in a [`Config`] from [`Sources::load`], every value is within its range.

mod auth;
mod environment;
mod file;
mod files;
mod finding;
mod keys;
mod nearest;
pub(crate) mod options;
mod proxy;
pub(crate) mod reference;
mod rules;
pub(crate) mod schema;
mod secrets;
pub(crate) mod section;
pub(crate) mod setting;
pub(crate) mod value;

#[cfg(test)]
mod tests;

pub(crate) use self::environment::CONFIG_FILE as CONFIG_VARIABLE;
pub(crate) use self::finding::{Finding, Locations, Problems, Severity, SourceLocation};

use self::finding::WrittenKey;
use self::options::Options;
use self::schema::{
    AddressLimits, AdminLimits, AdminTls, Auth, AuthProxy, Bridge, Certificate, Cluster, Deflate, Feed,
    FeedsLimits, Heartbeat, Hook, Issuer, Limits, Link, Listener, Origins, Permission, Proxies,
    ProxyProtocol, Rooms, Rule, Server, SessionLimits, SockJs, SocketIo, UserLimits,
};
use self::section::{KeyInfo, Section};
use self::setting::Raw;
use self::value::EngineUrl;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;
use stentor_control::{PushedKeys, Secrets};

/// Maximum time for admin requests that are in progress when the data plane has ended.
const ADMIN_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// A part of the configuration: a section, or the list of all sections of a name.
pub(crate) trait Part {
    /// Returns the section. `None` for a list of sections.
    fn once(&self) -> Option<&dyn Section>;
    /// Returns the section that the next table of the file sets: the single section, or a new one at the end
    /// of the list.
    fn next(&mut self) -> &mut dyn Section;
    /// Returns a section with all defaults.
    fn defaults(&self) -> Box<dyn Section>;
    /// Compares the part with that of a running server, and takes over the running values that can't change
    /// without a restart.
    fn apply(&mut self, running: &Self, changes: &mut Changes)
    where
        Self: Sized;
}

impl<S: Section + Default + 'static> Part for S {
    fn apply(&mut self, running: &Self, changes: &mut Changes) {
        for (key, restart) in self.changed_from(running) {
            if changes.add(self.name(), key, restart) {
                self.keep(key, running);
            }
        }
    }

    fn once(&self) -> Option<&dyn Section> {
        Some(self)
    }

    fn next(&mut self) -> &mut dyn Section {
        self
    }

    fn defaults(&self) -> Box<dyn Section> {
        Box::new(Self::default())
    }
}

impl<S: Section + Default + Clone + PartialEq + 'static> Part for Vec<S> {
    fn apply(&mut self, running: &Self, changes: &mut Changes) {
        let section = S::default();
        let restart = section.keys().iter().any(|key| key.restart);
        if self != running && changes.add(section.name(), "", restart) {
            self.clone_from(running);
        }
    }

    fn once(&self) -> Option<&dyn Section> {
        None
    }

    fn next(&mut self) -> &mut dyn Section {
        self.push(S::default());
        let last = self.len() - 1;
        &mut self[last]
    }

    fn defaults(&self) -> Box<dyn Section> {
        Box::new(S::default())
    }
}

/// Declares the sections, in the order of the reference.
macro_rules! config {
    ($($section:ident: $ty:ty),+ $(,)?) => {
        /// The complete configuration.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub(crate) struct Config {
            $(pub(crate) $section: $ty,)+
            /// The values of `${NAME}` and `${file:/path}`.
            pub(crate) secrets: Secrets,
        }

        impl Config {
            fn parts(&self) -> Vec<&dyn Part> {
                vec![$(&self.$section),+]
            }

            /// Compares the configuration with that of a running server, and takes over the running values
            /// that can't change without a restart. The result is the configuration of the server after a
            /// reload.
            pub(crate) fn apply(&mut self, running: &Self) -> Changes {
                let mut changes = Changes::of(running, self);
                $(self.$section.apply(&running.$section, &mut changes);)+
                changes
            }

            fn part(&mut self, section: &str) -> Option<&mut dyn Part> {
                $(
                    if self.$section.defaults().name() == section {
                        return Some(&mut self.$section);
                    }
                )+
                None
            }
        }
    };
}

config! {
    server: Server,
    listeners: Vec<Listener>,
    tls: Vec<Certificate>,
    origins: Origins,
    limits: Limits,
    proxies: Proxies,
    address_limits: AddressLimits,
    user_limits: UserLimits,
    session_limits: SessionLimits,
    admin_limits: AdminLimits,
    admin_tls: AdminTls,
    heartbeat: Heartbeat,
    rooms: Rooms,
    socketio: SocketIo,
    rules: Vec<Rule>,
    hooks: Vec<Hook>,
    links: Vec<Link>,
    sockjs: Vec<SockJs>,
    deflate: Deflate,
    auth: Auth,
    auth_proxy: AuthProxy,
    issuers: Vec<Issuer>,
    permissions: Vec<Permission>,
    cluster: Cluster,
    bridges: Vec<Bridge>,
    feeds: Vec<Feed>,
    feeds_limits: FeedsLimits,
}

/// The changes of a reload. A change is named by `section.key`, or by the name of a repeated section.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) applied: Vec<String>,
    pub(crate) restart_needed: Vec<String>,
    /// Further keys and complete sections that need a restart with these configurations, although their
    /// declarations don't say so.
    fixed: Vec<&'static str>,
}

impl Changes {
    /// Makes an empty set of changes.
    fn of(running: &Config, next: &Config) -> Self {
        let history = ["rooms.history_length", "rooms.history_bytes_max", "rooms.history_ttl"];
        let mut fixed = Vec::new();
        if running.cluster.engine != EngineUrl::default() {
            // In a cluster, all nodes must have the same histories and the same feeds.
            fixed.extend(history);
            fixed.extend(["feeds", "feeds_limits.idle_ttl"]);
        } else if (running.rooms.history_length == 0) != (next.rooms.history_length == 0) {
            fixed.extend(history);
        }
        if running.tls.is_empty() != next.tls.is_empty() {
            fixed.extend(["tls", "server.tls_ticket_secret_file"]);
        }
        fixed.extend(Self::fixed_limits(running, next));
        let speaks_tls = |config: &Config| config.admin_tls != AdminTls::default();
        if speaks_tls(running) != speaks_tls(next) {
            fixed.extend(["admin_tls.certificate", "admin_tls.key"]);
        }
        if running.has_auth() != next.has_auth() {
            fixed.extend(["auth.anonymous", "auth.issuers", "permissions", "rooms.publish"]);
        }
        Self { fixed, ..Self::default() }
    }

    /// Returns limits that need a restart, because their tables are allocated only at the start.
    fn fixed_limits(running: &Config, next: &Config) -> Vec<&'static str> {
        let [was, is] = [running, next].map(|config| config.options().edge);
        let mut fixed = Vec::new();
        if was.address_limits.counts_connections() != is.address_limits.counts_connections() {
            fixed.extend(["address_limits.connections_max", "address_limits.connections_per_second"]);
        }
        if was.address_limits.counts_sessions() != is.address_limits.counts_sessions() {
            fixed.extend(["address_limits.sessions_max", "address_limits.sessions_per_second"]);
        }
        if (was.user_limits.sessions_max > 0) != (is.user_limits.sessions_max > 0) {
            fixed.push("user_limits.sessions_max");
        }
        if was.session_limits.is_on() != is.session_limits.is_on() {
            fixed.extend([
                "session_limits.messages_per_second",
                "session_limits.publications_per_second",
                "session_limits.bytes_per_second",
                "session_limits.burst",
                "session_limits.policy",
            ]);
        }
        if (was.limits.connections_per_second > 0) != (is.limits.connections_per_second > 0) {
            fixed.push("limits.connections_per_second");
        }
        let has_headers = |config: &Config| {
            let mut modes = config.listeners.iter().map(|listener| listener.proxy_protocol);
            config.server.proxy_protocol == ProxyProtocol::Required
                || modes.any(|mode| mode == ProxyProtocol::Required)
        };
        if has_headers(running) && next.proxies.trusted.is_empty() {
            // The listeners change only with a restart. Until then, clients couldn't connect.
            fixed.push("proxies.trusted");
        }
        fixed
    }

    /// Returns `true` if an applied change may remove permissions that clients had before.
    pub(crate) fn concern_permissions(&self) -> bool {
        let concerns =
            |name: &String| name.starts_with("auth.") || matches!(&**name, "permissions" | "rooms.publish");
        self.applied.iter().any(concerns)
    }

    /// Adds a change. Returns `true` if it needs a restart.
    fn add(&mut self, section: &str, key: &str, restart: bool) -> bool {
        let name = if key.is_empty() { section.to_owned() } else { format!("{section}.{key}") };
        let restart = restart || self.fixed.contains(&&*name);
        if restart { &mut self.restart_needed } else { &mut self.applied }.push(name);
        restart
    }
}

/// Description of a section, for the reference.
pub(crate) struct SectionInfo {
    pub(crate) name: &'static str,
    pub(crate) doc: String,
    pub(crate) keys: Vec<KeyInfo>,
    /// `true` if the section may be repeated.
    pub(crate) repeated: bool,
}

impl SectionInfo {
    /// Returns `[name]`, or `[[name]]` if the section may be repeated.
    pub(crate) fn bracketed(&self) -> String {
        let name = self.name;
        if self.repeated { format!("[[{name}]]") } else { format!("[{name}]") }
    }
}

/// Returns all sections, in the order of the reference.
pub(crate) fn sections() -> Vec<SectionInfo> {
    let info = |part: &dyn Part| {
        let section = part.defaults();
        let repeated = part.once().is_none();
        SectionInfo { name: section.name(), doc: section.doc(), keys: section.keys(), repeated }
    };
    Config::default().parts().into_iter().map(info).collect()
}

impl Config {
    /// Iterates over the sections that can't be repeated.
    pub(crate) fn once(&self) -> impl Iterator<Item = &dyn Section> {
        self.parts().into_iter().filter_map(|part| part.once())
    }

    /// Returns the options of the loaded configuration. Options that depend on several keys are set here.
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::default();
        self.once().for_each(|section| section.store(&mut options));
        let Options { edge, control, history, recovery, tls, .. } = &mut options;
        if history.publications_max > 0 {
            // An empty prefix matches every room.
            edge.rooms.history = vec![(String::new(), *history)];
        }
        edge.engine.recovery = (!recovery.age_max.is_zero()).then_some(*recovery);
        // Primus clients disconnect 45 s after a ping, so the interval must not exceed the default.
        edge.primus.ping_interval = edge.primus.ping_interval.min(edge.heartbeat.interval);
        edge.listeners = self.listeners.iter().map(|listener| options_of(listener).listener).collect();
        tls.certificates = self.tls.iter().map(|files| options_of(files).certificate).collect();
        edge.rooms.rules = self.rules.iter().map(rule_options).collect();
        if !self.sockjs.is_empty() {
            edge.sockjs = self.sockjs.iter().map(|prefix| options_of(prefix).sockjs).collect();
        }
        edge.tokens.proxy = self.auth_proxy.users();
        let (pushed, fetched): (Vec<_>, Vec<_>) = self.feeds.iter().partition(|feed| feed.push);
        control.feeds.upstreams = fetched.into_iter().map(|feed| options_of(feed).upstream).collect();
        let keys = |feed: &Feed| PushedKeys {
            prefix: feed.prefix.clone(),
            key: feed.key.clone(),
            keys: options_of(feed).upstream.keys,
        };
        control.feeds.pushed = pushed.into_iter().map(keys).collect();
        edge.keys = control.feeds.key_rule();
        control.feeds.secrets = self.secrets.clone();
        control.admin.shutdown_timeout = ADMIN_SHUTDOWN_TIMEOUT;
        options.links = self.links.iter().map(|link| options_of(link).link).collect();
        options.hooks = self.hooks.iter().map(|hook| options_of(hook).hook).collect();
        options.cluster.bridges = self.bridges.iter().map(|bridge| options_of(bridge).bridge).collect();
        options
    }

    /// Returns the texts that may refer to environment variables and files, each with its section and key.
    pub(crate) fn secret_texts(&self) -> Vec<(String, &'static str, &str)> {
        secrets::texts(self).collect()
    }

    /// Sets a key of a section that can't be repeated. Returns `None` if there is no such key.
    fn set(&mut self, section: &str, key: &str, raw: Raw<'_>) -> Option<Result<&'static str, String>> {
        self.part(section)?.next().set(key, raw)
    }

    /// Returns the values of the sections that can't be repeated, each as section, key, and value as in the
    /// file.
    fn show(&self) -> Vec<(&'static str, &'static str, String)> {
        let rows = |section: &dyn Section| {
            let name = section.name();
            section.show().into_iter().map(move |(key, value)| (name, key, value))
        };
        self.once().flat_map(rows).collect()
    }

    /// Returns the values that differ from their defaults, without repeated sections, each as section, key
    /// and value.
    pub(crate) fn changed(&self) -> Vec<(&'static str, &'static str, String)> {
        let defaults = Self::default().show();
        self.show().into_iter().filter(|row| !defaults.contains(row)).collect()
    }
}

/// Returns the default options with the values of this section.
fn options_of(section: &dyn Section) -> Options {
    let mut options = Options::default();
    section.store(&mut options);
    options
}

fn rule_options(rule: &Rule) -> stentor_edge::Rule {
    let broadcast_all = rule.broadcast.iter().any(|room| room == "*");
    stentor_edge::Rule { broadcast_all, ..options_of(rule).rule }
}

/// Flags that override keys of `[server]`: the common name of flag and key, and the flag's value. `None` if the flag
/// wasn't given.
pub(crate) type Flags = Vec<(&'static str, Option<String>)>;

/// A configuration that is being assembled.
#[derive(Default)]
pub(crate) struct Sources {
    config: Config,
    locations: Locations,
    findings: Vec<Finding>,
    /// `true` if the values of secrets are known. Otherwise sample values are checked.
    has_secrets: bool,
}

impl Sources {
    /// Starts with a configuration that the program itself has made.
    pub(crate) fn from_config(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// Reads the file at `path`.
    pub(crate) fn file(mut self, path: &Path) -> Self {
        let name = path.display().to_string();
        match file::read(path) {
            Ok(text) => file::apply(&mut self, &name, &text),
            Err(text) => self.problem(SourceLocation::File(name), text),
        }
        self
    }

    /// Applies a file that is compiled into the program.
    pub(crate) fn text(mut self, name: &str, text: &str) -> Self {
        file::apply(&mut self, name, text);
        self
    }

    /// Applies the variables that begin with [`environment::PREFIX`]. Secrets in other settings may refer to
    /// all variables.
    pub(crate) fn environment(self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment_after(variables, &Secrets::default())
    }

    /// Like [`Self::environment`], for a running server. Files that can't be read keep their values in
    /// `running`.
    pub(crate) fn environment_after(
        mut self,
        variables: impl IntoIterator<Item = (String, String)>,
        running: &Secrets,
    ) -> Self {
        let variables: HashMap<_, _> = variables.into_iter().collect();
        environment::apply(&mut self, variables.clone());
        self.config.secrets = Secrets::new(variables, running);
        self.has_secrets = true;
        self
    }

    /// Applies the flags.
    pub(crate) fn flags(mut self, flags: Flags) -> Self {
        for (key, text) in flags.into_iter().filter_map(|(key, text)| Some((key, text?))) {
            let location = SourceLocation::Flag(key);
            self.locations.written.insert(location.clone(), WrittenKey::new("server", key, &text, false));
            match self.config.set("server", key, Raw::Text(&text)) {
                Some(Err(text)) => self.problem(location, text),
                _ => _ = self.locations.keys.insert(("server".into(), key), location),
            }
        }
        self
    }

    /// Returns the locations of the keys that were set so far.
    pub(crate) fn locations(&self) -> Locations {
        self.locations.clone()
    }

    /// Returns the configuration and its warnings, or all mistakes and warnings.
    pub(crate) fn load(mut self) -> Result<(Config, Vec<Finding>), Problems> {
        if !self.has_secrets {
            self.config.secrets = Secrets::sample();
        }
        rules::check(&mut self);
        files::check(&mut self);
        if !self.has_mistakes()
            && let Err(error) = self
                .config
                .options()
                .control
                .check()
                .and_then(|()| self.config.auth_options().map_or(Ok(()), |auth| auth.check()))
        {
            // The planes may detect further mistakes.
            self.problem(SourceLocation::Default, error.to_string());
        }
        for finding in &mut self.findings {
            finding.written = self.locations.written.get(&finding.location).cloned();
        }
        self.findings.sort_by_key(|finding| {
            let line = match finding.location {
                SourceLocation::Line(_, line) => line,
                _ => usize::MAX,
            };
            (finding.severity, line)
        });
        self.findings.dedup();
        if self.has_mistakes() { Err(Problems(self.findings)) } else { Ok((self.config, self.findings)) }
    }

    fn has_mistakes(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    fn problem(&mut self, location: SourceLocation, text: impl Into<String>) {
        self.find(Severity::Error, location, text.into());
    }

    fn warn(&mut self, location: SourceLocation, text: impl Into<String>) {
        self.find(Severity::Warning, location, text.into());
    }

    fn find(&mut self, severity: Severity, location: SourceLocation, text: String) {
        self.findings.push(Finding { severity, location, written: None, text });
    }

    /// Returns the location of a key.
    fn location(&self, section: &str, key: &'static str) -> SourceLocation {
        self.locations.of(section, key)
    }
}
