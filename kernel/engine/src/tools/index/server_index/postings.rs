//! Which words lead to which tools of one server, and how strongly (BM25F).
//!
//! How often a word stands in a field is weighed against the usual length of such a field, not the
//! mean of this collection: so a tool's weights depend on nothing but its own words, and a server
//! that comes or goes changes no other's.

use crate::tools::index::entry::IndexDraft;
use crate::tools::index::terms::{Term, split_name_stems, split_stems};

/// How much the second mention of a word is worth against the first: the usual value.
const TERM_SATURATION: f32 = 1.2;
/// How much length counts.
const LENGTH_WEIGHT: f32 = 0.6;
/// Words of a bucket, about.
const BUCKET_TERMS: usize = 8;

/// A kind of text. A word is worth the same in each, for its length: two mentions in a name of three
/// words are much, in a description few.
struct TextField {
    /// In words.
    usual_length: f32,
    /// Words read.
    words_max: usize,
}

const NAME: TextField = TextField {
    usual_length: 3.0,
    words_max: 32,
};
const TITLE: TextField = TextField {
    usual_length: 3.0,
    words_max: 32,
};
const LABELS: TextField = TextField {
    usual_length: 4.0,
    words_max: 64,
};
const DESCRIPTION: TextField = TextField {
    usual_length: 25.0,
    words_max: 512,
};
const SERVER: TextField = TextField {
    usual_length: 2.0,
    words_max: 16,
};
const ABOUT: TextField = TextField {
    usual_length: 15.0,
    words_max: 128,
};
const PARAMETERS: TextField = TextField {
    usual_length: 5.0,
    words_max: 128,
};
const REMARKS: TextField = TextField {
    usual_length: 25.0,
    words_max: 256,
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
    pub(in crate::tools::index) fn build(server: &str, about: &str, drafts: &[IndexDraft]) -> Self {
        let mut shared = Vec::new();
        SERVER.add(&split_stems(server, SERVER.words_max), &mut shared);
        ABOUT.add(&split_stems(about, ABOUT.words_max), &mut shared);
        let mut all = Vec::new();
        for (tool, draft) in (0_u32..).zip(drafts) {
            let mut own = shared.clone();
            collect_terms(draft, &mut own);
            merge_terms(&mut own);
            let own = own.into_iter();
            all.extend(own.map(|(term, weight)| (term, tool, saturate(weight))));
        }
        let count = (all.len() / BUCKET_TERMS).next_power_of_two();
        all.sort_unstable_by_key(|(term, tool, _)| (term.bucket_and_bit(count), *term, *tool));
        let mut terms: Vec<(Term, u32)> = Vec::new();
        let mut buckets = vec![Bucket::default(); count + 1];
        for (at, (term, _, _)) in (0_u32..).zip(&all) {
            if terms.last().is_none_or(|(last, _)| last != term) {
                terms.push((*term, at));
                let (bucket, bit) = term.bucket_and_bit(count);
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
    pub(in crate::tools::index) fn matches(&self, term: Term) -> &[(u32, f32)] {
        let (at, bit) = term.bucket_and_bit(self.buckets.len() - 1);
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
fn saturate(weight: f32) -> f32 {
    weight * (TERM_SATURATION + 1.0) / (weight + TERM_SATURATION)
}

impl TextField {
    fn add(&self, stems: &[String], out: &mut Vec<(Term, f32)>) {
        let length = 1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * stems.len() as f32 / self.usual_length;
        let weight = 1.0 / length;
        out.extend(stems.iter().map(|stem| (Term::from_stem(stem), weight)));
    }

    fn add_all<'a>(&self, texts: impl Iterator<Item = &'a str>, out: &mut Vec<(Term, f32)>) {
        let stems = texts.flat_map(|text| split_stems(text, self.words_max));
        self.add(&stems.take(self.words_max).collect::<Vec<_>>(), out);
    }
}

fn collect_terms(draft: &IndexDraft, out: &mut Vec<(Term, f32)>) {
    let entry = &draft.entry;
    NAME.add(&split_name_stems(&entry.name, NAME.words_max), out);
    TITLE.add(&split_stems(&draft.title, TITLE.words_max), out);
    DESCRIPTION.add(&split_stems(&draft.description, DESCRIPTION.words_max), out);
    let labels = entry.categories.iter().chain(&entry.keywords);
    LABELS.add_all(labels.map(|label| &**label), out);
    PARAMETERS.add_all(draft.parameters.iter().map(|name| &**name), out);
    REMARKS.add(&split_stems(&draft.parameter_text, REMARKS.words_max), out);
}

/// Each word once, with all it has.
fn merge_terms(words: &mut Vec<(Term, f32)>) {
    words.sort_by_key(|(term, _)| *term);
    words.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
}
