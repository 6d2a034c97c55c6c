//! `[discovery]`: how tools are found.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use mgp_actors::finder::{Embedding, Key, Provider};
use mgp_actors::oauth::is_safe;
use mgp_actors::registrar::Licence;
use mgp_engine::env::resolve_secret;
use mgp_engine::exposure::Exposure;
use mgp_protocol::ids::{AgentId, ServerId};

use super::Env;
use super::section::Section;
use super::values::read_secret;

/// What agents are shown, by its word.
const EXPOSURES: [(&str, Exposure); 3] = [
    ("all", Exposure::All),
    ("pinned", Exposure::Pinned),
    ("discovery", Exposure::Discovery),
];

/// `[discovery]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// Whether the model in the program is used, where no provider is.
    builtin: bool,
    /// `[discovery.provider]`, where it names a URL.
    provider: Option<Provider>,
    /// What agents are shown of all tools.
    pub exposure: Exposure,
    /// Always shown: `server/tool`.
    pub pinned: BTreeSet<(ServerId, String)>,
    /// Which agents may register servers, and how many.
    pub licence: Licence,
}

impl Default for Discovery {
    fn default() -> Self {
        Self {
            builtin: true,
            provider: None,
            exposure: Exposure::All,
            pinned: BTreeSet::new(),
            licence: Licence {
                agents: BTreeSet::new(),
                most: 8,
            },
        }
    }
}

impl Discovery {
    /// Where meanings come from: a provider goes before the model in the program.
    #[must_use]
    pub fn embedding(&self) -> Embedding {
        match (&self.provider, self.builtin) {
            (Some(provider), _) => Embedding::Provider(provider.clone()),
            (None, true) => Embedding::Builtin,
            (None, false) => Embedding::Off,
        }
    }

    /// What nobody is to read.
    #[must_use]
    pub fn secret(&self) -> Option<&str> {
        let key = self.provider.as_ref().map(|provider| &*provider.key.0);
        key.filter(|key| !key.is_empty())
    }

    pub(super) fn read(&mut self, mut section: Section<'_, '_, '_>, folder: &Path, env: &Env<'_>) {
        section.choice(
            "embedding",
            &[("builtin", true), ("off", false)],
            &mut self.builtin,
        );
        section.choice("exposure", &EXPOSURES, &mut self.exposure);
        let (mut pinned, span) = (Vec::new(), section.span("pinned"));
        section.strings("pinned", &mut pinned);
        for place in &pinned {
            match place.split_once('/') {
                Some((server, tool)) if !server.is_empty() && !tool.is_empty() => {
                    let pin = (ServerId::new(server), tool.to_owned());
                    self.pinned.insert(pin);
                }
                Some(_) | None => {
                    let words =
                        format!("`pinned` in [discovery] wants \"server/tool\", not {place:?}");
                    section.refuse(span.clone().unwrap_or_default(), words);
                }
            }
        }
        let mut agents = Vec::new();
        section.strings("may_register", &mut agents);
        self.licence
            .agents
            .extend(agents.into_iter().map(AgentId::new));
        section.count("registered_max", 1..=256, &mut self.licence.most);
        let provider = section.inner("provider", "discovery.provider");
        if let Some(provider) = read_provider(provider, folder, env) {
            self.provider = Some(provider);
        }
        section.finish();
    }
}

fn read_provider(
    mut section: Section<'_, '_, '_>,
    folder: &Path,
    env: &Env<'_>,
) -> Option<Provider> {
    let whole = section.whole();
    let (url, model) = (section.text("url"), section.text("model"));
    let key = section.text("key");
    let (mut timeout, mut batch) = (Duration::from_secs(10), 64);
    section.secs("timeout_secs", 1..=300, &mut timeout);
    section.count("batch", 1..=256, &mut batch);
    if let Some(url) = url.as_ref().filter(|url| !is_safe(url.get_ref())) {
        let words = "`url` in [discovery.provider] wants https://, or http:// on this machine";
        section.refuse(url.span(), words);
    }
    let mut secret = String::new();
    if let Some(text) = &key {
        let read = |path: &str| read_secret(&folder.join(path));
        match resolve_secret(text.get_ref(), "key", env, read) {
            Ok(value) => secret = value.trim().to_owned(),
            Err(why) => section.refuse(text.span(), format!("[discovery.provider]: {why}")),
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
        section.refuse(whole, words);
    }
    section.finish();
    provider
}
