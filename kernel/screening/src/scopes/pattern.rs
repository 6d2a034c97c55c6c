//! Patterns of labels (MCPL §7.2 leaves their meaning to the host).
//!
//! `*` matches any characters but `/`, `**` any characters, `?` one character but `/`; `**/` matches zero or more
//! folders. Everything else matches itself.

/// Most bytes of a pattern.
const PATTERN_MAX: usize = 512;
/// Most stars in a pattern: matching time grows with their number.
const STARS_MAX: usize = 16;

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopePattern {
    text: String,
    parts: Vec<Part>,
    /// The same, for folded texts.
    folded: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// This character.
    Char(char),
    /// One character but `/`.
    AnyChar,
    /// Any characters but `/`.
    AnyInSegment,
    /// Any characters.
    AnyText,
    /// Any number of folders, each with its `/`.
    Folders,
}

/// Why a pattern is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopePatternError {
    /// It is empty.
    #[error("a pattern of scopes is not empty")]
    Empty,
    /// It is too long.
    #[error("a pattern of scopes has at most {PATTERN_MAX} bytes")]
    TooLong,
    /// Too many of `*` and `**`.
    #[error("a pattern of scopes has at most {STARS_MAX} stars")]
    TooManyStars,
    /// No label in normal form contains this, so it would never match.
    #[error("a pattern of scopes is written as labels are: {0}")]
    NotNormal(&'static str),
}

impl ScopePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`ScopePatternError`].
    pub fn parse(text: &str) -> Result<Self, ScopePatternError> {
        if text.is_empty() {
            return Err(ScopePatternError::Empty);
        }
        if text.len() > PATTERN_MAX {
            return Err(ScopePatternError::TooLong);
        }
        super::label::check_normal(&text.replace('*', "x"))
            .map_err(ScopePatternError::NotNormal)?;
        let parts = parse_parts(text);
        let star =
            |part: &&Part| matches!(part, Part::AnyInSegment | Part::AnyText | Part::Folders);
        if parts.iter().filter(star).count() > STARS_MAX {
            return Err(ScopePatternError::TooManyStars);
        }
        Ok(Self {
            folded: self::parse_parts(&super::label::fold(text)),
            text: text.to_owned(),
            parts,
        })
    }

    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it matches this text exactly.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        matches(&self.parts, text)
    }

    /// Whether it matches a text that [`super::label::fold`] made.
    #[must_use]
    pub fn matches_in_any_case(&self, folded: &str) -> bool {
        matches(&self.folded, folded)
    }
}

fn parse_parts(text: &str) -> Vec<Part> {
    let chars: Vec<char> = text.chars().collect();
    let mut parts = Vec::new();
    let mut index = 0;
    while index < chars.len() {
        let begins = index == 0 || chars[index - 1] == '/';
        let (part, len) = match &chars[index..] {
            ['*', '*', '/', ..] if begins => (Part::Folders, 3),
            ['*', '*', ..] => (Part::AnyText, 2),
            ['*', ..] => (Part::AnyInSegment, 1),
            ['?', ..] => (Part::AnyChar, 1),
            [sign, ..] => (Part::Char(*sign), 1),
            [] => break,
        };
        parts.push(part);
        index += len;
    }
    parts
}

/// Tracks the set of reachable positions in the pattern, so time is bounded by the product of both lengths.
fn matches(parts: &[Part], text: &str) -> bool {
    let mut reachable = vec![false; parts.len() + 1];
    reachable[0] = true;
    expand_stars(parts, &mut reachable, true);
    for sign in text.chars() {
        let mut next = vec![false; parts.len() + 1];
        for (index, part) in parts
            .iter()
            .enumerate()
            .filter(|(index, _)| reachable[*index])
        {
            match part {
                Part::Char(wanted) => next[index + 1] |= *wanted == sign,
                Part::AnyChar => next[index + 1] |= sign != '/',
                Part::AnyInSegment => next[index] |= sign != '/',
                Part::AnyText | Part::Folders => next[index] = true,
            }
        }
        expand_stars(parts, &mut next, sign == '/');
        reachable = next;
    }
    reachable[parts.len()]
}

/// Stars may match nothing. `Folders` ends only where a folder begins.
fn expand_stars(parts: &[Part], reachable: &mut [bool], begins: bool) {
    for (index, part) in parts.iter().enumerate() {
        let empty = match part {
            Part::AnyInSegment | Part::AnyText => true,
            Part::Folders => begins,
            Part::Char(_) | Part::AnyChar => false,
        };
        reachable[index + 1] |= reachable[index] && empty;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-048
    #[test]
    fn patterns_mean_what_the_table_says() {
        for (pattern, matching, not_matching) in [
            (
                "/project/**",
                &["/project/a", "/project/a/b.c", "/project/.env"][..],
                &[
                    "/project",
                    "/projects/a",
                    "project/a",
                    "/a/project/b",
                    "/Project/a",
                ][..],
            ),
            (
                "/tmp/*",
                &["/tmp/a", "/tmp/a b"],
                &["/tmp/a/b", "/tmp", "/tmpa"],
            ),
            (
                "**/.env",
                &[".env", "/.env", "/a/.env", "a/b/.env"],
                &["/a/.envs", "/a/x.env", "/a/.env/b"],
            ),
            (
                "**/secrets/**",
                &["secrets/a", "/x/secrets/a/b"],
                &["/x/secretsa/b", "/secrets"],
            ),
            (
                "#dev-*",
                &["#dev-", "#dev-ops"],
                &["#dev", "#general", "#dev-a/b"],
            ),
            (
                "discord:acme/*",
                &["discord:acme/#general"],
                &["discord:acme", "discord:acme/a/b"],
            ),
            ("a?c", &["abc", "aäc"], &["ac", "a/c", "abbc"]),
            ("a**c", &["ac", "a/b/c"], &["a/b"]),
            ("**", &["a", "/a/b", "#x"], &[]),
            ("*", &["a", "#x"], &["a/b"]),
            (
                "/a/**/b",
                &["/a/b", "/a/x/b", "/a/x/y/b"],
                &["/a/xb", "/ab"],
            ),
            (
                "#general",
                &["#general"],
                &["#General", "#general2", "x#general"],
            ),
        ] {
            let read = ScopePattern::parse(pattern).unwrap();
            matching
                .iter()
                .for_each(|text| assert!(read.matches(text), "{pattern} {text}"));
            not_matching
                .iter()
                .for_each(|text| assert!(!read.matches(text), "{pattern} {text}"));
        }
    }

    #[test]
    fn invalid_patterns_are_rejected_with_a_reason() {
        for bad in [
            "", "/a/../b", "/a//b", "/a/./b", " a", "a ", "/%2e", "a\u{0}b", "/a\\b",
        ] {
            assert!(ScopePattern::parse(bad).is_err(), "{bad:?}");
        }
        assert!(ScopePattern::parse(&"*a".repeat(STARS_MAX + 1)).is_err());
        assert!(ScopePattern::parse(&"a".repeat(PATTERN_MAX + 1)).is_err());
    }

    /// Consecutive stars do not blow up matching time.
    #[test]
    fn a_hard_pattern_is_matched_quickly() {
        let pattern = ScopePattern::parse(&"a*".repeat(STARS_MAX)).unwrap();
        let text = "a".repeat(1024);
        assert!(pattern.matches(&text));
        assert!(!pattern.matches(&format!("{text}/b")));
    }
}
