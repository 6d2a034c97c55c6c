//! Patterns of labels (MCPL §7.2 leaves their meaning to the host).
//!
//! `*` stands for any signs but `/`, `**` for any signs, `?` for one sign but `/`; `**/` stands for any number of
//! folders, none among them. Everything else stands for itself.

/// Bytes of a pattern.
const PATTERN_MAX: usize = 512;
/// Stars in a pattern: matching takes time with their number.
const STARS_MAX: usize = 16;

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopePattern {
    text: String,
    parts: Vec<Part>,
    /// The same, for texts that are folded.
    folded: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// This sign.
    Char(char),
    /// One sign but `/`.
    AnyChar,
    /// Any signs but `/`.
    AnyInSegment,
    /// Any signs.
    AnyText,
    /// Any number of folders, each with its `/`.
    Folders,
}

/// Why a text is no pattern.
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
    /// No label that is approved has this in it, so it would never match.
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

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it names this text, sign by sign.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        matches(&self.parts, text)
    }

    /// Whether it names a text that [`super::render_label::fold`] made.
    #[must_use]
    pub(crate) fn matches_in_any_case(&self, folded: &str) -> bool {
        matches(&self.folded, folded)
    }
}

fn parse_parts(text: &str) -> Vec<Part> {
    let signs: Vec<char> = text.chars().collect();
    let mut parts = Vec::new();
    let mut at = 0;
    while at < signs.len() {
        let begins = at == 0 || signs[at - 1] == '/';
        let (part, len) = match &signs[at..] {
            ['*', '*', '/', ..] if begins => (Part::Folders, 3),
            ['*', '*', ..] => (Part::AnyText, 2),
            ['*', ..] => (Part::AnyInSegment, 1),
            ['?', ..] => (Part::AnyChar, 1),
            [sign, ..] => (Part::Char(*sign), 1),
            [] => break,
        };
        parts.push(part);
        at += len;
    }
    parts
}

/// Keeps the set of places in the pattern that the text so far can have led to: no text takes longer than its
/// length times that of the pattern.
fn matches(parts: &[Part], text: &str) -> bool {
    let mut places = vec![false; parts.len() + 1];
    places[0] = true;
    expand_stars(parts, &mut places, true);
    for sign in text.chars() {
        let mut next = vec![false; parts.len() + 1];
        for (at, part) in parts.iter().enumerate().filter(|(at, _)| places[*at]) {
            match part {
                Part::Char(wanted) => next[at + 1] |= *wanted == sign,
                Part::AnyChar => next[at + 1] |= sign != '/',
                Part::AnyInSegment => next[at] |= sign != '/',
                Part::AnyText | Part::Folders => next[at] = true,
            }
        }
        expand_stars(parts, &mut next, sign == '/');
        places = next;
    }
    places[parts.len()]
}

/// Stars may stand for nothing. `Folders` ends only where a folder begins.
fn expand_stars(parts: &[Part], places: &mut [bool], begins: bool) {
    for (at, part) in parts.iter().enumerate() {
        let empty = match part {
            Part::AnyInSegment | Part::AnyText => true,
            Part::Folders => begins,
            Part::Char(_) | Part::AnyChar => false,
        };
        places[at + 1] |= places[at] && empty;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-048: what patterns mean.
    #[test]
    fn patterns_mean_what_the_table_says() {
        for (pattern, yes, no) in [
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
            yes.iter()
                .for_each(|text| assert!(read.matches(text), "{pattern} {text}"));
            no.iter()
                .for_each(|text| assert!(!read.matches(text), "{pattern} {text}"));
        }
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        for bad in [
            "", "/a/../b", "/a//b", "/a/./b", " a", "a ", "/%2e", "a\u{0}b", "/a\\b",
        ] {
            assert!(ScopePattern::parse(bad).is_err(), "{bad:?}");
        }
        assert!(ScopePattern::parse(&"*a".repeat(STARS_MAX + 1)).is_err());
        assert!(ScopePattern::parse(&"a".repeat(PATTERN_MAX + 1)).is_err());
    }

    /// Stars in a row do not take the machine with them.
    #[test]
    fn a_hard_pattern_is_done_at_once() {
        let pattern = ScopePattern::parse(&"a*".repeat(STARS_MAX)).unwrap();
        let text = "a".repeat(1024);
        assert!(pattern.matches(&text));
        assert!(!pattern.matches(&format!("{text}/b")));
    }
}
