//! Suggestions for misspelled words of the configuration.

pub(crate) use mgp_engine::doors::suggestions::nearest;

/// The equivalent of another program's key.
pub(super) fn equivalent_key(key: &str) -> Option<&'static str> {
    match key {
        "disabled" | "enabled" => Some("start"),
        "type" => Some("transport"),
        "timeout" => Some("call_timeout_secs"),
        _ => None,
    }
}

/// The words as a list in a sentence.
pub(crate) fn render_list(words: &[&str]) -> String {
    words
        .iter()
        .map(|w| format!("`{w}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
