//! Splits a long request into clauses: a request for several things needs several tools, and the meaning of
//! the whole lies between theirs, near none.

use crate::tools::index::terms::split_stems;

/// Most parts of a request that are held against tools by themselves: each is a scan of all vectors.
/// What is asked for after them is searched by its words and as a part of the whole.
pub(super) const CLAUSES_MAX: usize = 8;
/// Fewer words that tell something are no clause of their own.
const WORDS_MIN: usize = 3;
/// Bytes of a clause.
const CLAUSE_MAX: usize = 512;
/// Bytes of what comes after the last of them; a model reads 256 words.
const REST_MAX: usize = 2048;

/// The parts of a text, none when it asks for one thing. After the [`CLAUSES_MAX`]th comes all the rest.
pub(super) fn split_clauses(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for sentence in split_sentences(text) {
        let mut open = String::new();
        for part in split_sentence(sentence) {
            if !open.is_empty() {
                open.push_str(", ");
            }
            open.push_str(part);
            if split_stems(&open, WORDS_MIN).len() >= WORDS_MIN {
                out.push(std::mem::take(&mut open));
            }
        }
        if !open.is_empty() {
            out.push(open);
        }
    }
    if out.len() < 2 {
        return Vec::new();
    }
    let rest = out.split_off(CLAUSES_MAX.min(out.len())).join(", ");
    for clause in &mut out {
        clause.truncate(clause.floor_char_boundary(CLAUSE_MAX));
    }
    if !rest.is_empty() {
        out.push(rest[..rest.floor_char_boundary(REST_MAX)].to_owned());
    }
    out
}

fn split_sentences(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| matches!(c, '.' | '!' | '?' | ';' | '。' | '！' | '？' | '；');
    text.split('\n').flat_map(move |line| {
        // A point ends a sentence when something else follows: `3.5` and `example.com` go on.
        let mut start = 0;
        let stops = line.char_indices().filter(move |(at, c)| {
            let after = line[at + c.len_utf8()..].chars().next();
            ends(*c) && after.is_none_or(|after| !c.is_ascii() || after.is_whitespace())
        });
        let mut stops: Vec<usize> = stops.map(|(at, c)| at + c.len_utf8()).collect();
        stops.push(line.len());
        let sentences = stops.into_iter().map(move |end| {
            let sentence = &line[start..end];
            start = end;
            sentence
        });
        sentences.collect::<Vec<_>>()
    })
}

fn split_sentence(sentence: &str) -> impl Iterator<Item = &str> {
    let marks = sentence.split([',', ':', '，', '、', '：']);
    let joined = marks.flat_map(|part| part.split(" and "));
    let joined = joined.flat_map(|part| part.split(" then "));
    let bare = joined.map(|part| {
        part.trim_matches(|c: char| c.is_whitespace() || matches!(c, '.' | '!' | '?' | ';'))
    });
    bare.filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_split_into_clauses() {
        let text = "Read the sales of version 3.5, plot them as a bar chart and mail it to the whole team. Thanks!";
        assert_eq!(
            split_clauses(text),
            [
                "Read the sales of version 3.5",
                "plot them as a bar chart",
                "mail it to the whole team",
                "Thanks"
            ]
        );
        assert_eq!(split_clauses("read a file"), Vec::<String>::new());
    }

    #[test]
    fn short_clauses_are_merged() {
        assert_eq!(
            split_clauses("Compare red, green, blue paint. Order the cheapest paint online"),
            [
                "Compare red, green",
                "blue paint",
                "Order the cheapest paint online"
            ]
        );
    }

    #[test]
    fn clauses_are_bounded() {
        let parts = split_clauses(&"do this great thing; ".repeat(1000));
        assert_eq!(parts.len(), CLAUSES_MAX + 1);
        assert_eq!(parts[CLAUSES_MAX].len(), REST_MAX);
        assert!(split_clauses(&"word ".repeat(10_000)).is_empty());
    }
}
