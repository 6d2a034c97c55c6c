//! `[mcpl.inference]` and `[mcpl.providers.*]`: providers of inference.

use std::sync::Arc;
use std::time::Duration;

use mgp_mcpl_engine::inference::InferenceRules;
use mgp_mcpl_engine::inference::provider::{LimitMember, ProviderKey, ProviderKind, ProviderSpec};
use mgp_mcpl_engine::inference::routes::{Destination, RouteKey};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::model::ModelDescription;
use toml::Spanned;

use crate::config::parsing::Section;

const KINDS: [(&str, ProviderKind); 2] = [
    ("openai", ProviderKind::OpenAi),
    ("anthropic", ProviderKind::Anthropic),
];

const LIMIT_MEMBERS: [(&str, LimitMember); 2] = [
    ("max_tokens", LimitMember::MaxTokens),
    ("max_completion_tokens", LimitMember::MaxCompletionTokens),
];

/// Largest limit of tokens for an answer or a day.
const TOKENS_MAX: u64 = 1 << 40;
/// The default context window of a model: that of small ones.
const DEFAULT_CONTEXT_WINDOW: u64 = 8192;

/// Reads both from `[mcpl]`.
pub(super) fn read_inference(mcpl: &mut Section<'_, '_, '_>, rules: &mut InferenceRules) {
    mcpl.for_each_table("providers", |name, section| {
        if let Some(spec) = read_provider(name, section) {
            rules.providers.insert(spec.name.clone(), Arc::new(spec));
        }
    });
    mcpl.subsection("inference", |section| read_rules(section, rules));
}

fn read_rules(section: &mut Section<'_, '_, '_>, rules: &mut InferenceRules) {
    read_routes(section, rules);
    section.count("max_tokens", 1..=TOKENS_MAX, &mut rules.max_tokens);
    let budget = &mut rules.budget;
    section.count("tokens_per_day", 0..=TOKENS_MAX, &mut budget.per_server);
    section.count("tokens_per_day_all", 0..=TOKENS_MAX, &mut budget.total);
    section.secs("agent_timeout_secs", 1..=600, &mut rules.agent_timeout);
    if let Some(prompt) = section.text("push_prompt") {
        if prompt.get_ref().contains("{content}") {
            rules.push_prompt = (*prompt.get_ref()).into();
        } else {
            let why = " wants {content}, the place of what the event says";
            section.reject_key(prompt.span(), "push_prompt", why);
        }
    }
    let usual = rules.budget.per_server;
    let servers = section.named_tables("servers", ServerId::parse_local_or_remote, |section| {
        let mut tokens = usual;
        section.count("tokens_per_day", 0..=TOKENS_MAX, &mut tokens);
        tokens
    });
    rules.budget.servers.extend(servers);
    section.subsection("model", |model| {
        let id = model.text("id").map(|id| (*id.get_ref()).to_owned());
        let info = read_model_facts(model, id.clone().unwrap_or_default(), "");
        if id.is_some() {
            rules.model = Some(info);
        }
    });
}

fn read_routes(section: &mut Section<'_, '_, '_>, rules: &mut InferenceRules) {
    if let Some(text) = section.text("default")
        && let Some(to) = parse_destination(section, "default", &text, rules)
    {
        rules.routes.default = to;
    }
    for (key, to) in section.text_map("routes") {
        match RouteKey::parse(key) {
            Ok(parsed) => {
                if let Some(to) = parse_destination(section, "routes", &to, rules) {
                    rules.routes.rules.insert(parsed, to);
                }
            }
            Err(why) => section.reject_key(to.span(), "routes", &format!(": {why}")),
        }
    }
    for (key, to) in section.text_map("conversations") {
        let pin = key.split_once(':').filter(|(_, id)| !id.is_empty());
        let pin = pin.and_then(|(server, id)| {
            let server = ServerId::parse_local_or_remote(server).ok()?;
            Some((server, id.to_owned()))
        });
        let Some(pin) = pin else {
            let why = format!(": {key:?} is no \"SERVER:CONVERSATION\"");
            section.reject_key(to.span(), "conversations", &why);
            continue;
        };
        if let Some(to) = parse_destination(section, "conversations", &to, rules) {
            rules.routes.pins.insert(pin, to);
        }
    }
    for (key, channel) in section.text_map("push_channels") {
        let is_channel = mgp_mcpl_engine::names::parse_channel(channel.get_ref()).is_some();
        let why = match RouteKey::parse(key) {
            Ok(key) if is_channel => {
                rules.channels.insert(key, (*channel.get_ref()).into());
                continue;
            }
            Ok(_) => format!(": {:?} is no \"SERVER:CHANNEL\"", channel.get_ref()),
            Err(why) => format!(": {why}"),
        };
        section.reject_key(channel.span(), "push_channels", &why);
    }
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
    section.reject_key(text.span(), key, &format!(": {wrong}"));
    None
}

fn read_model_facts(
    section: &mut Section<'_, '_, '_>,
    id: String,
    vendor: &str,
) -> ModelDescription {
    let mut vendor = vendor.to_owned();
    section.string("vendor", &mut vendor);
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

fn read_provider(name: &str, section: &mut Section<'_, '_, '_>) -> Option<ProviderSpec> {
    let mut kind: Option<ProviderKind> = None;
    section.choice("kind", &KINDS, &mut kind);
    let [mut url, mut model]: [Option<String>; 2] = Default::default();
    section.safe_url("url", &mut url);
    section.string("model", &mut model);
    let key = section.secret("key");
    let (mut timeout, mut at_once, mut waiting) = (Duration::from_secs(120), 4, 32);
    section.secs("timeout_secs", 1..=600, &mut timeout);
    section.count("at_once", 1..=256, &mut at_once);
    section.count("waiting", 0..=4096, &mut waiting);
    let mut limit_member = LimitMember::default();
    section.choice("max_tokens_name", &LIMIT_MEMBERS, &mut limit_member);
    let vendor = match kind {
        Some(ProviderKind::OpenAi) => "openai",
        Some(ProviderKind::Anthropic) => "anthropic",
        None => "",
    };
    let info = read_model_facts(section, model.clone().unwrap_or_default(), vendor);
    if !section.is_present() {
        return None;
    }
    let Some(((kind, url), model)) = kind.zip(url).zip(model) else {
        let words = format!(
            "{} wants `kind`, how it is talked to, `url`, where it answers, and `model`, what it calls the model",
            section.name()
        );
        section.reject(section.start_span(), words);
        return None;
    };
    Some(ProviderSpec {
        name: name.into(),
        kind,
        url,
        model,
        key: ProviderKey(key),
        timeout,
        concurrency: at_once,
        queue_limit: waiting,
        limit_member,
        info,
    })
}
