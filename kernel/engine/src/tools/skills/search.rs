//! Search for skills by words, beside tools.

use std::collections::BTreeSet;

use mgp_json::{member, unquote};

use super::StoredSkill;
use crate::tools::index::split_stems;

/// Most words of a query, and of a skill's name and description, that are compared.
const WORDS_MAX: usize = 128;
/// Share of the query's words that a match has.
const FITS_MIN: f32 = 0.5;

/// How well a skill matches a query.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillScore {
    /// The name in its frontmatter.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The share of the query's words in both.
    pub score: f32,
    /// It is considered a match.
    pub fits: bool,
}

/// A query, prepared for any number of skills.
#[derive(Clone, Debug)]
pub struct SkillQuery(BTreeSet<String>);

impl SkillQuery {
    /// Reads the words of a query.
    #[must_use]
    pub fn new(query: &str) -> Self {
        Self(split_stems(query, WORDS_MAX).into_iter().collect())
    }

    /// `None` for a skill that has none of the words.
    #[must_use]
    pub fn score(&self, skill: &StoredSkill) -> Option<SkillScore> {
        let frontmatter = member(&skill.text, "frontmatter")?;
        let field = |name| member(frontmatter, name).and_then(unquote);
        let (name, description) = (field("name")?, field("description").unwrap_or_default());
        let words = split_stems(&format!("{name} {description}"), WORDS_MAX);
        let words: BTreeSet<String> = words.into_iter().collect();
        let shared = self.0.intersection(&words).count();
        #[expect(clippy::cast_precision_loss, reason = "at most 128 words")]
        let score = shared as f32 / self.0.len().max(1) as f32;
        (shared > 0).then(|| SkillScore {
            name: name.into_owned(),
            description: description.into_owned(),
            score,
            fits: score >= FITS_MIN,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EXT-049
    #[test]
    fn skills_are_found_by_words() {
        let skill = |description: &str| StoredSkill {
            uri: "skill://refunds/SKILL.md".into(),
            text: format!(
                r#"{{"frontmatter":{{"name":"refunds","description":"{description}"}}}}"#
            )
            .into(),
            is_nested: false,
        };
        let query = SkillQuery::new("How do I process a refund?");
        let found = query
            .score(&skill("Process customer payments back"))
            .unwrap();
        assert!(found.fits && found.score > 0.9, "{found:?}");
        let half = query.score(&skill("Money")).unwrap();
        assert!(half.score < found.score);
        assert_eq!(SkillQuery::new("weather in Oslo").score(&skill("x")), None);
        assert_eq!(SkillQuery::new("").score(&skill("x")), None);
    }
}
