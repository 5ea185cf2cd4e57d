//! The configuration: TOML file, environment, command line.
//!
//! A flag wins over the environment, which wins over the file, which wins over the default. The keys are
//! declared in [`schema`], once; [`mod@file`] and [`environment`] read them, [`rules`] checks what concerns
//! several of them, [`mod@reference`] writes docs/configuration.md.
//!
//! All mistakes are reported at once, each with its place, except that a file which isn't TOML is only
//! told so. It deliberately doesn't use serde: that stops at the first mistake and can't say where a
//! value came from.
//!
//! Invariant: a [`Config`] that [`Sources::load`] returned has every value within its range.

mod environment;
mod file;
mod nearest;
pub(crate) mod reference;
mod rules;
pub(crate) mod schema;
pub(crate) mod section;
pub(crate) mod value;

#[cfg(test)]
mod tests;

pub(crate) use self::environment::CONFIG_FILE as CONFIG_VARIABLE;

use self::schema::{
    AdminLimits, Deflate, Feed, FeedsLimits, Heartbeat, Limits, Origins, Rooms, Rule, Server, SockJs,
    SocketIo,
};
use self::section::{KeyInfo, Section};
use self::value::Raw;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;

/// Everything that can be configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Config {
    pub(crate) server: Server,
    pub(crate) origins: Origins,
    pub(crate) limits: Limits,
    pub(crate) admin_limits: AdminLimits,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) rooms: Rooms,
    pub(crate) socketio: SocketIo,
    pub(crate) rules: Vec<Rule>,
    pub(crate) sockjs: Vec<SockJs>,
    pub(crate) deflate: Deflate,
    pub(crate) feeds: Vec<Feed>,
    pub(crate) feeds_limits: FeedsLimits,
}

/// Does `$body` with a reference to each section that exists once, as `$section`.
macro_rules! each_section {
    ($config:expr, [$($reference:tt)+], $section:ident => $body:expr) => {{
        { let $section = $($reference)+ $config.server; $body }
        { let $section = $($reference)+ $config.origins; $body }
        { let $section = $($reference)+ $config.limits; $body }
        { let $section = $($reference)+ $config.admin_limits; $body }
        { let $section = $($reference)+ $config.heartbeat; $body }
        { let $section = $($reference)+ $config.rooms; $body }
        { let $section = $($reference)+ $config.socketio; $body }
        { let $section = $($reference)+ $config.deflate; $body }
        { let $section = $($reference)+ $config.feeds_limits; $body }
    }};
}

/// A section as the reference shows it.
pub(crate) struct SectionInfo {
    pub(crate) name: &'static str,
    pub(crate) doc: String,
    pub(crate) keys: Vec<KeyInfo>,
    /// Whether it may be there several times.
    pub(crate) repeated: bool,
}

impl SectionInfo {
    fn of<S: Section>(repeated: bool) -> Self {
        Self { name: S::NAME, doc: S::doc(), keys: S::keys(), repeated }
    }
}

/// All sections, in the order of the reference.
pub(crate) fn sections() -> Vec<SectionInfo> {
    vec![
        SectionInfo::of::<Server>(false),
        SectionInfo::of::<Origins>(false),
        SectionInfo::of::<Limits>(false),
        SectionInfo::of::<AdminLimits>(false),
        SectionInfo::of::<Heartbeat>(false),
        SectionInfo::of::<Rooms>(false),
        SectionInfo::of::<SocketIo>(false),
        SectionInfo::of::<Rule>(true),
        SectionInfo::of::<SockJs>(true),
        SectionInfo::of::<Deflate>(false),
        SectionInfo::of::<Feed>(true),
        SectionInfo::of::<FeedsLimits>(false),
    ]
}

impl Config {
    /// Sets a key of a section that exists once. `None`: there is no such key.
    fn set(&mut self, section: &str, key: &str, raw: Raw<'_>) -> Option<Result<(), String>> {
        fn set_in<S: Section>(
            target: &mut S,
            section: &str,
            key: &str,
            raw: Raw<'_>,
        ) -> Option<Result<(), String>> {
            if S::NAME == section { target.set(key, raw) } else { None }
        }
        let mut found = None;
        each_section!(self, [&mut], target => found = found.take().or_else(|| set_in(target, section, key, raw)));
        found
    }

    /// Values of the sections that exist once: section, key, as the file would say it.
    fn show(&self) -> Vec<(&'static str, &'static str, String)> {
        fn rows<S: Section>(section: &S) -> impl Iterator<Item = (&'static str, &'static str, String)> {
            section.show().into_iter().map(|(key, value)| (S::NAME, key, value))
        }
        let mut all = Vec::new();
        each_section!(self, [&], section => all.extend(rows(section)));
        all
    }

    /// What differs from the defaults, repeated sections apart: section, key, value.
    pub(crate) fn changed(&self) -> Vec<(&'static str, &'static str, String)> {
        let defaults = Self::default().show();
        self.show().into_iter().filter(|row| !defaults.contains(row)).collect()
    }
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the file, at this line (from 1).
    Line(String, usize),
    /// In the file, anywhere.
    File(String),
    /// In the environment.
    Variable(String),
    /// On the command line.
    Flag(&'static str),
    /// Nowhere: the default.
    Default,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(file, line) => write!(f, "{file}:{line}: "),
            Self::File(file) => write!(f, "{file}: "),
            Self::Variable(name) => write!(f, "{name}: "),
            Self::Flag(flag) => write!(f, "{flag}: "),
            Self::Default => Ok(()),
        }
    }
}

/// A mistake in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Where.
    pub(crate) place: Place,
    /// What, and what to write instead where that is known.
    pub(crate) text: String,
}

impl Problem {
    fn new(place: Place, text: impl Into<String>) -> Self {
        Self { place, text: text.into() }
    }
}

/// Everything that is wrong, never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.0.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{}{}", problem.place, problem.text)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// What the command line says about the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) listen: Option<std::net::SocketAddr>,
    pub(crate) admin: Option<std::net::SocketAddr>,
    pub(crate) cores: Option<usize>,
    pub(crate) driver: Option<schema::Driver>,
    pub(crate) app: Option<schema::App>,
    pub(crate) log: Option<schema::LogFormat>,
}

/// A configuration being put together.
#[derive(Default)]
pub(crate) struct Sources {
    config: Config,
    /// Where the keys that were set were set; a feed's section is `feeds[N]`, its line that of its head.
    places: HashMap<(String, &'static str), Place>,
    problems: Vec<Problem>,
    /// The environment, where it was read: headers may name its variables.
    variables: Option<HashMap<String, String>>,
    /// What isn't wrong, but likely not meant.
    warnings: Vec<String>,
}

impl Sources {
    /// Begins with a configuration that was put together by the program.
    pub(crate) fn from_config(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// Reads the file at `path`.
    pub(crate) fn file(mut self, path: &Path) -> Self {
        let name = path.display().to_string();
        match file::read(path) {
            Ok(text) => file::apply(&mut self, &name, &text),
            Err(text) => self.problem(Place::File(name), text),
        }
        self
    }

    /// Reads a file that is compiled in.
    pub(crate) fn text(mut self, name: &str, text: &str) -> Self {
        file::apply(&mut self, name, text);
        self
    }

    /// Takes the variables that begin with [`environment::PREFIX`], and remembers all for headers that name them.
    pub(crate) fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let variables: HashMap<_, _> = variables.into_iter().collect();
        environment::apply(&mut self, variables.clone());
        self.variables = Some(variables);
        self
    }

    /// Takes the flags.
    pub(crate) fn flags(mut self, flags: &Flags) -> Self {
        macro_rules! take {
            ($($key:ident $flag:literal),+) => {
                $(if let Some(value) = flags.$key {
                    self.config.server.$key = value;
                    self.places.insert(("server".into(), stringify!($key)), Place::Flag($flag));
                })+
            };
        }
        take!(listen "--listen", admin "--admin", driver "--driver", app "--app", log "--log");
        // The one flag whose type doesn't bound it.
        if let Some(cores) = flags.cores {
            let place = Place::Flag("--cores");
            match self.config.set("server", "cores", Raw::Text(&cores.to_string())) {
                Some(Err(text)) => self.problem(place, text),
                _ => _ = self.places.insert(("server".into(), "cores"), place),
            }
        }
        self
    }

    /// The configuration and its warnings, or everything that is wrong with it.
    pub(crate) fn load(mut self) -> Result<(Config, Vec<String>), Problems> {
        rules::check(&mut self);
        if self.problems.is_empty()
            && let Err(error) = crate::wiring::validate(&self.config)
        {
            // What only the planes know, for example whether a file that is named can be read.
            self.problem(Place::Default, error.to_string());
        }
        if self.problems.is_empty() {
            return Ok((self.config, self.warnings));
        }
        self.problems.sort_by_key(|problem| match problem.place {
            Place::Line(_, line) => line,
            _ => usize::MAX,
        });
        Err(Problems(self.problems))
    }

    fn problem(&mut self, place: Place, text: impl Into<String>) {
        self.problems.push(Problem::new(place, text));
    }

    /// Where a key was set.
    fn place(&self, section: &str, key: &'static str) -> Place {
        self.places.get(&(section.into(), key)).cloned().unwrap_or(Place::Default)
    }
}
