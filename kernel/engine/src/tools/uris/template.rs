//! RFC 6570 templates, read backwards: could this URI have come from this template?
//!
//! Good enough to route a read, not to recover variables. A value may hold more than RFC 6570 lets
//! an expansion hold, since agents paste values unencoded: `{x}` takes all but `/`, `?` and `#`.

/// Longest template, in bytes.
pub(crate) const TEMPLATE_MAX: usize = 1024;
/// Most expressions in one template; with [`URI_MAX`] it bounds what a match can cost.
pub(crate) const EXPRESSIONS_MAX: usize = 16;
/// Longest URI matched, in bytes; longer ones match nothing.
pub(crate) const URI_MAX: usize = 4096;

/// A parsed `uriTemplate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<TemplatePart>,
    literal: usize,
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadTemplate {
    /// More than [`TEMPLATE_MAX`] bytes.
    #[error("a URI template has at most {TEMPLATE_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// More than [`EXPRESSIONS_MAX`] expressions.
    #[error("a URI template has at most {EXPRESSIONS_MAX} expressions")]
    TooManyExpressions,
    /// A brace without its partner.
    #[error("a brace at byte {0} has no partner")]
    Brace(usize),
    /// Text in braces that RFC 6570 does not know.
    #[error("{{{0}}} is no expression of RFC 6570")]
    Expression(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Literal(Box<str>),
    /// One or more bytes of the set.
    Run(CharacterSet),
    /// Nothing, or the byte and then any number of bytes of the set.
    Prefixed(u8, CharacterSet),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CharacterSet {
    /// Within one path segment.
    Segment,
    /// Within the path.
    Path,
    /// Before the fragment.
    Query,
    /// To the end.
    Anything,
}

impl CharacterSet {
    fn contains(self, byte: u8) -> bool {
        let excluded: &[u8] = match self {
            Self::Segment => b"/?#",
            Self::Path => b"?#",
            Self::Query => b"#",
            Self::Anything => b"",
        };
        !byte.is_ascii_control() && !excluded.contains(&byte)
    }
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// [`BadTemplate`] says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, BadTemplate> {
        if text.len() > TEMPLATE_MAX {
            return Err(BadTemplate::TooLong(text.len()));
        }
        let (mut parts, mut literal, mut expressions) = (Vec::new(), 0, 0);
        let mut rest = text;
        while !rest.is_empty() {
            let at = text.len() - rest.len();
            let brace = rest.find(['{', '}']).unwrap_or(rest.len());
            if brace > 0 {
                parts.push(TemplatePart::Literal(rest[..brace].into()));
                literal += rest[..brace].chars().count();
                rest = &rest[brace..];
                continue;
            }
            let inner = rest.strip_prefix('{').ok_or(BadTemplate::Brace(at))?;
            let end = inner.find('}').ok_or(BadTemplate::Brace(at))?;
            parse_expression(&inner[..end], &mut parts)?;
            expressions += 1;
            rest = &inner[end + 1..];
        }
        if expressions > EXPRESSIONS_MAX || parts.len() > 4 * EXPRESSIONS_MAX {
            return Err(BadTemplate::TooManyExpressions);
        }
        Ok(Self { parts, literal })
    }

    /// True when some expansion of the template is this URI. Takes time in proportion to the URI's
    /// length times the template's, whatever either holds.
    #[must_use]
    pub(crate) fn matches(&self, uri: &str) -> bool {
        if uri.len() > URI_MAX {
            return false;
        }
        let uri = uri.as_bytes();
        let mut reached = vec![false; uri.len() + 1];
        reached[0] = true;
        for part in &self.parts {
            reached = part.advance(uri, &reached);
            if !reached.contains(&true) {
                return false;
            }
        }
        reached[uri.len()]
    }

    /// Characters that stand for themselves: of two templates that match, the one with more fits
    /// better.
    #[must_use]
    pub(crate) const fn specificity(&self) -> usize {
        self.literal
    }
}

impl TemplatePart {
    /// Where one can stand after this part, given where one can stand before it.
    fn advance(&self, uri: &[u8], reached: &[bool]) -> Vec<bool> {
        let mut next = vec![false; reached.len()];
        match self {
            Self::Literal(text) => {
                let text = text.as_bytes();
                for at in (0..uri.len()).filter(|at| reached[*at]) {
                    if uri[at..].starts_with(text) {
                        next[at + text.len()] = true;
                    }
                }
            }
            Self::Run(set) => {
                let mut open = false;
                for (at, byte) in uri.iter().enumerate() {
                    open = (open || reached[at]) && set.contains(*byte);
                    next[at + 1] = open;
                }
            }
            Self::Prefixed(lead, set) => {
                next.copy_from_slice(reached);
                let mut open = false;
                for (at, byte) in uri.iter().enumerate() {
                    open = (open && set.contains(*byte)) || (reached[at] && byte == lead);
                    next[at + 1] |= open;
                }
            }
        }
        next
    }
}

fn parse_expression(inner: &str, parts: &mut Vec<TemplatePart>) -> Result<(), BadTemplate> {
    let bad = || BadTemplate::Expression(inner.chars().take(60).collect());
    let operator = inner.chars().next().filter(|c| "+#./;?&".contains(*c));
    let list = &inner[operator.map_or(0, char::len_utf8)..];
    let variables: Vec<&str> = list.split(',').collect();
    if !variables.iter().all(|v| is_variable(v)) {
        return Err(bad());
    }
    match operator {
        None => parts.push(TemplatePart::Run(CharacterSet::Segment)),
        Some('+') => parts.push(TemplatePart::Run(CharacterSet::Anything)),
        Some('#') => parts.push(TemplatePart::Prefixed(b'#', CharacterSet::Anything)),
        Some('.') => parts.push(TemplatePart::Prefixed(b'.', CharacterSet::Segment)),
        Some(';') => parts.push(TemplatePart::Prefixed(b';', CharacterSet::Segment)),
        Some('?') => parts.push(TemplatePart::Prefixed(b'?', CharacterSet::Query)),
        Some('&') => parts.push(TemplatePart::Prefixed(b'&', CharacterSet::Query)),
        Some('/') if list.contains('*') => {
            parts.push(TemplatePart::Prefixed(b'/', CharacterSet::Path))
        }
        Some('/') => parts.extend(
            variables
                .iter()
                .map(|_| TemplatePart::Prefixed(b'/', CharacterSet::Segment)),
        ),
        Some(_) => return Err(bad()),
    }
    Ok(())
}

/// A name, with `*` or `:` and up to four digits after it.
fn is_variable(text: &str) -> bool {
    let name = match text.split_once(':') {
        Some((name, digits)) => {
            let counts =
                (1..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
            if !counts {
                return false;
            }
            name
        }
        None => text.strip_suffix('*').unwrap_or(text),
    };
    let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'%' | b'-');
    !name.is_empty() && name.bytes().all(letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(template: &str, uri: &str) -> bool {
        Template::parse(template).unwrap().matches(uri)
    }

    /// The forms of RFC 6570 §3.2, with expansions of its own examples.
    #[test]
    fn every_operator_matches_its_expansions() {
        for (template, expansions) in [
            (
                "test://template/{id}/data",
                &["test://template/123/data"][..],
            ),
            ("{var}", &["value", "a,b", "50%25", "user@example.com"]),
            ("{var:3}", &["val"]),
            ("{+path}/here", &["/foo/bar/here", "a/here"]),
            ("X{#var}", &["X", "X#value", "X#/foo/bar,1024"]),
            ("X{.x,y}", &["X", "X.1024.768"]),
            ("f{/var}", &["f", "f/value"]),
            ("f{/var,x}/here", &["f/value/1024/here"]),
            ("{/list*}", &["/red/green/blue"]),
            ("p{;x,y,empty}", &["p;x=1024;y=768;empty"]),
            ("q{?x,y}", &["q", "q?x=1024&y=768"]),
            ("q{?keys*}", &["q?semi=%3B&dot=."]),
            ("q?fixed=yes{&x}", &["q?fixed=yes", "q?fixed=yes&x=1024"]),
            ("file:///{+p}{?a}", &["file:///x/y?a=1", "file:///x"]),
            ("plain://x", &["plain://x"]),
        ] {
            for uri in expansions {
                assert!(matches(template, uri), "{template} {uri}");
            }
        }
    }

    #[test]
    fn other_uris_do_not_match() {
        for (template, uri) in [
            ("test://template/{id}/data", "test://template//data"),
            ("test://template/{id}/data", "test://template/1/2/data"),
            ("test://template/{id}/data", "test://template/1/data/"),
            ("test://template/{id}/data", "test://other/1/data"),
            ("f{/var}", "f/a/b"),
            ("f{/var}", "fx"),
            ("X{.x}", "X.a/b"),
            ("q{?x}", "q?x=1#y"),
            ("{x}", "a\nb"),
            ("plain://x", "plain://X"),
        ] {
            assert!(!matches(template, uri), "{template} {uri}");
        }
    }

    #[test]
    fn an_invalid_template_is_rejected() {
        for bad in [
            "{",
            "a{b",
            "a}b",
            "{}",
            "{+}",
            "{a b}",
            "{=x}",
            "{a:}",
            "{a:12345}",
            "{a,}",
        ] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
        let long = "x".repeat(TEMPLATE_MAX + 1);
        assert_eq!(Template::parse(&long), Err(BadTemplate::TooLong(1025)));
        let many = "{a}".repeat(EXPRESSIONS_MAX + 1);
        assert_eq!(Template::parse(&many), Err(BadTemplate::TooManyExpressions));
    }

    #[test]
    fn more_literal_text_is_more_specific() {
        let of = |text: &str| Template::parse(text).unwrap().specificity();
        assert!(of("file:///logs/{+p}") > of("file:///{+p}"));
        assert_eq!(of("{+p}"), 0);
    }

    /// The worst template there is against the worst URI: no more than parts times bytes.
    #[test]
    fn matching_never_explodes() {
        let template = Template::parse(&"{+a}".repeat(EXPRESSIONS_MAX)).unwrap();
        assert!(template.matches(&"a".repeat(URI_MAX)));
        assert!(!template.matches(&format!("{}\n", "a".repeat(URI_MAX - 1))));
        assert!(!template.matches(&"a".repeat(URI_MAX + 1)));
    }

    proptest! {
        #[test]
        fn a_simple_template_matches_what_it_expands_to(
            pieces in proptest::collection::vec(("[a-z:/.?#]{1,4}", "[A-Za-z0-9%,~_]{1,5}"), 1..6)
        ) {
            let (mut template, mut uri) = (String::new(), String::new());
            for (literal, value) in pieces {
                template.push_str(&literal);
                template.push_str("{v}");
                uri.push_str(&literal);
                uri.push_str(&value);
            }
            prop_assert!(matches(&template, &uri));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "[{}a+#/*:,0-9é]{0,40}", uri in "\\PC{0,40}") {
            if let Ok(template) = Template::parse(&text) {
                let _ = template.matches(&uri);
            }
        }
    }
}
