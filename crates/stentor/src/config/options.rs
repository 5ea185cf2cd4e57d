//! The options that the keys set, and how a setting becomes the value of a field.
//!
//! A key's default is that of its field: [`Field`] goes one way, [`Source`] the other. What depends on several keys is
//! in [`Options::of`].

use super::Config;
use super::schema::{EndSignal, Feed, PrefixApp, Rule};
use super::section::Section;
use super::value::{Bytes, Headers, Origin, Secret, Setting, Token};
use std::path::PathBuf;
use std::time::Duration;
use stentor_control::{PushedKeys, UpstreamOptions};
use stentor_edge::{App, DriverChoice, Hosts, Origins, Recovery, SockJs, Template};
use stentor_hub::HistoryLimits;

/// Time for requests to the admin port that are under way when the data plane has ended.
const ADMIN_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Everything that keys set. Only tests print it: it has secrets.
#[cfg_attr(test, derive(Debug))]
pub(crate) struct Options {
    pub(crate) edge: stentor_edge::Options,
    pub(crate) control: stentor_control::Options,
    pub(crate) driver: DriverChoice,
    /// The history of every room.
    pub(crate) history: HistoryLimits,
    /// Applies if `age_max` isn't zero.
    pub(crate) recovery: Recovery,
    /// One `[[rules]]`.
    pub(crate) rule: stentor_edge::Rule,
    /// One `[[sockjs]]`.
    pub(crate) sockjs: SockJs,
    /// One `[[feeds]]`.
    pub(crate) upstream: UpstreamOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            edge: stentor_edge::Options::default(),
            control: stentor_control::Options::default(),
            driver: DriverChoice::default(),
            history: HistoryLimits {
                publications_max: 0,
                bytes_max: 1 << 20,
                age_max: Duration::from_secs(300),
            },
            recovery: Recovery { age_max: Duration::ZERO, ..Recovery::default() },
            rule: stentor_edge::Rule::default(),
            sockjs: SockJs::at(""),
            upstream: UpstreamOptions::default(),
        }
    }
}

impl Options {
    /// The options of a configuration that was loaded.
    pub(crate) fn of(config: &Config) -> Self {
        let mut options = Self::default();
        config.once().for_each(|section| section.store(&mut options));
        let Self { edge, control, history, recovery, .. } = &mut options;
        if history.publications_max > 0 {
            // The empty prefix: every room.
            edge.rooms.history = vec![(String::new(), *history)];
        }
        edge.engine.recovery = (!recovery.age_max.is_zero()).then_some(*recovery);
        // Primus's clients disconnect 45 s after a ping, so the default is the longest interval.
        edge.primus.ping_interval = edge.primus.ping_interval.min(edge.heartbeat.interval);
        edge.rooms.rules = config.rules.iter().map(rule).collect();
        if !config.sockjs.is_empty() {
            edge.sockjs = config.sockjs.iter().map(|prefix| Self::of_one(prefix).sockjs).collect();
        }
        let (pushed, fetched): (Vec<_>, Vec<_>) = config.feeds.iter().partition(|feed| feed.push);
        control.feeds.upstreams = fetched.into_iter().map(|feed| Self::of_one(feed).upstream).collect();
        let keys = |feed: &Feed| PushedKeys { prefix: feed.prefix.clone(), key: feed.key.clone() };
        control.feeds.pushed = pushed.into_iter().map(keys).collect();
        control.admin.shutdown_timeout = ADMIN_SHUTDOWN_TIMEOUT;
        options
    }

    /// The defaults, and what this section sets.
    pub(crate) fn of_one(section: &dyn Section) -> Self {
        let mut options = Self::default();
        section.store(&mut options);
        options
    }
}

fn rule(rule: &Rule) -> stentor_edge::Rule {
    let broadcast_all = rule.broadcast.iter().any(|room| room == "*");
    stentor_edge::Rule { broadcast_all, ..Options::of_one(rule).rule }
}

/// A field that a setting of the type `S` sets.
pub(crate) trait Field<S> {
    fn store(&mut self, setting: &S);
}

/// A field whose value is the default of a setting of the type `S`.
pub(crate) trait Source<S> {
    fn load(&self) -> S;
}

impl<S: Setting + Clone> Field<S> for S {
    fn store(&mut self, setting: &S) {
        self.clone_from(setting);
    }
}

impl<S: Setting + Clone> Source<S> for S {
    fn load(&self) -> S {
        self.clone()
    }
}

/// Declares the type of a setting, the type of its field, the way to the field, and the way back for the default.
macro_rules! fields {
    ($($setting:ty => $field:ty: $value:ident -> $store:expr $(, $default:ident -> $load:expr)?;)+) => {$(
        impl Field<$setting> for $field {
            fn store(&mut self, $value: &$setting) {
                *self = $store;
            }
        }

        $(impl Source<$setting> for $field {
            fn load(&self) -> $setting {
                let $default = self;
                $load
            }
        })?
    )+};
}

// Whether texts are valid was checked when the configuration was loaded; so were the ranges of numbers.
fields! {
    Bytes => usize: bytes -> bytes.0, n -> Bytes(*n);
    usize => u32: n -> u32::try_from(*n).unwrap_or(u32::MAX), n -> *n as usize;
    usize => u8: n -> u8::try_from(*n).unwrap_or(u8::MAX), n -> usize::from(*n);
    String => Option<String>: text -> some(text), text -> text.clone().unwrap_or_default();
    String => Option<PathBuf>: text -> some(text).map(PathBuf::from),
        path -> path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    Token => Option<String>: token -> token.0.as_ref().map(|token| token.reveal().into()),
        token -> Token(token.clone().map(Secret::new));
    Headers => Vec<(String, String)>:
        headers -> headers.0.iter().map(|(name, value)| (name.clone(), value.reveal().into())).collect(),
        headers -> Headers(headers.iter().map(|(name, value)| (name.clone(), Secret::new(value.clone()))).collect());
    PrefixApp => Option<App>:
        app -> match app {
            PrefixApp::Same => None,
            PrefixApp::Rooms => Some(App::Rooms),
            PrefixApp::Echo => Some(App::Echo),
            PrefixApp::Chat => Some(App::Chat),
        },
        app -> match app {
            None => PrefixApp::Same,
            Some(App::Rooms) => PrefixApp::Rooms,
            Some(App::Echo) => PrefixApp::Echo,
            Some(App::Chat) => PrefixApp::Chat,
        };
    Vec<EndSignal> => bool: signals -> signals.contains(&EndSignal::MaxAgeZero),
        ends -> ends.then_some(EndSignal::MaxAgeZero).into_iter().collect();
    Vec<String> => Hosts: names -> Hosts::parse(names).unwrap_or_default();
    Vec<Origin> => Origins:
        origins -> Origins::parse(&origins.iter().map(Origin::as_str).collect::<Vec<_>>()).unwrap_or_default();
    Vec<String> => Vec<Template>: texts -> texts.iter().filter_map(|text| Template::parse(text).ok()).collect();
}

/// A text; none if it is empty.
fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::schema;
    use crate::config::{Sources, file, sections};

    /// Keys that set no option: the binary reads them itself.
    const WITHOUT_OPTION: [&str; 3] = ["log", "log_level", "shutdown_timeout"];

    /// Several keys may set the same field, and a key may have a default of its own: all are those of the options.
    #[test]
    fn the_defaults_are_those_of_the_options() {
        let mut expect = Options::default();
        expect.control.admin.shutdown_timeout = ADMIN_SHUTDOWN_TIMEOUT;
        expect.edge.primus.ping_interval = expect.edge.heartbeat.interval;
        assert_eq!(format!("{:?}", Options::of(&Config::default())), format!("{expect:?}"));
        let repeated: [&dyn Section; 3] =
            [&schema::Rule::default(), &schema::SockJs::default(), &schema::Feed::default()];
        for section in repeated {
            let found = format!("{:?}", Options::of_one(section));
            assert_eq!(found, format!("{:?}", Options::default()), "{}", section.name());
        }
    }

    #[test]
    fn the_size_of_messages_is_limited_on_both_ports() {
        let mut config = Config::default();
        config.limits.message_bytes_max = Bytes(7);
        let options = Options::of(&config);
        assert_eq!((options.edge.limits.message_bytes_max, options.control.admin.message_bytes_max), (7, 7));
    }

    /// The options with this file, or `None` if the types or ranges of its values are wrong.
    fn options(file: &str) -> Option<String> {
        let mut sources = Sources::default();
        file::apply(&mut sources, "stentor.toml", file);
        sources.problems.is_empty().then(|| format!("{:?}", Options::of(&sources.config)))
    }

    /// Keys that a section needs to have any effect.
    fn needed(section: &str) -> &'static [&'static str] {
        match section {
            "feeds" => &["name = \"a\"", "url = \"http://a\""],
            "rules" => &["event = \"a\""],
            "sockjs" => &["prefix = \"/a\""],
            "socketio" => &["recovery_ttl = \"1s\""],
            "rooms" => &["history_length = 1"],
            _ => &[],
        }
    }

    /// For each key there is a value that changes the options.
    #[test]
    fn every_key_reaches_the_options() {
        for section in sections() {
            for key in &section.keys {
                let mut lines = vec![section.bracketed()];
                let others = needed(section.name).iter().filter(|line| !line.starts_with(key.name));
                lines.extend(others.map(|line| (*line).to_owned()));
                let with = |value: &str| options(&format!("{}\n{} = {value}", lines.join("\n"), key.name));
                // Secrets don't show their default, which is none; required keys have none.
                let mut found: Vec<_> = with(&key.default).into_iter().collect();
                let range = key.range.iter().flat_map(|range| range.split(" to ")).filter_map(with);
                let words = key.unit.split('`').filter_map(|word| with(&format!("{word:?}")));
                let values =
                    ["true", "false", "[\"a\"]", "[\"max-age=0\"]", "{ a = \"b\" }", "{ a = \"c\" }"];
                let texts = ["\"127.0.0.1:9\"", "[\"https://a.example\"]", "[]"];
                let tokens = ["\"0123456789abcdef\"", "\"0123456789ABCDEF\""];
                found.extend(range.chain(words));
                found.extend(values.into_iter().chain(texts).chain(tokens).filter_map(with));
                let is_option = found.iter().any(|options| *options != found[0]);
                let expect = !WITHOUT_OPTION.contains(&key.name);
                assert_eq!(is_option, expect, "{} in {}", key.name, section.bracketed());
            }
        }
    }
}
