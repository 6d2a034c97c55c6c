//! Whether a text is JSON, in one pass that reads long strings in blocks. It knows less than serde_json, which decides
//! where this says no: what this accepts, serde_json accepts too.

/// Bytes of a string that are looked at together.
const BLOCK: usize = 64;

/// How many objects and arrays may be open at once: one bit of a word for each. Deeper texts are left to serde_json.
const DEPTH_MAX: u32 = u64::BITS;

/// Whether the text is certainly one JSON object. `false` says nothing: serde_json may accept the text.
#[must_use]
pub fn is_certainly_object(text: &str) -> bool {
    let mut reader = Reader {
        text: text.as_bytes(),
        at: 0,
    };
    reader.skip_space();
    reader.peek() == Some(b'{') && reader.value().is_some() && {
        reader.skip_space();
        reader.at == reader.text.len()
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

/// Each method is at the first byte of what it reads, and afterwards behind its last one; `None` for anything else.
impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    fn value(&mut self) -> Option<()> {
        // The lowest bit is the innermost: set for an object.
        let (mut open, mut depth) = (0_u64, 0_u32);
        loop {
            self.skip_space();
            let starts = self.peek()?;
            if matches!(starts, b'{' | b'[') {
                self.at += 1;
                self.skip_space();
                let is_object = starts == b'{';
                let end = if is_object { b'}' } else { b']' };
                if self.peek() == Some(end) {
                    self.at += 1;
                } else if depth == DEPTH_MAX {
                    return None;
                } else {
                    open = open << 1 | u64::from(is_object);
                    depth += 1;
                    if is_object {
                        self.name()?;
                    }
                    continue;
                }
            } else {
                self.scalar(starts)?;
            }
            // A value ends here: and with it, perhaps, those around it.
            loop {
                if depth == 0 {
                    return Some(());
                }
                self.skip_space();
                let is_object = open & 1 == 1;
                match self.peek()? {
                    b',' => {
                        self.at += 1;
                        if is_object {
                            self.skip_space();
                            self.name()?;
                        }
                        break;
                    }
                    b'}' if is_object => {}
                    b']' if !is_object => {}
                    _ => return None,
                }
                self.at += 1;
                open >>= 1;
                depth -= 1;
            }
        }
    }

    /// The name of a member, and the colon.
    fn name(&mut self) -> Option<()> {
        self.expect(b'"')?;
        self.string_rest()?;
        self.skip_space();
        self.expect(b':')
    }

    fn scalar(&mut self, starts: u8) -> Option<()> {
        match starts {
            b'"' => {
                self.at += 1;
                self.string_rest()
            }
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            b'-' | b'0'..=b'9' => self.number(),
            _ => None,
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let is_it = self.text[self.at..].starts_with(word);
        is_it.then(|| self.at += word.len())
    }

    fn number(&mut self) -> Option<()> {
        let _ = self.expect(b'-');
        if self.expect(b'0').is_none() {
            self.digits()?;
        }
        if self.expect(b'.').is_some() {
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// At least one.
    fn digits(&mut self) -> Option<()> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        (self.at > from).then_some(())
    }

    /// A string from behind its opening quote.
    fn string_rest(&mut self) -> Option<()> {
        loop {
            self.at += plain_length(&self.text[self.at..]);
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => self.escape()?,
                // A control character.
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        self.at += 1;
        match self.peek()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
            b'u' => {
                let digits = self.text.get(self.at + 1..self.at + 5)?;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                self.at += 5;
            }
            _ => return None,
        }
        Some(())
    }
}

/// How many bytes stand before the first one that ends a string, begins an escape or is a control character.
fn plain_length(text: &[u8]) -> usize {
    // Most strings are short: a block is worth its start only for long ones.
    let short = text.len().min(BLOCK);
    if let Some(at) = text[..short].iter().position(|byte| is_special(*byte)) {
        return at;
    }
    let mut length = short;
    for block in text[short..].chunks_exact(BLOCK) {
        // Without an early end, so that the compiler looks at many bytes at once.
        let special = block
            .iter()
            .fold(false, |any, byte| any | is_special(*byte));
        if special {
            break;
        }
        length += BLOCK;
    }
    let rest = &text[length..];
    length
        + rest
            .iter()
            .position(|byte| is_special(*byte))
            .unwrap_or(rest.len())
}

const fn is_special(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..0x20)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    fn is_accepted(text: &str) -> bool {
        serde_json::from_str::<&RawValue>(text).is_ok() && text.trim_start().starts_with('{')
    }

    #[test]
    fn objects_are_known() {
        let long = "x".repeat(200);
        for text in [
            "{}",
            " {\t\"a\" :\r[ ] , \"b\":{}\n} ",
            r#"{"a":[1,-0,0.5,1e9,-1.25E-3,10],"b":[true,false,null,"",[[]]]}"#,
            r#"{"\u00e9\n":"\"\\\/\b\f\n\r\t\uD800"}"#,
            &format!(r#"{{"a":"{long}\n{long}é{long}","b":"{long}"}}"#),
        ] {
            assert!(is_certainly_object(text), "{text}");
            assert!(is_accepted(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_object_is_not_accepted() {
        let long = "x".repeat(200);
        for text in [
            "",
            "[]",
            "{",
            "}",
            "{]",
            "[}",
            "{}{}",
            "{} x",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{,"a":1}"#,
            r#"{"a":[1,]}"#,
            r#"{"a":[,1]}"#,
            r#"{"a":[1}}"#,
            r#"{"a":{"b":1]}"#,
            r#"{"a" "b":1}"#,
            r#"{a:1}"#,
            r#"{"a":01}"#,
            r#"{"a":-}"#,
            r#"{"a":1.}"#,
            r#"{"a":.5}"#,
            r#"{"a":1e}"#,
            r#"{"a":+1}"#,
            r#"{"a":tru}"#,
            r#"{"a":truex}"#,
            r#"{"a":NaN}"#,
            r#"{"a":"\x"}"#,
            r#"{"a":"\u12"}"#,
            r#"{"a":"\u12g4"}"#,
            r#"{"a":"b}"#,
            "{\"a\":\"\n\"}",
            "{\"a\":\"\u{0}\"}",
            "{\"a\":1\u{b}}",
            "\u{feff}{}",
            &format!("{{\"a\":\"{long}\t{long}\"}}"),
            &format!("{{\"a\":\"{long}\u{1f}\"}}"),
        ] {
            assert!(!is_certainly_object(text), "{text}");
            assert!(!is_accepted(text), "{text}");
        }
    }

    #[test]
    fn deep_texts_are_left_to_the_other_reader() {
        let nested = |depth: usize| {
            let (open, close) = (r#"{"a":["#.repeat(depth), "]}".repeat(depth));
            format!("{open}{close}")
        };
        assert!(is_certainly_object(&nested(32)));
        assert!(!is_certainly_object(&nested(33)));
        assert!(is_accepted(&nested(33)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Pieces of JSON in any order, mostly broken.
        #[test]
        fn nothing_is_accepted_that_the_other_reader_rejects(
            pieces in proptest::collection::vec(
                proptest::sample::select(vec![
                    "{", "}", "[", "]", ",", ":", "\"a\"", "\"", "\\", "\\u00", "e9", "0", "1", "-", ".5", "e",
                    "E+", "true", "null", "fals", " ", "\n", "\u{1}", "é", "\"a\":", "{}", "[]", "1,",
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                ]),
                0..14,
            )
        ) {
            let text = pieces.concat();
            for text in [text.clone(), format!("{{\"a\":{text}}}"), format!("{{\"a\":[{text}],\"b\":\"{text}\"}}")] {
                prop_assert!(is_accepted(&text) || !is_certainly_object(&text), "{text}");
            }
        }

        /// Whole texts are known, and changes of one byte are judged alike.
        #[test]
        fn written_objects_are_known(text in "[\\x00-\\x7fé😀]{0,150}", number: f64, at: prop::sample::Index, byte in 0_u8..128) {
            let whole = serde_json::json!({ &text: [number, {"b": &text}], "c": null }).to_string();
            prop_assert!(is_certainly_object(&whole));
            let mut bytes = whole.into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(changed) = std::str::from_utf8(&bytes) {
                prop_assert_eq!(is_certainly_object(changed), is_accepted(changed), "{}", changed);
            }
        }
    }
}
