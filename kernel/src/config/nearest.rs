//! Words that were probably meant.

/// The known word that was probably meant. Two slips are forgiven in a long word; in a short one,
/// where two slips turn `tags` into `args`, only one is.
pub(super) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let near = |k: &&&str| {
        let slips = strsim::osa_distance(word, k);
        slips <= if k.len() <= 4 { 1 } else { 2 }
    };
    known
        .iter()
        .filter(near)
        .min_by_key(|k| strsim::osa_distance(word, k))
        .copied()
}

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
pub(super) fn listed(words: &[&str]) -> String {
    words
        .iter()
        .map(|w| format!("`{w}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_words_forgive_one_slip_and_long_ones_two() {
        let known = ["command", "args", "env", "url"];
        assert_eq!(nearest("comand", &known), Some("command"));
        assert_eq!(nearest("commnda", &known), Some("command"));
        assert_eq!(nearest("agrs", &known), Some("args"));
        assert_eq!(nearest("evn", &known), Some("env"));
        assert_eq!(nearest("tags", &known), None);
        assert_eq!(nearest("type", &known), None);
    }
}
