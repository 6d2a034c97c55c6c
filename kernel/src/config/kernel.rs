//! The kernel's own sections of `mgp.toml`, with their defaults.

use std::path::Path;

use mgp_engine::callers::agent_requests::RequestableAgents;
use mgp_engine::calls::rate_limits::RateLimits;
use mgp_engine::policy::access::ToolSets;
use mgp_engine::policy::permissions::PermissionRules;
use mgp_engine::policy::pins::PinRules;
use mgp_engine::policy::requirements::ToolRules;
use mgp_engine::servers::health::HealthCheckConfig;
use mgp_engine::servers::sandbox;
use mgp_engine::servers::spec::ServerLimits;
use mgp_mcpl_engine::rules::McplRules;

use super::parsing::{Env, SecretsConfig, Section};
use super::sections::agents::read_agents;
use super::sections::audit::AuditConfig;
use super::sections::cluster::ClusterConfig;
use super::sections::discovery::DiscoveryConfig;
use super::sections::http::lite::LiteConfig;
use super::sections::http::oauth::OAuthConfig;
use super::sections::http::telemetry::TelemetryConfig;
use super::sections::http::{HttpAuth, HttpConfig};
use super::sections::mcpl::read_mcpl;
use super::sections::network::NetworkConfig;
use super::sections::permissions::{read_permissions, read_pins};
use super::sections::registry::RegistryConfig;
use super::sections::sandbox::read_sandbox;
use super::sections::sets::read_sets;
use super::sections::socket::{DataConfig, SocketConfig};
use super::sections::tools::read_validation;
use super::sections::{
    AccessConfig, ConfirmationConfig, ListsConfig, LogConfig, MetricsConfig, QuestionsConfig,
    StreamsConfig, limits,
};

/// The configuration except servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelConfig {
    /// `[http]`: the HTTP listener.
    pub(crate) http: HttpConfig,
    /// `[oauth]`: the accepted issuer of tokens.
    pub(crate) oauth: OAuthConfig,
    /// `[lite]`: MCP-lite.
    pub(crate) lite: LiteConfig,
    /// `[socket]`: the owner's socket.
    pub(crate) socket: SocketConfig,
    /// `[data]`: the data folder.
    pub data: DataConfig,
    /// `[secrets]`: storage of named secrets.
    pub(crate) secrets: SecretsConfig,
    /// `[network]`: outgoing HTTP.
    pub(crate) network: NetworkConfig,
    /// `[registry]`: the registry of servers.
    pub(crate) registry: RegistryConfig,
    /// `[streams]`: event streams over HTTP.
    pub(crate) streams: StreamsConfig,
    /// `[questions]`: callbacks of servers to users.
    pub(crate) questions: QuestionsConfig,
    /// `[lists]`: the merged lists.
    pub(crate) lists: ListsConfig,
    /// `[health]`: health checks of servers.
    pub(crate) health: HealthCheckConfig,
    /// `[audit]`: the audit log.
    pub audit: AuditConfig,
    /// `[access]`: defaults of access.
    pub(crate) access: AccessConfig,
    /// `[log]`: the log on stderr.
    pub(crate) log: LogConfig,
    /// `[metrics]`: metrics for scrapers.
    pub(crate) metrics: MetricsConfig,
    /// `[telemetry]`: export to a collector.
    pub(crate) telemetry: TelemetryConfig,
    /// `[limits]`: defaults for servers.
    pub(crate) limits: ServerLimits,
    /// `[limits]`: rates of agents.
    pub(crate) rates: RateLimits,
    /// `[validation]`: defaults for tools of all servers.
    pub(crate) tools: ToolRules,
    /// `[confirmation]`: confirmation of dangerous calls.
    pub(crate) confirmation: ConfirmationConfig,
    /// `[permissions]`: decisions about permissions of servers.
    pub(crate) permissions: PermissionRules,
    /// `[pins]`: changes of pinned tools.
    pub(crate) pin: PinRules,
    /// `[sandbox]`: sandboxes of servers.
    pub(crate) sandbox: sandbox::SandboxConfig,
    /// `[discovery]`: exposure and search of tools.
    pub discovery: DiscoveryConfig,
    /// `[cluster]`: this node in a cluster.
    pub cluster: ClusterConfig,
    /// `[agents.*]`: which agents answer requests of others.
    pub(crate) answering: RequestableAgents,
    /// `[mcpl]`: what servers may do besides being called.
    pub(crate) mcpl: McplRules,
    /// `[sets.*]`, and the sets assigned in `[agents.*]`.
    pub(crate) sets: ToolSets,
}

impl KernelConfig {
    /// Overrides values with those of the file; relative paths start at `folder`, which is the file's.
    pub(super) fn read(&mut self, root: &mut Section<'_, '_, '_>, folder: &Path, env: &Env<'_>) {
        self.http.read(root.kernel_section("http"), folder);
        let wanted = self.http.auth == HttpAuth::OAuth;
        self.oauth
            .read(root.kernel_section("oauth"), wanted, folder);
        self.lite.read(root.kernel_section("lite"));
        self.socket.read(root.kernel_section("socket"), folder);
        self.data.read(root.kernel_section("data"), folder);
        self.secrets.read(root.kernel_section("secrets"));
        self.network
            .read(root.kernel_section("network"), folder, env, &self.secrets);
        self.registry.read(root.kernel_section("registry"));
        self.streams.read(root.kernel_section("streams"));
        self.questions.read(root.kernel_section("questions"));
        self.lists.read(root.kernel_section("lists"));
        read_health(root.kernel_section("health"), &mut self.health);
        self.audit.read(root.kernel_section("audit"));
        self.access.read(root.kernel_section("access"));
        self.log.read(root.kernel_section("log"));
        self.metrics.read(root.kernel_section("metrics"));
        self.telemetry
            .read(root.kernel_section("telemetry"), folder, env, &self.secrets);
        limits::read(
            root.kernel_section("limits"),
            &mut self.limits,
            &mut self.rates,
        );
        read_validation(root.kernel_section("validation"), folder, &mut self.tools);
        let mut confirmation = root.kernel_section("confirmation");
        confirmation.flag("enabled", &mut self.tools.confirm_dangerous);
        self.confirmation.read(confirmation);
        read_permissions(root.kernel_section("permissions"), &mut self.permissions);
        read_pins(root.kernel_section("pins"), &mut self.pin);
        read_sandbox(root.kernel_section("sandbox"), &mut self.sandbox);
        self.discovery
            .read(root.kernel_section("discovery"), folder, env, &self.secrets);
        self.cluster.read(root.kernel_section("cluster"));
        read_mcpl(
            root.kernel_section("mcpl"),
            folder,
            env,
            &self.secrets,
            &mut self.mcpl,
        );
        read_sets(root, &mut self.sets);
        read_agents(root, &mut self.answering, &mut self.sets);
    }
}

fn read_health(mut section: Section<'_, '_, '_>, rules: &mut HealthCheckConfig) {
    section.secs("interval_secs", 0..=86_400, &mut rules.interval);
    section.count("misses", 1..=100, &mut rules.failure_threshold);
    section.finish();
}
