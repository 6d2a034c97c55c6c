//! Whether a tool does what is looked for at all. The ranking cannot tell: some tool is always the best.

/// What likeness and words must come to together. Words count half: two rare ones of a long request are
/// as much as a tool that does something else has by chance.
///
/// A tool too many is marked as fitting and costs its reader a look; one too few ends a task. So this is
/// the highest that loses next to no tool that is of use, read off the benchmark
/// `discovery`: the tuning half of everyday requests, steps of real tasks, and 48 things that no tool
/// there does.
const SCORE_MIN: f32 = 0.58;
const WORD_WEIGHT: f32 = 0.5;
/// What words must come to where no meaning is known. They tell badly: a bound that turned away half of
/// what nobody does would turn away names, too, which are often a single word. One rare word reaches it.
const WORDS_ONLY_MIN: f32 = 0.25;
/// What likeness must come to where words were not asked for.
pub(super) const SIMILARITY_ONLY_MIN: f32 = 0.4;

/// What speaks for a tool that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// How like it is by meaning, from 0 to 1; `None` where no meaning is known.
    pub similarity: Option<f32>,
    /// How much words speak for it, from 0 to 1, where they were asked for; half of it is reached by two
    /// or three rare words.
    pub word_score: Option<f32>,
}

impl Evidence {
    /// Whether it does what is looked for, as far as that can be told.
    #[must_use]
    pub fn is_match(self) -> bool {
        match (self.similarity, self.word_score) {
            (Some(like), Some(words)) => like + WORD_WEIGHT * words >= SCORE_MIN,
            (Some(like), None) => like >= SIMILARITY_ONLY_MIN,
            (None, Some(words)) => words >= WORDS_ONLY_MIN,
            (None, None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meaning_and_words_come_together() {
        let fits = |likeness, words| {
            Evidence {
                similarity: likeness,
                word_score: words,
            }
            .is_match()
        };
        assert!(fits(Some(0.6), Some(0.0)) && fits(Some(0.35), Some(0.55)));
        assert!(!fits(Some(0.5), Some(0.1)) && !fits(Some(0.1), Some(0.9)));
        assert!(fits(Some(0.45), None) && !fits(Some(0.35), None));
        assert!(fits(None, Some(0.3)) && !fits(None, Some(0.2)) && !fits(None, None));
        assert!(!fits(Some(f32::NAN), Some(1.0)));
    }
}
