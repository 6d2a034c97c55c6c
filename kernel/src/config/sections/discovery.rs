//! `[discovery]`: exposure and search of tools.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mgp_calls::AgentExposure;
use mgp_engine::callers::tool_cache::{self, MAX_TOKENS};
use mgp_engine::env::resolve_secret;
use mgp_engine::tool_names::{canonical_name, is_qualified};
use mgp_engine::tools::exposure::Exposure;
use mgp_protocol::ids::{AgentId, BadAgentName, ServerId};
use mgp_protocol::mgp::tools::Budget;
use mgp_tools::registrar::{Interpreters, RegistrationRules};
use mgp_tools::search::{Embedding, Key, Provider};
use mgp_transports::http::is_safe_url;

use super::sandbox::read_paths;
use crate::config::parsing::{Env, SecretsConfig, Section};

/// Modes of exposure, by name.
const EXPOSURES: [(&str, Option<Exposure>); 5] = [
    ("auto", None),
    ("all", Some(Exposure::All)),
    ("categories", Some(Exposure::Categories)),
    ("discovery", Some(Exposure::Discovery)),
    ("pinned", Some(Exposure::Pinned)),
];

/// `[discovery]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryConfig {
    /// Whether the built-in model is used if there is no provider.
    builtin: bool,
    /// Idle time after which the built-in model is unloaded.
    pub(crate) model_idle: Duration,
    /// `[discovery.provider]`, if it has a URL.
    provider: Option<Provider>,
    /// The exposure of tools to all agents.
    pub(crate) general: AgentExposure,
    /// `[discovery.agents.*]`: the exposure to single agents.
    pub(crate) agents: BTreeMap<AgentId, AgentExposure>,
    /// `[discovery.servers.*]`: the exposure at the endpoints of single servers.
    pub doors: BTreeMap<ServerId, Option<Exposure>>,
    /// Most tokens for tool definitions in a session.
    pub(crate) budget: Budget,
    /// Which agents may register servers, and how many.
    pub(crate) registration: RegistrationRules,
    /// `[discovery.registered]`: settings of registered servers.
    pub(crate) registered: RegisteredConfig,
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

impl Default for DiscoveryConfig {
    fn default() -> Self {
        Self {
            builtin: true,
            model_idle: Duration::from_secs(30),
            provider: None,
            registration: RegistrationRules {
                allowed_agents: BTreeSet::new(),
                servers_per_agent: 8,
                suggests_creating: false,
            },
            registered: RegisteredConfig::default(),
            general: AgentExposure {
                exposure: None,
                pinned: BTreeSet::new(),
            },
            agents: BTreeMap::new(),
            doors: BTreeMap::new(),
            budget: Budget::default(),
        }
    }
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

    /// The key of the provider, which is masked in logs.
    #[must_use]
    pub(crate) fn provider_key(&self) -> Option<&str> {
        let key = self.provider.as_ref().map(|provider| &*provider.key.0);
        key.filter(|key| !key.is_empty())
    }

    pub(crate) fn read(
        &mut self,
        mut section: Section<'_, '_, '_>,
        folder: &Path,
        env: &Env<'_>,
        secrets: &SecretsConfig,
    ) {
        section.choice(
            "embedding",
            &[("builtin", true), ("off", false)],
            &mut self.builtin,
        );
        section.secs("model_idle_secs", 1..=86_400, &mut self.model_idle);
        self.general = read_showing(&mut section, &self.general);
        let (general, agents) = (&self.general, &mut self.agents);
        section.for_each_table("agents", "discovery.agents.*", |name, section| {
            let showing = read_showing(section, general);
            match parse_agent(name) {
                Ok(agent) => drop(agents.insert(agent, showing)),
                // `each` reads an absent table, so that its keys are known.
                Err(_) if name.is_empty() => {}
                Err(why) => {
                    let whole = section.start_span();
                    section.reject(whole, format!("[discovery.agents]: {why}"));
                }
            }
        });
        section.for_each_table("servers", "discovery.servers.*", |name, section| {
            let mut exposure = Some(Exposure::All);
            section.choice("exposure", &EXPOSURES, &mut exposure);
            match ServerId::parse(name) {
                Ok(server) => drop(self.doors.insert(server, exposure)),
                // `each` reads an absent table, so that its keys are known.
                Err(_) if name.is_empty() => {}
                Err(why) => {
                    let whole = section.start_span();
                    section.reject(whole, format!("[discovery.servers]: {why}"));
                }
            }
        });
        for name in section.texts("may_register").into_iter().flatten() {
            match parse_agent(name.get_ref()) {
                Ok(agent) => drop(self.registration.allowed_agents.insert(agent)),
                Err(why) => {
                    section.reject(name.span(), format!("`may_register` in [discovery]: {why}"))
                }
            }
        }
        section.flag("creating", &mut self.registration.suggests_creating);
        section.count(
            "registered_max",
            1..=256,
            &mut self.registration.servers_per_agent,
        );
        let registered = section.subsection("registered", "discovery.registered");
        self.registered = read_registered(registered, folder);
        self.budget = read_budget(section.subsection("budget", "discovery.budget"));
        let provider = section.subsection("provider", "discovery.provider");
        if let Some(provider) = read_provider(provider, folder, env, secrets) {
            self.provider = Some(provider);
        }
        section.finish();
    }
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

/// Settings here override the general ones; tools pinned for all agents are pinned here, too.
fn read_showing(section: &mut Section<'_, '_, '_>, general: &AgentExposure) -> AgentExposure {
    let mut showing = general.clone();
    section.choice("exposure", &EXPOSURES, &mut showing.exposure);
    let (mut pinned, span) = (Vec::new(), section.span("pinned"));
    section.strings("pinned", &mut pinned);
    for pinned_tool in &pinned {
        let pin = match pinned_tool.split_once(['/', ':']) {
            Some((server, tool)) if !server.is_empty() && !tool.is_empty() => {
                Some(canonical_name(&ServerId::new(server), tool))
            }
            None if is_qualified(pinned_tool) => Some(pinned_tool.clone()),
            Some(_) | None => None,
        };
        if let Some(pin) = pin {
            showing.pinned.insert(pin);
            continue;
        }
        let words = format!(
            "`pinned` in {} wants \"server:tool\", not {pinned_tool:?}",
            section.name()
        );
        section.reject(span.clone().unwrap_or_default(), words);
    }
    showing
}

fn read_registered(mut section: Section<'_, '_, '_>, folder: &Path) -> RegisteredConfig {
    // Links are not resolved: a virtual environment is where the link to its interpreter is.
    let mut program = |key| section.text(key).map(|path| folder.join(path.get_ref()));
    let interpreters = Interpreters {
        python: program("python"),
        node: program("node"),
    };
    let registered = RegisteredConfig {
        interpreters,
        read: read_paths(&mut section, "read", folder),
        write: read_paths(&mut section, "write", folder),
    };
    section.finish();
    registered
}

fn read_budget(mut section: Section<'_, '_, '_>) -> Budget {
    let mut budget = Budget::default();
    for (key, into) in [
        ("max_tokens", &mut budget.max_tokens),
        ("pinned_reserve", &mut budget.pinned_reserve),
        ("discovery_reserve", &mut budget.discovery_reserve),
        ("cache_limit", &mut budget.cache_limit),
    ] {
        section.count(key, 0..=MAX_TOKENS, into);
    }
    if let Err(why) = tool_cache::validate_budget(&budget) {
        let whole = section.start_span();
        section.reject(whole, format!("[discovery.budget]: {why}"));
    }
    section.finish();
    budget
}

fn read_provider(
    mut section: Section<'_, '_, '_>,
    folder: &Path,
    env: &Env<'_>,
    secrets: &SecretsConfig,
) -> Option<Provider> {
    let whole = section.start_span();
    let (url, model) = (section.text("url"), section.text("model"));
    let key = section.text("key");
    let (mut timeout, mut batch) = (Duration::from_secs(10), 64);
    section.secs("timeout_secs", 1..=300, &mut timeout);
    section.count("batch", 1..=256, &mut batch);
    if let Some(url) = url.as_ref().filter(|url| !is_safe_url(url.get_ref())) {
        let words = "`url` in [discovery.provider] wants https://, or http:// on this machine";
        section.reject(url.span(), words);
    }
    let mut secret = String::new();
    if let Some(text) = &key {
        let read = |path: &str| env.file(&folder.join(path));
        let variable = |name: &str| env.variable(name);
        let kept = |name: &str| env.secret(name, secrets);
        match resolve_secret(text.get_ref(), "key", variable, read, kept) {
            Ok(value) => secret = value.trim().to_owned(),
            Err(why) => section.reject(text.span(), format!("[discovery.provider]: {why}")),
        }
    }
    let named = url.is_some() || model.is_some() || key.is_some();
    let provider = url.zip(model).map(|(url, model)| Provider {
        url: (*url.get_ref()).to_owned(),
        model: (*model.get_ref()).to_owned(),
        key: Key(secret),
        timeout,
        batch,
    });
    if named && provider.is_none() {
        let words = "[discovery.provider] wants both: `url`, where it answers, and `model`, what it calls the model";
        section.reject(whole, words);
    }
    section.finish();
    provider
}
