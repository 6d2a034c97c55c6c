//! Which words lead to which tools of one server, and how strongly (BM25F).
//!
//! How often a word stands in a field is weighed against the usual length of such a field, not the
//! mean of this collection: so a tool's weights depend on nothing but its own words, and a server
//! that comes or goes changes no other's.

use super::entry::Draft;
use super::words::{Term, name_stems, stems};

/// How much the second mention of a word is worth against the first: the usual value.
const SATURATION: f32 = 1.2;
/// How much length counts.
const LENGTH: f32 = 0.6;

/// A kind of text. A word is worth the same in each, for its length: two mentions in a name of three
/// words are much, in a description few.
struct Field {
    /// In words.
    usual: f32,
    /// Words read.
    most: usize,
}

const NAME: Field = Field {
    usual: 3.0,
    most: 32,
};
const TITLE: Field = Field {
    usual: 3.0,
    most: 32,
};
const LABELS: Field = Field {
    usual: 4.0,
    most: 64,
};
const DESCRIPTION: Field = Field {
    usual: 25.0,
    most: 512,
};
const SERVER: Field = Field {
    usual: 2.0,
    most: 16,
};
const ABOUT: Field = Field {
    usual: 15.0,
    most: 128,
};
const PARAMETERS: Field = Field {
    usual: 5.0,
    most: 128,
};
const REMARKS: Field = Field {
    usual: 25.0,
    most: 256,
};

/// The postings of one server.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Postings {
    sieve: Sieve,
    /// In order, each with where its tools begin.
    terms: Box<[(Term, u32)]>,
    tools: Box<[(u32, f32)]>,
}

impl Postings {
    /// Of tools in their order.
    pub(super) fn of(server: &str, about: &str, drafts: &[Draft]) -> Self {
        let mut shared = Vec::new();
        SERVER.add(&stems(server, SERVER.most), &mut shared);
        ABOUT.add(&stems(about, ABOUT.most), &mut shared);
        let mut all = Vec::new();
        for (tool, draft) in (0_u32..).zip(drafts) {
            let mut own = shared.clone();
            read(draft, &mut own);
            merge(&mut own);
            all.extend(own.into_iter().map(|(term, weight)| (term, tool, weight)));
        }
        all.sort_unstable_by_key(|(term, tool, _)| (*term, *tool));
        let mut terms: Vec<(Term, u32)> = Vec::new();
        for (at, (term, _, _)) in (0_u32..).zip(&all) {
            if terms.last().is_none_or(|(last, _)| last != term) {
                terms.push((*term, at));
            }
        }
        Self {
            sieve: Sieve::of(terms.iter().map(|(term, _)| *term)),
            terms: terms.into(),
            tools: all
                .into_iter()
                .map(|(_, tool, weight)| (tool, weight))
                .collect(),
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tools.len()
    }

    /// The tools a word leads to, in their order.
    pub(super) fn tools(&self, term: Term) -> &[(u32, f32)] {
        if !self.sieve.passes(term) {
            return &[];
        }
        let Ok(at) = self.terms.binary_search_by_key(&term, |(term, _)| *term) else {
            return &[];
        };
        let start = self.terms[at].1 as usize;
        let next = self.terms.get(at + 1);
        let end = next.map_or(self.tools.len(), |(_, start)| *start as usize);
        &self.tools[start..end]
    }
}

/// Tells of most words that a server does not have them, from a few bytes that lie together: a request
/// asks thousands of servers for words that most of them do not have.
#[derive(Debug, Default, PartialEq)]
struct Sieve(Box<[u64]>);

impl Sieve {
    /// Eight bits for each word, so that one in eight or nine passes that is not there.
    fn of(terms: impl ExactSizeIterator<Item = Term>) -> Self {
        let mut bits = vec![0_u64; (terms.len() / 8).next_power_of_two()];
        for term in terms {
            let (word, bit) = Self::place(term, bits.len());
            bits[word] |= bit;
        }
        Self(bits.into())
    }

    fn passes(&self, term: Term) -> bool {
        let (word, bit) = Self::place(term, self.0.len().max(1));
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn place(term: Term, words: usize) -> (usize, u64) {
        let bits = term.bits();
        ((bits >> 6) as usize & (words - 1), 1 << (bits % 64))
    }
}

/// What a word is worth that so many of the tools have: rarer is more.
pub(super) fn rarity(tools: usize, having: usize) -> f32 {
    let (tools, having) = (tools as f32, having as f32);
    (1.0 + (tools - having + 0.5) / (having + 0.5)).ln()
}

/// Having a word more often, or in a shorter text, is a little more.
pub(super) fn saturated(weight: f32) -> f32 {
    weight * (SATURATION + 1.0) / (weight + SATURATION)
}

impl Field {
    fn add(&self, stems: &[String], out: &mut Vec<(Term, f32)>) {
        let length = 1.0 - LENGTH + LENGTH * stems.len() as f32 / self.usual;
        let weight = 1.0 / length;
        out.extend(stems.iter().map(|stem| (Term::of(stem), weight)));
    }

    fn add_all<'a>(&self, texts: impl Iterator<Item = &'a str>, out: &mut Vec<(Term, f32)>) {
        let stems = texts.flat_map(|text| stems(text, self.most));
        self.add(&stems.take(self.most).collect::<Vec<_>>(), out);
    }
}

fn read(draft: &Draft, out: &mut Vec<(Term, f32)>) {
    let entry = &draft.entry;
    NAME.add(&name_stems(&entry.name, NAME.most), out);
    TITLE.add(&stems(&draft.title, TITLE.most), out);
    DESCRIPTION.add(&stems(&draft.description, DESCRIPTION.most), out);
    let labels = entry.categories.iter().chain(&entry.keywords);
    LABELS.add_all(labels.map(|label| &**label), out);
    PARAMETERS.add_all(draft.parameters.iter().map(|name| &**name), out);
    REMARKS.add(&stems(&draft.remarks, REMARKS.most), out);
}

/// Each word once, with all it has.
fn merge(words: &mut Vec<(Term, f32)>) {
    words.sort_by_key(|(term, _)| *term);
    words.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
}
