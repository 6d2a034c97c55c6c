//! SQL as tokens, as each kind of database reads it.

/// The lexical differences of one kind of database.
#[derive(Clone, Copy, Default)]
pub(super) struct SqlDialect {
    backslash: bool,
    hash: bool,
    nested: bool,
    dollar: bool,
    brackets: bool,
    spaced_dashes: bool,
    /// `q'[it's]'`.
    q_quotes: bool,
    triple_quotes: bool,
    /// `// comment`.
    slashes: bool,
}

/// Each with what it has and standard SQL has not.
pub(super) const DIALECTS: [fn(&mut SqlDialect); 8] = [
    |_| {},
    // MySQL.
    |d| (d.backslash, d.hash, d.spaced_dashes) = (true, true, true),
    // PostgreSQL.
    |d| (d.nested, d.dollar) = (true, true),
    // SQL Server.
    |d| (d.nested, d.brackets) = (true, true),
    // Others with comments and escapes of MySQL.
    |d| (d.hash, d.backslash) = (true, true),
    // Oracle.
    |d| d.q_quotes = true,
    // BigQuery.
    |d| (d.triple_quotes, d.hash, d.backslash) = (true, true, true),
    // Snowflake.
    |d| (d.slashes, d.dollar, d.backslash) = (true, true, true),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// In lower case.
    Word(String),
    /// A string or a quoted name; its content is no keyword.
    Quoted(String),
    Sign(char),
}

/// True if no dialect reads this text in its own way: it has no comments and escapes, and no quotes of only some of them.
pub(super) fn is_read_equally(text: &str) -> bool {
    let own = ["--", "/*", "//", "'''", "\"\"\"", "q'", "Q'"];
    !text.contains(['\\', '#', '$', '[']) && !own.iter().any(|sign| text.contains(sign))
}

/// Splits a text into tokens, without comments, except those that a database runs.
pub(super) fn tokenize(text: &str, dialect: SqlDialect) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let mut out = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        let next = chars.get(at + 1).copied();
        at = match (c, next) {
            ('-', Some('-'))
                if !dialect.spaced_dashes
                    || chars.get(at + 2).is_none_or(|c| c.is_whitespace()) =>
            {
                line_end(&chars, at)
            }
            ('#', _) if dialect.hash => line_end(&chars, at),
            ('/', Some('/')) if dialect.slashes => line_end(&chars, at),
            ('/', Some('*')) if dialect.hash && is_mysql_code(&chars, at) => {
                // MySQL runs it from this version on; code follows.
                skip_while(&chars, at + 3, |c| c == '!' || c.is_ascii_digit())
            }
            ('*', Some('/')) => at + 2,
            ('/', Some('*')) => comment_end(&chars, at, dialect.nested),
            ('\'' | '"', Some(next))
                if dialect.triple_quotes && next == c && chars.get(at + 2) == Some(&c) =>
            {
                out.push(Token::Quoted(String::new()));
                find_end(&chars, at + 3, &[c, c, c])
            }
            ('\'', Some(next))
                if dialect.q_quotes && has_prefix(&out, &chars, at, &["q", "nq"]) =>
            {
                out.push(Token::Quoted(String::new()));
                find_end(&chars, at + 2, &[closing(next), '\''])
            }
            ('\'' | '"' | '`', _) => {
                let end = string_end(
                    &chars,
                    at,
                    c,
                    dialect.backslash && c != '`'
                        || dialect.dollar && has_prefix(&out, &chars, at, &["e"]),
                );
                out.push(Token::Quoted(quoted_text(&chars, at + 1, end)));
                end
            }
            ('[', _) if dialect.brackets => {
                let end = string_end(&chars, at, ']', false);
                out.push(Token::Quoted(quoted_text(&chars, at + 1, end)));
                end
            }
            ('$', _) if dialect.dollar && dollar_tag(&chars, at).is_some() => {
                let tag = dollar_tag(&chars, at).unwrap_or_default();
                let body = at + tag.len();
                out.push(Token::Quoted(String::new()));
                find_end(&chars, body, &tag)
            }
            (c, _) if c.is_alphanumeric() || c == '_' => {
                let end = skip_while(&chars, at, |c| {
                    c.is_alphanumeric() || matches!(c, '_' | '.' | '$')
                });
                out.push(Token::Word(
                    chars[at..end].iter().collect::<String>().to_lowercase(),
                ));
                end
            }
            (c, _) => {
                if !c.is_whitespace() {
                    out.push(Token::Sign(c));
                }
                at + 1
            }
        };
    }
    out
}

fn skip_while(chars: &[char], from: usize, while_: impl Fn(char) -> bool) -> usize {
    let mut at = from;
    while chars.get(at).is_some_and(|c| while_(*c)) {
        at += 1;
    }
    at
}

fn line_end(chars: &[char], from: usize) -> usize {
    skip_while(chars, from, |c| c != '\n')
}

fn quoted_text(chars: &[char], from: usize, end: usize) -> String {
    chars
        .get(from..end.saturating_sub(1).max(from))
        .unwrap_or_default()
        .iter()
        .collect()
}

/// True for a string with one of these words right before it: `E'…'` has backslash escapes in PostgreSQL.
fn has_prefix(out: &[Token], chars: &[char], at: usize, prefixes: &[&str]) -> bool {
    let is_close = at > 0 && chars[at - 1].is_alphanumeric();
    is_close && matches!(out.last(), Some(Token::Word(word)) if prefixes.contains(&&**word))
}

/// True for a comment that MySQL or MariaDB runs: `/*!` and `/*M!`.
fn is_mysql_code(chars: &[char], at: usize) -> bool {
    match chars.get(at + 2) {
        Some('M') => chars.get(at + 3) == Some(&'!'),
        mark => mark == Some(&'!'),
    }
}

/// The delimiter that closes a q-quote.
fn closing(open: char) -> char {
    match open {
        '[' => ']',
        '(' => ')',
        '{' => '}',
        '<' => '>',
        other => other,
    }
}

/// The position behind the next occurrence, or the end.
fn find_end(chars: &[char], from: usize, wanted: &[char]) -> usize {
    let rest = chars.get(from..).unwrap_or_default();
    let found = rest
        .windows(wanted.len())
        .position(|window| window == wanted);
    found.map_or(chars.len(), |found| from + found + wanted.len())
}

fn string_end(chars: &[char], from: usize, close: char, backslash: bool) -> usize {
    let mut at = from + 1;
    while let Some(&c) = chars.get(at) {
        if backslash && c == '\\' {
            at += 2;
        } else if c == close {
            if chars.get(at + 1) != Some(&close) {
                return at + 1;
            }
            at += 2;
        } else {
            at += 1;
        }
    }
    chars.len()
}

fn comment_end(chars: &[char], from: usize, nested: bool) -> usize {
    let mut depth = 1;
    let mut at = from + 2;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            ('/', Some('*')) if nested => {
                depth += 1;
                at += 2;
            }
            _ => at += 1,
        }
    }
    at
}

/// `$$` or `$tag$`, but not `$1`.
fn dollar_tag(chars: &[char], at: usize) -> Option<Vec<char>> {
    let end = skip_while(chars, at + 1, |c| c.is_alphanumeric() || c == '_');
    (chars.get(end) == Some(&'$')).then(|| chars[at..=end].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    const PIECES: [&str; 30] = [
        "select", "q", "nq", "e", "E", "Q", "$", "a", "$a$", "1", "'", "''", "\"", "\"\"", "`",
        "[", "]", "#", "-", "--", "/", "*", "/*!", "/*", "*/", "\\", "\n", " ", ";", "(",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        /// MGP-059: a text that is not read in each dialect has the same tokens in all.
        #[test]
        fn texts_read_once_are_equal_in_all_dialects(pieces in prop::collection::vec(select(&PIECES), 1..7)) {
            let text = pieces.concat();
            if is_read_equally(&text) {
                let plain = tokenize(&text, SqlDialect::default());
                for differ in DIALECTS {
                    let mut dialect = SqlDialect::default();
                    differ(&mut dialect);
                    prop_assert_eq!(&tokenize(&text, dialect), &plain, "{:?}", text);
                }
            }
        }
    }
}
