//! Words of the configuration that were probably meant.

pub(crate) use mgp_engine::doors::suggestions::nearest;

/// What other programs' files say, in the words of this one.
pub(super) fn equivalent_key(key: &str) -> Option<&'static str> {
    match key {
        "disabled" | "enabled" => Some("autostart"),
        "type" => Some("transport"),
        "timeout" => Some("call_timeout_secs"),
        _ => None,
    }
}

/// The words as they stand in a sentence.
pub(crate) fn render_list(words: &[&str]) -> String {
    words
        .iter()
        .map(|w| format!("`{w}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
