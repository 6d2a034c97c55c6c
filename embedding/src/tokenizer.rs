//! The tokenizer: splits text into words and parts of words as the model numbers them (WordPiece, as in
//! BERT).

use std::collections::HashMap;

use serde::Deserialize;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// A longer word is one unknown word, as in training.
const WORD_MAX: usize = 100;
/// Bytes looked at for each word that is wanted: texts without end are not read to it.
pub(crate) const BYTES_PER_TOKEN: usize = 64;

const UNKNOWN: &str = "[UNK]";
const START: &str = "[CLS]";
const END: &str = "[SEP]";

/// The words of the model.
pub(crate) struct Tokenizer {
    words: HashMap<String, i32>,
    unknown: i32,
    start: i32,
    end: i32,
}

#[derive(Deserialize)]
struct TokenizerFile {
    model: TokenModel,
}

#[derive(Deserialize)]
struct TokenModel {
    vocab: HashMap<String, i32>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    pub(crate) fn parse(file: &str) -> Result<Self, serde_json::Error> {
        let words = serde_json::from_str::<TokenizerFile>(file)?.model.vocab;
        let number = |word: &str| {
            let missing = || serde::de::Error::custom(format!("the vocabulary has no {word}"));
            words.get(word).copied().ok_or_else(missing)
        };
        Ok(Self {
            unknown: number(UNKNOWN)?,
            start: number(START)?,
            end: number(END)?,
            words,
        })
    }

    /// At most so many numbers, with those of start and end.
    pub(crate) fn encode(&self, text: &str, most: usize) -> Vec<i32> {
        let room = most.saturating_sub(1);
        let text = &text[..text.floor_char_boundary(most * BYTES_PER_TOKEN)];
        let mut out = vec![self.start];
        for word in split_words(&normalize(text)) {
            if out.len() >= room {
                break;
            }
            self.push_word_pieces(word, &mut out);
        }
        out.truncate(room.max(1));
        out.push(self.end);
        out
    }

    /// The longest beginning that is known, and so on with the rest.
    fn push_word_pieces(&self, word: &str, out: &mut Vec<i32>) {
        let before = out.len();
        let mut rest = word;
        let mut piece = String::new();
        if word.chars().count() > WORD_MAX {
            out.push(self.unknown);
            return;
        }
        while !rest.is_empty() {
            let inside = rest.len() < word.len();
            let ends = rest.char_indices().map(|(at, c)| at + c.len_utf8());
            let known = ends.rev().find_map(|end| {
                piece.clear();
                if inside {
                    piece.push_str("##");
                }
                piece.push_str(&rest[..end]);
                self.words.get(piece.as_str()).map(|number| (*number, end))
            });
            let Some((number, end)) = known else {
                out.truncate(before);
                out.push(self.unknown);
                return;
            };
            out.push(number);
            rest = &rest[end..];
        }
    }
}

/// Small letters without accents, without what does not print, with room around each ideograph.
fn normalize(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            _ if c.is_whitespace() => spaced.push(' '),
            '\u{fffd}' => {}
            _ if c.is_control() || is_invisible(c) => {}
            _ if is_ideograph(c) => spaced.extend([' ', c, ' ']),
            _ => spaced.push(c),
        }
    }
    let bare = spaced.nfd().filter(|c| !is_combining_mark(*c));
    bare.flat_map(char::to_lowercase).collect()
}

/// Runs without spaces, and each mark by itself.
fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').flat_map(|run| {
        run.split_inclusive(is_punctuation).flat_map(|part| {
            let last = part.chars().next_back().filter(|c| is_punctuation(*c));
            let (word, mark) = part.split_at(part.len() - last.map_or(0, char::len_utf8));
            [word, mark].into_iter().filter(|part| !part.is_empty())
        })
    })
}

/// Signs that only say how others are to be set.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{206f}' | '\u{feff}')
}

fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c),
        0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x2a6df
        | 0x2a700..=0x2ceaf | 0x2f800..=0x2fa1f)
}

/// Punctuation: all of ASCII that is neither letter nor digit, and what Unicode counts as such in
/// the scripts that occur.
fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation()
        || matches!(c,
            '¡' | '§' | '«' | '¶' | '·' | '»' | '¿'
            | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{2043}' | '\u{2045}'..='\u{2051}'
            | '\u{2053}'..='\u{205e}' | '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3011}'
            | '\u{3014}'..='\u{301f}' | '\u{ff01}'..='\u{ff03}' | '\u{ff05}'..='\u{ff0a}'
            | '\u{ff0c}'..='\u{ff0f}' | '\u{ff1a}' | '\u{ff1b}' | '\u{ff1f}' | '\u{ff20}'
            | '\u{ff3b}'..='\u{ff3d}' | '\u{ff3f}' | '\u{ff5b}' | '\u{ff5d}' | '\u{ff5f}'..='\u{ff65}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, most: usize) -> Vec<i32> {
        let file = include_str!("../model/tokenizer.json");
        Tokenizer::parse(file).unwrap().encode(text, most)
    }

    /// The numbers that the tokenizer of the model's makers gives.
    #[test]
    fn words_have_the_numbers_the_model_was_trained_with() {
        let known: [(&str, &[i32]); 5] = [
            (
                "Café: reads https://example.com/a_b, 3.5 km — 搜索新闻!",
                &[
                    101, 7668, 1024, 9631, 16770, 1024, 1013, 1013, 2742, 1012, 4012, 1013, 1037,
                    1035, 1038, 1010, 1017, 1012, 1019, 2463, 1517, 100, 100, 1862, 100, 999, 102,
                ],
            ),
            (
                "readHTTPFile2 naïve ÜBER e\u{301} 'quoted' $5 + x|y ~`^",
                &[
                    101, 3191, 11039, 25856, 8873, 2571, 2475, 15743, 19169, 1041, 1005, 9339,
                    1005, 1002, 1019, 1009, 1060, 1064, 1061, 1066, 1036, 1034, 102,
                ],
            ),
            (
                "日本語テキスト and \u{a0}nbsp\ttab\u{200b}zero",
                &[
                    101, 1864, 1876, 1950, 1713, 30227, 30233, 30240, 1998, 1050, 5910, 2361,
                    21628, 6290, 2080, 102,
                ],
            ),
            (
                "¿Qué? “smart” ‘q’ … « » – — €5 ©",
                &[
                    101, 1094, 10861, 1029, 1523, 6047, 1524, 1520, 1053, 1521, 1529, 1077, 1090,
                    1516, 1517, 1574, 2629, 1075, 102,
                ],
            ),
            ("emoji 😀 ok", &[101, 7861, 29147, 2072, 100, 7929, 102]),
        ];
        for (text, numbers) in known {
            assert_eq!(of(text, 256), numbers, "{text}");
        }
    }

    #[test]
    fn a_text_without_end_is_read_to_its_bound() {
        assert_eq!(of(&"word ".repeat(1 << 20), 256).len(), 256);
        assert_eq!(of(&"x".repeat(1 << 20), 256), [101, 100, 102]);
        assert_eq!(of("", 256), [101, 102]);
        for most in 0..4 {
            assert!(of("some words", most).len() <= most.max(2));
        }
    }
}
