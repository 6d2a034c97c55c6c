//! `[mcpl.servers.*.scopes.*]`: the scopes of a set.

use std::collections::BTreeMap;

use mgp_json::quote;
use mgp_mcpl_engine::scopes::template::LabelTemplate;
use mgp_mcpl_engine::scopes::{PATTERNS_MAX, ScopePattern, ScopeRules};
use mgp_protocol::mcpl::feature_sets::is_valid_name;
use toml::Spanned;
use toml::de::DeValue;

use crate::config::parsing::Section;

/// Reads the scopes of all sets of a server.
pub(super) fn read_scopes(server: &mut Section<'_, '_, '_>) -> BTreeMap<String, ScopeRules> {
    let mut all = BTreeMap::new();
    server.for_each_table("scopes", "mcpl.servers.*.scopes.*", |set, section| {
        let rules = ScopeRules {
            label: read_label(section),
            whitelist: read_patterns(section, "whitelist"),
            blacklist: read_patterns(section, "blacklist"),
            enrich: read_enrichments(section),
        };
        match is_valid_name(set) {
            true => drop(all.insert(set.to_owned(), rules)),
            // `each` reads an absent table, so that its keys are known.
            false if set.is_empty() => {}
            false => {
                let (whole, name) = (section.start_span(), section.name().to_owned());
                section.reject(
                    whole,
                    format!("{name}: {set:?} is no name of a feature set"),
                );
            }
        }
    });
    all
}

fn read_label(section: &mut Section<'_, '_, '_>) -> Option<LabelTemplate> {
    let text = section.text("label")?;
    match LabelTemplate::parse(text.get_ref()) {
        Ok(template) => Some(template),
        Err(why) => {
            let words = format!("`label` in {}: {why}", section.name());
            section.reject(text.span(), words);
            None
        }
    }
}

fn read_patterns(section: &mut Section<'_, '_, '_>, key: &'static str) -> Vec<ScopePattern> {
    let mut patterns = Vec::new();
    for text in section.texts(key).unwrap_or_default() {
        match ScopePattern::parse(text.get_ref()) {
            Ok(_) if patterns.len() >= PATTERNS_MAX => {
                let words = format!("`{key}` in {} has more than {PATTERNS_MAX}", section.name());
                section.reject(text.span(), words);
            }
            Ok(pattern) => patterns.push(pattern),
            Err(why) => {
                let words = format!("`{key}` in {}: {why}", section.name());
                section.reject(text.span(), words);
            }
        }
    }
    patterns
}

/// `enrich."#general" = { channel_id = "C1" }`.
fn read_enrichments(
    section: &mut Section<'_, '_, '_>,
) -> Vec<(ScopePattern, BTreeMap<String, String>)> {
    let mut all = Vec::new();
    for (pattern, added) in section.table("enrich").into_iter().flatten() {
        let read = ScopePattern::parse(pattern.get_ref());
        let (Ok(read), Some(table)) = (read, added.get_ref().as_table()) else {
            let words = format!(
                "`enrich` in {} wants, for each pattern of labels, a table of what is added",
                section.name()
            );
            section.reject(pattern.span(), words);
            continue;
        };
        let mut members = BTreeMap::new();
        for (name, value) in table {
            match value_to_json(value) {
                Some(json) => drop(members.insert(name.get_ref().to_string(), json)),
                None => {
                    let words = format!(
                        "`enrich` in {} adds texts, whole numbers and truth values",
                        section.name()
                    );
                    section.reject(value.span(), words);
                }
            }
        }
        all.push((read, members));
    }
    all
}

fn value_to_json(value: &Spanned<DeValue<'_>>) -> Option<String> {
    let value = value.get_ref();
    let number = || value.as_integer()?.as_str().parse::<i64>().ok();
    let text = value.as_str().map(quote);
    text.or_else(|| value.as_bool().map(|flag| flag.to_string()))
        .or_else(|| number().map(|number| number.to_string()))
}
