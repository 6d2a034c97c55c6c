//! Compares paths by their text. Links are followed, if at all, by whoever calls: here a path is what it says.

use unicode_normalization::UnicodeNormalization;

/// Longest path that is compared.
const PATH_MAX: usize = 4096;

/// Where a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    /// `/`.
    Absolute,
    /// A home directory that is not known.
    Home,
    /// The working directory of the server.
    Relative,
}

/// Whether a path is a directory or below it; `None` if that cannot be known from the texts. `home` stands for `~`.
pub(super) fn is_inside(path: &str, directory: &str, home: Option<&str>) -> Option<bool> {
    let (path_root, path) = normalize(path, home)?;
    let (root, directory) = normalize(directory, home)?;
    (path_root == root).then(|| path.starts_with(&directory))
}

/// A path with its home directory in place of `~`.
pub(super) fn expand_home(path: &str, home: Option<&str>) -> String {
    match (path.strip_prefix('~'), home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            format!("{home}{rest}")
        }
        (Some(_) | None, _) => path.to_owned(),
    }
}

fn normalize(path: &str, home: Option<&str>) -> Option<(Root, Vec<String>)> {
    let home = home.filter(|home| home.starts_with('/'));
    let expanded = expand_home(path, home);
    if expanded.is_empty() || expanded.len() > PATH_MAX || has_other_reading(&expanded) {
        return None;
    }
    let (root, rest) = match expanded.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => (Root::Home, rest),
        // The home of another user.
        Some(_) => return None,
        None if expanded.starts_with('/') => (Root::Absolute, &*expanded),
        None => (Root::Relative, &*expanded),
    };
    let mut parts: Vec<String> = Vec::new();
    for part in rest.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                // The root is its own parent; what is above another beginning is not known.
                if parts.pop().is_none() && root != Root::Absolute {
                    return None;
                }
            }
            part if is_dots(part.trim()) => return None,
            part => parts.push(part.to_owned()),
        }
    }
    Some((root, parts))
}

fn is_dots(part: &str) -> bool {
    !part.is_empty() && part.chars().all(|c| c == '.') && part.len() <= 2
}

/// Whether some readers see other folders in it.
fn has_other_reading(path: &str) -> bool {
    let escapes = ["%2e", "%2f", "%5c", "%00", "%25"];
    let lower = path.to_ascii_lowercase();
    if path.chars().any(|c| c.is_control() || c == '\\')
        || escapes.iter().any(|e| lower.contains(e))
    {
        return true;
    }
    if path.is_ascii() {
        return false;
    }
    // A sign that becomes a slash or a dot.
    let folded: String = path.nfkc().collect();
    let count = |text: &str, sign: char| text.chars().filter(|c| *c == sign).count();
    ['/', '\\', '.', '~', '%'].iter().any(|sign| count(&folded, *sign) != count(path, *sign))
        || path.chars().any(|c| {
            matches!(u32::from(c), 0xAD | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F | 0xFEFF)
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOME: Option<&str> = Some("/home/alice");

    #[test]
    fn a_path_is_inside_by_its_folders() {
        for (path, directory, expected) in [
            ("/home/alice/notes/a.md", "~/notes", Some(true)),
            ("~/notes/a.md", "~/notes", Some(true)),
            ("~/notes", "~/notes/", Some(true)),
            ("~/notes/../secret", "~/notes", Some(false)),
            ("~/notes/x/../../notes/a", "~/notes", Some(true)),
            ("/home/alice/notes-2/a", "~/notes", Some(false)),
            ("//home///alice/./notes//a", "~/notes", Some(true)),
            ("/etc/passwd", "~/notes", Some(false)),
            ("/../../etc/passwd", "/etc", Some(true)),
            ("/etc", "/", Some(true)),
            ("notes/a", "notes", Some(true)),
            ("notes/../a", "notes", Some(false)),
            ("/ä/ö", "/ä", Some(true)),
            ("/a/...", "/a", Some(true)),
        ] {
            assert_eq!(
                is_inside(path, directory, HOME),
                expected,
                "{path} {directory}"
            );
        }
    }

    /// Also the negation of a comparison must not hold then.
    #[test]
    fn a_path_with_another_reading_is_not_compared() {
        for path in [
            "",
            "notes/a",
            "../../etc/passwd",
            "~bob/notes",
            "~root",
            "/home/alice/notes/..\\..\\x",
            "/home/alice/notes/%2e%2e/x",
            "/home/alice/notes/%252e%252e/x",
            "/home/alice/notes/a\0b",
            "/home/alice/notes/ .. /x",
            "/home/alice/notes/．．/x",
            "/home/alice/notes／..／x",
            "/home/alice/notes/\u{2025}/x",
            "/home/alice/notes/.\u{200b}./x",
            "file:///home/alice/notes/a",
        ] {
            assert_eq!(is_inside(path, "/home/alice/notes", HOME), None, "{path:?}");
        }
        assert_eq!(
            is_inside(&format!("/{}", "a".repeat(PATH_MAX)), "/", HOME),
            None
        );
        assert_eq!(is_inside("~/notes/a", "~/notes", None), Some(true));
        assert_eq!(is_inside("~/../x", "~", None), None);
        assert_eq!(is_inside("/home/alice/notes/a", "~/notes", None), None);
    }

    proptest! {
        /// The reference walks a tree of folders.
        #[test]
        fn a_walk_ends_where_the_text_says(parts in prop::collection::vec(
            prop_oneof![Just("a"), Just("b"), Just(".."), Just("."), Just("")], 0..12)
        ) {
            let mut walked: Vec<&str> = Vec::new();
            for part in &parts {
                match *part {
                    "" | "." => {}
                    ".." => drop(walked.pop()),
                    part => walked.push(part),
                }
            }
            let path = format!("/{}", parts.join("/"));
            let expected = walked.starts_with(&["a"]);
            prop_assert_eq!(is_inside(&path, "/a", None), Some(expected));
        }
    }
}
