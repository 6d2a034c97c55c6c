//! Everyday words, said as definitions of tools say them: who wants a picture shrunk looks for a tool
//! that compresses an image, and neither its words nor a small model's idea of them lead there.
//!
//! The list is of the language, not of servers: what stands in it must hold for any tool of its field.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::tools::index::terms::stem;

/// `way to say it, another way = words of definitions`, line by line.
static SYNONYM_LINES: &str = include_str!("everyday.txt");

/// Most of them that are added to a request: each has a vector of its own.
pub(super) const SYNONYMS_MAX: usize = 16;

/// A way to say something, and how definitions say it.
struct SynonymPhrase {
    words: Vec<String>,
    synonyms: Vec<&'static str>,
}

/// By their first word; of those that share it the longest first.
static PHRASES: LazyLock<HashMap<String, Vec<SynonymPhrase>>> = LazyLock::new(|| {
    let mut phrases: HashMap<String, Vec<SynonymPhrase>> = HashMap::new();
    let lines = SYNONYM_LINES.lines().filter(|line| !line.starts_with('#'));
    for (ways, said) in lines.filter_map(|line| line.split_once(" = ")) {
        for words in ways.split(", ").map(phrase_stems) {
            let first = words.first().cloned().unwrap_or_default();
            let alike = phrases.entry(first).or_default();
            match alike.iter_mut().find(|other| other.words == words) {
                Some(known) => known.synonyms.push(said),
                None => alike.push(SynonymPhrase {
                    words,
                    synonyms: vec![said],
                }),
            }
        }
    }
    for alike in phrases.values_mut() {
        alike.sort_by_key(|phrase| std::cmp::Reverse(phrase.words.len()));
    }
    phrases
});

/// How definitions say what this text says, each once.
pub(super) fn find_synonyms(text: &str) -> Vec<&'static str> {
    let words = phrase_stems(text);
    let mut rest = &words[..];
    let mut out = Vec::new();
    while let Some(first) = rest.first() {
        let alike = PHRASES.get(first).into_iter().flatten();
        let mut fitting = alike.filter(|phrase| rest.starts_with(&phrase.words));
        let Some(phrase) = fitting.next() else {
            rest = &rest[1..];
            continue;
        };
        rest = &rest[phrase.words.len()..];
        for said in &phrase.synonyms {
            if !out.contains(said) {
                out.push(*said);
            }
        }
        if out.len() >= SYNONYMS_MAX {
            out.truncate(SYNONYMS_MAX);
            break;
        }
    }
    out
}

/// All words as stems: those that tell nothing by themselves tell something in a phrase.
fn phrase_stems(text: &str) -> Vec<String> {
    let plain = text.to_lowercase().replace('’', "'");
    let parts = plain.split(|c: char| !(c.is_alphanumeric() || matches!(c, '\'' | '-')));
    let bare = parts.map(|part| part.trim_matches(['\'', '-']));
    let bare = bare.filter(|part| !part.is_empty());
    bare.map(|part| stem(part.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_longest_synonym_matches_in_any_form() {
        assert_eq!(find_synonyms("Zip the photos"), ["compress", "image"]);
        assert_eq!(
            find_synonyms("do you remember?"),
            find_synonyms("Do you REMEMBER")
        );
        assert_ne!(find_synonyms("do you remember"), find_synonyms("remember"));
        assert_eq!(find_synonyms("transmogrify"), Vec::<&str>::new());
        assert_eq!(find_synonyms(""), Vec::<&str>::new());
    }

    #[test]
    fn synonyms_of_a_long_text_are_bounded() {
        assert!(find_synonyms(SYNONYM_LINES).len() <= SYNONYMS_MAX);
    }

    #[test]
    fn each_line_is_read_and_each_way_stands_in_it_once() {
        for line in SYNONYM_LINES
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let (ways, said) = line.split_once(" = ").expect(line);
            let ways: Vec<_> = ways.split(", ").map(phrase_stems).collect();
            assert!(
                ways.iter().all(|way| !way.is_empty()) && !said.is_empty(),
                "{line}"
            );
            assert_eq!(
                ways.iter().collect::<BTreeSet<_>>().len(),
                ways.len(),
                "{line}"
            );
        }
    }
}
