//! The options that the configuration's keys set. A key's default is the default of its field.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use stentor_cluster_settings::{Adapter, Address, ClassicParser, SubscriptionMode};
use stentor_control::{AuthOptions, HookOptions, IssuerOptions, UpstreamOptions};
use stentor_edge::{CertificateFiles, DriverChoice, ListenerOptions, Recovery, SockJs, TlsOptions};
use stentor_hub::HistoryLimits;
use stentor_link::ApplicationOptions;
use stentor_workers::{AppOptions, RecoveryOptions};

/// The options of `[cluster]`.
#[cfg_attr(test, derive(Debug))]
pub(crate) struct ClusterOptions {
    /// The engine. `None` for a single node.
    pub(crate) engine: Option<Address>,
    pub(crate) node: Option<String>,
    pub(crate) secret: Option<String>,
    pub(crate) listen: SocketAddr,
    pub(crate) advertise: Option<String>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) certificate_file: Option<PathBuf>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) credentials_file: Option<PathBuf>,
    pub(crate) prefix: String,
    pub(crate) wait: bool,
    /// Time after which a node without its engine isn't ready. Zero disables this.
    pub(crate) unready_after: Duration,
    pub(crate) vacant_rooms_max: usize,
    /// The options of all `[[cluster.socketio]]`.
    pub(crate) bridges: Vec<BridgeOptions>,
}

/// The options of one `[[cluster.socketio]]`.
#[cfg_attr(test, derive(Debug))]
pub(crate) struct BridgeOptions {
    /// The Redis URL. `None` means the cluster's engine.
    pub(crate) url: Option<Address>,
    pub(crate) prefix: Option<String>,
    pub(crate) namespaces: Vec<String>,
    pub(crate) adapter: Adapter,
    pub(crate) mode: SubscriptionMode,
    pub(crate) parser: ClassicParser,
}

/// The options of one `[[links]]`.
#[cfg_attr(test, derive(Debug))]
pub(crate) struct LinkOptions {
    pub(crate) app: String,
    /// Path of the application's clients. Empty: that of the workers.
    pub(crate) path: String,
    /// A token beside that of the admin port. Empty without one.
    pub(crate) token: String,
    /// `true` if the workers' HTTP servers answer requests for other paths.
    pub(crate) http: bool,
    pub(crate) http_connections_max: usize,
    pub(crate) queue_bytes_max: usize,
    pub(crate) application: ApplicationOptions,
    pub(crate) recovery: RecoveryOptions,
}

/// All options that keys set. Only tests have a `Debug` implementation, because the options contain secrets.
#[cfg_attr(test, derive(Debug))]
pub(crate) struct Options {
    pub(crate) edge: stentor_edge::Options,
    pub(crate) control: stentor_control::Options,
    pub(crate) driver: DriverChoice,
    /// The options of all `[[tls]]`.
    pub(crate) tls: TlsOptions,
    /// The options of one `[[tls]]`.
    pub(crate) certificate: CertificateFiles,
    /// The options of `[admin_tls]`. Empty without this section.
    pub(crate) admin_certificate: CertificateFiles,
    /// The options of one `[[listeners]]`.
    pub(crate) listener: ListenerOptions,
    pub(crate) cluster: ClusterOptions,
    /// The options of one `[[cluster.socketio]]`.
    pub(crate) bridge: BridgeOptions,
    /// The options of `[auth]`.
    pub(crate) auth: AuthOptions,
    /// The options of one `[[auth.issuers]]`.
    pub(crate) issuer: IssuerOptions,
    /// The history of every room.
    pub(crate) history: HistoryLimits,
    /// The options of Socket.IO's connection state recovery. It is enabled if `age_max` isn't zero.
    pub(crate) recovery: Recovery,
    /// The options of one `[[rules]]`.
    pub(crate) rule: stentor_edge::Rule,
    /// The options of one `[[sockjs]]`.
    pub(crate) sockjs: SockJs,
    /// The options of one `[[feeds]]`.
    pub(crate) upstream: UpstreamOptions,
    /// The options of one `[[hooks]]`.
    pub(crate) hook: HookOptions,
    /// The options of all `[[hooks]]`.
    pub(crate) hooks: Vec<HookOptions>,
    /// The options of one `[[links]]`.
    pub(crate) link: LinkOptions,
    /// The options of all `[[links]]`.
    pub(crate) links: Vec<LinkOptions>,
}

impl Options {
    /// Returns the TLS options of the admin port. `None` if it uses plain HTTP.
    pub(crate) fn admin_tls(&self) -> Option<TlsOptions> {
        let files = &self.admin_certificate;
        let has_any = *files != CertificateFiles::default();
        has_any.then(|| TlsOptions { certificates: vec![files.clone()], ticket_secret_file: None })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            edge: stentor_edge::Options::default(),
            control: stentor_control::Options::default(),
            driver: DriverChoice::default(),
            tls: TlsOptions::default(),
            certificate: CertificateFiles::default(),
            admin_certificate: CertificateFiles::default(),
            listener: ListenerOptions::default(),
            cluster: ClusterOptions {
                engine: None,
                node: None,
                secret: None,
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                advertise: None,
                ca_file: None,
                certificate_file: None,
                key_file: None,
                credentials_file: None,
                prefix: "stentor:".into(),
                wait: false,
                unready_after: Duration::ZERO,
                vacant_rooms_max: 100_000,
                bridges: Vec::new(),
            },
            bridge: BridgeOptions {
                url: None,
                prefix: None,
                namespaces: vec!["/".into()],
                adapter: Adapter::default(),
                mode: SubscriptionMode::default(),
                parser: ClassicParser::default(),
            },
            auth: AuthOptions::default(),
            issuer: IssuerOptions::default(),
            history: HistoryLimits {
                publications_max: 0,
                bytes_max: 1 << 20,
                age_max: Duration::from_secs(300),
            },
            recovery: Recovery { age_max: Duration::ZERO, ..Recovery::default() },
            rule: stentor_edge::Rule::default(),
            sockjs: SockJs::at(""),
            upstream: UpstreamOptions::default(),
            hook: HookOptions::default(),
            hooks: Vec::new(),
            link: LinkOptions {
                app: String::new(),
                path: String::new(),
                token: String::new(),
                http: false,
                http_connections_max: 1_000,
                queue_bytes_max: AppOptions::default().queue_bytes_max,
                application: ApplicationOptions::default(),
                recovery: RecoveryOptions::default(),
            },
            links: Vec::new(),
        }
    }
}
