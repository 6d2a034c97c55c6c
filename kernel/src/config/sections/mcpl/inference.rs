//! `[mcpl.inference]` and `[mcpl.providers.*]`: providers of inference.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::env::resolve_secret;
use mgp_mcpl_engine::inference::InferenceRules;
use mgp_mcpl_engine::inference::provider::{LimitMember, ProviderKey, ProviderKind, ProviderSpec};
use mgp_mcpl_engine::inference::routes::{Destination, RouteKey};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::model::ModelDescription;
use mgp_transports::http::is_safe_url;
use toml::Spanned;

use crate::config::parsing::{Env, SecretsConfig, Section};

const KINDS: [(&str, Option<ProviderKind>); 2] = [
    ("openai", Some(ProviderKind::OpenAi)),
    ("anthropic", Some(ProviderKind::Anthropic)),
];

const LIMIT_MEMBERS: [(&str, LimitMember); 2] = [
    ("max_tokens", LimitMember::MaxTokens),
    ("max_completion_tokens", LimitMember::MaxCompletionTokens),
];

/// Largest limit of tokens for an answer or a day.
const TOKENS_MAX: u64 = 1 << 40;
/// The default context window of a model: that of small ones.
const DEFAULT_CONTEXT_WINDOW: u64 = 8192;

/// The keys of providers, which are masked in logs.
pub(crate) fn provider_keys(rules: &InferenceRules) -> impl Iterator<Item = &String> {
    let keys = rules.providers.values().map(|provider| &provider.key.0);
    keys.filter(|key| !key.is_empty())
}

/// Reads both from `[mcpl]`; relative paths start at `folder`, which is the file's.
pub(crate) fn read_inference(
    mcpl: &mut Section<'_, '_, '_>,
    folder: &Path,
    env: &Env<'_>,
    secrets: &SecretsConfig,
    rules: &mut InferenceRules,
) {
    mcpl.for_each_table("providers", "mcpl.providers.*", |name, section| {
        if let Some(spec) = read_provider(name, section, folder, env, secrets) {
            rules.providers.insert(spec.name.clone(), Arc::new(spec));
        }
    });
    read_rules(mcpl.subsection("inference", "mcpl.inference"), rules);
}

fn read_rules(mut section: Section<'_, '_, '_>, rules: &mut InferenceRules) {
    if let Some(text) = section.text("default")
        && let Some(to) = parse_destination(&mut section, "default", &text, rules)
    {
        rules.routes.default = to;
    }
    for (key, to) in section.text_map("routes") {
        let parsed = RouteKey::parse(key);
        match parsed {
            Ok(parsed) => {
                if let Some(to) = parse_destination(&mut section, "routes", &to, rules) {
                    rules.routes.rules.insert(parsed, to);
                }
            }
            Err(why) => section.reject(to.span(), format!("`routes` in [mcpl.inference]: {why}")),
        }
    }
    for (key, to) in section.text_map("conversations") {
        let pin = key.split_once(':').filter(|(_, id)| !id.is_empty());
        let pin = pin.and_then(|(server, id)| {
            let server = ServerId::parse_local_or_remote(server).ok()?;
            Some((server, id.to_owned()))
        });
        match pin {
            Some(pin) => {
                if let Some(to) = parse_destination(&mut section, "conversations", &to, rules) {
                    rules.routes.pins.insert(pin, to);
                }
            }
            None => section.reject(
                to.span(),
                format!(
                    "`conversations` in [mcpl.inference]: {key:?} is no \"SERVER:CONVERSATION\""
                ),
            ),
        }
    }
    for (key, channel) in section.text_map("push_channels") {
        let named = mgp_mcpl_engine::names::parse_channel(channel.get_ref()).is_some();
        match RouteKey::parse(key) {
            Ok(key) if named => drop(rules.channels.insert(key, (*channel.get_ref()).into())),
            Ok(_) => {
                let words = format!(
                    "`push_channels` in [mcpl.inference]: {:?} is no \"SERVER:CHANNEL\"",
                    channel.get_ref()
                );
                section.reject(channel.span(), words);
            }
            Err(why) => {
                section.reject(
                    channel.span(),
                    format!("`push_channels` in [mcpl.inference]: {why}"),
                );
            }
        }
    }
    section.count("max_tokens", 1..=TOKENS_MAX, &mut rules.max_tokens);
    section.count(
        "tokens_per_day",
        0..=TOKENS_MAX,
        &mut rules.budget.per_server,
    );
    section.count(
        "tokens_per_day_all",
        0..=TOKENS_MAX,
        &mut rules.budget.total,
    );
    section.secs("agent_timeout_secs", 1..=600, &mut rules.agent_timeout);
    if let Some(prompt) = section.text("push_prompt") {
        if prompt.get_ref().contains("{content}") {
            rules.push_prompt = (*prompt.get_ref()).into()
        } else {
            section.reject(
                prompt.span(),
                "`push_prompt` in [mcpl.inference] wants {content}, the place of what the event says",
            )
        }
    }
    section.for_each_table("servers", "mcpl.inference.servers.*", |name, section| {
        let mut tokens = rules.budget.per_server;
        section.count("tokens_per_day", 0..=TOKENS_MAX, &mut tokens);
        match ServerId::parse_local_or_remote(name) {
            Ok(server) => drop(rules.budget.servers.insert(server, tokens)),
            // `each` reads an absent table, so that its keys are known.
            Err(_) if name.is_empty() => {}
            Err(why) => {
                let whole = section.start_span();
                section.reject(whole, format!("[mcpl.inference.servers]: {why}"));
            }
        }
    });
    let mut model = section.subsection("model", "mcpl.inference.model");
    let id = model.text("id").map(|id| (*id.get_ref()).to_owned());
    let info = read_model_facts(&mut model, id.clone().unwrap_or_default(), "");
    model.finish();
    if id.is_some() {
        rules.model = Some(info);
    }
    section.finish();
}

/// The destination, if it exists.
fn parse_destination(
    section: &mut Section<'_, '_, '_>,
    key: &str,
    text: &Spanned<&str>,
    rules: &InferenceRules,
) -> Option<Destination> {
    let wrong = match Destination::parse(text.get_ref()) {
        Ok(Destination::Provider(name)) if !rules.providers.contains_key(&name) => {
            let known = rules.providers.keys().map(|name| &**name);
            match mgp_engine::doors::suggestions::nearest(&name, known) {
                Some(near) => format!("there is no [mcpl.providers.{name}]; did you mean {near}?"),
                None => format!("there is no [mcpl.providers.{name}]"),
            }
        }
        Ok(to) => return Some(to),
        Err(why) => why.to_string(),
    };
    section.reject(text.span(), format!("`{key}` in [mcpl.inference]: {wrong}"));
    None
}

fn read_model_facts(
    section: &mut Section<'_, '_, '_>,
    id: String,
    vendor: &str,
) -> ModelDescription {
    let vendor = match section.text("vendor") {
        Some(vendor) => (*vendor.get_ref()).to_owned(),
        None => vendor.to_owned(),
    };
    let (mut context_window, mut capabilities) = (DEFAULT_CONTEXT_WINDOW, Vec::new());
    section.count("context_window", 1..=TOKENS_MAX, &mut context_window);
    section.strings("capabilities", &mut capabilities);
    ModelDescription {
        id,
        vendor,
        context_window,
        capabilities,
    }
}

fn read_provider(
    name: &str,
    section: &mut Section<'_, '_, '_>,
    folder: &Path,
    env: &Env<'_>,
    secrets: &SecretsConfig,
) -> Option<ProviderSpec> {
    let mut kind = None;
    section.choice("kind", &KINDS, &mut kind);
    let (url, model) = (section.text("url"), section.text("model"));
    let key = section.text("key");
    let (mut timeout, mut at_once, mut waiting) = (Duration::from_secs(120), 4, 32);
    section.secs("timeout_secs", 1..=600, &mut timeout);
    section.count("at_once", 1..=256, &mut at_once);
    section.count("waiting", 0..=4096, &mut waiting);
    let mut limit_member = LimitMember::default();
    section.choice("max_tokens_name", &LIMIT_MEMBERS, &mut limit_member);
    let id = model.as_ref().map(|model| (*model.get_ref()).to_owned());
    let vendor = match kind {
        Some(ProviderKind::OpenAi) => "openai",
        Some(ProviderKind::Anthropic) => "anthropic",
        None => "",
    };
    let info = read_model_facts(section, id.unwrap_or_default(), vendor);
    // `each` reads an absent table, so that its keys are known.
    if name.is_empty() {
        return None;
    }
    if let Some(url) = url.as_ref().filter(|url| !is_safe_url(url.get_ref())) {
        let words =
            format!("`url` in [mcpl.providers.{name}] wants https://, or http:// on this machine");
        section.reject(url.span(), words);
    }
    let mut secret = String::new();
    if let Some(text) = &key {
        let read = |path: &str| env.file(&folder.join(path));
        let variable = |name: &str| env.variable(name);
        let kept = |name: &str| env.secret(name, secrets);
        match resolve_secret(text.get_ref(), "key", variable, read, kept) {
            Ok(value) if value.trim().contains(char::is_control) => {
                let words =
                    format!("[mcpl.providers.{name}]: `key` has a control character in its value");
                section.reject(text.span(), words);
            }
            Ok(value) => secret = value.trim().to_owned(),
            Err(why) => section.reject(text.span(), format!("[mcpl.providers.{name}]: {why}")),
        }
    }
    let Some(((kind, url), model)) = kind.zip(url).zip(model) else {
        let whole = section.start_span();
        let words = format!(
            "[mcpl.providers.{name}] wants `kind`, how it is talked to, `url`, where it answers, and `model`, \
             what it calls the model"
        );
        section.reject(whole, words);
        return None;
    };
    Some(ProviderSpec {
        name: name.into(),
        kind,
        url: (*url.get_ref()).to_owned(),
        model: (*model.get_ref()).to_owned(),
        key: ProviderKey(secret),
        timeout,
        concurrency: at_once,
        queue_limit: waiting,
        limit_member,
        info,
    })
}
