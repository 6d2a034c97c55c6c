//! Names that are almost right: a word of a question that no tool has is read as the words of names
//! that differ from it by a letter or two.

use std::collections::{BTreeMap, BTreeSet};

use crate::tools::index::entry::IndexDraft;
use crate::tools::index::terms::{Term, split_name_stems};

/// Shortest word that is corrected: of three letters everything is a letter away.
const LENGTH_MIN: usize = 4;
/// From so many letters on, two may differ.
const TWO_EDITS_LENGTH: usize = 8;
/// Longest word that is corrected.
const LENGTH_MAX: usize = 48;
/// Most words read of one name.
const WORDS_MAX: usize = 32;

/// The words of one server's names, each once.
#[derive(Debug, Default, PartialEq)]
pub(in crate::tools::index) struct NameWords {
    /// Side by side: most words are told apart by these alone.
    shapes: Box<[LetterSet]>,
    names: Box<[NameWord]>,
}

#[derive(Debug, PartialEq)]
struct NameWord {
    word: Box<str>,
    term: Term,
    /// In whose names it stands.
    tools: Box<[u32]>,
}

/// Which letters occur in a word, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LetterSet {
    letters: u64,
    length: usize,
}

/// A word that may be meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::tools::index) struct SpellingGuess {
    pub(in crate::tools::index) distance: usize,
    pub(in crate::tools::index) word: Box<str>,
    pub(in crate::tools::index) term: Term,
}

impl NameWords {
    pub(in crate::tools::index) fn from_drafts(drafts: &[IndexDraft]) -> Self {
        let mut words: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for (tool, draft) in (0..).zip(drafts) {
            for word in split_name_stems(&draft.entry.name, WORDS_MAX) {
                words.entry(word).or_default().insert(tool);
            }
        }
        let words = words
            .into_iter()
            .filter(|(word, _)| word.len() >= LENGTH_MIN - 1);
        let name = |(word, tools): (String, BTreeSet<u32>)| NameWord {
            term: Term::from_stem(&word),
            word: word.into(),
            tools: tools.into_iter().collect(),
        };
        let names: Box<[NameWord]> = words.map(name).collect();
        Self {
            shapes: names
                .iter()
                .map(|name| LetterSet::from_word(&name.word))
                .collect(),
            names,
        }
    }

    /// The words that are near to this one and stand in the name of a tool that is `seen`.
    pub(in crate::tools::index) fn find_near<'a>(
        &'a self,
        misspelt: &'a MisspelledWord,
        seen: impl Fn(u32) -> bool + 'a,
    ) -> impl Iterator<Item = SpellingGuess> + 'a {
        let shapes = self.shapes.iter().zip(&self.names);
        let alike = shapes.filter(|(shape, _)| misspelt.can_match(**shape));
        alike.filter_map(move |(_, name)| {
            let distance = misspelt.distance(&name.word)?;
            let known = name.tools.iter().any(|tool| seen(*tool));
            known.then(|| SpellingGuess {
                distance,
                word: name.word.clone(),
                term: name.term,
            })
        })
    }
}

/// A word that no tool has.
pub(in crate::tools::index) struct MisspelledWord {
    word: String,
    shape: LetterSet,
    may_differ: usize,
}

impl MisspelledWord {
    /// `None` when the word is too short or too long to guess at, or has no letters.
    pub(in crate::tools::index) fn parse(word: &str) -> Option<Self> {
        let guessable = (LENGTH_MIN..=LENGTH_MAX).contains(&word.len())
            && word.bytes().all(|b| b.is_ascii_alphabetic());
        guessable.then(|| Self {
            word: word.to_owned(),
            shape: LetterSet::from_word(word),
            may_differ: if word.len() < TWO_EDITS_LENGTH { 1 } else { 2 },
        })
    }

    /// Each edit changes at most two of the letters that occur, so most words are told apart by
    /// counting bits.
    fn can_match(&self, shape: LetterSet) -> bool {
        let apart = self.shape.length.abs_diff(shape.length);
        let unlike = (self.shape.letters ^ shape.letters).count_ones() as usize;
        apart <= self.may_differ && unlike <= 2 * self.may_differ
    }

    fn distance(&self, name: &str) -> Option<usize> {
        let distance = edit_distance(self.word.as_bytes(), name.as_bytes());
        (distance <= self.may_differ).then_some(distance)
    }
}

impl LetterSet {
    fn from_word(word: &str) -> Self {
        let letters = word.bytes().fold(0, |set, byte| set | 1 << (byte % 64));
        Self {
            letters,
            length: word.len(),
        }
    }
}

/// Letters to add, drop, change or swap with their neighbour.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1; b.len() + 1];
        for j in 0..b.len() {
            let changed = last[j] + usize::from(a[i] != b[j]);
            let mut least = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            row[j + 1] = least;
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insertions_deletions_substitutions_and_swaps_are_found() {
        for (a, b, distance) in [
            ("fiel", "file", 1),
            ("fil", "file", 1),
            ("filee", "file", 1),
            ("pile", "file", 1),
            ("direcotyr", "directory", 2),
            ("cat", "dog", 3),
        ] {
            assert_eq!(
                edit_distance(a.as_bytes(), b.as_bytes()),
                distance,
                "{a} {b}"
            );
        }
    }

    #[test]
    fn short_words_and_numbers_are_not_corrected() {
        for word in ["cat", "", "20261", &"x".repeat(49)] {
            assert!(MisspelledWord::parse(word).is_none(), "{word}");
        }
    }
}
