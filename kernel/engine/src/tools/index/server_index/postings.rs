//! Which words lead to which tools of one server, and how strongly (BM25F).
//!
//! How often a word stands in a field is weighed against the usual length of such a field, not the
//! mean of this collection: so a tool's weights depend on nothing but its own words, and a server
//! that comes or goes changes no other's.

use crate::tools::index::entry::Draft;
use crate::tools::index::words::{Term, name_stems, stems};

/// How much the second mention of a word is worth against the first: the usual value.
const SATURATION: f32 = 1.2;
/// How much length counts.
const LENGTH: f32 = 0.6;
/// Words of a bucket, about.
const BUCKET: usize = 8;

/// A kind of text. A word is worth the same in each, for its length: two mentions in a name of three
/// words are much, in a description few.
struct TextField {
    /// In words.
    usual: f32,
    /// Words read.
    most: usize,
}

const NAME: TextField = TextField {
    usual: 3.0,
    most: 32,
};
const TITLE: TextField = TextField {
    usual: 3.0,
    most: 32,
};
const LABELS: TextField = TextField {
    usual: 4.0,
    most: 64,
};
const DESCRIPTION: TextField = TextField {
    usual: 25.0,
    most: 512,
};
const SERVER: TextField = TextField {
    usual: 2.0,
    most: 16,
};
const ABOUT: TextField = TextField {
    usual: 15.0,
    most: 128,
};
const PARAMETERS: TextField = TextField {
    usual: 5.0,
    most: 128,
};
const REMARKS: TextField = TextField {
    usual: 25.0,
    most: 256,
};

/// The postings of one server.
#[derive(Debug, Default, PartialEq)]
pub(in crate::tools::index) struct Postings {
    buckets: Box<[Bucket]>,
    /// By buckets, each with where its tools begin.
    terms: Box<[(Term, u32)]>,
    /// Each with what the word is worth to it, were it the only one.
    tools: Box<[(u32, f32)]>,
}

/// Some eight words. A request asks thousands of servers for words that most of them do not have, and
/// one look at the bits tells so of seven in eight.
#[derive(Clone, Debug, Default, PartialEq)]
struct Bucket {
    bits: u64,
    start: u32,
}

impl Postings {
    /// Of tools in their order.
    pub(in crate::tools::index) fn of(server: &str, about: &str, drafts: &[Draft]) -> Self {
        let mut shared = Vec::new();
        SERVER.add(&stems(server, SERVER.most), &mut shared);
        ABOUT.add(&stems(about, ABOUT.most), &mut shared);
        let mut all = Vec::new();
        for (tool, draft) in (0_u32..).zip(drafts) {
            let mut own = shared.clone();
            read(draft, &mut own);
            merge(&mut own);
            let own = own.into_iter();
            all.extend(own.map(|(term, weight)| (term, tool, saturated(weight))));
        }
        let count = (all.len() / BUCKET).next_power_of_two();
        all.sort_unstable_by_key(|(term, tool, _)| (term.place(count), *term, *tool));
        let mut terms: Vec<(Term, u32)> = Vec::new();
        let mut buckets = vec![Bucket::default(); count + 1];
        for (at, (term, _, _)) in (0_u32..).zip(&all) {
            if terms.last().is_none_or(|(last, _)| last != term) {
                terms.push((*term, at));
                let (bucket, bit) = term.place(count);
                buckets[bucket].bits |= bit;
                buckets[bucket + 1].start += 1;
            }
        }
        for at in 1..buckets.len() {
            buckets[at].start += buckets[at - 1].start;
        }
        Self {
            buckets: buckets.into(),
            terms: terms.into(),
            tools: all
                .into_iter()
                .map(|(_, tool, worth)| (tool, worth))
                .collect(),
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(in crate::tools::index) fn len(&self) -> usize {
        self.tools.len()
    }

    /// The tools a word leads to, in their order, and what it is worth to each.
    pub(in crate::tools::index) fn tools(&self, term: Term) -> &[(u32, f32)] {
        let (at, bit) = term.place(self.buckets.len() - 1);
        let bucket = &self.buckets[at];
        if bucket.bits & bit == 0 {
            return &[];
        }
        let (first, after) = (bucket.start as usize, self.buckets[at + 1].start as usize);
        let mut terms = self.terms[first..after].iter();
        let Some(at) = terms.position(|(other, _)| *other == term) else {
            return &[];
        };
        let start = self.terms[first + at].1 as usize;
        let next = self.terms.get(first + at + 1);
        let end = next.map_or(self.tools.len(), |(_, start)| *start as usize);
        &self.tools[start..end]
    }
}

/// Of fewer tools than these nothing can be said of how rare a word is: it counts as it would among so
/// many, so that a tool is as much as another one, whatever is there beside it.
const TOOLS_MIN: usize = 100;

/// What a word is worth that so many of the tools have: rarer is more.
pub(in crate::tools::index) fn rarity(tools: usize, having: usize) -> f32 {
    let (tools, having) = (tools.max(TOOLS_MIN) as f32, having as f32);
    (1.0 + (tools - having + 0.5) / (having + 0.5)).ln()
}

/// Having a word more often, or in a shorter text, is a little more.
fn saturated(weight: f32) -> f32 {
    weight * (SATURATION + 1.0) / (weight + SATURATION)
}

impl TextField {
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
