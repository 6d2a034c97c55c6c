//! The tools that match the words of a request.

use super::visible_tools::VisibleTools;
use crate::tools::index::server_index::postings::rarity;
use crate::tools::index::terms::Term;

/// The tools that are seen and have a word, and what it is worth to each, were it the only one.
type TermMatches = Vec<(u32, f32)>;

/// Of each word of a request. They are gathered in one walk over the servers: the parts of a request
/// have the words of the whole.
pub(super) struct TermLists {
    terms: Vec<Term>,
    matches: Vec<TermMatches>,
    tools: usize,
}

impl TermLists {
    pub(super) fn gather(scene: &VisibleTools<'_>, terms: impl Iterator<Item = Term>) -> Self {
        let mut terms: Vec<Term> = terms.collect();
        terms.sort_unstable();
        terms.dedup();
        let mut matches = vec![TermMatches::new(); terms.len()];
        for view in scene.servers() {
            for (term, having) in terms.iter().zip(&mut matches) {
                for (tool, worth) in view.server.postings.matches(*term) {
                    let number = scene.number(view, *tool);
                    having.extend(number.map(|number| (number, *worth)));
                }
            }
        }
        Self {
            terms,
            matches,
            tools: scene.count(),
        }
    }

    /// What a word adds to the score of each tool that has it.
    pub(super) fn weights(&self, term: Term) -> impl ExactSizeIterator<Item = (usize, f32)> {
        let at = self.terms.binary_search(&term);
        let having = at.map_or(&[][..], |at| &self.matches[at]);
        let rarity = rarity(self.tools, having.len());
        let worth = move |(tool, worth): &(u32, f32)| (*tool as usize, rarity * worth);
        having.iter().map(worth)
    }
}
