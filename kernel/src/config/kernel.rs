//! The kernel's own sections of `mgp.toml`.

use std::collections::BTreeMap;

use mgp_engine::callers::agent_requests::RequestableAgents;
use mgp_engine::policy::access::ToolSets;
use mgp_engine::policy::permissions::PermissionRules;
use mgp_engine::policy::pins::PinRules;
use mgp_engine::policy::requirements::ToolRules;
use mgp_engine::servers::health::HealthCheckConfig;
use mgp_engine::servers::sandbox::SandboxConfig;
use mgp_mcpl_engine::rules::McplRules;
use mgp_protocol::ids::GroupName;

use super::parsing::{ReadSection, SecretsConfig, Section};
use super::sections::agents::read_agents;
use super::sections::audit::AuditConfig;
use super::sections::cluster::ClusterConfig;
use super::sections::discovery::DiscoveryConfig;
use super::sections::groups::{GroupsConfig, read_groups};
use super::sections::http::lite::LiteConfig;
use super::sections::http::oauth::OAuthConfig;
use super::sections::http::telemetry::TelemetryConfig;
use super::sections::http::{HttpAuth, HttpConfig};
use super::sections::limits::LimitsConfig;
use super::sections::network::NetworkConfig;
use super::sections::notify::NotifyConfig;
use super::sections::sets::read_sets;
use super::sections::{
    AccessConfig, ConfirmationConfig, DataConfig, ListsConfig, LogConfig, MetricsConfig,
    QuestionsConfig, RegistryConfig, SocketConfig, StreamsConfig, UpdatesConfig,
};

/// Whether a running kernel applies a changed key. The others take effect at the next start.
type IsReloadable = fn(&str) -> bool;

const ALL: IsReloadable = |_| true;
const NONE: IsReloadable = |_| false;

/// Declares the sections: each with its field, its name in the file, and the keys that a running kernel applies. Those
/// whose tables have names of the user's choice are read by hand.
macro_rules! kernel_config {
    (
        $($(#[$doc:meta])* $field:ident: $type:ty = $section:literal, $reloadable:expr;)+
        => $($(#[$named_doc:meta])* $named:ident: $named_type:ty = $named_section:literal, $named_reloadable:expr;)+
    ) => {
        /// The configuration except servers.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct KernelConfig {
            $($(#[$doc])* pub(crate) $field: $type,)+
            $($(#[$named_doc])* pub(crate) $named: $named_type,)+
        }

        impl KernelConfig {
            fn read_sections(&mut self, root: &mut Section<'_, '_, '_>) {
                $(root.subsection($section, |section| self.$field.read(section));)+
            }

            /// The sections whose values differ.
            pub(super) fn changed_sections(
                &self,
                other: &Self,
            ) -> BTreeMap<&'static str, IsReloadable> {
                let all: [(&str, bool, IsReloadable); _] = [
                    $(($section, self.$field != other.$field, $reloadable),)+
                    $(($named_section, self.$named != other.$named, $named_reloadable),)+
                ];
                let differ = all.into_iter().filter(|(_, differs, _)| *differs);
                differ.map(|(section, _, reloadable)| (section, reloadable)).collect()
            }
        }
    };
}

kernel_config! {
    /// Storage of named secrets. It is read first: other sections may refer to them.
    secrets: SecretsConfig = "secrets", ALL;
    /// The HTTP listener.
    http: HttpConfig = "http", NONE;
    /// The accepted issuer of tokens.
    oauth: OAuthConfig = "oauth", NONE;
    /// MCP-lite.
    lite: LiteConfig = "lite", NONE;
    /// The owner's socket.
    socket: SocketConfig = "socket", NONE;
    /// The data folder.
    data: DataConfig = "data", NONE;
    /// Outgoing HTTP.
    network: NetworkConfig = "network", NONE;
    /// The registry of servers, which only the command line uses.
    registry: RegistryConfig = "registry", ALL;
    /// The index of releases, which only the command line uses.
    updates: UpdatesConfig = "updates", ALL;
    /// Event streams over HTTP.
    streams: StreamsConfig = "streams", NONE;
    /// Callbacks of servers to users.
    questions: QuestionsConfig = "questions", NONE;
    /// The merged lists.
    lists: ListsConfig = "lists", NONE;
    /// Health checks of servers.
    health: HealthCheckConfig = "health", NONE;
    /// The audit log.
    audit: AuditConfig = "audit", NONE;
    /// Defaults of access.
    access: AccessConfig = "access", |key| key != "reveal";
    /// The log on stderr.
    log: LogConfig = "log", NONE;
    /// Metrics for scrapers.
    metrics: MetricsConfig = "metrics", NONE;
    /// Export to a collector.
    telemetry: TelemetryConfig = "telemetry", NONE;
    /// Defaults for servers, and rates of agents. These count from the start, and listeners keep their bounds.
    limits: LimitsConfig = "limits", |key| !key.starts_with("agent_") && key != "max_frame_bytes";
    /// Defaults for tools of all servers.
    tools: ToolRules = "validation", ALL;
    /// Confirmation of dangerous calls.
    confirmation: ConfirmationConfig = "confirmation", |key| key == "enabled";
    /// Decisions about permissions of servers.
    permissions: PermissionRules = "permissions", ALL;
    /// Notices about pending entries.
    notify: NotifyConfig = "notify", NONE;
    /// Changes of pinned tools.
    pin: PinRules = "pins", ALL;
    /// Sandboxes of servers.
    sandbox: SandboxConfig = "sandbox", ALL;
    /// Exposure and search of tools.
    discovery: DiscoveryConfig = "discovery", NONE;
    /// This node in a cluster.
    cluster: ClusterConfig = "cluster", NONE;
    /// What servers may do besides being called.
    mcpl: McplRules = "mcpl", ALL;
    =>
    /// Which agents answer requests of others.
    answering: RequestableAgents = "agents", |key| key == "set";
    /// Limits of groups. They count from the start.
    groups: GroupsConfig = "groups", NONE;
    /// Tool sets, and the agents that are limited to them.
    sets: ToolSets = "sets", ALL;
}

impl KernelConfig {
    /// The groups that the configuration names, each with the issuer's groups that give it.
    pub(crate) fn named_groups(&self) -> BTreeMap<GroupName, Vec<String>> {
        let limited = self.groups.keys().chain(&self.access.default_group);
        let mut all: BTreeMap<GroupName, Vec<String>> =
            limited.map(|group| (group.clone(), Vec::new())).collect();
        if self.http.auth == HttpAuth::OAuth {
            for (claimed, group) in &self.oauth.groups.map {
                all.entry(group.clone()).or_default().push(claimed.clone());
            }
        }
        all
    }

    /// Overrides values with those of the file.
    pub(super) fn read(&mut self, root: &mut Section<'_, '_, '_>) {
        self.read_sections(root);
        read_sets(root, &mut self.sets);
        read_groups(root, &mut self.groups);
        read_agents(root, &mut self.answering, &mut self.sets);
        self.tools.confirm_dangerous = self.confirmation.enabled;
        if self.http.auth == HttpAuth::OAuth && self.oauth.issuer.is_empty() {
            let span = root.span("oauth").or_else(|| root.span("http"));
            let words = "`auth` in [http] is \"oauth\", but [oauth] names no `issuer`";
            root.reject(span.unwrap_or_default(), words);
        }
        self.check_broker(root);
    }

    /// Browsers and the identity provider need one address of this gateway.
    fn check_broker(&self, root: &mut Section<'_, '_, '_>) {
        let is_used = self.http.auth == HttpAuth::OAuth && self.oauth.broker.is_some();
        let has_address = self.oauth.resource.is_some() || self.http.listen.ip().is_loopback();
        if is_used && !self.oauth.groups.scopes.is_empty() {
            let words = "with `group_scopes` in [oauth] these groups give nothing: tokens of [oauth.broker] have no scopes";
            root.warn(root.span("oauth").unwrap_or_default(), words);
        }
        if is_used && !has_address {
            let words = "[oauth.broker] wants `resource` in [oauth], the URL of /mcp as clients know it: the address in \
                         [http] is not one that a browser can open";
            root.reject(root.span("oauth").unwrap_or_default(), words);
        }
    }
}
