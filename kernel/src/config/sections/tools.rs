//! What the operator says of tools: `[validation]`, and the keys of a server and of single tools.

use std::path::Path;

use mgp_engine::policy::requirements::{ToolRule, ToolRules};
use mgp_protocol::mgp::discovery::security::RiskLevel;
use mgp_screening::code_safety::Level;
use mgp_screening::validators::Validator;

use crate::config::reading::{Section, listed, nearest};

const LEVELS: [(&str, Level); 4] = [
    ("unrestricted", Level::Unrestricted),
    ("standard", Level::Standard),
    ("strict", Level::Strict),
    ("readonly", Level::Readonly),
];
const RISKS: [(&str, RiskLevel); 3] = [
    ("safe", RiskLevel::Safe),
    ("moderate", RiskLevel::Moderate),
    ("dangerous", RiskLevel::Dangerous),
];
const VALIDATORS: [&str; 5] = [
    "sandbox",
    "readonly",
    "network_restricted",
    "code_safety",
    "none",
];

/// `[validation]`: what holds for every server.
pub(crate) fn read_validation(
    mut section: Section<'_, '_, '_>,
    folder: &Path,
    rules: &mut ToolRules,
) {
    section.flag("enabled", &mut rules.validates);
    read_roots(&mut section, folder, rules);
    section.finish();
}

/// The keys of `[servers.mgp]` that are about all tools of the server.
pub(crate) fn read_server_rules(
    section: &mut Section<'_, '_, '_>,
    rules: &mut ToolRules,
    folder: &Path,
) {
    if let Some(names) = read_validators(section) {
        rules.validators = names;
    }
    section.choice("code_safety", &LEVELS, &mut rules.code_safety);
    section.flag("confirmation", &mut rules.confirms);
    read_roots(section, folder, rules);
}

/// `[servers.tools."name"]`.
pub(crate) fn read_tools(entry: &mut Section<'_, '_, '_>, rules: &mut ToolRules) {
    entry.each("tools", "servers.tools.*", |name, section| {
        let mut rule = ToolRule::default();
        let risks = RISKS.map(|(word, level)| (word, Some(level)));
        section.choice("risk_level", &risks, &mut rule.risk_level);
        rule.validators = read_validators(section);
        let levels = LEVELS.map(|(word, level)| (word, Some(level)));
        section.choice("code_safety", &levels, &mut rule.code_safety);
        section.flag("idempotent", &mut rule.idempotent);
        if rule != ToolRule::default() {
            rules.tools.insert(name.to_owned(), rule);
        }
    });
}

/// A name nobody knows would hold the tool to something else than was meant.
fn read_validators(section: &mut Section<'_, '_, '_>) -> Option<Vec<String>> {
    let names = section.texts("validators")?;
    for name in &names {
        let word = *name.get_ref();
        if Validator::named(word).is_none() && word != "none" {
            let near = nearest(word, VALIDATORS).map(|near| format!("; is `{near}` meant?"));
            let message = format!(
                "unknown validator `{word}` in {}; known are {}{}",
                section.name(),
                listed(&VALIDATORS),
                near.unwrap_or_default()
            );
            section.refuse(name.span(), message);
        }
    }
    Some(
        names
            .into_iter()
            .map(|name| name.into_inner().to_owned())
            .collect(),
    )
}

/// Folders; a relative one starts at the file.
fn read_roots(section: &mut Section<'_, '_, '_>, folder: &Path, rules: &mut ToolRules) {
    let Some(roots) = section.texts("roots") else {
        return;
    };
    let roots = roots.into_iter().map(|root| folder.join(root.into_inner()));
    rules.roots = roots
        .map(|root| root.to_string_lossy().into_owned())
        .collect();
}
