//! What somebody looks for.

use mgp_protocol::mgp::security::RiskLevel;
pub use mgp_protocol::mgp::tools::Strategy;

use super::clauses::{self, CLAUSES_MAX};
use super::entry::Entry;
use super::kinds;
use super::vectors::Vector;
use super::words::{Term, compounds, stems};

/// Longest text taken, in bytes: an agent describes what it needs, it does not send its memory.
pub const REQUEST_MAX: usize = 16 << 10;
/// Most results of one search.
pub const RESULTS_MAX: usize = 100;
/// Words looked up; the rest of a longer text still counts for its meaning.
const WORDS_MAX: usize = 128;

/// Why a text is not searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// Over [`REQUEST_MAX`].
    #[error(
        "the query has {0} bytes, over the limit of {REQUEST_MAX}: say in a few sentences what the tool should do"
    )]
    TooLong(usize),
}

/// A text, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    meanings: Vec<String>,
    pub(super) words: Vec<(Term, String)>,
    /// Of its parts.
    pub(super) parts: Vec<Vec<Term>>,
}

impl Request {
    /// Reads a text.
    ///
    /// # Errors
    /// [`BadRequest`] when it is too long to be a description.
    pub fn read(text: &str) -> Result<Self, BadRequest> {
        if text.len() > REQUEST_MAX {
            return Err(BadRequest::TooLong(text.len()));
        }
        let meaning = kinds::in_words(text.trim());
        let mut stems = stems(&meaning, WORDS_MAX);
        stems.extend(compounds(&meaning, WORDS_MAX));
        stems.sort_unstable();
        stems.dedup();
        let words = stems.into_iter().map(|stem| (Term::of(&stem), stem));
        let parts = clauses::of(&meaning);
        let by_themselves = parts.iter().take(CLAUSES_MAX);
        Ok(Self {
            words: words.collect(),
            parts: by_themselves.map(|part| terms(part)).collect(),
            meanings: if parts.is_empty() {
                vec![meaning]
            } else {
                parts
            },
        })
    }

    /// The texts whose vectors the search wants: its parts, or the whole when it has none. The whole
    /// is between its parts, so no word is read twice.
    #[must_use]
    pub fn meanings(&self) -> &[String] {
        &self.meanings
    }
}

/// The words of a part, each once.
fn terms(part: &str) -> Vec<Term> {
    let stems = stems(part, WORDS_MAX);
    let mut terms: Vec<Term> = stems.iter().map(|stem| Term::of(stem)).collect();
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// What results must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In one of these, or below; any when there is none.
    pub categories: Vec<String>,
    /// No riskier than that.
    pub risk_max: Option<RiskLevel>,
}

impl Filter {
    pub(super) fn takes(&self, entry: &Entry) -> bool {
        let placed =
            self.categories.is_empty() || self.categories.iter().any(|wanted| entry.is_in(wanted));
        placed && self.risk_max.is_none_or(|most| entry.risk <= most)
    }
}

/// A search.
pub struct Search<'a> {
    /// What is looked for.
    pub request: &'a Request,
    /// The vectors of its [`Request::meanings`], in their order; none when there is no model.
    pub meanings: &'a [Vector],
    /// How.
    pub strategy: Strategy,
    /// Among what.
    pub filter: &'a Filter,
    /// How many are wanted, [`RESULTS_MAX`] at most.
    pub most: usize,
    /// What the one who asks may know of, and whose server is in the state that is asked for. A tool
    /// it says no to has no influence on the answer.
    pub visible: &'a dyn Fn(&Entry) -> bool,
}
