//! The canonical digest of a server's manifest (0.5 §17.2): SHA-256 of its canonical JSON (RFC 8785) without `revision`.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::SHA256;
use serde_json::{Map, Value};

/// The domains of a manifest that can change (0.5 §17.1).
pub const DOMAINS: [&str; 3] = ["capabilities", "featureSets", "tagOntology"];

/// A manifest without a digest: its sets could be sorted in two ways.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{identifier:?} is no identifier of a manifest")]
pub struct DigestError {
    /// The text that is no identifier.
    pub identifier: String,
}

/// The canonical JSON of a manifest, without its revision.
///
/// # Errors
/// [`DigestError`] if a text where an identifier belongs is none.
pub fn canonicalize(manifest: &Value) -> Result<String, DigestError> {
    let mut manifest = manifest.clone();
    if let Some(members) = manifest.as_object_mut() {
        members.remove("revision");
        for (name, value) in &mut *members {
            check_identifier(name)?;
            if name == "featureSets" {
                normalize_sets(value)?;
            } else {
                check_member_names(value)?;
            }
        }
    }
    let mut text = String::new();
    write_canonical(&manifest, &mut text);
    Ok(text)
}

/// The revision of a manifest: `sha256:` and the digest in base64url.
///
/// # Errors
/// [`DigestError`].
pub fn digest(manifest: &Value) -> Result<String, DigestError> {
    let hash = ring::digest::digest(&SHA256, canonicalize(manifest)?.as_bytes());
    Ok(format!("sha256:{}", BASE64_URL_SAFE_NO_PAD.encode(hash)))
}

/// False if a manifest has a revision that is not its digest; true without one.
///
/// # Errors
/// [`DigestError`].
pub fn check_revision(manifest: &str) -> Result<bool, DigestError> {
    let Ok(manifest) = serde_json::from_str::<Value>(manifest) else {
        return Ok(false);
    };
    match manifest.get("revision") {
        None => Ok(true),
        Some(revision) => Ok(*revision == digest(&manifest)?),
    }
}

/// The domains in which two manifests differ. An absent and an empty member are different.
#[must_use]
pub fn changed_domains(before: &Value, after: &Value) -> Vec<&'static str> {
    let rest = |manifest: &Value| {
        let mut members = manifest.as_object().cloned().unwrap_or_default();
        for name in ["version", "revision", "featureSets"] {
            members.remove(name);
        }
        members
    };
    let without_tags = |manifest: &Value| {
        let mut sets = manifest.get("featureSets").cloned();
        for set in sets
            .iter_mut()
            .filter_map(Value::as_object_mut)
            .flat_map(Map::values_mut)
        {
            if let Some(set) = set.as_object_mut() {
                set.remove("tagOntology");
            }
        }
        sets
    };
    let tags = |manifest: &Value| -> Option<Vec<(String, Option<Value>)>> {
        let sets = manifest.get("featureSets")?.as_object()?.iter();
        let tags = sets.map(|(name, set)| (name.clone(), set.get("tagOntology").cloned()));
        Some(tags.filter(|(_, tags)| tags.is_some()).collect())
    };
    let changed = [
        rest(before) != rest(after),
        without_tags(before) != without_tags(after),
        tags(before) != tags(after),
    ];
    let all = DOMAINS.into_iter().zip(changed);
    all.filter_map(|(domain, changed)| changed.then_some(domain))
        .collect()
}

fn check_identifier(text: &str) -> Result<(), DigestError> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"._:*-".contains(&b);
    if !text.is_empty() && text.bytes().all(is_allowed) {
        Ok(())
    } else {
        Err(DigestError {
            identifier: text.chars().take(64).collect(),
        })
    }
}

/// The names of capability members, at every depth.
fn check_member_names(value: &Value) -> Result<(), DigestError> {
    for (name, below) in value.as_object().into_iter().flatten() {
        check_identifier(name)?;
        check_member_names(below)?;
    }
    Ok(())
}

/// Sorts what is a set. Only an object of sets is read so; anything else is hashed as it is.
fn normalize_sets(sets: &mut Value) -> Result<(), DigestError> {
    for (name, set) in sets.as_object_mut().into_iter().flatten() {
        check_identifier(name)?;
        normalize_set(set.get_mut("uses"))?;
        let Some(ontology) = set.get_mut("tagOntology") else {
            continue;
        };
        normalize_set(ontology.get_mut("coreTags"))?;
        let tags = ontology.get_mut("tags").and_then(Value::as_object_mut);
        for (tag, described) in tags.into_iter().flatten() {
            check_identifier(tag)?;
            normalize_set(described.get_mut("implies"))?;
        }
        let keyed = ontology.get("keyed").and_then(Value::as_object);
        for (key, family) in keyed.into_iter().flatten() {
            check_identifier(key)?;
            check_strings(family.get("values"))?;
        }
        let rules = ontology.get("suggestedTreatment").and_then(Value::as_array);
        for rule in rules.into_iter().flatten() {
            for matcher in ["tagsAny", "tagsAll", "tagsNone"] {
                check_strings(rule.get(matcher))?;
            }
        }
    }
    Ok(())
}

fn check_strings(list: Option<&Value>) -> Result<(), DigestError> {
    let all = list.and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).try_for_each(check_identifier)
}

/// A list of strings alone is sorted by its bytes, without duplicates.
fn normalize_set(list: Option<&mut Value>) -> Result<(), DigestError> {
    let Some(list) = list.and_then(Value::as_array_mut) else {
        return Ok(());
    };
    if !list.iter().all(Value::is_string) {
        return Ok(());
    }
    let mut texts: Vec<String> = list
        .iter()
        .filter_map(|text| text.as_str().map(str::to_owned))
        .collect();
    texts.iter().try_for_each(|text| check_identifier(text))?;
    sort_set(&mut texts);
    *list = texts.into_iter().map(Value::String).collect();
    Ok(())
}

/// Sorted by UTF-8 bytes, which is the order of `str`.
fn sort_set(texts: &mut Vec<String>) {
    texts.sort_unstable();
    texts.dedup();
}

/// Writes canonical JSON (RFC 8785).
fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(flag) => text.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => text.push_str(&render_number(number.as_f64().unwrap_or(0.0))),
        Value::String(string) => write_string(string, text),
        Value::Array(list) => {
            text.push('[');
            for (index, value) in list.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_canonical(value, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            text.push('{');
            for (index, (name, value)) in members.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_string(name, text);
                text.push(':');
                write_canonical(value, text);
            }
            text.push('}');
        }
    }
}

fn write_string(string: &str, text: &mut String) {
    text.push('"');
    for c in string.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{8}' => text.push_str("\\b"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\u{c}' => text.push_str("\\f"),
            '\r' => text.push_str("\\r"),
            '\0'..'\u{20}' => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => text.push(c),
        }
    }
    text.push('"');
}

/// A number as ECMAScript writes it: the shortest digits that read back as the same number.
fn render_number(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{:e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    // The decimal point is behind so many digits.
    let point = exponent + 1;
    let positional = match point {
        _ if count <= point && point <= 21 => format!("{digits}{}", zeros(point - count)),
        1..=21 => {
            let (whole, rest) = digits.split_at(usize::try_from(point).unwrap_or(0));
            format!("{whole}.{rest}")
        }
        -5..=0 => format!("0.{}{digits}", zeros(-point)),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            format!("{first}{dot}{rest}e{sign}{}", exponent.abs())
        }
    };
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{positional}")
}

#[cfg(test)]
mod tests;
