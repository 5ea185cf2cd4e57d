//! The options that the configuration's keys set. A key's default is the default of its field.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use stentor_cluster_settings::{Adapter, Address, ClassicParser, SubscriptionMode};
use stentor_control::{AuthOptions, HookOptions, IssuerOptions, UpstreamOptions};
use stentor_edge::{CertificateFiles, DriverChoice, ListenerOptions, Recovery, SockJs, TlsOptions};
use stentor_hub::HistoryLimits;
use stentor_link::ApplicationOptions;
use stentor_ports::with_defaults;
use stentor_workers::{AppOptions, RecoveryOptions};

with_defaults! {
    /// The options of `[cluster]`.
    #[cfg_attr(test, derive(Debug))]
    pub(crate) struct ClusterOptions {
        /// The engine. `None` for a single node.
        pub(crate) engine: Option<Address> = None,
        pub(crate) node: Option<String> = None,
        pub(crate) secret: Option<String> = None,
        pub(crate) listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 0)),
        pub(crate) advertise: Option<String> = None,
        pub(crate) ca_file: Option<PathBuf> = None,
        pub(crate) certificate_file: Option<PathBuf> = None,
        pub(crate) key_file: Option<PathBuf> = None,
        pub(crate) credentials_file: Option<PathBuf> = None,
        pub(crate) prefix: String = "stentor:".into(),
        pub(crate) wait: bool = false,
        /// Time after which a node without its engine isn't ready. Zero disables this.
        pub(crate) unready_after: Duration = Duration::ZERO,
        pub(crate) vacant_rooms_max: usize = 100_000,
        /// The options of all `[[cluster.socketio]]`.
        pub(crate) bridges: Vec<BridgeOptions> = Vec::new(),
    }

    /// The options of one `[[cluster.socketio]]`.
    #[cfg_attr(test, derive(Debug))]
    pub(crate) struct BridgeOptions {
        /// The Redis URL. `None` means the cluster's engine.
        pub(crate) url: Option<Address> = None,
        pub(crate) prefix: Option<String> = None,
        pub(crate) namespaces: Vec<String> = vec!["/".into()],
        pub(crate) adapter: Adapter = Adapter::default(),
        pub(crate) mode: SubscriptionMode = SubscriptionMode::default(),
        pub(crate) parser: ClassicParser = ClassicParser::default(),
    }

    /// The options of one `[[links]]`.
    #[cfg_attr(test, derive(Debug))]
    pub(crate) struct LinkOptions {
        pub(crate) app: String = String::new(),
        /// Path of the application's clients. Empty: that of the workers.
        pub(crate) path: String = String::new(),
        /// A token beside that of the admin port. Empty without one.
        pub(crate) token: String = String::new(),
        /// `true` if the workers' HTTP servers answer requests for other paths.
        pub(crate) http: bool = false,
        pub(crate) http_connections_max: usize = 1_000,
        pub(crate) queue_bytes_max: usize = AppOptions::default().queue_bytes_max,
        pub(crate) application: ApplicationOptions = ApplicationOptions::default(),
        pub(crate) recovery: RecoveryOptions = RecoveryOptions::default(),
    }

    /// All options that keys set. Only tests have a `Debug` implementation, because the options contain secrets.
    #[cfg_attr(test, derive(Debug))]
    pub(crate) struct Options {
        pub(crate) edge: stentor_edge::Options = stentor_edge::Options::default(),
        pub(crate) control: stentor_control::Options = stentor_control::Options::default(),
        pub(crate) driver: DriverChoice = DriverChoice::default(),
        /// The options of all `[[tls]]`.
        pub(crate) tls: TlsOptions = TlsOptions::default(),
        /// The options of one `[[tls]]`.
        pub(crate) certificate: CertificateFiles = CertificateFiles::default(),
        /// The options of `[admin_tls]`. Empty without this section.
        pub(crate) admin_certificate: CertificateFiles = CertificateFiles::default(),
        /// The options of one `[[listeners]]`.
        pub(crate) listener: ListenerOptions = ListenerOptions::default(),
        pub(crate) cluster: ClusterOptions = ClusterOptions::default(),
        /// The options of one `[[cluster.socketio]]`.
        pub(crate) bridge: BridgeOptions = BridgeOptions::default(),
        /// The options of `[auth]`.
        pub(crate) auth: AuthOptions = AuthOptions::default(),
        /// The options of one `[[auth.issuers]]`.
        pub(crate) issuer: IssuerOptions = IssuerOptions::default(),
        /// The history of every room.
        pub(crate) history: HistoryLimits = HistoryLimits {
            publications_max: 0,
            bytes_max: 1 << 20,
            age_max: Duration::from_secs(300),
        },
        /// The options of Socket.IO's connection state recovery. It is enabled if `age_max` isn't zero.
        pub(crate) recovery: Recovery = Recovery { age_max: Duration::ZERO, ..Recovery::default() },
        /// The options of one `[[rules]]`.
        pub(crate) rule: stentor_edge::Rule = stentor_edge::Rule::default(),
        /// The options of one `[[sockjs]]`.
        pub(crate) sockjs: SockJs = SockJs::at(""),
        /// The options of one `[[feeds]]`.
        pub(crate) upstream: UpstreamOptions = UpstreamOptions::default(),
        /// The options of one `[[hooks]]`.
        pub(crate) hook: HookOptions = HookOptions::default(),
        /// The options of all `[[hooks]]`.
        pub(crate) hooks: Vec<HookOptions> = Vec::new(),
        /// The options of one `[[links]]`.
        pub(crate) link: LinkOptions = LinkOptions::default(),
        /// The options of all `[[links]]`.
        pub(crate) links: Vec<LinkOptions> = Vec::new(),
    }
}

impl Options {
    /// Returns the TLS options of the admin port. `None` if it uses plain HTTP.
    pub(crate) fn admin_tls(&self) -> Option<TlsOptions> {
        let files = &self.admin_certificate;
        let has_any = *files != CertificateFiles::default();
        has_any.then(|| TlsOptions { certificates: vec![files.clone()], ticket_secret_file: None })
    }
}
