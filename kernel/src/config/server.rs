//! One `[[servers]]` entry (MGP §15.2, with the restart keys of §11.5).

use std::path::Path;
use std::sync::Arc;

use mgp_engine::policy::permissions::PermissionRules;
use mgp_engine::policy::pins::PinMode;
use mgp_engine::policy::requirements::ToolRules;
use mgp_engine::policy::trust::TrustLevel;
use mgp_engine::servers::consent::Consent;
use mgp_engine::servers::sandbox;
use mgp_engine::servers::spec::{
    MgpDeclaration, PerAgent, QuestionAttribution, RestartPolicy, RestartRules, ServerInstances,
    ServerLimits, ServerSpec,
};
use mgp_protocol::ids::ServerId;
use toml::Spanned;

use super::Env;
use super::kernel::POLICIES;
use super::permissions::read_gate;
use super::reach::read_reach;
use super::sandbox::read_own;
use super::section::Section;
use super::tools::{read_each, read_rules};

const DAY: u64 = 86_400;
const DAY_MS: u64 = DAY * 1000;

/// Whether a server may ask, in an entry and in `[limits]`.
const CONSENTS: [(&str, Consent); 3] = [
    ("on", Consent::On),
    ("ask", Consent::Ask),
    ("off", Consent::Off),
];

/// What an entry is read with.
pub(super) struct Background<'b> {
    /// The folder of its file: relative paths start there.
    pub(super) folder: &'b Path,
    /// The kernel's variables.
    pub(super) env: &'b Env<'b>,
    /// `[limits]`.
    pub(super) limits: &'b ServerLimits,
    /// `[validation]`.
    pub(super) tools: &'b ToolRules,
    /// `[permissions]`.
    pub(super) permissions: &'b PermissionRules,
    /// `[pins]`.
    pub(super) pin: PinMode,
    /// `[sandbox]`.
    pub(super) sandbox: &'b sandbox::SandboxRules,
}

/// Reads an entry whose id has been read already. What is wrong goes to the section's ledger; the
/// spec is of use only when nothing was.
pub(super) fn read_server(
    mut entry: Section<'_, '_, '_>,
    id: ServerId,
    background: &Background<'_>,
) -> Option<ServerSpec> {
    entry.take("id");
    let reach = read_reach(&mut entry, background);
    let (mut autostart, mut limits) = (true, background.limits.clone());
    entry.flag("autostart", &mut autostart);
    read_limits(&mut entry, &mut limits);
    let mut default_policy = None;
    let policies = POLICIES.map(|(word, policy)| (word, Some(policy)));
    entry.choice("default_policy", &policies, &mut default_policy);
    let mut asking = QuestionAttribution::default();
    let known = [
        ("by-turn", QuestionAttribution::ByTurn),
        ("by-call", QuestionAttribution::ByCall),
    ];
    entry.choice("questions", &known, &mut asking);
    let instances = read_instances(&mut entry);
    let mut restart = RestartRules::default();
    read_restart(&mut entry, &mut restart);
    let mut tools = background.tools.clone();
    let mgp = read_mgp(&mut entry, &mut restart, &mut tools, background.folder);
    read_each(&mut entry, &mut tools);
    entry.strings("categories", &mut tools.categories);
    let (mut permissions, mut pin) = (background.permissions.clone(), background.pin);
    read_gate(&mut entry, &mut permissions, &mut pin);
    let mut sandbox = background.sandbox.clone();
    let own = entry.inner("sandbox", "servers.sandbox");
    read_own(own, background.folder, &mut sandbox);
    entry.finish();
    Some(ServerSpec {
        id,
        reach: reach?,
        autostart,
        restart,
        limits,
        default_policy,
        asking,
        instances,
        mgp,
        tools: Arc::new(tools),
        permissions,
        pin,
        sandbox,
    })
}

/// Whether each agent has an instance of its own, and how many there are. The bounds may stand there without
/// being in force.
fn read_instances(entry: &mut Section<'_, '_, '_>) -> ServerInstances {
    let mut bounds = PerAgent::default();
    entry.count("max_instances", 1..=1000, &mut bounds.max);
    entry.secs("instance_idle_secs", 1..=DAY, &mut bounds.idle);
    let mut instances = ServerInstances::default();
    let known = [
        ("shared", ServerInstances::Shared),
        ("agent", ServerInstances::PerAgent(bounds)),
    ];
    entry.choice("instances", &known, &mut instances);
    instances
}

/// The keys of [`ServerLimits`], in an entry or in `[limits]`.
pub(super) fn read_limits(section: &mut Section<'_, '_, '_>, limits: &mut ServerLimits) {
    section.count("max_frame_bytes", 4096..=1 << 30, &mut limits.max_frame);
    section.secs("call_timeout_secs", 0..=7 * DAY, &mut limits.call_timeout);
    section.secs(
        "call_timeout_max_secs",
        1..=7 * DAY,
        &mut limits.call_timeout_max,
    );
    section.secs("start_timeout_secs", 1..=DAY, &mut limits.start_timeout);
    section.millis("stop_grace_ms", 0..=600_000, &mut limits.stop_grace);
    section.count("max_in_flight", 1..=65_536, &mut limits.max_in_flight);
    section.millis("task_after_ms", 0..=DAY_MS, &mut limits.task_after);
    section.secs("task_ttl_secs", 1..=7 * DAY, &mut limits.task_ttl);
    let consents = &mut limits.consents;
    section.choice("sampling", &CONSENTS, &mut consents.sampling);
    section.choice("elicitation", &CONSENTS, &mut consents.elicitation);
    if limits.call_timeout > limits.call_timeout_max {
        let key = section
            .span("call_timeout_secs")
            .or_else(|| section.span("call_timeout_max_secs"));
        if let Some(span) = key {
            let message = format!(
                "`call_timeout_secs` ({}) in {} is longer than `call_timeout_max_secs` ({})",
                limits.call_timeout.as_secs(),
                section.name(),
                limits.call_timeout_max.as_secs(),
            );
            section.refuse(span, message);
        }
    }
}

/// The keys of [`RestartRules`]: §15.2 shows them in `[servers.mgp]`, §11.5 flat.
fn read_restart(section: &mut Section<'_, '_, '_>, rules: &mut RestartRules) {
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
    restart: &mut RestartRules,
    tools: &mut ToolRules,
    folder: &Path,
) -> MgpDeclaration {
    let mut mgp = MgpDeclaration::default();
    if let Some(offered) = entry.take("mgp").and_then(|v| v.get_ref().as_bool()) {
        mgp.suppressed = !offered;
        return mgp;
    }
    let mut section = entry.inner("mgp", "servers.mgp");
    section.strings("extensions", &mut mgp.extensions);
    section.strings("permissions_required", &mut mgp.permissions_required);
    if let Some(text) = section.text("trust_level") {
        mgp.trust_level = read_trust(&mut section, &text);
    }
    read_restart(&mut section, restart);
    read_rules(&mut section, tools, folder);
    section.finish();
    mgp
}

/// the upstream project's names are aliases, and what nobody knows is trusted least.
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
