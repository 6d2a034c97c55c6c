//! Formats times and texts for display.

use mgp_protocol::mgp::health::ResourcesInUse;
use mgp_transports::log::sanitize;

/// A foreign text as one line, safe for a terminal: characters that move the cursor or begin a line or column are made
/// visible. For everything that must be one line, names above all.
pub(super) fn sanitize_line(text: &str) -> String {
    sanitize(text.as_bytes()).replace('\t', "\\u{9}")
}

/// Lines of this program, or a separate text, safe for a terminal. Foreign texts within lines of this program go
/// through [`sanitize_line`] first: here they could begin a line that looks like the program's.
pub(super) fn sanitize_lines(text: &str) -> String {
    let lines = text.split('\n').map(|line| sanitize(line.as_bytes()));
    lines.collect::<Vec<_>>().join("\n")
}

/// A foreign text of several lines: each after the first begins with `mark`, so that none looks like a line of this
/// program.
pub(super) fn indent_continuations(text: &str, mark: &str) -> String {
    sanitize_lines(text).replace('\n', &format!("\n{mark}"))
}

/// The first line of a text, safe for a terminal and at most `most` characters long.
pub(super) fn first_line(text: &str, most: usize) -> String {
    let line = sanitize_line(text.trim().lines().next().unwrap_or_default());
    match line.char_indices().nth(most) {
        None => line,
        Some(_) => {
            let cut: String = line.chars().take(most.saturating_sub(1)).collect();
            format!("{}…", cut.trim_end())
        }
    }
}

/// A number with a noun: `1 tool`, `2 tools`.
pub(super) fn pluralize(many: impl std::fmt::Display, what: &str) -> String {
    let many = many.to_string();
    match many.as_str() {
        "1" => format!("1 {what}"),
        many => format!("{many} {what}s"),
    }
}

/// A word quoted for a shell.
pub(super) fn quote_for_shell(word: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    if !word.is_empty() && word.chars().all(harmless) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A duration in its largest fitting unit: `12 s`, `3 min`, `2 h`, `4 d`.
pub(super) fn format_duration(ms: u64) -> String {
    match ms / 1000 {
        0 => format!("{ms} ms"),
        s @ 1..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s / 60),
        s @ 7200..=172_799 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

/// Resource usage: `31 MiB of memory, 1.25 s of processor time, 12 open files, 2 more processes`.
pub(super) fn format_resource_usage(used: &ResourcesInUse) -> String {
    let ResourcesInUse {
        memory_bytes,
        cpu_seconds,
        open_descriptors,
        children,
    } = used;
    let more = match children {
        0 => "no more processes".to_owned(),
        1 => "1 more process".to_owned(),
        more => format!("{more} more processes"),
    };
    format!(
        "{} of memory, {cpu_seconds:.2} s of processor time, {open_descriptors} open files, {more}",
        format_bytes(*memory_bytes)
    )
}

/// A size in its largest fitting unit: `12 KiB`, `31 MiB`, `2 GiB`.
pub(super) fn format_bytes(bytes: u64) -> String {
    match bytes {
        0..=0x3ff => format!("{bytes} B"),
        0x400..=0xf_ffff => format!("{} KiB", bytes >> 10),
        0x10_0000..=0x1_ffff_ffff => format!("{} MiB", bytes >> 20),
        bytes => format!("{} GiB", bytes >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_use_the_largest_unit() {
        let told = [
            (0, "0 ms"),
            (999, "999 ms"),
            (12_400, "12 s"),
            (300_000, "5 min"),
        ];
        for (ms, want) in told
            .into_iter()
            .chain([(8_000_000, "2 h"), (200_000_000, "2 d")])
        {
            assert_eq!(format_duration(ms), want);
        }
    }

    #[test]
    fn sizes_use_the_largest_unit() {
        let sizes = [7, 2048, 31 << 20, 7 << 30, 9 << 30];
        assert_eq!(
            sizes.map(format_bytes),
            ["7 B", "2 KiB", "31 MiB", "7168 MiB", "9 GiB"]
        );
    }

    #[test]
    fn foreign_texts_cannot_move_the_cursor() {
        assert_eq!(sanitize_lines("a\n\tb"), "a\n\tb");
        assert!(!sanitize_line("\u{1b}]0;title\u{7}x").contains('\u{1b}'));
        assert_eq!(first_line("  first\nsecond", 80), "first");
        assert_eq!(first_line("abcdef", 4), "abc…");
    }

    #[test]
    fn foreign_texts_cannot_imitate_lines_of_this_program() {
        let name = "x\r\n2026-11-28 1 ACCESS_GRANTED\u{2028}a\u{2029}b\tc";
        assert_eq!(
            sanitize_line(name),
            "x\\u{d}\\u{a}2026-11-28 1 ACCESS_GRANTED\\u{2028}a\\u{2029}b\\u{9}c"
        );
        assert_eq!(indent_continuations("a\nb\r\nc", "  | "), "a\n  | b\n  | c");
    }
}
