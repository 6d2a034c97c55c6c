//! A search request.

mod clauses;
mod file_types;
mod synonyms;

use mgp_protocol::mgp::discovery::security::RiskLevel;
pub use mgp_protocol::mgp::tools::Strategy;

use self::clauses::CLAUSES_MAX;
use self::synonyms::SYNONYMS_MAX;
use super::entry::IndexedTool;
use super::terms::{Term, joined_identifiers, split_stems};
use super::vectors::Vector;

/// Bytes of a text that are read: an agent describes what it needs, it does not send its memory. What
/// follows is not read, and whoever asks is told.
pub const REQUEST_MAX: usize = 16 << 10;
/// Most results of one search.
pub const RESULTS_MAX: usize = 100;
/// Words looked up; the rest of a longer text still counts for its meaning.
const WORDS_MAX: usize = 128;

/// How much of a text's meaning is that of the words of definitions it is told in, when there are any.
const SYNONYM_WEIGHT: f32 = 0.4;

/// What a word of these counts beside one of the text itself.
pub(super) const SYNONYM_WORD_WEIGHT: f32 = 0.5;

/// A text, read.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchRequest {
    /// Its texts, and after them what definitions say instead.
    embedding_texts: Vec<String>,
    /// Of each text which of the meanings say the same.
    synonym_texts: Vec<Vec<usize>>,
    pub(super) words: Vec<(Term, String)>,
    /// The words of what definitions say instead.
    pub(super) synonym_terms: Vec<Term>,
    /// Of its parts, with what each word counts.
    pub(super) clauses: Vec<Vec<(Term, f32)>>,
    unread_bytes: usize,
}

impl SearchRequest {
    /// Reads a text, [`REQUEST_MAX`] bytes of it at most.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let read = &text[..text.floor_char_boundary(REQUEST_MAX)];
        let meaning = file_types::describe_paths(read);
        let mut stems = split_stems(&meaning, WORDS_MAX);
        stems.extend(joined_identifiers(&meaning, WORDS_MAX));
        stems.sort_unstable();
        stems.dedup();
        let words: Vec<_> = stems
            .into_iter()
            .map(|s| (Term::from_stem(&s), s))
            .collect();
        let mut synonym_terms = unique_terms(&synonyms::find_synonyms(&meaning).join(" "));
        synonym_terms.retain(|term| !words.iter().any(|(own, _)| own == term));
        let parts = clauses::split_clauses(&meaning);
        let by_themselves = parts.iter().take(CLAUSES_MAX);
        let parts_terms = by_themselves.map(|part| weighted_terms(part)).collect();
        let texts = if parts.is_empty() {
            vec![meaning]
        } else {
            parts
        };
        let (embedding_texts, synonym_texts) = with_synonyms(texts);
        Self {
            embedding_texts,
            synonym_texts,
            words,
            synonym_terms,
            clauses: parts_terms,
            unread_bytes: text.len() - read.len(),
        }
    }

    /// True when nothing is asked for in words.
    pub(super) fn is_empty(&self) -> bool {
        self.embedding_texts.iter().all(String::is_empty)
    }

    /// How many bytes of the text were too many to be read.
    #[must_use]
    pub fn unread_bytes(&self) -> usize {
        self.unread_bytes
    }

    /// How many of the [`Self::meanings`] are its own texts. The others come again in other requests.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> usize {
        self.synonym_texts.len()
    }

    /// The texts whose vectors the search wants: its parts, or the whole when it has none, and what
    /// definitions say instead, which is the same few for everybody. The whole is between its parts,
    /// so no word is read twice.
    #[must_use]
    pub fn embedding_texts(&self) -> &[String] {
        &self.embedding_texts
    }

    /// The meanings of its texts, each with how long it is, when all vectors are there and fit
    /// together.
    pub(super) fn query_vectors(&self, vectors: &[Vector]) -> Option<Vec<(Vector, f32)>> {
        if vectors.len() != self.embedding_texts.len() {
            return None;
        }
        let texts = self
            .synonym_texts
            .iter()
            .zip(vectors)
            .zip(&self.embedding_texts);
        let told = texts.map(|((said, own), text)| {
            let said: Vec<&Vector> = said.iter().map(|at| &vectors[*at]).collect();
            let meaning = match Vector::mean(&said) {
                Some(said) => Vector::weighted_mean(
                    [(own, 1.0 - SYNONYM_WEIGHT), (&said, SYNONYM_WEIGHT)].into_iter(),
                )?,
                None => own.clone(),
            };
            Some((meaning, text.len() as f32))
        });
        told.collect()
    }
}

/// The texts, then what definitions say instead of them, each once; and which of these say each text.
fn with_synonyms(texts: Vec<String>) -> (Vec<String>, Vec<Vec<usize>>) {
    let mut said: Vec<&str> = Vec::new();
    let mut places = Vec::new();
    for text in &texts {
        let own = synonyms::find_synonyms(text);
        for one in &own {
            if !said.contains(one) && said.len() < SYNONYMS_MAX {
                said.push(*one);
            }
        }
        let place = |one: &&str| said.iter().position(|other| other == one);
        let place = |one| place(one).map(|at| texts.len() + at);
        places.push(own.iter().filter_map(place).collect());
    }
    let said: Vec<String> = said.into_iter().map(str::to_owned).collect();
    ([texts, said].concat(), places)
}

/// The words of a part, and those of what definitions say instead, each once, with what it counts.
fn weighted_terms(part: &str) -> Vec<(Term, f32)> {
    let own = unique_terms(part);
    let mut told = unique_terms(&synonyms::find_synonyms(part).join(" "));
    told.retain(|term| !own.contains(term));
    let own = own.into_iter().map(|term| (term, 1.0));
    own.chain(told.into_iter().map(|term| (term, SYNONYM_WORD_WEIGHT)))
        .collect()
}

/// The words of a part, each once.
fn unique_terms(part: &str) -> Vec<Term> {
    let stems = split_stems(part, WORDS_MAX);
    let mut terms: Vec<Term> = stems.iter().map(|stem| Term::from_stem(stem)).collect();
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// The conditions that results must meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchFilter {
    /// In one of these, or below; any when there is none.
    pub categories: Vec<String>,
    /// The highest risk allowed.
    pub risk_max: Option<RiskLevel>,
}

impl SearchFilter {
    pub(super) fn matches(&self, entry: &IndexedTool) -> bool {
        let placed = self.categories.is_empty()
            || self
                .categories
                .iter()
                .any(|wanted| entry.is_in_category(wanted));
        placed && self.risk_max.is_none_or(|most| entry.risk <= most)
    }
}

/// A search.
pub struct IndexSearch<'a> {
    /// The request.
    pub request: &'a SearchRequest,
    /// The vectors of its [`SearchRequest::meanings`], in their order; none when there is no model.
    pub vectors: &'a [Vector],
    /// The strategy.
    pub strategy: Strategy,
    /// Among what.
    pub filter: &'a SearchFilter,
    /// How many are wanted, [`RESULTS_MAX`] at most.
    pub limit: usize,
    /// What the one who asks may know of, and whose server is in the state that is asked for. A tool
    /// it says no to has no influence on the answer.
    pub is_visible: &'a dyn Fn(&IndexedTool) -> bool,
}
