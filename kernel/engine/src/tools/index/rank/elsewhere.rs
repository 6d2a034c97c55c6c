//! Tools of other nodes beside those of this one.
//!
//! A vector that came with a tool was not made here: one that is like everything would be ahead of every tool
//! of this node. So where a tool of this node fits, those of other nodes stand beside it at most, unless words
//! speak for them.

use super::evidence::{Evidence, LIKENESS_ALONE_MIN};
use super::scene::VisibleTools;
use super::{by_words, known};

/// No tool of another node is more like what is looked for than the likest of this node, where that fits.
pub(super) fn no_liker_than_here(scene: &VisibleTools<'_>, like: &mut [f32]) {
    let here = scene.seen_of(false);
    let best = here
        .map(|tool| like[tool])
        .fold(f32::NEG_INFINITY, f32::max);
    if best < LIKENESS_ALONE_MIN {
        return;
    }
    for tool in scene.seen_of(true) {
        if like[tool] > best {
            like[tool] = best;
        }
    }
}

/// No tool of another node is ahead of the best fitting one of this node for which words speak as much.
pub(super) fn no_further_than_here(
    scene: &VisibleTools<'_>,
    scores: &mut [f32],
    words: &[f32],
    like: &[f32],
) {
    let fits = |tool: &usize| {
        let evidence = Evidence {
            likeness: Some(known(like[*tool])),
            words: Some(by_words(words[*tool])),
        };
        evidence.fits()
    };
    let here = scene.seen_of(false).filter(fits);
    let Some(best) = here.max_by(|a, b| scores[*a].total_cmp(&scores[*b])) else {
        return;
    };
    for tool in scene.seen_of(true) {
        if words[tool] <= words[best] && scores[tool] > scores[best] {
            scores[tool] = scores[best];
        }
    }
}
