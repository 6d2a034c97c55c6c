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
        let Ok(at) = self.terms.binary_search_by_key(&term, |(term, _)| *term) else {
            return &[];
        };
        let start = self.terms[at].1 as usize;
        let next = self.terms.get(at + 1);
        let end = next.map_or(self.tools.len(), |(_, start)| *start as usize);
        &self.tools[start..end]
    }
}

/// Of fewer tools than these nothing can be said of how rare a word is: it counts as it would among so
/// many, so that a tool is as much as another one, whatever is there beside it.
const TOOLS_MIN: usize = 100;

/// What a word adds to a tool's score: rarer is more, and more often is a little more.
pub(super) fn worth(weight: f32, tools: usize, with_it: usize) -> f32 {
    let (tools, with_it) = (tools.max(TOOLS_MIN) as f32, with_it as f32);
    let rarity = (1.0 + (tools - with_it + 0.5) / (with_it + 0.5)).ln();
    rarity * weight * (SATURATION + 1.0) / (weight + SATURATION)
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
