//! Labels of scopes, and their possible readings.

use unicode_normalization::UnicodeNormalization;

/// Most bytes of a label.
pub const LABEL_MAX: usize = 1024;
/// Most bytes of a label that are read for a blacklist: far more than any label has that is ever approved.
pub const READ_MAX: usize = 4 * LABEL_MAX;

/// Checks that a label has a single reading, so that a whitelist may open it.
///
/// # Errors
/// Why it is ambiguous, in words.
pub fn check_normal(label: &str) -> Result<(), &'static str> {
    if label.is_empty() || label.len() > LABEL_MAX {
        return Err("it is empty or too long");
    }
    let hidden = |c: char| c.is_control() || is_invisible(c) || (c.is_whitespace() && c != ' ');
    if label.chars().any(hidden) {
        return Err("it has signs that are not seen");
    }
    if label.contains('\\') {
        return Err("it has a backslash, which divides folders for some readers");
    }
    if label.split('/').any(|part| part.trim() != part) {
        return Err("a space stands at the beginning or the end of a part");
    }
    let parts: Vec<&str> = label.split('/').collect();
    let inner = parts.iter().enumerate();
    if inner
        .clone()
        .any(|(index, part)| part.is_empty() && index != 0)
    {
        return Err("a part between slashes is empty");
    }
    if parts.iter().any(|part| matches!(*part, "." | "..")) {
        return Err("it has a part that names another place (`.` or `..`)");
    }
    if parts.len() > 1
        && parts
            .iter()
            .any(|part| part.len() > 1 && part.ends_with('.'))
    {
        return Err("a part ends with a dot, which some readers leave out");
    }
    if has_escapes(label) {
        return Err("it has percent signs that some readers take for escapes");
    }
    if !label.is_ascii() {
        if label.nfkc().ne(label.chars()) {
            return Err("it has letters that have another form");
        }
        if has_mixed_scripts(label) {
            return Err("a word of it mixes letters that look alike");
        }
    }
    Ok(())
}

/// Characters that are invisible, or change how their neighbours are shown.
fn is_invisible(c: char) -> bool {
    matches!(
        u32::from(c),
        0xAD | 0x034F | 0x061C | 0x115F | 0x1160 | 0x17B4 | 0x17B5
            | 0x180B..=0x180F | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F
            | 0x3164 | 0xFE00..=0xFE0F | 0xFEFF | 0xFFA0 | 0xFFF0..=0xFFFB | 0xE0000..=0xE0FFF
    )
}

fn has_escapes(label: &str) -> bool {
    let bytes = label.as_bytes();
    let hex = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_hexdigit);
    let escape =
        |index: usize| hex(index + 1) && hex(index + 2) || bytes.get(index + 1) == Some(&b'%');
    (0..bytes.len()).any(|index| bytes[index] == b'%' && escape(index))
}

/// Whether a word mixes Latin and another script: `pаypal` with a Cyrillic а.
fn has_mixed_scripts(label: &str) -> bool {
    label.split(|c: char| !c.is_alphabetic()).any(|word| {
        let latin = |c: char| matches!(u32::from(c), 0..=0x024F | 0x1E00..=0x1EFF);
        word.chars().any(latin) && !word.chars().all(latin)
    })
}

/// All readings of a label, folded: verbatim, unescaped, and with resolved paths. A blacklist closes a label when it
/// matches any of these.
#[must_use]
pub(crate) fn readings(label: &str) -> Vec<String> {
    let end = (0..=label.len().min(READ_MAX))
        .rev()
        .find(|index| label.is_char_boundary(*index));
    let mut text = label[..end.unwrap_or_default()].to_owned();
    let mut all = vec![fold(&text)];
    let mut add = |reading: String| {
        if !all.contains(&reading) {
            all.push(reading);
        }
    };
    // Nested escapes.
    for _ in 0..3 {
        text = unescape(&text);
        let plain = fold(&text);
        add(resolve_path(&plain));
        // Readers in C stop at a NUL.
        add(resolve_path(plain.split('\0').next().unwrap_or_default()));
        add(plain);
    }
    all
}

/// Removes case, letter variants, invisible characters, and backslashes.
#[must_use]
pub(crate) fn fold(text: &str) -> String {
    let folded: String = text
        .nfkc()
        .filter(|c| !is_invisible(*c))
        .flat_map(char::to_lowercase)
        .map(|c| match c {
            '\\' => '/',
            'ı' => 'i',
            'ſ' => 's',
            other => other,
        })
        .collect();
    // Folding case and normalizing can each undo the other.
    folded.nfkc().collect()
}

/// Resolves `.`, `..` and `//`, and trims what some readers ignore around path segments.
fn resolve_path(text: &str) -> String {
    let rooted = text.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        let part = part.trim_matches(|c: char| c.is_whitespace() || c.is_control());
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => match part.trim_end_matches(['.', ' ']) {
                "" => {}
                part => parts.push(part),
            },
        }
    }
    let joined = parts.join("/");
    if rooted { format!("/{joined}") } else { joined }
}

fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let hex = |index: usize| bytes.get(index).and_then(|b| char::from(*b).to_digit(16));
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        match (bytes[index], hex(index + 1), hex(index + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or_default());
                index += 3;
            }
            (byte, ..) => {
                out.push(byte);
                index += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
