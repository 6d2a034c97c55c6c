//! Splits JSON text into tokens.

use std::borrow::Cow;

use crate::{string_end, unquote};

/// A token of JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// `{`, `}`, `[`, `]`, `,` or `:`.
    Mark(u8),
    /// A string with its quotes; without the closing one if the text ends first.
    String(&'a str),
    /// A number, `true`, `false` or `null`, or other text in place of one, verbatim.
    Scalar(&'a str),
}

impl<'a> Token<'a> {
    /// The content of a string that serde_json has accepted, borrowed if it has no escapes. `None` for other tokens, and
    /// where readers differ (half of a surrogate pair).
    #[must_use]
    pub fn as_text(self) -> Option<Cow<'a, str>> {
        let Self::String(raw) = self else {
            return None;
        };
        if memchr::memchr(b'\\', raw.as_bytes()).is_some() {
            return unquote(raw);
        }
        let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
        Some(Cow::Borrowed(inner))
    }
}

/// The tokens of a text, in order: for JSON as serde_json reads it. Of any text only white space is skipped.
#[derive(Clone, Debug)]
pub struct Tokens<'a>(&'a str);

impl<'a> Tokens<'a> {
    /// The tokens of this text.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self(text)
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.0.split_at(bytes);
        self.0 = rest;
        taken
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let bytes = self.0.as_bytes();
        let start = bytes.iter().position(|byte| !is_space(*byte))?;
        self.take(start);
        let bytes = self.0.as_bytes();
        Some(match bytes[0] {
            b'"' => {
                let end = string_end(&bytes[1..]).map_or(bytes.len(), |end| end + 2);
                Token::String(self.take(end))
            }
            mark if is_mark(mark) => {
                self.take(1);
                Token::Mark(mark)
            }
            _ => {
                let ends = |byte: &u8| is_space(*byte) || is_mark(*byte) || *byte == b'"';
                let end = bytes.iter().position(ends).unwrap_or(bytes.len());
                Token::Scalar(self.take(end))
            }
        })
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_mark(byte: u8) -> bool {
    matches!(byte, b'{' | b'}' | b'[' | b']' | b',' | b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_as_by_serde_json() {
        use Token::{Mark, Scalar, String};
        let tokens: Vec<_> = Tokens::new("\r\n{\"a\\\"}\" : [-1.0e2,\ttrue ]} ").collect();
        assert_eq!(
            tokens,
            [
                Mark(b'{'),
                String("\"a\\\"}\""),
                Mark(b':'),
                Mark(b'['),
                Scalar("-1.0e2"),
                Mark(b','),
                Scalar("true"),
                Mark(b']'),
                Mark(b'}'),
            ]
        );
    }

    #[test]
    fn a_string_is_the_text_between_its_quotes() {
        let texts: Vec<_> = Tokens::new(r#""a","","\u0061\"","\ud800",1,"x"#)
            .filter(|token| *token != Token::Mark(b','))
            .map(Token::as_text)
            .collect();
        let texts: Vec<_> = texts.iter().map(Option::as_deref).collect();
        assert_eq!(texts, [Some("a"), Some(""), Some("a\""), None, None, None]);
    }

    #[test]
    fn nothing_of_a_broken_text_is_skipped() {
        for text in ["é\u{b}x\"", "\"a\\", "\"é", "1\"2\"3]]", "", "nulé{"] {
            let pieces = Tokens::new(text).map(|token| match token {
                Token::Mark(byte) => char::from(byte).to_string(),
                Token::String(text) | Token::Scalar(text) => text.to_owned(),
            });
            assert_eq!(pieces.collect::<String>(), text);
        }
        let apart: Vec<_> = Tokens::new("1\"2\"3").collect();
        let scalar = Token::Scalar;
        assert_eq!(apart, [scalar("1"), Token::String("\"2\""), scalar("3")]);
    }
}
