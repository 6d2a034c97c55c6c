//! Methods of the protocol: the name says where the type stands.

use crate::workspace::sources;

/// A method's name is its address: all but the last word is the file, the last word the type.
#[test]
fn a_methods_name_is_its_address() {
    let mut seen = 0;
    for (file, text) in sources() {
        let Some(within) = file.strip_prefix("kernel/protocol/src/") else {
            continue;
        };
        let file_module = within.trim_end_matches(".rs").to_owned();
        let mut module = file_module.clone();
        for line in text.lines() {
            // A module within the file ends where its brace stands at the margin.
            if line == "}" {
                module.clone_from(&file_module);
            }
            let line = line.trim();
            if let Some(inner) = line
                .strip_prefix("pub mod ")
                .and_then(|l| l.strip_suffix(" {"))
            {
                module = format!("{module}/{inner}");
            }
            let Some((name, word)) = method(line) else {
                continue;
            };
            seen += 1;
            assert_eq!(address(name), (module.clone(), word), "{name} in {file}");
        }
    }
    assert!(seen > 25, "only {seen} methods were found");
}

/// `"tools/call" => Call<'_>,` gives the method and its type.
fn method(line: &str) -> Option<(&str, String)> {
    let at = line.find('"')?;
    let (name, rest) = line[at + 1..].split_once("\" => ")?;
    let wordy = |c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '.' | '_');
    if name.is_empty() || !name.chars().all(wordy) {
        return None;
    }
    let word = rest.split(['<', ',', ' ', '}']).next()?;
    Some((name, word.to_owned()))
}

fn address(method: &str) -> (String, String) {
    let name = method.strip_prefix("notifications/").unwrap_or(method);
    let name = name.replace("mgp.", "mgp/").replace('.', "/");
    let family = match name.split('/').next() {
        Some("mgp" | "mcpl") => "",
        Some(first) if OF_MCPL.contains(&first) => "mcpl/",
        Some(_) | None => "mcp/",
    };
    let path = format!("{family}{name}");
    let (module, word) = path.rsplit_once('/').unwrap();
    (snake(module), camel(word))
}

/// What methods of MCPL begin with.
const OF_MCPL: [&str; 8] = [
    "channels",
    "context",
    "featureSets",
    "inference",
    "model",
    "push",
    "scope",
    "state",
];

/// `featureSets` is the file `feature_sets`.
fn snake(module: &str) -> String {
    let mut out = String::new();
    for c in module.chars() {
        if c.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

fn camel(word: &str) -> String {
    let mut out = String::new();
    let mut upper = true;
    for c in word.chars() {
        match (c, upper) {
            ('_', _) => upper = true,
            (c, true) => {
                out.extend(c.to_uppercase());
                upper = false;
            }
            (c, false) => out.push(c),
        }
    }
    out
}
