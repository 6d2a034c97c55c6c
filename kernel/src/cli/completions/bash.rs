//! Parses a line as bash does, and quotes words for it.

/// A line up to the cursor.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BashLine {
    /// Its words without quotes; the last one is incomplete, and may be empty.
    pub(super) words: Vec<String>,
    /// Bytes of the last word that stay: bash replaces only what follows its last word break, such as `:` or `=`.
    kept_prefix_len: usize,
    /// Whether a quote is open at the cursor.
    in_quotes: bool,
}

enum Quote {
    None,
    Single,
    Double,
}

impl BashLine {
    /// `breaks` is `COMP_WORDBREAKS`. Nothing is expanded.
    pub(super) fn parse(line: &str, breaks: &str) -> Self {
        let (mut words, mut word, mut kept_prefix_len) = (Vec::new(), None::<String>, 0);
        let mut quote = Quote::None;
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match (&quote, c) {
                (Quote::None, ' ' | '\t' | '\n') => {
                    words.extend(word.take());
                    kept_prefix_len = 0;
                    continue;
                }
                (Quote::None, '\'') => quote = Quote::Single,
                (Quote::None, '"') => quote = Quote::Double,
                (Quote::Single, '\'') | (Quote::Double, '"') => quote = Quote::None,
                (Quote::None, '\\') => {
                    word.get_or_insert_default().extend(chars.next());
                    continue;
                }
                (Quote::Double, '\\') => {
                    let next = chars.next();
                    let word = word.get_or_insert_default();
                    if next.is_none_or(|next| !"$`\"\\\n".contains(next)) {
                        word.push('\\');
                    }
                    word.extend(next);
                    continue;
                }
                (Quote::None, c) => {
                    let word = word.get_or_insert_default();
                    word.push(c);
                    if breaks.contains(c) {
                        kept_prefix_len = word.len();
                    }
                    continue;
                }
                (Quote::Single | Quote::Double, c) => {
                    word.get_or_insert_default().push(c);
                    continue;
                }
            }
            // A quote: bash replaces what follows it.
            kept_prefix_len = word.get_or_insert_default().len();
        }
        words.push(word.unwrap_or_default());
        Self {
            words,
            kept_prefix_len,
            in_quotes: !matches!(quote, Quote::None),
        }
    }

    /// The replacement that turns the last word into `word`; `None` if that is not possible.
    pub(super) fn replacement_for(&self, word: &str) -> Option<String> {
        let rest = word.get(self.kept_prefix_len..)?;
        match self.in_quotes {
            // Other characters have a different meaning within quotes.
            true => rest.chars().all(is_plain_char).then(|| rest.to_owned()),
            false => Some(escape_word(rest)),
        }
    }
}

fn is_plain_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_./:@%+,=-".contains(c)
}

/// The text with a backslash before everything that is special in a shell.
fn escape_word(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() && !is_plain_char(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const BREAKS: &str = " \t\n\"'@><=;|&(:";

    fn read(line: &str) -> BashLine {
        BashLine::parse(line, BREAKS)
    }

    #[test]
    fn words_are_those_of_bash() {
        for (line, words) in [
            ("mgp ", &["mgp", ""][..]),
            ("mgp  tools\tca", &["mgp", "tools", "ca"]),
            (
                r#"mgp 'a b' "c \"d\" \e" f\ g"#,
                &["mgp", "a b", r#"c "d" \e"#, "f g"],
            ),
            ("mgp '' x", &["mgp", "", "x"]),
            ("mgp 'open it", &["mgp", "open it"]),
            ("mgp $(x", &["mgp", "$(x"]),
            ("mgp \\", &["mgp", ""]),
        ] {
            assert_eq!(read(line).words, words, "{line}");
        }
    }

    #[test]
    fn only_the_part_that_bash_replaces_is_returned() {
        let put = |line: &str, word: &str| read(line).replacement_for(word);
        assert_eq!(put("mgp it", "it:echo").as_deref(), Some("it:echo"));
        assert_eq!(put("mgp it:", "it:echo").as_deref(), Some("echo"));
        assert_eq!(
            put("mgp --to=node:d", "--to=node:desk").as_deref(),
            Some("desk")
        );
        assert_eq!(put("mgp 'it:", "it:echo").as_deref(), Some("it:echo"));
        assert_eq!(
            BashLine::parse("mgp it:", " ")
                .replacement_for("it:echo")
                .as_deref(),
            Some("it:echo")
        );
    }

    #[test]
    fn names_are_quoted_for_bash() {
        let put = |line: &str, word: &str| read(line).replacement_for(word);
        assert_eq!(
            put("mgp ", "a$(touch x)").as_deref(),
            Some(r"a\$\(touch\ x\)")
        );
        assert_eq!(
            put("mgp ", "`x`;~*!#{}\"'\\").as_deref(),
            Some(r#"\`x\`\;\~\*\!\#\{\}\"\'\\"#)
        );
        assert_eq!(put("mgp ", "über").as_deref(), Some("über"));
        for open in ["mgp \"a", "mgp 'a"] {
            assert_eq!(put(open, "a$(touch x)"), None);
            assert_eq!(put(open, "a'b"), None);
            assert_eq!(put(open, "ab").as_deref(), Some("ab"));
        }
    }
}
