//! Divides the text of a condition into tokens.

use std::borrow::Cow;

use super::ConditionError;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Name(&'a str),
    Number(&'a str),
    Text(Cow<'a, str>),
    Sign(&'static str),
    End,
}

/// The longer ones first.
const SIGNS: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "?", ":", ".", ",", "(", ")", "[", "]", "+",
    "-", "*", "/", "%", "{", "}", "=",
];

/// A token and where it begins and ends.
#[derive(Clone, Debug)]
pub(super) struct PlacedToken<'a> {
    pub(super) token: Token<'a>,
    pub(super) begin: usize,
    pub(super) end: usize,
}

/// All tokens of a text, with [`Token::End`] as the last.
pub(super) fn tokens(text: &str) -> Result<Vec<PlacedToken<'_>>, ConditionError> {
    let mut all = Vec::new();
    let mut index = 0;
    loop {
        let rest = &text[index..];
        index += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
        let rest = &text[index..];
        let Some(first) = rest.chars().next() else {
            all.push(PlacedToken {
                token: Token::End,
                begin: index,
                end: index,
            });
            return Ok(all);
        };
        let (token, len) = match first {
            '"' | '\'' => read_text(rest, index)?,
            'r' if rest[1..].starts_with(['"', '\'']) => read_raw_text(rest, index)?,
            'a'..='z' | 'A'..='Z' | '_' => {
                let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let len = len.unwrap_or(rest.len());
                (Token::Name(&rest[..len]), len)
            }
            '0'..='9' => {
                let len = number_len(rest.as_bytes());
                (Token::Number(&rest[..len]), len)
            }
            _ => {
                let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
                let sign = sign.ok_or_else(|| {
                    ConditionError::new(format!("{first:?} has no meaning in a condition"), index)
                })?;
                (Token::Sign(sign), sign.len())
            }
        };
        all.push(PlacedToken {
            token,
            begin: index,
            end: index + len,
        });
        index += len;
    }
}

fn number_len(bytes: &[u8]) -> usize {
    let mut len = 0;
    while len < bytes.len() {
        let is_exponent_sign =
            matches!(bytes[len], b'+' | b'-') && len > 0 && matches!(bytes[len - 1], b'e' | b'E');
        let is_part = bytes[len].is_ascii_alphanumeric() || bytes[len] == b'.' || is_exponent_sign;
        if !is_part {
            break;
        }
        len += 1;
    }
    len
}

/// A text between quotes without escapes: `r"\d+"`.
fn read_raw_text(rest: &str, at: usize) -> Result<(Token<'_>, usize), ConditionError> {
    let quote = &rest[1..2];
    let inner = &rest[2..];
    let end = inner
        .find(quote)
        .ok_or_else(|| ConditionError::new("a text has no end", at))?;
    Ok((Token::Text(Cow::Borrowed(&inner[..end])), end + 3))
}

fn read_text(rest: &str, at: usize) -> Result<(Token<'_>, usize), ConditionError> {
    let unended = || ConditionError::new("a text has no end", at);
    let quote = rest.chars().next().unwrap_or('"');
    let mut owned: Option<String> = None;
    let mut signs = rest.char_indices().skip(1);
    while let Some((index, sign)) = signs.next() {
        match sign {
            _ if sign == quote => {
                let text = owned.map_or(Cow::Borrowed(&rest[1..index]), Cow::Owned);
                return Ok((Token::Text(text), index + 1));
            }
            '\n' | '\r' => return Err(unended()),
            '\\' => {
                let (_, escaped) = signs.next().ok_or_else(unended)?;
                let code = || signs.by_ref().take(4).map(|(_, c)| c).collect::<String>();
                let sign = unescape(escaped, code)
                    .map_err(|words| ConditionError::new(words, at + index))?;
                owned
                    .get_or_insert_with(|| rest[1..index].to_owned())
                    .push(sign);
            }
            sign => {
                if let Some(owned) = &mut owned {
                    owned.push(sign);
                }
            }
        }
    }
    Err(unended())
}

fn unescape(escaped: char, code: impl FnOnce() -> String) -> Result<char, String> {
    match escaped {
        '\\' | '"' | '\'' | '`' | '?' => Ok(escaped),
        'n' => Ok('\n'),
        'r' => Ok('\r'),
        't' => Ok('\t'),
        'u' => {
            let code = u32::from_str_radix(&code(), 16).ok();
            let sign = code.and_then(char::from_u32);
            sign.ok_or_else(|| "\\u needs four hexadecimal digits".to_owned())
        }
        other => Err(format!(
            "\\{other} is no escape; in a pattern, write r\"…\" instead"
        )),
    }
}
