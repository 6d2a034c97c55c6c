//! Names that are almost right: a word of a question that no tool has is read as the words of names
//! that differ from it by a letter or two.

use std::collections::{BTreeMap, BTreeSet};

use crate::tools::index::entry::Draft;
use crate::tools::index::words::{Term, name_stems};

/// Shortest word that is corrected: of three letters everything is a letter away.
const SHORTEST: usize = 4;
/// From so many letters on, two may differ.
const LONG: usize = 8;
/// Longest word that is corrected.
const LONGEST: usize = 48;
/// Most words read of one name.
const WORDS_MAX: usize = 32;

/// The words of one server's names, each once.
#[derive(Debug, Default, PartialEq)]
pub(in crate::tools::index) struct SpelledNames {
    /// Side by side: most words are told apart by these alone.
    shapes: Box<[WordLetters]>,
    names: Box<[SpelledName]>,
}

#[derive(Debug, PartialEq)]
struct SpelledName {
    word: Box<str>,
    term: Term,
    /// In whose names it stands.
    tools: Box<[u32]>,
}

/// Which letters occur in a word, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WordLetters {
    letters: u64,
    length: usize,
}

/// A word that may be meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::tools::index) struct Guess {
    pub(in crate::tools::index) distance: usize,
    pub(in crate::tools::index) word: Box<str>,
    pub(in crate::tools::index) term: Term,
}

impl SpelledNames {
    pub(in crate::tools::index) fn of(drafts: &[Draft]) -> Self {
        let mut words: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for (tool, draft) in (0..).zip(drafts) {
            for word in name_stems(&draft.entry.name, WORDS_MAX) {
                words.entry(word).or_default().insert(tool);
            }
        }
        let words = words
            .into_iter()
            .filter(|(word, _)| word.len() >= SHORTEST - 1);
        let name = |(word, tools): (String, BTreeSet<u32>)| SpelledName {
            term: Term::of(&word),
            word: word.into(),
            tools: tools.into_iter().collect(),
        };
        let names: Box<[SpelledName]> = words.map(name).collect();
        Self {
            shapes: names
                .iter()
                .map(|name| WordLetters::of(&name.word))
                .collect(),
            names,
        }
    }

    /// The words that are near to this one and stand in the name of a tool that is `seen`.
    pub(in crate::tools::index) fn near<'a>(
        &'a self,
        misspelt: &'a Misspelt,
        seen: impl Fn(u32) -> bool + 'a,
    ) -> impl Iterator<Item = Guess> + 'a {
        let shapes = self.shapes.iter().zip(&self.names);
        let alike = shapes.filter(|(shape, _)| misspelt.may_be(**shape));
        alike.filter_map(move |(_, name)| {
            let distance = misspelt.distance(&name.word)?;
            let known = name.tools.iter().any(|tool| seen(*tool));
            known.then(|| Guess {
                distance,
                word: name.word.clone(),
                term: name.term,
            })
        })
    }
}

/// A word that no tool has.
pub(in crate::tools::index) struct Misspelt {
    word: String,
    shape: WordLetters,
    may_differ: usize,
}

impl Misspelt {
    /// `None` when the word is too short or too long to guess at, or has no letters.
    pub(in crate::tools::index) fn read(word: &str) -> Option<Self> {
        let guessable = (SHORTEST..=LONGEST).contains(&word.len())
            && word.bytes().all(|b| b.is_ascii_alphabetic());
        guessable.then(|| Self {
            word: word.to_owned(),
            shape: WordLetters::of(word),
            may_differ: if word.len() < LONG { 1 } else { 2 },
        })
    }

    /// Each edit changes at most two of the letters that occur, so most words are told apart by
    /// counting bits.
    fn may_be(&self, shape: WordLetters) -> bool {
        let apart = self.shape.length.abs_diff(shape.length);
        let unlike = (self.shape.letters ^ shape.letters).count_ones() as usize;
        apart <= self.may_differ && unlike <= 2 * self.may_differ
    }

    fn distance(&self, name: &str) -> Option<usize> {
        let distance = edits(self.word.as_bytes(), name.as_bytes());
        (distance <= self.may_differ).then_some(distance)
    }
}

impl WordLetters {
    fn of(word: &str) -> Self {
        let letters = word.bytes().fold(0, |set, byte| set | 1 << (byte % 64));
        Self {
            letters,
            length: word.len(),
        }
    }
}

/// Letters to add, drop, change or swap with their neighbour.
fn edits(a: &[u8], b: &[u8]) -> usize {
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
    fn letters_are_added_dropped_changed_and_swapped() {
        for (a, b, distance) in [
            ("fiel", "file", 1),
            ("fil", "file", 1),
            ("filee", "file", 1),
            ("pile", "file", 1),
            ("direcotyr", "directory", 2),
            ("cat", "dog", 3),
        ] {
            assert_eq!(edits(a.as_bytes(), b.as_bytes()), distance, "{a} {b}");
        }
    }

    #[test]
    fn short_words_and_numbers_are_taken_as_they_are() {
        for word in ["cat", "", "20261", &"x".repeat(49)] {
            assert!(Misspelt::read(word).is_none(), "{word}");
        }
    }
}
