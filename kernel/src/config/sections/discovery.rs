//! `[discovery]`: exposure and search of tools.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use mgp_calls::AgentExposure;
use mgp_engine::callers::tool_cache::{self, MAX_TOKENS};
use mgp_engine::tool_names::{canonical_name, is_qualified};
use mgp_engine::tools::exposure::Exposure;
use mgp_protocol::ids::{AgentId, BadAgentName, ServerId};
use mgp_protocol::mgp::tools::Budget;
use mgp_tools::registrar::{Interpreters, RegistrationRules};
use mgp_tools::search::{Embedding, Key, Provider};

use super::sandbox::read_paths;
use super::{DAY, section};
use crate::config::parsing::Section;

/// Modes of exposure, by name.
const EXPOSURES: [(&str, Option<Exposure>); 5] = [
    ("auto", None),
    ("all", Some(Exposure::All)),
    ("categories", Some(Exposure::Categories)),
    ("discovery", Some(Exposure::Discovery)),
    ("pinned", Some(Exposure::Pinned)),
];

const EMBEDDINGS: [(&str, bool); 2] = [("builtin", true), ("off", false)];

const ANSWERS: [(&str, bool); 2] = [("whole", false), ("brief", true)];

section! {
    /// `[discovery]`.
    DiscoveryConfig {
        /// Whether the built-in model is used if there is no provider.
        builtin: bool = true, choice("embedding", &EMBEDDINGS);
        /// Whether searches answer tools in short.
        brief_answers: bool = false, choice("answers", &ANSWERS);
        /// Idle time after which the built-in model is unloaded.
        model_idle: Duration = Duration::from_secs(30), secs("model_idle_secs", 1..=DAY);
        /// The exposure of tools to all agents.
        general: AgentExposure = AgentExposure { exposure: None, pinned: BTreeSet::new() }, read_with(read_exposure);
        /// `[discovery.agents.*]`: the exposure to single agents.
        agents: BTreeMap<AgentId, AgentExposure> = BTreeMap::new(), read_with(|_, _| ());
        /// `[discovery.servers.*]`: the exposure at the endpoints of single servers.
        doors: BTreeMap<ServerId, Option<Exposure>> = BTreeMap::new(), read_with(read_doors);
        /// Which agents may register servers, and how many.
        registration: RegistrationRules = RegistrationRules {
            allowed_agents: BTreeSet::new(),
            servers_per_agent: 8,
            suggests_creating: false,
        }, read_with(read_registration);
        /// `[discovery.registered]`: settings of registered servers.
        registered: RegisteredConfig = RegisteredConfig::default(), read_with(read_registered);
        /// Most tokens for tool definitions in a session.
        budget: Budget = Budget::default(), read_with(read_budget);
        /// `[discovery.provider]`, if it has a URL.
        provider: Option<Provider> = None, read_with(read_provider);
        => Self::read_agents;
    }
}

/// `[discovery.registered]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegisteredConfig {
    /// The interpreters of their programs.
    pub(crate) interpreters: Interpreters,
    /// Folders that `filesystem.read` opens.
    pub(crate) read: Vec<PathBuf>,
    /// Folders that `filesystem.write` opens.
    pub(crate) write: Vec<PathBuf>,
}

impl DiscoveryConfig {
    /// The source of embeddings: a provider has precedence over the built-in model.
    #[must_use]
    pub(crate) fn embedding(&self) -> Embedding {
        match (&self.provider, self.builtin) {
            (Some(provider), _) => Embedding::Provider(provider.clone()),
            (None, true) => Embedding::Builtin,
            (None, false) => Embedding::Off,
        }
    }

    /// Tools pinned for all agents are pinned for each.
    fn read_agents(&mut self, section: &mut Section<'_, '_, '_>) {
        let agents = section.named_tables("agents", parse_agent, |section| {
            let mut exposure = self.general.clone();
            read_exposure(section, &mut exposure);
            exposure
        });
        self.agents.extend(agents);
    }
}

fn read_doors(section: &mut Section<'_, '_, '_>, doors: &mut BTreeMap<ServerId, Option<Exposure>>) {
    doors.extend(section.named_tables("servers", ServerId::parse, |section| {
        let mut exposure = Some(Exposure::All);
        section.choice("exposure", &EXPOSURES, &mut exposure);
        exposure
    }));
}

fn read_registration(section: &mut Section<'_, '_, '_>, rules: &mut RegistrationRules) {
    let agents = section.parse_each("may_register", parse_agent);
    rules.allowed_agents.extend(agents.into_iter().flatten());
    section.flag("creating", &mut rules.suggests_creating);
    section.count("registered_max", 1..=256, &mut rules.servers_per_agent);
}

/// An agent, with or without `agent.`, including those that the kernel names itself.
fn parse_agent(name: &str) -> Result<AgentId, BadAgentName> {
    let reserved = [AgentId::LOCAL, AgentId::ANONYMOUS];
    match reserved
        .into_iter()
        .find(|reserved| *reserved == name || reserved.strip_prefix(AgentId::PREFIX) == Some(name))
    {
        Some(reserved) => Ok(AgentId::new(reserved)),
        None => AgentId::parse(name),
    }
}

fn read_exposure(section: &mut Section<'_, '_, '_>, into: &mut AgentExposure) {
    section.choice("exposure", &EXPOSURES, &mut into.exposure);
    for pinned in section.texts("pinned").unwrap_or_default() {
        let pin = match pinned.get_ref().split_once(['/', ':']) {
            Some((server, tool)) if !server.is_empty() && !tool.is_empty() => {
                canonical_name(&ServerId::new(server), tool)
            }
            None if is_qualified(pinned.get_ref()) => pinned.into_inner().to_owned(),
            Some(_) | None => {
                let why = format!(" wants \"server:tool\", not {:?}", pinned.get_ref());
                section.reject_key(pinned.span(), "pinned", &why);
                continue;
            }
        };
        into.pinned.insert(pin);
    }
}

fn read_registered(discovery: &mut Section<'_, '_, '_>, into: &mut RegisteredConfig) {
    discovery.subsection("registered", |section| {
        // Links are not resolved: a virtual environment is where the link to its interpreter is.
        section.path("python", &mut into.interpreters.python);
        section.path("node", &mut into.interpreters.node);
        read_paths(section, "read", &mut into.read);
        read_paths(section, "write", &mut into.write);
    });
}

fn read_budget(discovery: &mut Section<'_, '_, '_>, budget: &mut Budget) {
    discovery.subsection("budget", |section| {
        section.count("max_tokens", 0..=MAX_TOKENS, &mut budget.max_tokens);
        section.count("pinned_reserve", 0..=MAX_TOKENS, &mut budget.pinned_reserve);
        section.count(
            "discovery_reserve",
            0..=MAX_TOKENS,
            &mut budget.discovery_reserve,
        );
        section.count("cache_limit", 0..=MAX_TOKENS, &mut budget.cache_limit);
        if let Err(why) = tool_cache::validate_budget(budget) {
            section.reject(section.start_span(), format!("[discovery.budget]: {why}"));
        }
    });
}

fn read_provider(discovery: &mut Section<'_, '_, '_>, into: &mut Option<Provider>) {
    discovery.subsection("provider", |section| {
        let [mut url, mut model]: [Option<String>; 2] = Default::default();
        section.safe_url("url", &mut url);
        section.string("model", &mut model);
        let key = section.secret("key");
        let (mut timeout, mut batch) = (Duration::from_secs(10), 64);
        section.secs("timeout_secs", 1..=300, &mut timeout);
        section.count("batch", 1..=256, &mut batch);
        let is_named = url.is_some() || model.is_some() || section.span("key").is_some();
        if let Some((url, model)) = url.zip(model) {
            *into = Some(Provider {
                url,
                model,
                key: Key(key),
                timeout,
                batch,
            });
        } else if is_named {
            let words = "[discovery.provider] wants both: `url`, where it answers, and `model`, what it calls the model";
            section.reject(section.start_span(), words);
        }
    });
}
