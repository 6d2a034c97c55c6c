//! How results are guarded: `[servers.results]`, and `[cluster.results]` for servers of other nodes.

use mgp_screening::results::interceptors::{INTERCEPTORS_MAX, InterceptorName};
use mgp_screening::results::{
    InstructionRule, PATTERNS_MAX, PersonalKind, ResultRules, compile_pattern,
};

use crate::config::parsing::Section;

const INSTRUCTIONS: [(&str, InstructionRule); 3] = [
    ("off", InstructionRule::Off),
    ("warn", InstructionRule::Warn),
    ("hold", InstructionRule::Hold),
];

/// A table, or `results = true` for its defaults.
pub(crate) fn read_results(section: &mut Section<'_, '_, '_>, into: &mut Option<ResultRules>) {
    if let Some(on) = section
        .value("results")
        .and_then(|value| value.get_ref().as_bool())
    {
        *into = on.then(ResultRules::default);
        return;
    }
    section.subsection("results", |section| {
        let mut rules = ResultRules::default();
        section.flag("secrets", &mut rules.secrets);
        section.flag("unseen", &mut rules.unseen);
        section.choice("instructions", &INSTRUCTIONS, &mut rules.instructions);
        read_personal(section, &mut rules.personal);
        read_patterns(section, &mut rules.patterns);
        read_interceptors(section, &mut rules.interceptors);
        *into = section.is_present().then_some(rules);
    });
}

fn read_personal(section: &mut Section<'_, '_, '_>, into: &mut Vec<PersonalKind>) {
    let Some(names) = section.texts("personal") else {
        return;
    };
    into.clear();
    for name in &names {
        let mut all = PersonalKind::ALL.into_iter();
        match all.find(|kind| kind.as_str() == *name.get_ref()) {
            Some(kind) if into.contains(&kind) => {}
            Some(kind) => into.push(kind),
            None => {
                let known = PersonalKind::ALL.map(PersonalKind::as_str).join(", ");
                let why = format!(": {:?} is none of {known}", name.get_ref());
                section.reject_key(name.span(), "personal", &why);
            }
        }
    }
}

fn read_patterns(section: &mut Section<'_, '_, '_>, into: &mut Vec<String>) {
    let Some(patterns) = section.texts("patterns") else {
        return;
    };
    if let Some(beyond) = patterns.get(PATTERNS_MAX) {
        let why = format!(" has more than {PATTERNS_MAX} patterns");
        section.reject_key(beyond.span(), "patterns", &why);
    }
    for pattern in &patterns {
        if let Err(why) = compile_pattern(pattern.get_ref()) {
            let why = format!(": {:?} cannot be searched for: {why}", pattern.get_ref());
            section.reject_key(pattern.span(), "patterns", &why);
        }
    }
    *into = patterns
        .iter()
        .map(|pattern| (*pattern.get_ref()).to_owned())
        .collect();
}

fn read_interceptors(section: &mut Section<'_, '_, '_>, into: &mut Vec<InterceptorName>) {
    let Some(names) = section.texts("interceptors") else {
        return;
    };
    if let Some(beyond) = names.get(INTERCEPTORS_MAX) {
        let why = format!(" has more than {INTERCEPTORS_MAX} interceptors");
        section.reject_key(beyond.span(), "interceptors", &why);
    }
    into.clear();
    for name in &names {
        match name.get_ref().parse() {
            Ok(name) => into.push(name),
            Err(why) => {
                let why = format!(": {:?}: {why}", name.get_ref());
                section.reject_key(name.span(), "interceptors", &why);
            }
        }
    }
}
