//! Normal forms of a text that a server may read.

use unicode_normalization::UnicodeNormalization;

/// How often percent-encoding is decoded: more than twice occurs in attacks only.
const DECODED_MAX: usize = 3;

/// Normalizes a text: NFKC, no invisible characters, and look-alikes of slashes, dashes, dots and bars
/// replaced (some systems map them when converting to a narrower character set).
pub(super) fn normalize(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    let shown = text.chars().filter(|c| !is_invisible(*c));
    // Normalized twice, because removing a character may join others.
    shown.nfkc().map(fold_lookalike).nfkc().collect()
}

/// The text and its normal form, if different.
pub(super) fn with_normalized(text: &str) -> Vec<String> {
    let plain = normalize(text);
    if plain == text {
        vec![plain]
    } else {
        vec![text.to_owned(), plain]
    }
}

/// The normal form and its percent-decoded forms, step by step.
pub(super) fn decode_variants(text: &str) -> Vec<String> {
    let mut out = vec![normalize(text)];
    for _ in 0..DECODED_MAX {
        let last = out.last().expect("the first is there");
        if !last.contains('%') {
            break;
        }
        let next = percent_decode(last);
        if next == *last {
            break;
        }
        out.push(normalize(&next));
    }
    out
}

/// Decodes percent-encoding once; invalid UTF-8 becomes U+FFFD.
pub(super) fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let sign = text[at..].find('%').map_or(bytes.len(), |sign| at + sign);
        out.extend(&bytes[at..sign]);
        let pair = bytes.get(sign + 1..sign + 3).and_then(parse_hex_pair);
        // A sign without digits stands for itself.
        out.extend(pair.or(bytes.get(sign).copied()));
        at = sign + if pair.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn parse_hex_pair(pair: &[u8]) -> Option<u8> {
    let digit = |c: u8| char::from(c).to_digit(16);
    let value = digit(pair[0])? * 16 + digit(pair[1])?;
    u8::try_from(value).ok()
}

/// True for characters that are invisible, or reverse text: soft hyphen, zero-width ones, direction marks,
/// variation selectors, fillers and tags.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{e0000}'..='\u{e0fff}')
}

fn fold_lookalike(c: char) -> char {
    match c {
        '\u{2044}' | '\u{2215}' | '\u{29f8}' | '\u{338}' => '/',
        '\u{2216}' | '\u{29f5}' | '\u{29f9}' => '\\',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{3002}' | '\u{6d4}' => '.',
        '\u{1c0}' | '\u{2223}' | '\u{2758}' => '|',
        '\u{2028}' | '\u{2029}' | '\u{85}' => '\n',
        '\u{a789}' | '\u{2236}' => ':',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unicode_normalization::is_nfkc;

    #[test]
    fn disguised_text_is_normalized() {
        assert_eq!(normalize("１２７．０．０．１"), "127.0.0.1");
        assert_eq!(normalize("①②⑦.⓪.⓪.①"), "127.0.0.1");
        assert_eq!(normalize("‥／etc"), "../etc");
        assert_eq!(normalize("lo\u{200b}cal\u{ad}host"), "localhost");
        assert_eq!(normalize("rm \u{202e}\u{2013}rf"), "rm -rf");
        assert_eq!(decode_variants("%252e%252e%252f").last().unwrap(), "../");
        assert_eq!(percent_decode("100%"), "100%");
    }

    proptest! {
        #[test]
        fn normal_form_is_stable(text in "\\PC{0,40}") {
            let once = normalize(&text);
            prop_assert!(is_nfkc(&once));
            prop_assert_eq!(normalize(&once), once);
        }
    }
}
