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
    let read = server.named_tables("scopes", parse_set_name, |section| {
        let mut rules = ScopeRules::default();
        section.parse("label", LabelTemplate::parse, &mut rules.label);
        rules.whitelist = read_patterns(section, "whitelist");
        rules.blacklist = read_patterns(section, "blacklist");
        rules.enrich = read_enrichments(section);
        rules
    });
    read.into_iter().collect()
}

fn parse_set_name(name: &str) -> Result<String, String> {
    if is_valid_name(name) {
        Ok(name.to_owned())
    } else {
        Err(format!("{name:?} is no name of a feature set"))
    }
}

fn read_patterns(section: &mut Section<'_, '_, '_>, key: &'static str) -> Vec<ScopePattern> {
    let patterns = section.parse_each(key, ScopePattern::parse);
    let mut patterns = patterns.unwrap_or_default();
    if patterns.len() > PATTERNS_MAX {
        let span = section.span(key).unwrap_or_default();
        section.reject_key(span, key, &format!(" has more than {PATTERNS_MAX}"));
        patterns.truncate(PATTERNS_MAX);
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
            let why = " wants, for each pattern of labels, a table of what is added";
            section.reject_key(pattern.span(), "enrich", why);
            continue;
        };
        let mut members = BTreeMap::new();
        for (name, value) in table {
            match value_to_json(value) {
                Some(json) => drop(members.insert(name.get_ref().to_string(), json)),
                None => {
                    let why = " adds texts, whole numbers and truth values";
                    section.reject_key(value.span(), "enrich", why);
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
