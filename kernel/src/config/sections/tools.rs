//! Rules for tools: `[validation]`, and the keys of a server and of single tools.

use mgp_engine::policy::requirements::{ToolRule, ToolRules};
use mgp_protocol::mgp::discovery::security::RiskLevel;
use mgp_screening::Validator;
use mgp_screening::code_safety::Level;

use crate::config::parsing::{ReadSection, Section, nearest, render_list};

/// Longest display name of a tool, in bytes: the maximum that MCP recommends.
const DISPLAY_NAME_MAX: usize = 128;
/// Longest description, in bytes: all agents that see the tool receive it.
const DESCRIPTION_MAX: usize = 16 << 10;

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

/// `[validation]`.
impl ReadSection for ToolRules {
    fn read(&mut self, section: &mut Section<'_, '_, '_>) {
        section.flag("enabled", &mut self.validate_arguments);
        read_roots(section, self);
    }
}

/// The keys of `[servers.mgp]` for all tools of the server.
pub(crate) fn read_server_rules(section: &mut Section<'_, '_, '_>, rules: &mut ToolRules) {
    if let Some(names) = read_validators(section) {
        rules.validators = names;
    }
    section.choice("code_safety", &LEVELS, &mut rules.code_safety);
    section.flag("confirmation", &mut rules.confirm_dangerous);
    read_roots(section, rules);
}

/// `only_tools` and `[servers.tools."name"]`.
pub(crate) fn read_tools(entry: &mut Section<'_, '_, '_>, rules: &mut ToolRules) {
    if let Some(only) = entry.texts("only_tools") {
        let only = only.into_iter().map(|name| name.into_inner().to_owned());
        rules.offered = Some(only.collect());
    }
    entry.for_each_table("tools", |name, section| {
        let mut rule = ToolRule::default();
        section.choice("risk_level", &RISKS, &mut rule.risk_level);
        rule.validators = read_validators(section);
        section.choice("code_safety", &LEVELS, &mut rule.code_safety);
        section.flag("idempotent", &mut rule.idempotent);
        section.parse("name", parse_name, &mut rule.name);
        section.parse("description", parse_description, &mut rule.description);
        section.flag("hidden", &mut rule.hidden);
        if let Some(display_name) = &rule.name
            && rules
                .tools
                .values()
                .any(|other| other.name.as_ref() == Some(display_name))
        {
            let whole = section.start_span();
            let words = format!(
                "{}: another tool of the server has this `name`, too",
                section.name()
            );
            section.reject(whole, words);
        }
        if rule != ToolRule::default() {
            rules.tools.insert(name.to_owned(), rule);
        }
    });
}

/// A name that every client accepts: MCP 2025-11-25, tool names.
fn parse_name(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if (1..=DISPLAY_NAME_MAX).contains(&name.len()) && name.chars().all(plain) {
        Ok(name.to_owned())
    } else {
        Err(format!(
            "it has 1 to {DISPLAY_NAME_MAX} letters, digits, '_', '-' and '.'"
        ))
    }
}

fn parse_description(words: &str) -> Result<String, String> {
    if words.len() > DESCRIPTION_MAX {
        Err(format!("more than {DESCRIPTION_MAX} bytes"))
    } else {
        Ok(words.to_owned())
    }
}

/// An unknown name would enforce something else than intended.
fn read_validators(section: &mut Section<'_, '_, '_>) -> Option<Vec<String>> {
    let names = section.texts("validators")?;
    for name in &names {
        let word = *name.get_ref();
        if Validator::from_name(word).is_none() && word != "none" {
            let near = nearest(word, VALIDATORS).map(|near| format!("; did you mean `{near}`?"));
            let message = format!(
                "unknown validator `{word}` in {}; known are {}{}",
                section.name(),
                render_list(&VALIDATORS),
                near.unwrap_or_default()
            );
            section.reject(name.span(), message);
        }
    }
    Some(
        names
            .into_iter()
            .map(|name| name.into_inner().to_owned())
            .collect(),
    )
}

/// Folders; relative ones start at the file.
fn read_roots(section: &mut Section<'_, '_, '_>, rules: &mut ToolRules) {
    let Some(roots) = section.texts("roots") else {
        return;
    };
    let folder = section.folder();
    let roots = roots.into_iter().map(|root| folder.join(root.into_inner()));
    rules.roots = roots
        .map(|root| root.to_string_lossy().into_owned())
        .collect();
}
