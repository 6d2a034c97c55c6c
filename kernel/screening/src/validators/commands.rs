//! Splits a command line into words like a POSIX shell, and rejects other shell syntax.

use super::ArgumentFinding;

/// The most words of one command; a longer one is rejected.
const WORDS_MAX: usize = 4_096;

/// How far the end of a brace is searched, in characters.
const BRACES_MAX: usize = 64;

/// Splits one plain command into words.
///
/// Every character that would make a shell do more than run one program is rejected: it is not needed, and
/// whether the server uses a shell is unknown. Inside single quotes all is text; inside double quotes all
/// but substitution.
pub(super) fn split_words(line: &str) -> Result<Vec<String>, ArgumentFinding> {
    let mut commands = split_pipeline(line)?;
    match commands.len() {
        0 | 1 => Ok(commands.pop().unwrap_or_default()),
        _ => Err(shell_syntax_finding("|", "it joins or redirects commands")),
    }
}

/// Splits a line into the commands of a pipeline with `|`, each split into words.
pub(super) fn split_pipeline(line: &str) -> Result<Vec<Vec<String>>, ArgumentFinding> {
    let mut lexer = Lexer::default();
    let mut commands = Vec::new();
    let mut chars = line.trim().chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        match (lexer.quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => lexer.quote = None,
            (Some('\''), c) => lexer.push(c),
            (_, '`') => {
                return Err(shell_syntax_finding(
                    "`",
                    "the output of another command is put in",
                ));
            }
            (_, '$') if is_expansion(next) => {
                return Err(shell_syntax_finding(
                    "$",
                    "a variable or another command is put in",
                ));
            }
            (Some(_), '\\') if matches!(next, Some('"' | '\\' | '$' | '`')) => {
                lexer.extend(chars.next());
            }
            (Some(_), c) => lexer.push(c),
            (None, '\\') => lexer.extend(chars.next()),
            (None, '\'' | '"') => {
                lexer.quote = Some(c);
                lexer.in_word = true;
            }
            (None, ' ' | '\t') => lexer.end_word()?,
            (None, '|') if !matches!(next, Some('|' | '&')) => {
                lexer.end_word()?;
                commands.push(std::mem::take(&mut lexer.words));
            }
            (None, ';' | '&' | '|' | '<' | '>' | '\n' | '\r' | '(' | ')') => {
                return Err(shell_syntax_finding(
                    &c.to_string(),
                    "it joins or redirects commands",
                ));
            }
            (None, '{') if is_brace_expansion(chars.clone()) => {
                return Err(shell_syntax_finding("{", "it spells words in pieces"));
            }
            (None, c) if c.is_control() => {
                return Err(shell_syntax_finding(
                    "a control character",
                    "it does not belong in a command",
                ));
            }
            (None, c) => lexer.push(c),
        }
    }
    if lexer.quote.is_some() {
        return Err(shell_syntax_finding(
            "a quote",
            "it is opened and never closed",
        ));
    }
    lexer.end_word()?;
    commands.push(lexer.words);
    Ok(commands)
}

#[derive(Default)]
struct Lexer {
    words: Vec<String>,
    word: String,
    in_word: bool,
    quote: Option<char>,
}

impl Lexer {
    fn push(&mut self, c: char) {
        self.word.push(c);
        self.in_word = true;
    }

    fn extend(&mut self, c: Option<char>) {
        self.word.extend(c);
        self.in_word = true;
    }

    fn end_word(&mut self) -> Result<(), ArgumentFinding> {
        if self.in_word {
            self.words.push(std::mem::take(&mut self.word));
            self.in_word = false;
        }
        if self.words.len() > WORDS_MAX {
            return Err(shell_syntax_finding(
                "too many words",
                "the command cannot be checked",
            ));
        }
        Ok(())
    }
}

/// True if a shell expands the text after a dollar sign.
fn is_expansion(next: Option<char>) -> bool {
    next.is_some_and(|c| c.is_ascii_alphanumeric() || "_({'\"[@*#?$!-".contains(c))
}

/// True for `{a,b}` and `{1..3}`, but not `{}`; also without an end in range.
fn is_brace_expansion(rest: impl Iterator<Item = char>) -> bool {
    let mut inner = String::new();
    for c in rest.take(BRACES_MAX) {
        if matches!(c, '}' | ' ') {
            return inner.contains(',') || inner.contains("..");
        }
        inner.push(c);
    }
    inner.len() >= BRACES_MAX || inner.contains(',')
}

fn shell_syntax_finding(what: &str, why: &str) -> ArgumentFinding {
    ArgumentFinding::new(
        "metacharacter",
        format!("{what} in a command: {why}"),
        "make one plain command a call, and quote text in single quotes",
    )
}

/// The characters that end a command outside quotes.
const ENDS: [char; 10] = [';', '&', '|', '\n', '\r', '`', '(', ')', '{', '}'];

/// The parts of a text that would be separate commands if its quotes were ignored.
pub(super) fn split_unquoted(text: &str) -> impl Iterator<Item = Vec<String>> {
    let words = text.split(ENDS).map(split_bare_words);
    words.filter(|words| !words.is_empty())
}

/// The first such part at or after a position, and its start; `None` when there is none.
pub(super) fn first_unquoted_part(text: &str, from: usize) -> Option<(usize, Vec<String>)> {
    let mut begins = from;
    for part in text.get(from..)?.split(ENDS) {
        let words = split_bare_words(part);
        if !words.is_empty() {
            return Some((begins, words));
        }
        // Separators are one byte.
        begins += part.len() + 1;
    }
    None
}

fn split_bare_words(part: &str) -> Vec<String> {
    let bare = part.replace(['"', '\'', '\\', '^'], "");
    bare.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// MGP-058: quoted metacharacters are text, as far as a shell agrees.
    #[test]
    fn plain_command_is_split_into_words() {
        let cut = |line| split_words(line).map(|w| w.join("|"));
        assert_eq!(
            cut("grep -n 'a;b|c' \"x y\" z").unwrap(),
            "grep|-n|a;b|c|x y|z"
        );
        assert_eq!(cut(r"r\m -r''f x").unwrap(), "rm|-rf|x");
        assert_eq!(
            cut("find . -name *.rs -exec ls {} +").unwrap(),
            "find|.|-name|*.rs|-exec|ls|{}|+"
        );
        assert_eq!(cut("echo costs 5$").unwrap(), "echo|costs|5$");
        for bad in [
            "a; b",
            "a | b",
            "a && b",
            "a > b",
            "a < b",
            "echo $(b)",
            "echo `b`",
            "echo \"$(b)\"",
            "echo $HOME",
            "a\nb",
            "{a,b}",
            "echo 'open",
            "echo ${IFS}",
            "a & b",
            "echo $'\\x41'",
        ] {
            assert_eq!(split_words(bad).unwrap_err().rule, "metacharacter", "{bad}");
        }
    }

    /// MGP-058: a backslash inside double quotes escapes four characters, and stands for itself before others.
    #[test]
    fn backslashes_are_read_as_a_shell_reads_them() {
        let line = r#"echo "a\"b" "c\nd" "\$e" "\`f" "g\\h" '\"'"#;
        let words = ["echo", "a\"b", "c\\nd", "$e", "`f", "g\\h", "\\\""];
        assert_eq!(split_words(line).unwrap(), words);
    }

    /// MGP-058: one bar joins two commands, other operators are rejected.
    #[test]
    fn pipeline_is_split_at_single_bars() {
        assert_eq!(
            split_pipeline("a b|c").unwrap(),
            [vec!["a", "b"], vec!["c"]]
        );
        for other in ["a || b", "a |& b"] {
            assert_eq!(split_pipeline(other).unwrap_err().rule, "metacharacter");
        }
    }

    /// MGP-058: braces are text unless they list or count, or their end is out of sight.
    #[test]
    fn only_braces_that_expand_are_rejected() {
        let far = |len| format!("echo {{{}", "a".repeat(len));
        for plain in ["echo {}", "echo {a}", "echo {a", "echo {a b,c}", &far(63)] {
            assert!(split_words(plain).is_ok(), "{plain}");
        }
        for expanded in ["echo {a,b}", "echo {1..3}", "echo {a,b", &far(64)] {
            assert!(split_words(expanded).is_err(), "{expanded}");
        }
    }

    /// MGP-058: parts without words are skipped, but counted.
    #[test]
    fn part_is_found_with_its_start() {
        let words = vec!["ls".to_owned(), "x".to_owned()];
        let text = "a;; 'ls' x|b";
        assert_eq!(first_unquoted_part(text, 1), Some((3, words)));
        assert_eq!(first_unquoted_part(text, 12), None);
        assert_eq!(first_unquoted_part(text, 13), None);
    }

    /// MGP-058: a command has at most 4,096 words.
    #[test]
    fn one_word_too_many_is_rejected() {
        let most = "a ".repeat(WORDS_MAX);
        assert_eq!(split_words(&most).unwrap().len(), WORDS_MAX);
        assert!(split_words(&format!("{most}a")).is_err());
    }

    proptest! {
        /// MGP-058: a quoted text is one word.
        #[test]
        fn quoted_text_is_one_word(text in "[ -~&&[^']]{0,30}") {
            prop_assert_eq!(split_words(&format!("echo '{text}'")).unwrap(), ["echo".to_owned(), text]);
        }
    }
}
