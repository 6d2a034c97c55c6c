//! A linear model over a sentence: its words and their neighbours, the classes of its words and which of them are not of
//! its tool's purpose, its letters, and its place. It catches acts in words that no rule names. Its weights are trained
//! offline from `tests/corpus/definitions`.

#[cfg(test)]
mod training;

use std::collections::BTreeSet;

use super::sentence::{ActWeight, Sentence};
use super::texts::Role;
use super::words::Words;

/// The number of weights. Features are hashed to them.
pub(super) const WEIGHTS: usize = 1 << 16;

/// The bias, then one weight for each bucket, as a signed byte each.
static TABLE: &[u8] = include_bytes!("model/weights.bin");

/// A weight of one in the table.
pub(super) const SCALE: f32 = 16.0;

/// How many letters stand together in a feature: parts of words in any language.
const LETTERS: [usize; 2] = [4, 5];

/// How much a sentence reads like orders beyond its call: the logarithm of the odds.
#[expect(clippy::cast_precision_loss, reason = "sums of a few hundred bytes")]
pub(super) fn judge(features: &[u16]) -> f32 {
    let weight = |index: usize| {
        TABLE
            .get(index)
            .map_or(0, |weight| i32::from(weight.cast_signed()))
    };
    let sum: i32 = features
        .iter()
        .map(|feature| weight(usize::from(*feature) + 1))
        .sum();
    (sum as f32 / norm(features.len()) + weight(0) as f32) / SCALE
}

/// What the sentences of a definition come to: the worst one, and a part of the second.
pub(super) fn total(logits: impl IntoIterator<Item = f32>) -> f32 {
    let (mut first, mut second) = (f32::MIN, f32::MIN);
    for logit in logits {
        if logit > first {
            second = first;
            first = logit;
        } else {
            second = second.max(logit);
        }
    }
    first + 0.3 * (second + 0.5).max(0.0)
}

/// Longer sentences have more features, not more of an act.
#[expect(
    clippy::cast_precision_loss,
    reason = "a sentence has a few hundred features"
)]
pub(super) fn norm(features: usize) -> f32 {
    (features as f32).max(1.0).sqrt()
}

/// The features of a sentence, folded: each once.
pub(super) fn features(sentence: &Sentence<'_>, words: &Words, found: &[ActWeight]) -> Vec<u16> {
    let mut out = BTreeSet::new();
    let place = match (sentence.role, sentence.is_function) {
        (_, true) => "function",
        (Role::Argument, _) => "argument",
        (Role::ArgumentName | Role::Name, _) => "name",
        (Role::Instructions, _) => "instructions",
        (Role::Message, _) => "message",
        (Role::Description, _) => "more",
        (Role::Value, _) => "value",
    };
    let mut add = |parts: &[&str]| {
        out.insert(bucket(parts));
    };
    add(&["place", place]);
    let tokens = tokens(sentence.text, sentence.arguments);
    let edges = ["^".to_owned()]
        .into_iter()
        .chain(tokens.iter().cloned())
        .chain(["$".to_owned()]);
    let edged: Vec<String> = edges.collect();
    for token in &tokens {
        add(&["word", token]);
        add(&["place word", place, token]);
    }
    for pair in edged.windows(2) {
        add(&["pair", &pair[0], &pair[1]]);
    }
    for three in edged.windows(3) {
        add(&["apart", &three[0], &three[2]]);
    }
    let classes: Vec<String> = words.classes().map(|class| format!("{class:?}")).collect();
    for (at, one) in classes.iter().enumerate() {
        add(&["class", one]);
        add(&["place class", place, one]);
        for other in &classes[at + 1..] {
            add(&["classes", one, other]);
        }
    }
    let (purpose, mut strange) = (sentence.purpose, Vec::new());
    for class in words.classes().filter(|class| !purpose.has(*class)) {
        strange.push(format!("{class:?}"));
    }
    for (at, one) in strange.iter().enumerate() {
        add(&["strange", one]);
        add(&["place strange", place, one]);
        for other in &strange[at + 1..] {
            add(&["strange both", one, other]);
        }
    }
    for letters in LETTERS {
        for part in parts(sentence.text, letters) {
            add(&["letters", part]);
        }
    }
    for (act, weight) in found {
        for level in 0..=(weight / 30).min(4) {
            add(&["act", act.as_str(), &level.to_string()]);
            add(&["any act", &level.to_string()]);
        }
    }
    out.into_iter().collect()
}

/// All pieces of a text with so many letters.
fn parts(text: &str, letters: usize) -> impl Iterator<Item = &str> {
    let ends = text.char_indices().map(|(at, _)| at).skip(letters);
    let ends = ends.chain((text.chars().count() >= letters).then_some(text.len()));
    let starts = text.char_indices().map(|(at, _)| at);
    starts.zip(ends).map(|(start, end)| &text[start..end])
}

/// Words by their beginnings; names, addresses and numbers by their kind; texts without spaces by pairs of letters.
fn tokens(text: &str, arguments: &BTreeSet<String>) -> Vec<String> {
    let mut out = Vec::new();
    let marks = |c: char| "`'\"()[]{}<>,;:!?.*“”「」。、，：".contains(c);
    for word in text.split_whitespace() {
        let is_quoted = word.starts_with(['`', '\'', '"']) || word.starts_with("(`");
        let bare = word.trim_matches(marks);
        if bare.is_empty() {
            continue;
        }
        let kind = if bare.contains("://") {
            Some("<url>")
        } else if bare.contains('@') && bare.contains('.') {
            Some("<mail>")
        } else if is_quoted && arguments.contains(bare) {
            Some("<argument>")
        } else if bare.starts_with("~/")
            || bare.starts_with("/") && bare.len() > 2
            || bare.starts_with("./")
        {
            Some("<path>")
        } else if bare.contains('_') || is_quoted && word.starts_with('`') {
            Some("<name>")
        } else if bare.starts_with(|c: char| c.is_ascii_digit()) {
            Some("<number>")
        } else {
            None
        };
        if let Some(kind) = kind {
            out.push(kind.to_owned());
            continue;
        }
        for part in bare
            .split(|c: char| !(c.is_alphanumeric() || c == '\''))
            .filter(|part| !part.is_empty())
        {
            if part.chars().any(is_ideograph) {
                let all: Vec<char> = part.chars().collect();
                out.extend(all.windows(2).map(|pair| pair.iter().collect::<String>()));
            } else {
                let stem = if part.is_ascii() { 7 } else { 5 };
                out.push(part.chars().take(stem).collect());
            }
        }
    }
    out
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

/// FNV-1a over the parts.
fn bucket(parts: &[&str]) -> u16 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = hash ^ hash >> 32 ^ hash >> 17;
    u16::try_from(mixed % WEIGHTS as u64).unwrap_or_default()
}
