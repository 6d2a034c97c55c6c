//! Text as words that can be compared: identifiers taken apart, accents and case gone, endings cut.
//!
//! Query and tool are treated alike; that matters more than how.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Longest word that is told from its neighbours, in bytes; the rest of a longer one is not read.
const WORD_BYTES_MAX: usize = 64;

/// Words that stand in every sentence and tell nothing of a tool: articles, prepositions, pronouns,
/// auxiliaries and the courtesies of a request.
const STOP_WORDS: &[&str] = &[
    "a", "about", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but",
    "by", "can", "could", "did", "do", "does", "doing", "else", "for", "from", "had", "has",
    "have", "he", "help", "her", "here", "him", "his", "how", "i", "if", "in", "into", "is", "it",
    "its", "just", "let", "may", "me", "might", "must", "my", "need", "no", "not", "of", "on",
    "or", "our", "out", "over", "own", "please", "shall", "she", "should", "so", "some", "such",
    "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "those",
    "to", "too", "under", "up", "us", "use", "used", "using", "very", "want", "was", "we", "were",
    "what", "when", "where", "which", "while", "who", "why", "will", "with", "would", "you",
    "your",
];

/// A stem, as 64 bits of it: what postings are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Term(u64);

impl Term {
    /// FNV-1a. Two words that fall together rank together, and nothing else depends on it.
    pub(super) fn from_stem(stem: &str) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in stem.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Self(hash)
    }

    /// Which of so many buckets it falls into, a power of two, and one of 64 bits.
    pub(super) fn bucket_and_bit(self, buckets: usize) -> (usize, u64) {
        let bucket = (self.0 >> 6) as usize & (buckets - 1);
        (bucket, 1 << (self.0 % 64))
    }
}

/// The first `most` words of a text as stems, without the words that tell nothing.
pub(in crate::tools) fn split_stems(text: &str, most: usize) -> Vec<String> {
    let mut out = Vec::new();
    for run in word_runs(text) {
        let parts = split_parts(run);
        for part in &parts {
            push_stems(part, &mut out);
        }
        if out.len() >= most {
            out.truncate(most);
            break;
        }
    }
    out
}

/// The words of a name, and each identifier of several parts once more as one word: who writes
/// `readfile` means `read_file`.
pub(super) fn split_name_stems(name: &str, most: usize) -> Vec<String> {
    let mut out = split_stems(name, most);
    for run in word_runs(name) {
        if out.len() < most && split_parts(run).len() > 1 {
            push_stems(&join_parts(run), &mut out);
        }
    }
    out
}

/// Identifiers that are written as one word but read as several.
pub(super) fn joined_identifiers(text: &str, most: usize) -> Vec<String> {
    let several = |run: &&str| run.contains(['_', '-']) && split_parts(run).len() > 1;
    let mut out = Vec::new();
    for run in word_runs(text).filter(several).take(most) {
        push_stems(&join_parts(run), &mut out);
    }
    out
}

/// Sentences put `-` and `_` between words that belong together, so these do not end a run.
fn word_runs(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| !(c.is_alphanumeric() || is_combining_mark(c) || matches!(c, '_' | '-'));
    text.split(ends).filter(|run| !run.is_empty())
}

fn join_parts(run: &str) -> String {
    run.chars().filter(|c| c.is_alphanumeric()).collect()
}

/// `readHTTPFile2` is read, HTTP, File, 2.
pub(super) fn split_parts(run: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut start = 0;
    let mut before: Option<char> = None;
    let mut chars = run.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let after = chars.peek().map(|(_, c)| *c);
        if before.is_some_and(|before| is_boundary(before, c, after)) {
            out.push(&run[start..at]);
            start = at;
        }
        before = Some(c);
    }
    out.push(&run[start..]);
    let trimmed = out.iter().map(|part| part.trim_matches(['_', '-']));
    trimmed.filter(|part| !part.is_empty()).collect()
}

fn is_boundary(before: char, c: char, after: Option<char>) -> bool {
    let mark = |c: char| matches!(c, '_' | '-');
    let case = before.is_lowercase() && c.is_uppercase();
    let acronym =
        before.is_uppercase() && c.is_uppercase() && after.is_some_and(char::is_lowercase);
    let digits = before.is_numeric() != c.is_numeric();
    mark(before) != mark(c) || case || acronym || digits || is_ideograph(before) != is_ideograph(c)
}

/// Scripts that are written without spaces.
pub(super) fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c), 0x3040..=0x30ff | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xac00..=0xd7af | 0xf900..=0xfaff | 0x20000..=0x2fa1f)
}

/// One part of a word as stem; where nobody writes spaces, each two neighbours are a word.
fn push_stems(part: &str, out: &mut Vec<String>) {
    let cut = part.floor_char_boundary(WORD_BYTES_MAX);
    if part.chars().next().is_some_and(is_ideograph) {
        let signs: Vec<char> = part[..cut].chars().collect();
        match &signs[..] {
            [one] => out.push(one.to_string()),
            several => out.extend(several.windows(2).map(String::from_iter)),
        }
        return;
    }
    let plain: String = part[..cut]
        .nfkd()
        .filter(|c| !is_combining_mark(*c))
        .flat_map(char::to_lowercase)
        .collect();
    if !plain.is_empty() && STOP_WORDS.binary_search(&plain.as_str()).is_err() {
        out.push(stem(plain));
    }
}

/// Cuts the endings of English: plural, -ing, -ed, a last e and a doubled letter. Light on purpose:
/// names of tools are short, and a stem too short joins what does not belong together.
pub(super) fn stem(mut word: String) -> String {
    if !word.is_ascii() || word.starts_with(|c: char| c.is_ascii_digit()) {
        return word;
    }
    if word.len() > 4 && word.ends_with("ies") {
        word.truncate(word.len() - 3);
        word.push('y');
        return word;
    }
    if word.len() > 5 && word.ends_with("sses") {
        word.truncate(word.len() - 2);
        return word;
    }
    let plural = word.ends_with('s') && !["ss", "us", "is"].iter().any(|kept| word.ends_with(kept));
    if word.len() > 3 && plural {
        word.pop();
    }
    if word.len() > 5 && word.ends_with("ing") {
        word.truncate(word.len() - 3);
    } else if word.len() > 4 && word.ends_with("ed") {
        word.truncate(word.len() - 2);
    }
    if word.len() > 3 && word.ends_with('e') {
        word.pop();
    }
    let bytes = word.as_bytes();
    let doubled = bytes.len() > 4 && bytes[bytes.len() - 1] == bytes[bytes.len() - 2];
    if doubled && !word.ends_with(['l', 's']) {
        word.pop();
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_split() {
        assert_eq!(split_parts("readHTTPFile2"), ["read", "HTTP", "File", "2"]);
        assert_eq!(
            split_parts("get-36kr_trending"),
            ["get", "36", "kr", "trending"]
        );
        assert_eq!(split_parts("__"), Vec::<&str>::new());
        assert_eq!(
            split_name_stems("list_directories", 8),
            ["list", "directory", "listdirectory"]
        );
    }

    #[test]
    fn forms_of_a_word_are_one_word() {
        for forms in [
            ["plotting", "plots", "plot"],
            ["saved", "saving", "save"],
            ["queries", "query", "Queries"],
            ["Café", "cafe", "CAFÉS"],
        ] {
            let stems: Vec<_> = forms.iter().flat_map(|form| split_stems(form, 8)).collect();
            assert_eq!(stems, [stems[0].as_str(); 3]);
        }
    }

    #[test]
    fn stop_words_are_skipped() {
        assert!(STOP_WORDS.is_sorted(), "it is searched by halves");
        assert_eq!(
            split_stems("Please can you read the file?", 8),
            ["read", "fil"]
        );
    }

    #[test]
    fn scripts_without_spaces_use_bigrams() {
        assert_eq!(split_stems("搜索新闻", 8), ["搜索", "索新", "新闻"]);
        assert_eq!(
            split_stems("bing搜索", 8),
            ["bing", "搜索"].map(|w| stem(w.into()))
        );
    }

    #[test]
    fn long_words_and_texts_are_truncated() {
        assert_eq!(
            split_stems(&"xy".repeat(1 << 20), 8)[0].len(),
            WORD_BYTES_MAX
        );
        assert_eq!(split_stems(&"ab cd ".repeat(1000), 10).len(), 10);
    }
}
