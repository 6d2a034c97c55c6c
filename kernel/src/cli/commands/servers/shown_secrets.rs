//! Finds and masks secrets in displayed command lines and documents.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::Path;

use mgp_clients::{is_random, is_secret, is_secret_name, is_secret_word};
use serde_json::Value;

/// The options of a server's command line that seem to have a secret value.
pub(super) fn secret_options(words: &[String]) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let (name, value) = match word.split_once('=') {
            // URLs and headers with a secret count, whatever they follow.
            _ if at > 0
                && !word.starts_with('-')
                && !word.contains("${")
                && is_secret_word(word) =>
            {
                let before = words[at - 1].as_str();
                let option = before.starts_with('-').then_some(before);
                let name = word.split([':', '=']).next().unwrap_or_default();
                let named = word.contains('=') && is_secret_name(name);
                // Never returns a part of the possible secret.
                let option = match (named, option) {
                    (true, _) => name,
                    (false, Some(option)) => option,
                    (false, None) if word.contains("://") => "its address",
                    (false, None) => "an argument",
                };
                if !found.contains(&option) {
                    found.push(option);
                }
                continue;
            }
            Some((name, value)) => (name, Some(value)),
            None if word.starts_with('-') => {
                let next = words.get(at + 1).map(String::as_str);
                (word.as_str(), next.filter(|next| !next.starts_with('-')))
            }
            None => continue,
        };
        let literal = |value: &str| !value.is_empty() && !value.contains("${");
        let is_named = |value: &str| word.contains('=') && is_secret(name, value);
        let is_it = value.is_some_and(|value| is_secret_name(name) || is_named(value));
        if is_it && value.is_some_and(literal) && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// Whether nothing in a command line looks like a secret.
pub(super) fn has_none(line: &str) -> bool {
    let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    secret_options(&words).is_empty() && masked_words(line) == line
}

/// The warning about a secret after `option` in the command of an entry.
pub(super) fn open_note(id: &str, option: &str, file: &Path) -> String {
    let what = if option.contains(' ') {
        option.to_owned()
    } else {
        format!("what stands behind `{option}`")
    };
    format!(
        "{id}: {what} looks like a secret. {} has it in clear text, and every user of this machine can read it \
         while {id} runs: arguments take no secret by its name. Most servers take it as a variable, too: \
         `mgp secrets set {id}/NAME` keeps it, NAME = \"secret:{id}/NAME\" below [servers.env] passes it on, and \
         `args` go without it",
        file.display()
    )
}

/// The lines of every value of a document that looks like a secret by its key or form, the longest first: these are
/// found in the file in any notation.
pub(super) fn secret_lines(document: &Value) -> BTreeSet<Reverse<(usize, String)>> {
    let mut found = BTreeSet::new();
    collect_secrets("", document, &mut found);
    found
}

fn collect_secrets(key: &str, value: &Value, found: &mut BTreeSet<Reverse<(usize, String)>>) {
    match value {
        Value::String(text) if is_secret(key, text) || is_secret_word(text) => {
            let lines = text.lines().map(str::trim);
            let lines = lines.filter(|line| line.len() >= SECRET_LENGTH_MIN);
            found.extend(lines.map(|line| Reverse((line.len(), line.to_owned()))));
        }
        Value::Array(items) => {
            let texts = items.iter().map(|item| item.as_str().unwrap_or_default());
            let texts: Vec<_> = texts.collect();
            for (at, text) in texts.iter().enumerate() {
                let before = at.checked_sub(1).map_or("", |at| texts[at]);
                if let Some(secret) = secret_argument(before, text) {
                    found.insert(Reverse((secret.len(), secret.to_owned())));
                }
            }
            items
                .iter()
                .for_each(|item| collect_secrets(key, item, found));
        }
        Value::Object(members) => {
            // An input declared as a password.
            let is_password = members.get("password") == Some(&Value::Bool(true));
            for (name, member) in members {
                let key = if is_password && name == "default" {
                    "password"
                } else {
                    name
                };
                collect_secrets(key, member, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The part of an argument that is a secret by the name of its option: `--token x`, `--token=x`, `TOKEN=x`.
fn secret_argument<'a>(before: &str, argument: &'a str) -> Option<&'a str> {
    let value = match argument.split_once('=') {
        Some((name, value)) if is_secret_name(name) => value,
        Some(_) | None if argument.starts_with('-') => return None,
        Some(_) | None => {
            let is_option = before.starts_with('-') && !before.contains('=');
            Some(argument).filter(|_| is_option && is_secret_name(before))?
        }
    };
    Some(value).filter(|value| value.len() >= SECRET_LENGTH_MIN && !value.contains("${"))
}

/// Shorter ones would mask parts of other words.
const SECRET_LENGTH_MIN: usize = 4;

/// Masks these secrets, and everything that looks like one.
pub(super) fn mask_values(line: &str, secrets: &BTreeSet<Reverse<(usize, String)>>) -> String {
    let secrets = secrets.iter().map(|Reverse((_, secret))| secret.as_str());
    let without = secrets.fold(line.to_owned(), |line, secret| line.replace(secret, "…"));
    masked_words(&mask_secrets(&without))
}

/// Header schemes, and placeholders of masked secrets.
const NO_SECRETS: [&str; 8] = [
    "bearer", "basic", "token", "apikey", "true", "false", "null", "none",
];

/// Masks words that look like secrets or follow the name of one: comments are in no document.
fn masked_words(line: &str) -> String {
    let ends = |c: char| c.is_whitespace() || "\"'`,;(){}[]<>".contains(c);
    let goes_on = |end: &str| !end.starts_with([',', ';', '{', '}', '[', ']']);
    let (mut shown, mut before, mut is_named) = (String::new(), "", false);
    for piece in line.split_inclusive(ends) {
        let word = piece.strip_suffix(ends).unwrap_or(piece);
        let end = &piece[word.len()..];
        let is_literal = |word: &str| {
            let small = word.to_ascii_lowercase();
            word.len() >= SECRET_LENGTH_MIN
                && !word.contains("${")
                && !NO_SECRETS.contains(&&*small)
        };
        let pair = word.split_once(['=', ':']);
        let pair = pair.filter(|(name, value)| is_secret_name(name) && !value.starts_with("//"));
        match pair {
            _ if word.is_empty() => {}
            _ if ["=", ":", "=>"].contains(&word) => is_named = is_secret_name(before),
            Some((name, value)) if !is_named => {
                is_named = !is_literal(value) && goes_on(end);
                shown += &word[..=name.len()];
                shown += if is_literal(value) { "…" } else { value };
                shown += end;
                before = name;
                continue;
            }
            _ => {
                let follows_scheme = ["bearer", "basic"].contains(&&*before.to_ascii_lowercase());
                let alone = is_secret_word(word)
                    || is_random(word)
                    || (follows_scheme && word.len() >= 2 * SECRET_LENGTH_MIN);
                before = word;
                if (is_named && is_literal(word)) || alone {
                    shown += "…";
                    shown += end;
                    is_named &= goes_on(end);
                    continue;
                }
            }
        }
        is_named &= goes_on(end);
        shown += piece;
    }
    shown
}

/// Masks what looks like a secret: the screen may be shared.
pub(super) fn mask_secrets(line: &str) -> String {
    let parts: Vec<&str> = line.split('"').collect();
    let mut shown: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
    for at in (1..parts.len()).step_by(2) {
        let before = parts[at - 1].trim();
        let name = match before.strip_suffix('=').map(str::trim) {
            Some(name) => name.rsplit([' ', ',', '{']).next().unwrap_or_default(),
            None if before == ":" && at >= 2 => parts[at - 2],
            None => "",
        };
        let follows = if before == "," && at >= 2 {
            parts[at - 2]
        } else {
            ""
        };
        if is_secret(name, parts[at]) || (name.is_empty() && is_secret_word(parts[at])) {
            shown[at] = "…".to_owned();
        } else if let Some(secret) = secret_argument(follows, parts[at]).filter(|_| name.is_empty())
        {
            shown[at] = parts[at].replace(secret, "…");
        }
    }
    shown.join("\"")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// By value, in any notation.
    #[test]
    fn secrets_of_a_document_are_masked_in_all_its_lines() {
        let document = json!({
            "env": {"API_KEY": "hush-hush", "LEVEL": "5", "MY_TOKEN": "first line\nsecond line"},
            "headers": {"Authorization": "Bearer abcdefabcdef"},
            "args": ["--token", "tok-en", "--api-key=api-key1", "--max", "1000"],
            "inputs": [{"id": "x", "password": true, "default": "swordfish"}],
        });
        let secrets = secret_lines(&document);
        for (line, shown) in [
            ("  API_KEY: hush-hush", "  API_KEY: …"),
            (
                "  env: {API_KEY: hush-hush, LEVEL: 5}",
                "  env: {API_KEY: …, LEVEL: 5}",
            ),
            ("'MY_TOKEN' = '''first line", "'MY_TOKEN' = '''…"),
            ("second line'''", "…'''"),
            ("    \"hush-hush\"", "    \"…\""),
            ("  Authorization: Bearer abcdefabcdef", "  Authorization: …"),
            ("\"default\": \"swordfish\"", "\"default\": \"…\""),
            ("  LEVEL: 5", "  LEVEL: 5"),
            ("  - tok-en", "  - …"),
            ("  - --api-key=api-key1", "  - --api-key=…"),
            ("  - 1000", "  - 1000"),
        ] {
            assert_eq!(mask_values(line, &secrets), shown);
        }
    }

    /// No parser reads comments: their words are checked.
    #[test]
    fn secrets_in_comments_are_masked() {
        let none = BTreeSet::new();
        for (line, shown) in [
            (
                "  // was ghp_0123456789abcdefghij, until May",
                "  // was …, until May",
            ),
            ("# api_key: hush-hush", "# api_key: …"),
            ("# API_KEY = 'hush-hush' # old", "# API_KEY = '…' # old"),
            ("/* token=hush-hush */", "/* token=… */"),
            (
                "// \"Authorization\": \"Bearer abcdefabcdef\",",
                "// \"Authorization\": \"…\",",
            ),
            (
                "# Authorization: Bearer abcdefabcdef",
                "# Authorization: Bearer …",
            ),
            (
                "// https://h.test/mcp?api_key=hush-hush works",
                "// … works",
            ),
            ("   AbC123dEf456GhI789jKl0", "   …"),
            ("  // the files of my notes", "  // the files of my notes"),
            (
                "  \"url\": \"https://h.test/mcp\", // main",
                "  \"url\": \"https://h.test/mcp\", // main",
            ),
            ("    \"key\": true", "    \"key\": true"),
        ] {
            assert_eq!(mask_values(line, &none), shown);
        }
    }

    #[test]
    fn secrets_are_masked() {
        for (line, shown) in [
            (
                r#"  "env": { "API_KEY": "hush", "LEVEL": "5" }"#,
                r#"  "env": { "API_KEY": "…", "LEVEL": "5" }"#,
            ),
            (
                r#"env = { A_TOKEN = "hush" }"#,
                r#"env = { A_TOKEN = "…" }"#,
            ),
            (
                r#"  "args": ["ghp_0123456789abcdefghij"]"#,
                r#"  "args": ["…"]"#,
            ),
            (
                r#"args = ["mcp-remote", "--header", "Authorization: Bearer abcdefabcdef"]"#,
                r#"args = ["mcp-remote", "--header", "…"]"#,
            ),
            (
                r#"args = ["--api-key=hush", "--token", "hush", "-v", "TOKEN=hush", "--max", "1000"]"#,
                r#"args = ["--api-key=…", "--token", "…", "-v", "TOKEN=…", "--max", "1000"]"#,
            ),
            (r#"  "command": "mgp""#, r#"  "command": "mgp""#),
        ] {
            assert_eq!(mask_secrets(line), shown);
        }
    }

    #[test]
    fn options_with_secrets_are_found() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let line = words("docker run -e GITHUB_TOKEN=ghp_1 --api-key sk-1 --max 5");
        assert_eq!(secret_options(&line), ["GITHUB_TOKEN", "--api-key"]);
        let header = "Authorization: Bearer abcdefabcdef".to_owned();
        let line = ["npx", "mcp-remote", "--header"].map(str::to_owned);
        assert_eq!(
            secret_options(&[&line[..], &[header]].concat()),
            ["--header"]
        );
        let line = words("x --dsn=postgres://me:pw@h/db --api-key=sk-1 --level=5");
        assert_eq!(secret_options(&line), ["--dsn", "--api-key"]);
        let line = words("x --token-limit 100 --key-file ./k --token ${T} --password --verbose");
        assert!(secret_options(&line).is_empty());
    }
}
