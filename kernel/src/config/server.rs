//! One `[[servers]]` entry (MGP §15.2, with the restart keys of §11.5).

mod extensions;
mod login;
mod passed_headers;
mod reach;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use mgp_engine::env::{AgentValue, find_secrets};
use mgp_engine::policy::requirements::ToolRules;
use mgp_engine::policy::trust::TrustLevel;
use mgp_engine::servers::login::LoginConfig;
use mgp_engine::servers::resources::ResourceLimits;
use mgp_engine::servers::sandbox::Seal;
use mgp_engine::servers::spec::{
    CallbackAttribution, IdleStop, MgpConfig, PerAgent, ReplicaMode, RestartConfig, RestartPolicy,
    ServerInstances, ServerSpec, ServerTransport, StartMode,
};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::access::DefaultPolicy;
use toml::Spanned;

use super::kernel::KernelConfig;
use super::parsing::Section;
use super::sections::POLICIES;
use super::sections::limits::{START_MODES, StartDefaults, read_limits, read_resources};
use super::sections::permissions::read_server_permissions;
use super::sections::results::read_results;
use super::sections::sandbox::read_server_sandbox;
use super::sections::tools::{read_server_rules, read_tools};
use extensions::{read_client_extensions, read_merged};
use login::read_login;
use passed_headers::read_passed_headers;
use reach::{CALLER_FOLDER, read_reach};

const DAY: u64 = 86_400;
const DAY_MS: u64 = DAY * 1000;

/// Reads an entry with a known id. Problems are added to the section; the spec is valid only without any.
pub(super) fn read_server(
    entry: &mut Section<'_, '_, '_>,
    id: ServerId,
    kernel: &KernelConfig,
) -> Option<ServerSpec> {
    entry.value("id");
    let KernelConfig {
        mut tools,
        mut permissions,
        mut pin,
        mut sandbox,
        ..
    } = kernel.clone();
    let mut limits = kernel.limits.servers.clone();
    let mut agent_values = BTreeMap::new();
    let mut reach = read_reach(entry, &mut agent_values);
    let mut login = read_login(entry, reach.as_ref());
    let (pass_headers, forwards_authorization) = read_passed_headers(entry, reach.as_ref(), kernel);
    // Forwarding the agent's own token replaces a login.
    login.enabled &= !forwards_authorization;
    let after = read_start_after(entry, &id);
    read_limits(entry, &mut limits);
    read_results(entry, &mut limits.results);
    let mut resources = ResourceLimits::default();
    entry.subsection("limits", |section| read_resources(section, &mut resources));
    if let Some(ServerTransport::Http { .. }) = &reach {
        let why = "is reached at its `url`: what it uses there cannot be limited, leave out [servers.limits]";
        entry.reject_use("limits", why);
    }
    let mut default_policy: Option<DefaultPolicy> = None;
    entry.choice("default_policy", &POLICIES, &mut default_policy);
    let mut attribution = CallbackAttribution::default();
    let known = [
        ("by-turn", CallbackAttribution::ByTurn),
        ("by-call", CallbackAttribution::ByCall),
    ];
    entry.choice("questions", &known, &mut attribution);
    let instances = read_instances(entry, per_agent_reason(&login, &agent_values));
    leave_out_missing(reach.as_mut(), &agent_values);
    let (replica, is_stateful) = read_replica(entry);
    let start = read_start(entry, kernel.limits.start, is_stateful);
    if is_stateful && replica == ReplicaMode::Standalone && !start.is_on_demand() {
        let why = "runs all the time and stands alone, so all its calls go to it: `stateful` is for one of several, with `replica = true`, and for one with `start = \"on-demand\"`";
        entry.reject_use("stateful", why);
    }
    let mut rolling = false;
    let modes = [("stop_first", false), ("rolling", true)];
    entry.choice("restart_mode", &modes, &mut rolling);
    if let (true, ServerInstances::PerAgent(_)) = (rolling, instances) {
        let why = "has an instance for each caller, which ends by itself when it is idle: `restart_mode = \"rolling\"` is for servers that all agents share";
        entry.reject_use("restart_mode", why);
    }
    let mut restart = RestartConfig::default();
    read_restart(entry, &mut restart);
    let mut mgp = read_mgp(entry, &mut restart, &mut tools);
    if let (Some(ServerTransport::Http { .. }), Some(_)) = (&reach, &mgp.seal) {
        let why = "is reached at its `url`: no file of it is here that a `seal` could be of, leave it out";
        entry.reject_use("mgp", why);
    }
    let mut mcpl = true;
    entry.flag("mcpl", &mut mcpl);
    let client_extensions = read_client_extensions(entry);
    read_merged(entry, &mut tools);
    read_tools(entry, &mut tools);
    entry.strings("categories", &mut tools.categories);
    entry.count(
        "max_result_bytes",
        0..=RESULT_BYTES_MAX,
        &mut tools.result_max,
    );
    entry.flag("check_arguments", &mut tools.check_schema);
    read_server_permissions(entry, &mut permissions, &mut pin);
    entry.subsection("sandbox", |section| {
        read_server_sandbox(section, &mut sandbox)
    });
    if sandbox.is_seal_required {
        mgp.require_seal();
    }
    Some(ServerSpec {
        id,
        transport: reach?,
        start,
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
        client_extensions,
        tools: Arc::new(tools),
        permissions,
        pin,
        sandbox,
        login,
        pass_headers,
        agent_values,
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

/// What each agent has for itself at the server.
fn per_agent_reason(
    login: &LoginConfig,
    agent_values: &BTreeMap<String, AgentValue>,
) -> Option<&'static str> {
    if login.per_agent && login.enabled {
        Some("has a login for each agent")
    } else if agent_values.is_empty() {
        None
    } else {
        Some("has secrets of each agent")
    }
}

/// The operator may have none of the secrets of each agent: its instance, which lists the tools, then starts without
/// these variables or headers.
fn leave_out_missing(
    reach: Option<&mut ServerTransport>,
    agent_values: &BTreeMap<String, AgentValue>,
) {
    let values = match reach {
        Some(ServerTransport::Stdio { env, .. }) => env,
        Some(ServerTransport::Http { headers, .. }) => headers,
        Some(ServerTransport::Node(_)) | None => return,
    };
    values.retain(|name, value| !value.is_empty() || !agent_values.contains_key(name));
}

/// Whether each agent has its own instance, and how many there are. The bounds may be set without being in force.
/// Servers that run in the folder of each caller, or with what each agent has for itself, cannot be shared.
fn read_instances(
    entry: &mut Section<'_, '_, '_>,
    of_agents: Option<&'static str>,
) -> ServerInstances {
    let mut bounds = PerAgent::default();
    entry.count("max_instances", 1..=1000, &mut bounds.max);
    entry.secs("instance_idle_secs", 1..=DAY, &mut bounds.idle);
    let mut instances = ServerInstances::default();
    let by_folder = matches!(entry.text("cwd"), Some(cwd) if *cwd.get_ref() == CALLER_FOLDER);
    let reason = of_agents.or_else(|| by_folder.then_some("runs in the folder of each caller"));
    if reason.is_some() {
        bounds.by_folder = by_folder;
        instances = ServerInstances::PerAgent(bounds);
    }
    let known = [
        ("shared", ServerInstances::Shared),
        ("agent", ServerInstances::PerAgent(bounds)),
    ];
    entry.choice("instances", &known, &mut instances);
    if let (Some(why), ServerInstances::Shared) = (reason, instances) {
        let why =
            format!("{why}, so each has an instance: leave out `instances`, or write \"agent\"");
        entry.reject_use("instances", &why);
    }
    instances
}

/// When the server runs. `autostart` is the older spelling of `start`.
fn read_start(
    entry: &mut Section<'_, '_, '_>,
    defaults: StartDefaults,
    is_stateful: bool,
) -> StartMode {
    let mut start = defaults.mode;
    if entry.span("autostart").is_some() {
        if entry.span("start").is_some() {
            entry.reject_use(
                "autostart",
                "has `start`, too, which replaces it: leave it out",
            );
        }
        let mut autostart = true;
        entry.flag("autostart", &mut autostart);
        start = match autostart {
            true => StartMode::Kernel,
            false => StartMode::Manual,
        };
    }
    entry.choice("start", &START_MODES, &mut start);
    let is_ordered = entry.span("idle_stop_secs").is_some();
    let mut idle_stop = defaults.idle_stop;
    entry.secs("idle_stop_secs", 0..=DAY, &mut idle_stop);
    // The time may be set without being in force.
    if !start.is_on_demand() {
        return start;
    }
    StartMode::OnDemand(match (is_ordered, is_stateful) {
        _ if idle_stop.is_zero() => IdleStop::Never,
        (true, _) => IdleStop::After(idle_stop),
        (false, true) => IdleStop::Never,
        (false, false) => IdleStop::UnlessStateful(idle_stop),
    })
}

/// Whether the server is a replica, and whether it has state of its callers.
fn read_replica(entry: &mut Section<'_, '_, '_>) -> (ReplicaMode, bool) {
    let (mut replica, mut stateful) = (false, false);
    entry.flag("replica", &mut replica);
    entry.flag("stateful", &mut stateful);
    let mode = if replica {
        warn_open_address(entry);
        ReplicaMode::Replica { stateful }
    } else {
        ReplicaMode::Standalone
    };
    (mode, stateful)
}

/// Other nodes receive a hash of a replica's address, which allows guessing the address.
fn warn_open_address(entry: &mut Section<'_, '_, '_>) {
    let Some(url) = entry.text("url") else {
        return;
    };
    if !find_secrets(url.get_ref()).is_empty() {
        let why = "is a replica, whose `url` other nodes compare: send the secret as a header";
        entry.reject_use("url", why);
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
) -> MgpConfig {
    let mut mgp = MgpConfig::default();
    if let Some(offered) = entry.value("mgp").and_then(|v| v.get_ref().as_bool()) {
        mgp.is_disabled = !offered;
        return mgp;
    }
    entry.subsection("mgp", |section| {
        section.strings("extensions", &mut mgp.extensions);
        section.strings("permissions_required", &mut mgp.permissions_required);
        if let Some(text) = section.text("trust_level") {
            mgp.trust_level = read_trust(section, &text);
        }
        mgp.seal = read_seal(section);
        read_restart(section, restart);
        read_server_rules(section, tools);
    });
    mgp
}

/// A malformed seal rejects the entry: it must not count as none.
fn read_seal(section: &mut Section<'_, '_, '_>) -> Option<Seal> {
    let mut digest: Option<String> = None;
    section.parse("seal", Seal::parse_digest, &mut digest);
    let entry_point = section.text("entry_point");
    if entry_point.is_some() && section.span("seal").is_none() {
        let why = "has no `seal`, which `entry_point` names the file of";
        section.reject_use("entry_point", why);
    }
    digest.map(|sha256| Seal {
        entry_point: entry_point.map(|path| PathBuf::from(*path.get_ref())),
        sha256,
    })
}

/// the upstream project's names are aliases, and unknown names get the lowest trust.
fn read_trust(section: &mut Section<'_, '_, '_>, text: &Spanned<&str>) -> TrustLevel {
    let word = *text.get_ref();
    TrustLevel::parse(word).unwrap_or_else(|| {
        let message = format!(
            "unknown `trust_level` `{word}` in {} is taken as `sandboxed`; known are \
             `trusted`, `standard` and `sandboxed`",
            section.name()
        );
        section.warn(text.span(), message);
        TrustLevel::Sandboxed
    })
}
