//! The kernel's own sections of `mgp.toml`, with their defaults.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mgp_engine::calls::rates::RateRules;
use mgp_engine::policy::permissions::PermissionRules;
use mgp_engine::policy::pins::PinMode;
use mgp_engine::policy::requirements::ToolRules;
use mgp_engine::servers::health::HealthRules;
use mgp_engine::servers::sandbox;
use mgp_engine::servers::spec::ServerLimits;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::access::DefaultPolicy;
use mgp_transports::http::door_tls::TlsFiles;
use toml::Spanned;
use tracing::level_filters::LevelFilter;

use super::Env;
use super::audit::Audit;
use super::discovery::Discovery;
use super::oauth::OAuth;
use super::permissions::{read_permissions, read_pins};
use super::sandbox::read_sandbox;
use super::section::Section;
use super::server::read_limits;
use super::tools::{read_confirmation, read_validation};

/// Everything in the configuration that is not a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelConfig {
    /// `[http]`: the HTTP door.
    pub http: Http,
    /// `[oauth]`: whose tokens open the HTTP door.
    pub oauth: OAuth,
    /// `[socket]`: the owner's door.
    pub socket: Socket,
    /// `[data]`: what lasts.
    pub data: DataFolder,
    /// `[streams]`: event streams of the HTTP door.
    pub streams: Streams,
    /// `[questions]`: what servers ask of the people behind agents.
    pub questions: Questions,
    /// `[lists]`: the merged lists.
    pub lists: Lists,
    /// `[health]`: how often servers are asked how they are.
    pub health: HealthRules,
    /// `[audit]`: what was done, written down.
    pub audit: Audit,
    /// `[access]`: who may call what.
    pub access: Access,
    /// `[log]`: what the kernel writes to stderr.
    pub log: Log,
    /// `[limits]`: what holds for a server whose entry says nothing else.
    pub limits: ServerLimits,
    /// `[limits]`: how many calls an agent may make.
    pub rates: RateRules,
    /// `[validation]`: what holds for the tools of all servers.
    pub tools: ToolRules,
    /// `[confirmation]`: a person's yes to dangerous calls.
    pub confirmation: Confirmation,
    /// `[permissions]`: how permissions of servers are decided.
    pub permissions: PermissionRules,
    /// `[pins]`: what a changed tool comes to.
    pub pin: PinMode,
    /// `[sandbox]`: the walls around servers that are trusted least.
    pub sandbox: sandbox::SandboxRules,
    /// `[discovery]`: how tools are found.
    pub discovery: Discovery,
}

/// `[http]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Whether there is an HTTP door at all.
    pub enabled: bool,
    /// Where it listens; on loopback, unless there is TLS.
    pub listen: SocketAddr,
    /// `[http.tls]`: the door's certificate, and whose certificates it takes.
    pub tls: Option<TlsFiles>,
    /// How callers show who they are.
    pub auth: Auth,
    /// `Host` headers accepted beside those of the listen address.
    pub allowed_hosts: Vec<String>,
    /// `Origin` headers accepted beside those of the listen address.
    pub allowed_origins: Vec<String>,
    /// Legacy sessions open at once; one more is refused.
    pub max_sessions: usize,
    /// A session nobody uses for this long is ended.
    pub session_idle: Duration,
    /// Bytes of messages of agents under way, half sent or being answered, in all; a quarter of them for
    /// one agent.
    pub max_bodies: u64,
}

/// `[http] auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// A bearer token that the kernel gave out.
    Token,
    /// A bearer token that the issuer of `[oauth]` gave out.
    OAuth,
    /// Nothing: every caller is `agent.anonymous`.
    None,
}

/// `[socket]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Socket {
    /// Where the socket is; `None` for the runtime folder.
    pub path: Option<PathBuf>,
    /// Other users of this machine, by name or number, and the agents they are.
    pub users: BTreeMap<String, AgentId>,
}

/// `[data]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataFolder {
    /// Where the kernel keeps what lasts; `None` for the user's data folder.
    pub dir: Option<PathBuf>,
}

/// `[streams]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streams {
    /// Events kept for each stream, to resume it from.
    pub replay_events: usize,
    /// A call without answer for this long gets an event stream, which can be resumed.
    pub stream_after: Duration,
    /// The stream of a call is let go after this long, for the client to come back for the answer;
    /// zero keeps it open.
    pub poll_after: Duration,
}

/// `[questions]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Questions {
    /// How long a stateless client may take to come back with what a server asked; then its call is
    /// taken back.
    pub answer_timeout: Duration,
}

/// `[lists]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    /// Entries on one page of a list.
    pub page_size: usize,
}

/// `[confirmation]`, but for whether there is any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// Moderate tools, too, need a yes where nobody granted them.
    pub moderate: bool,
    /// A question is open this long.
    pub timeout: Duration,
    /// Where the caller cannot be asked, the operator is.
    pub operator_queue: bool,
}

impl Default for Confirmation {
    fn default() -> Self {
        Self {
            moderate: false,
            timeout: Duration::from_secs(300),
            operator_queue: true,
        }
    }
}

/// `[access]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// What holds where nothing was granted or denied.
    pub default_policy: DefaultPolicy,
    /// Whether an agent that agreed to `access_control` is told that a tool is denied to it.
    pub reveal: bool,
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The least severe level written.
    pub level: LevelFilter,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7332)),
            tls: None,
            auth: Auth::Token,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_sessions: 10_000,
            session_idle: Duration::from_secs(1800),
            // Sixteen of the longest messages, four of one agent.
            max_bodies: 128 << 20,
        }
    }
}

impl Streams {
    /// Most events kept for one stream: memory is this times the size of an event, for each stream.
    pub const MOST_REPLAY_EVENTS: u64 = 65_536;
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            replay_events: 256,
            stream_after: Duration::from_millis(50),
            poll_after: Duration::ZERO,
        }
    }
}

impl Default for Questions {
    fn default() -> Self {
        Self {
            answer_timeout: Duration::from_secs(600),
        }
    }
}

impl Default for Lists {
    fn default() -> Self {
        Self { page_size: 1000 }
    }
}

impl Default for Access {
    fn default() -> Self {
        Self {
            default_policy: DefaultPolicy::OptOut,
            reveal: true,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: LevelFilter::INFO,
        }
    }
}

const DAY: u64 = 86_400;

/// More refusals than a kernel can write down in a second.
const MOST_REFUSALS: u64 = 1_000_000;

/// More calls than a kernel can make in a day.
const MOST_CALLS: u64 = 1_000_000_000_000;

impl KernelConfig {
    /// Takes over what the file says; `folder` is the file's, for relative paths.
    pub(super) fn read(&mut self, root: &mut Section<'_, '_, '_>, folder: &Path, env: &Env<'_>) {
        self.http.read(root.own("http"), folder);
        let wanted = self.http.auth == Auth::OAuth;
        self.oauth.read(root.own("oauth"), wanted, folder);
        self.socket.read(root.own("socket"), folder);
        let mut data = root.own("data");
        read_path(&mut data, "dir", folder, &mut self.data.dir);
        data.finish();
        self.streams.read(root.own("streams"));
        self.questions.read(root.own("questions"));
        self.lists.read(root.own("lists"));
        read_health(root.own("health"), &mut self.health);
        self.audit.read(root.own("audit"));
        self.access.read(root.own("access"));
        self.log.read(root.own("log"));
        let mut limits = root.own("limits");
        read_limits(&mut limits, &mut self.limits);
        let rates = &mut self.rates;
        limits.count(
            "agent_calls_per_minute",
            0..=MOST_CALLS,
            &mut rates.per_minute,
        );
        limits.count("agent_calls_per_day", 0..=MOST_CALLS, &mut rates.per_day);
        limits.count(
            "agent_refusals_per_second",
            0..=MOST_REFUSALS,
            &mut rates.refusals,
        );
        limits.finish();
        read_validation(root.own("validation"), folder, &mut self.tools);
        let confirmation = root.own("confirmation");
        read_confirmation(confirmation, &mut self.tools, &mut self.confirmation);
        read_permissions(root.own("permissions"), &mut self.permissions);
        read_pins(root.own("pins"), &mut self.pin);
        read_sandbox(root.own("sandbox"), &mut self.sandbox);
        self.discovery.read(root.own("discovery"), folder, env);
    }
}

fn read_path(
    section: &mut Section<'_, '_, '_>,
    key: &'static str,
    folder: &Path,
    into: &mut Option<PathBuf>,
) {
    match section.text(key) {
        Some(text) if text.get_ref().is_empty() => {
            section.refuse(
                text.span(),
                format!("`{key}` in {} is empty", section.name()),
            );
        }
        Some(text) => *into = Some(folder.join(text.get_ref())),
        None => {}
    }
}

impl Socket {
    fn read(&mut self, mut section: Section<'_, '_, '_>, folder: &Path) {
        read_path(&mut section, "path", folder, &mut self.path);
        for (user, agent) in section.text_map("users") {
            match AgentId::parse(agent.get_ref()) {
                Ok(id) => drop(self.users.insert(user.to_owned(), id)),
                Err(why) => {
                    section.refuse(agent.span(), format!("`users.{user}` in [socket]: {why}"))
                }
            }
        }
        section.finish();
    }
}

impl Http {
    fn read(&mut self, mut section: Section<'_, '_, '_>, folder: &Path) {
        section.flag("enabled", &mut self.enabled);
        let auths = [
            ("token", Auth::Token),
            ("oauth", Auth::OAuth),
            ("none", Auth::None),
        ];
        section.choice("auth", &auths, &mut self.auth);
        super::tls::read(section.inner("tls", "http.tls"), folder, &mut self.tls);
        // Judged though it does not stand in this file: the other one may have changed what it needs.
        let text = section.text("listen");
        let address = text.as_ref().map_or(Ok(self.listen), listen_address);
        match address.and_then(|address| self.may_listen(address)) {
            Ok(address) => self.listen = address,
            Err(message) => {
                let span = text.map_or_else(|| section.whole(), |text| text.span());
                section.refuse(span, message);
            }
        }
        section.strings("allowed_hosts", &mut self.allowed_hosts);
        section.strings("allowed_origins", &mut self.allowed_origins);
        section.count("max_sessions", 1..=65_536, &mut self.max_sessions);
        section.secs("session_idle_secs", 10..=30 * DAY, &mut self.session_idle);
        // Below it an agent could not send one of the longest messages.
        section.count("max_bodies_bytes", 32 << 20..=1 << 40, &mut self.max_bodies);
        section.finish();
    }

    /// Refuses to let other machines in without TLS, or without asking who they are (MCP-082).
    fn may_listen(&self, address: SocketAddr) -> Result<SocketAddr, String> {
        let reached = format!("`listen` in [http] is {address}, which other machines can reach;");
        let clients = self.tls.as_ref().map(|papers| papers.clients.as_ref());
        match (address.ip().is_loopback(), clients, self.auth) {
            (true, _, _) | (false, Some(_), Auth::Token | Auth::OAuth) => Ok(address),
            (false, Some(Some(clients)), Auth::None) if clients.required => Ok(address),
            (false, Some(_), Auth::None) => Err(format!(
                "{reached} with `auth` = \"none\" every one of them could call. Set `auth` to \
                 \"token\" or \"oauth\", or name a `client_ca` in [http.tls]"
            )),
            (false, None, _) => Err(format!(
                "{reached} without TLS every token and every answer would cross the network in the \
                 clear. Give the door a `cert` and a `key` in [http.tls], or listen on 127.0.0.1 or [::1]"
            )),
        }
    }
}

/// Reads `http.listen`.
fn listen_address(text: &Spanned<&str>) -> Result<SocketAddr, String> {
    let text = *text.get_ref();
    let numbers = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numbers.parse().map_err(|_| {
        "`listen` in [http] wants an address and a port, like 127.0.0.1:7332 or [::1]:7332"
            .to_owned()
    })
}

impl Streams {
    fn read(&mut self, mut section: Section<'_, '_, '_>) {
        section.count(
            "replay_events",
            0..=Self::MOST_REPLAY_EVENTS,
            &mut self.replay_events,
        );
        section.millis("stream_after_ms", 1..=DAY * 1000, &mut self.stream_after);
        section.millis("poll_after_ms", 0..=DAY * 1000, &mut self.poll_after);
        section.finish();
    }
}

impl Questions {
    fn read(&mut self, mut section: Section<'_, '_, '_>) {
        section.secs("answer_timeout_secs", 1..=DAY, &mut self.answer_timeout);
        section.finish();
    }
}

impl Lists {
    fn read(&mut self, mut section: Section<'_, '_, '_>) {
        section.count("page_size", 1..=10_000, &mut self.page_size);
        section.finish();
    }
}

fn read_health(mut section: Section<'_, '_, '_>, rules: &mut HealthRules) {
    section.secs("interval_secs", 0..=DAY, &mut rules.interval);
    section.count("misses", 1..=100, &mut rules.misses);
    section.finish();
}

impl Access {
    fn read(&mut self, mut section: Section<'_, '_, '_>) {
        section.choice("default_policy", &POLICIES, &mut self.default_policy);
        section.flag("reveal", &mut self.reveal);
        section.finish();
    }
}

/// `default_policy`, here and in a server's entry.
pub(super) const POLICIES: [(&str, DefaultPolicy); 2] = [
    ("opt-out", DefaultPolicy::OptOut),
    ("opt-in", DefaultPolicy::OptIn),
];

impl Log {
    fn read(&mut self, mut section: Section<'_, '_, '_>) {
        let levels = [
            ("off", LevelFilter::OFF),
            ("error", LevelFilter::ERROR),
            ("warn", LevelFilter::WARN),
            ("info", LevelFilter::INFO),
            ("debug", LevelFilter::DEBUG),
            ("trace", LevelFilter::TRACE),
        ];
        section.choice("level", &levels, &mut self.level);
        section.finish();
    }
}
