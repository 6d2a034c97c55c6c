//! One `[[servers]]` entry (MGP §15.2, with the restart keys of §11.5).

mod login;
mod passed_headers;
mod reach;

use std::path::Path;
use std::sync::Arc;

use mgp_engine::env::find_secrets;
use mgp_engine::policy::requirements::ToolRules;
use mgp_engine::policy::trust::TrustLevel;
use mgp_engine::servers::resources::ResourceLimits;
use mgp_engine::servers::spec::{
    CallbackAttribution, MgpConfig, PerAgent, ReplicaMode, RestartConfig, RestartPolicy,
    ServerInstances, ServerSpec, ServerTransport,
};
use mgp_protocol::ids::ServerId;
use toml::Spanned;

use super::kernel::KernelConfig;
use super::parsing::{Env, Section};
use super::sections::POLICIES;
use super::sections::limits::{read_limits, read_resources};
use super::sections::permissions::read_server_permissions;
use super::sections::sandbox::read_server_sandbox;
use super::sections::tools::{read_server_rules, read_tools};
use login::read_login;
use passed_headers::read_passed_headers;
use reach::{CALLER_FOLDER, read_reach};

const DAY: u64 = 86_400;
const DAY_MS: u64 = DAY * 1000;

/// The context of reading an entry.
pub(super) struct ServerContext<'c> {
    /// The folder of its file: relative paths start there.
    pub(super) folder: &'c Path,
    /// The kernel's variables.
    pub(super) env: &'c Env<'c>,
    /// The kernel's sections, for defaults.
    pub(super) kernel: &'c KernelConfig,
}

/// Reads an entry with a known id. Problems are added to the section; the spec is valid only without any.
pub(super) fn read_server(
    mut entry: Section<'_, '_, '_>,
    id: ServerId,
    context: &ServerContext<'_>,
) -> Option<ServerSpec> {
    entry.value("id");
    let KernelConfig {
        mut limits,
        mut tools,
        mut permissions,
        mut pin,
        mut sandbox,
        ..
    } = context.kernel.clone();
    let reach = read_reach(
        &mut entry,
        context.folder,
        context.env,
        &context.kernel.secrets,
    );
    let mut login = read_login(
        &mut entry,
        reach.as_ref(),
        context.folder,
        context.env,
        &context.kernel.secrets,
    );
    let (pass_headers, forwards_authorization) =
        read_passed_headers(&mut entry, reach.as_ref(), context.kernel);
    // Forwarding the agent's own token replaces a login.
    login.enabled &= !forwards_authorization;
    let mut autostart = true;
    entry.flag("autostart", &mut autostart);
    let after = read_start_after(&mut entry, &id);
    read_limits(&mut entry, &mut limits);
    let mut resources = ResourceLimits::default();
    read_resources(entry.subsection("limits", "servers.limits"), &mut resources);
    if let (Some(ServerTransport::Http { .. }), Some(span)) = (&reach, entry.span("limits")) {
        let name = entry.name();
        let message = format!(
            "{name} is reached at its `url`: what it uses there cannot be limited, leave out [servers.limits]"
        );
        entry.reject(span, message);
    }
    let mut default_policy = None;
    let policies = POLICIES.map(|(word, policy)| (word, Some(policy)));
    entry.choice("default_policy", &policies, &mut default_policy);
    let mut attribution = CallbackAttribution::default();
    let known = [
        ("by-turn", CallbackAttribution::ByTurn),
        ("by-call", CallbackAttribution::ByCall),
    ];
    entry.choice("questions", &known, &mut attribution);
    let instances = read_instances(&mut entry, login.per_agent && login.enabled);
    let replica = read_replica(&mut entry);
    let mut rolling = false;
    let modes = [("stop_first", false), ("rolling", true)];
    entry.choice("restart_mode", &modes, &mut rolling);
    if let (true, ServerInstances::PerAgent(_), Some(span)) =
        (rolling, instances, entry.span("restart_mode"))
    {
        let name = entry.name();
        let message = format!(
            "{name} has an instance for each caller, which ends by itself when it is idle: `restart_mode = \"rolling\"` is for servers that all agents share"
        );
        entry.reject(span, message);
    }
    let mut restart = RestartConfig::default();
    read_restart(&mut entry, &mut restart);
    let mgp = read_mgp(&mut entry, &mut restart, &mut tools, context.folder);
    let mut mcpl = true;
    entry.flag("mcpl", &mut mcpl);
    read_tools(&mut entry, &mut tools);
    entry.strings("categories", &mut tools.categories);
    entry.count(
        "max_result_bytes",
        0..=RESULT_BYTES_MAX,
        &mut tools.result_max,
    );
    entry.flag("check_arguments", &mut tools.check_schema);
    read_server_permissions(&mut entry, &mut permissions, &mut pin);
    let own = entry.subsection("sandbox", "servers.sandbox");
    read_server_sandbox(own, context.folder, &mut sandbox);
    entry.finish();
    Some(ServerSpec {
        id,
        transport: reach?,
        autostart,
        start_after: after,
        rolling,
        replica,
        restart,
        limits,
        resources,
        default_policy,
        callback_attribution: attribution,
        instances,
        mgp,
        mcpl,
        tools: Arc::new(tools),
        permissions,
        pin,
        sandbox,
        login,
        pass_headers,
    })
}

/// Longest configurable text of a result, in bytes: as much as is stored of a truncated one.
const RESULT_BYTES_MAX: u64 = 8 << 20;

/// Invalid names are reported with unknown ones.
fn read_start_after(entry: &mut Section<'_, '_, '_>, id: &ServerId) -> Vec<ServerId> {
    let names = entry.texts("after").unwrap_or_default();
    names
        .iter()
        .for_each(|name| entry.add_start_order(id, name));
    let ids = names
        .iter()
        .filter_map(|name| ServerId::parse(name.get_ref()).ok());
    let mut ids: Vec<_> = ids.collect();
    ids.sort();
    ids.dedup();
    ids
}

/// Whether each agent has its own instance, and how many there are. The bounds may be set without being in force.
/// Servers that run in the folder of each caller, or with the login of each agent, cannot be shared.
fn read_instances(entry: &mut Section<'_, '_, '_>, per_agent_login: bool) -> ServerInstances {
    let mut bounds = PerAgent::default();
    entry.count("max_instances", 1..=1000, &mut bounds.max);
    entry.secs("instance_idle_secs", 1..=DAY, &mut bounds.idle);
    let mut instances = ServerInstances::default();
    let by_folder = matches!(entry.text("cwd"), Some(cwd) if *cwd.get_ref() == CALLER_FOLDER);
    if by_folder || per_agent_login {
        bounds.by_folder = by_folder;
        instances = ServerInstances::PerAgent(bounds);
    }
    let known = [
        ("shared", ServerInstances::Shared),
        ("agent", ServerInstances::PerAgent(bounds)),
    ];
    entry.choice("instances", &known, &mut instances);
    if let (true, ServerInstances::Shared, Some(span)) = (
        by_folder || per_agent_login,
        instances,
        entry.span("instances"),
    ) {
        let name = entry.name();
        let why = if by_folder {
            "runs in the folder of each caller"
        } else {
            "has a login for each agent"
        };
        let message = format!(
            "{name} {why}, so each has an instance: leave out `instances`, or write \"agent\""
        );
        entry.reject(span, message);
    }
    instances
}

/// Whether the server is a replica. `stateful` selects between replicas, so it requires one.
fn read_replica(entry: &mut Section<'_, '_, '_>) -> ReplicaMode {
    let (mut replica, mut stateful) = (false, false);
    entry.flag("replica", &mut replica);
    entry.flag("stateful", &mut stateful);
    if let (true, false, Some(span)) = (stateful, replica, entry.span("stateful")) {
        let name = entry.name();
        let message = format!(
            "{name} stands alone, so all its calls go to it: `stateful` is for one of several, with `replica = true`"
        );
        entry.reject(span, message);
    }
    if replica {
        warn_open_address(entry);
        ReplicaMode::Replica { stateful }
    } else {
        ReplicaMode::Standalone
    }
}

/// Other nodes receive a hash of a replica's address, which allows guessing the address.
fn warn_open_address(entry: &mut Section<'_, '_, '_>) {
    let Some(url) = entry.text("url") else {
        return;
    };
    if !find_secrets(url.get_ref()).is_empty() {
        let name = entry.name();
        let message = format!(
            "{name} is a replica, whose `url` other nodes compare: send the secret as a header"
        );
        entry.reject(url.span(), message);
    }
}

/// The keys of [`RestartConfig`]: §15.2 shows them in `[servers.mgp]`, §11.5 flat.
fn read_restart(section: &mut Section<'_, '_, '_>, rules: &mut RestartConfig) {
    let policies = [
        ("never", RestartPolicy::Never),
        ("on_failure", RestartPolicy::OnFailure),
        ("always", RestartPolicy::Always),
    ];
    section.choice("restart_policy", &policies, &mut rules.policy);
    section.count("max_restarts", 0..=1000, &mut rules.max_restarts);
    section.secs("restart_window_secs", 1..=DAY, &mut rules.window);
    section.millis("backoff_base_ms", 1..=DAY_MS, &mut rules.backoff_base);
    section.millis("backoff_max_ms", 1..=DAY_MS, &mut rules.backoff_max);
}

/// `[servers.mgp]`, or `mgp = false`.
fn read_mgp(
    entry: &mut Section<'_, '_, '_>,
    restart: &mut RestartConfig,
    tools: &mut ToolRules,
    folder: &Path,
) -> MgpConfig {
    let mut mgp = MgpConfig::default();
    if let Some(offered) = entry.value("mgp").and_then(|v| v.get_ref().as_bool()) {
        mgp.is_disabled = !offered;
        return mgp;
    }
    let mut section = entry.subsection("mgp", "servers.mgp");
    section.strings("extensions", &mut mgp.extensions);
    section.strings("permissions_required", &mut mgp.permissions_required);
    if let Some(text) = section.text("trust_level") {
        mgp.trust_level = read_trust(&mut section, &text);
    }
    read_restart(&mut section, restart);
    read_server_rules(&mut section, tools, folder);
    section.finish();
    mgp
}

/// the upstream project's names are aliases, and unknown names get the lowest trust.
fn read_trust(section: &mut Section<'_, '_, '_>, text: &Spanned<&str>) -> TrustLevel {
    match *text.get_ref() {
        "trusted" | "core" => TrustLevel::Trusted,
        "standard" => TrustLevel::Standard,
        "sandboxed" | "experimental" | "untrusted" => TrustLevel::Sandboxed,
        unknown => {
            let message = format!(
                "unknown `trust_level` `{unknown}` in {} is taken as `sandboxed`; known are \
                 `trusted`, `standard` and `sandboxed`",
                section.name()
            );
            section.warn(text.span(), message);
            TrustLevel::Sandboxed
        }
    }
}
