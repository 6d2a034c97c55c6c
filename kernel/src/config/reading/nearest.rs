//! Words of the configuration that were probably meant.

pub(crate) use mgp_engine::doors::nearest::nearest;

/// What other programs' files say, in the words of this one.
pub(super) fn here_called(key: &str) -> Option<&'static str> {
    match key {
        "disabled" | "enabled" => Some("autostart"),
        "type" => Some("transport"),
        "timeout" => Some("call_timeout_secs"),
        _ => None,
    }
}

/// The words as they stand in a sentence.
pub(crate) fn listed(words: &[&str]) -> String {
    words
        .iter()
        .map(|w| format!("`{w}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
