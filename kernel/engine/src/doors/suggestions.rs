//! Finds the nearest known word for a mistyped one.

/// Most words that are compared: they take half a millisecond.
const COMPARED_MAX: usize = 1_024;
/// Two characters more or less are at most so many bytes.
const LENGTH_DIFFERENCE_MAX: usize = 8;
/// Fewest characters that count as the prefix of a word.
const PREFIX_LEN_MIN: usize = 3;

/// The nearest known word. A long word may have two mistakes, a short one only one: two would turn `tags` into
/// `args`. Case is ignored.
#[must_use]
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let small = word.to_lowercase();
    let slips = |known: &str| {
        let slips = strsim::osa_distance(&small, &known.to_lowercase());
        (slips <= if known.len() <= 4 { 1 } else { 2 }).then_some(slips)
    };
    // If two differ only in case, the one in the same case.
    let exact = |known: &str| strsim::osa_distance(word, known);
    let near = known
        .into_iter()
        .filter(|known| known.len().abs_diff(word.len()) <= LENGTH_DIFFERENCE_MAX)
        .take(COMPARED_MAX)
        .filter_map(|k| Some((slips(k)?, exact(k), k)));
    near.min().map(|(.., k)| k)
}

/// The same for names, where a prefix also counts if only one name begins with it.
#[must_use]
pub fn nearest_name<'k>(
    word: &str,
    known: impl Iterator<Item = &'k str> + Clone,
) -> Option<&'k str> {
    let begins = |known: &&str| {
        (known.starts_with(word) || word.starts_with(known))
            && word.chars().count().min(known.chars().count()) >= PREFIX_LEN_MIN
    };
    nearest(word, known.clone()).or_else(|| {
        let mut beginning = known.filter(begins);
        beginning.next().filter(|_| beginning.next().is_none())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_words_may_have_one_mistake_and_long_ones_two() {
        let known = ["command", "args", "env", "url"];
        let near = |word| nearest(word, known);
        assert_eq!(near("comand"), Some("command"));
        assert_eq!(near("commnda"), Some("command"));
        assert_eq!(near("Command"), Some("command"));
        assert_eq!(near("agrs"), Some("args"));
        assert_eq!(near("evn"), Some("env"));
        assert_eq!(near("tags"), None);
        assert_eq!(near("type"), None);
        assert_eq!(nearest("claud", ["Claude", "claude"]), Some("claude"));
        assert_eq!(nearest("agent", ["agent😀😀"]), Some("agent😀😀"));
    }

    /// Words that are too long or too short to be meant take nothing of the bound.
    #[test]
    fn words_of_other_lengths_are_not_compared() {
        let long: Vec<String> = (0..5_000).map(|n| format!("another-word-{n}")).collect();
        let known = long.iter().map(String::as_str).chain(["claude"]);
        assert_eq!(nearest("claud", known), Some("claude"));
    }

    #[test]
    fn a_unique_prefix_is_suggested() {
        let known = ["filesystem", "list_directory", "list_folders"];
        let near = |word| nearest_name(word, known.into_iter());
        assert_eq!(near("files"), Some("filesystem"));
        assert_eq!(near("list_dir"), Some("list_directory"));
        assert_eq!(near("list"), None);
        assert_eq!(near("fi"), None);
    }
}
