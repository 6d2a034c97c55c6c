//! How a client declares MGP, in either era.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};

use super::envelope::MODERN;

/// The nine extensions of MGP 0.2.
pub const NINE: [&str; 9] = [
    "security",
    "access_control",
    "audit",
    "code_safety",
    "lifecycle",
    "streaming",
    "bidirectional",
    "discovery",
    "tool_discovery",
];

/// In the entry of a server that may read the audit log.
pub const READS_AUDIT_LOG: &str = "permissions = [\"dev.cloto.mgp.audit_log\"]\n";

/// Where 2026-07-28 carries the declaration, below `extensions`.
pub const EXTENSION: &str = "dev.cloto/mgp";

/// A declaration of MGP 0.2.0 with these extensions.
#[must_use]
pub fn declaration(extensions: &[&str]) -> Value {
    json!({"version": "0.2.0", "extensions": extensions})
}

/// The capabilities (JSON) of a client of this version, with a declaration where that version has it.
///
/// # Panics
/// When `capabilities` are no JSON object.
#[must_use]
pub fn declaring(version: &str, capabilities: &str, declaration: &Value) -> String {
    let mut all: Value = serde_json::from_str(capabilities).expect("a test gives JSON");
    match version {
        MODERN => all["extensions"][EXTENSION] = declaration.clone(),
        _ => all["mgp"] = declaration.clone(),
    }
    all.to_string()
}

/// The capabilities of a client of this version that can do nothing but all of MGP.
#[must_use]
pub fn speaks_mgp(version: &str) -> String {
    declaring(version, "{}", &declaration(&NINE))
}

/// What a kernel or server of this version answered to a declaration, in its capabilities; null when
/// it said nothing of MGP.
#[must_use]
pub fn declared(version: &str, capabilities: &Value) -> Value {
    match version {
        MODERN => capabilities["extensions"][EXTENSION].clone(),
        _ => capabilities["mgp"].clone(),
    }
}

/// A trace id for a part of a test: the same UUID for the same words.
#[must_use]
pub fn trace(words: &str) -> String {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    let n = hasher.finish();
    let (high, low) = (n >> 32, n & 0xffff_ffff);
    format!("{high:08x}-{:04x}-4000-8000-{low:012x}", low & 0xffff)
}
