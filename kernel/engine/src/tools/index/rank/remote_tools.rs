//! Tools of other nodes beside those of this one.
//!
//! A vector that came with a tool was not made here: one that is like everything would be ahead of every tool
//! of this node. So where a tool of this node fits, those of other nodes stand beside it at most, unless words
//! speak for them.

use super::evidence::{Evidence, SIMILARITY_ONLY_MIN};
use super::visible_tools::VisibleTools;
use super::{known_similarity, normalize_word_score};

/// No tool of another node is more like what is looked for than the likest of this node, where that fits.
pub(super) fn cap_remote_similarity(scene: &VisibleTools<'_>, like: &mut [f32]) {
    let here = scene.tools_by_origin(false);
    let best = here
        .map(|tool| like[tool])
        .fold(f32::NEG_INFINITY, f32::max);
    if best < SIMILARITY_ONLY_MIN {
        return;
    }
    for tool in scene.tools_by_origin(true) {
        if like[tool] > best {
            like[tool] = best;
        }
    }
}

/// No tool of another node is ahead of the best fitting one of this node for which words speak as much.
pub(super) fn cap_remote_scores(
    scene: &VisibleTools<'_>,
    scores: &mut [f32],
    words: &[f32],
    like: &[f32],
) {
    let fits = |tool: &usize| {
        let evidence = Evidence {
            similarity: Some(known_similarity(like[*tool])),
            word_score: Some(normalize_word_score(words[*tool])),
        };
        evidence.is_match()
    };
    let here = scene.tools_by_origin(false).filter(fits);
    let Some(best) = here.max_by(|a, b| scores[*a].total_cmp(&scores[*b])) else {
        return;
    };
    for tool in scene.tools_by_origin(true) {
        if words[tool] <= words[best] && scores[tool] > scores[best] {
            scores[tool] = scores[best];
        }
    }
}
