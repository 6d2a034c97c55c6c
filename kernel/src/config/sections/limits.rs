//! `[limits]`: defaults for the limits of servers, and the rates of agents.

use mgp_engine::calls::rate_limits::RateLimits;
use mgp_engine::servers::consent::Consent;
use mgp_engine::servers::resources::ResourceLimits;
use std::time::Duration;

use mgp_engine::servers::spec::{IdleStop, ServerLimits, StartMode};

use super::{DAY, section};
use crate::config::parsing::Section;

const DAY_MS: u64 = DAY * 1000;
/// More calls than a kernel can make in a day.
pub(crate) const CALLS_MAX: u64 = 1_000_000_000_000;
/// More refusals than a kernel can write down in a second.
const REFUSALS_MAX: u64 = 1_000_000;

/// Values of consent.
const CONSENTS: [(&str, Consent); 3] = [
    ("on", Consent::Allow),
    ("ask", Consent::Ask),
    ("off", Consent::Deny),
];

section! {
    /// `[limits]`.
    LimitsConfig {
        /// Defaults for servers.
        servers: ServerLimits = ServerLimits::default(), read_with(read_limits);
        /// When servers run.
        start: StartDefaults = StartDefaults::default(), read_with(read_start_defaults);
        /// Rates of agents.
        rates: RateLimits = RateLimits::default(), read_with(read_rates);
    }
}

/// When servers run whose entries do not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartDefaults {
    /// `start`.
    pub(crate) mode: StartMode,
    /// `idle_stop_secs`.
    pub(crate) idle_stop: Duration,
}

impl Default for StartDefaults {
    fn default() -> Self {
        Self {
            mode: StartMode::Kernel,
            idle_stop: Duration::from_secs(600),
        }
    }
}

/// The words of `start`; the time of the idle stop is read by itself.
pub(crate) const START_MODES: [(&str, StartMode); 3] = [
    ("kernel", StartMode::Kernel),
    ("on-demand", StartMode::OnDemand(IdleStop::Never)),
    ("manual", StartMode::Manual),
];

fn read_start_defaults(section: &mut Section<'_, '_, '_>, start: &mut StartDefaults) {
    section.choice("start", &START_MODES, &mut start.mode);
    section.secs("idle_stop_secs", 0..=DAY, &mut start.idle_stop);
}

fn read_rates(section: &mut Section<'_, '_, '_>, rates: &mut RateLimits) {
    section.count(
        "agent_calls_per_minute",
        0..=CALLS_MAX,
        &mut rates.per_minute,
    );
    section.count("agent_calls_per_day", 0..=CALLS_MAX, &mut rates.per_day);
    section.count(
        "agent_refusals_per_second",
        0..=REFUSALS_MAX,
        &mut rates.refusals,
    );
}

/// The keys of [`ServerLimits`], in an entry or in `[limits]`.
pub(crate) fn read_limits(section: &mut Section<'_, '_, '_>, limits: &mut ServerLimits) {
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
            section.reject(span, message);
        }
    }
}

/// `[servers.limits]`: what the processes of a server instance may use together.
pub(crate) fn read_resources(section: &mut Section<'_, '_, '_>, limits: &mut ResourceLimits) {
    section.reject_foreign_keys();
    let keys = [
        ("memory_bytes", 1 << 20..=1 << 50, &mut limits.memory),
        ("cpu_percent", 1..=100_000, &mut limits.cpu_percent),
        ("open_files", 16..=1 << 30, &mut limits.descriptors),
        ("processes", 1..=1 << 22, &mut limits.processes),
    ];
    for (key, range, into) in keys {
        let mut most = 0_u64;
        section.count(key, range, &mut most);
        *into = (most > 0).then_some(most);
    }
}
