//! String literals as the language reads them.

/// A Python literal between its quotes. `None`: it cannot be told (`\N{...}`).
pub(super) fn python(text: &str, bytes: bool) -> Option<String> {
    unescape(text, |escape, rest| match escape {
        '\n' => Some(String::new()),
        'N' if !bytes => None,
        'u' | 'U' if bytes => Some(format!("\\{escape}")),
        'u' => digits(rest, 4, 16).and_then(character),
        'U' => digits(rest, 8, 16).and_then(character),
        'x' => digits(rest, 2, 16).and_then(character),
        '0'..='7' => character(octal(escape, rest)),
        _ => Some(plain(escape).map_or_else(|| format!("\\{escape}"), String::from)),
    })
}

/// A JavaScript literal between its quotes. `None`: it is no text, such as half a surrogate pair.
pub(super) fn javascript(text: &str) -> Option<String> {
    unescape(text, |escape, rest| match escape {
        '\n' | '\u{2028}' | '\u{2029}' => Some(String::new()),
        'u' => braced(rest)
            .or_else(|| digits(rest, 4, 16))
            .and_then(character),
        'x' => digits(rest, 2, 16).and_then(character),
        '0'..='7' => character(octal(escape, rest)),
        _ => Some(plain(escape).unwrap_or(escape).to_string()),
    })
}

type Rest<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn unescape(
    text: &str,
    mut one: impl FnMut(char, &mut Rest<'_>) -> Option<String>,
) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                let escape = rest.next()?;
                out.push_str(&one(escape, &mut rest)?);
            }
            c => out.push(c),
        }
    }
    Some(out)
}

fn plain(escape: char) -> Option<char> {
    Some(match escape {
        '\\' | '\'' | '"' => escape,
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        _ => return None,
    })
}

fn character(code: u32) -> Option<String> {
    char::from_u32(code).map(String::from)
}

fn digits(rest: &mut Rest<'_>, count: usize, radix: u32) -> Option<u32> {
    let mut code: u32 = 0;
    for _ in 0..count {
        code = code.checked_mul(radix)? + rest.next()?.to_digit(radix)?;
    }
    Some(code)
}

fn octal(first: char, rest: &mut Rest<'_>) -> u32 {
    let mut code = first.to_digit(8).unwrap_or(0);
    for _ in 0..2 {
        let Some(digit) = rest.peek().and_then(|c| c.to_digit(8)) else {
            break;
        };
        rest.next();
        code = code * 8 + digit;
    }
    code
}

fn braced(rest: &mut Rest<'_>) -> Option<u32> {
    if rest.peek() != Some(&'{') {
        return None;
    }
    rest.next();
    let hex: String = rest.take_while(|&c| c != '}').collect();
    // More than six digits name no character; the caller's next attempt then fails as well.
    u32::from_str_radix(&hex, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MGP-106: an escape does not hide a name.
    #[test]
    fn escapes_are_read_as_the_language_reads_them() {
        assert_eq!(python(r"\x65v\141\u006c", false).as_deref(), Some("eval"));
        assert_eq!(python(r"\d+\n", false).as_deref(), Some("\\d+\n"));
        assert_eq!(python(r"\N{LATIN SMALL LETTER E}", false), None);
        assert_eq!(python(r"\u0065", true).as_deref(), Some(r"\u0065"));
        assert_eq!(javascript(r"\u{65}v\x61\154\q").as_deref(), Some("evalq"));
        assert_eq!(javascript(r"\ud800"), None);
    }
}
