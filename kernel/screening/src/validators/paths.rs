//! Checks the location of a path by its text. Symbolic links are not followed here: the code that opens the
//! file must open it below an allowed root.

use super::{ArgumentFinding, normalization};

const HINT: &str = "name a path inside the allowed folders, without .. at its start";

/// Locations of the system and of its users' secrets; never below a root by accident.
const SYSTEM: [&str; 18] = [
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/boot",
    "/root",
    "/var/run",
    "/run",
    "/var/log",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/var/lib",
    "/private/etc",
    "/system",
    "/windows",
    "/library",
];

/// Folders and files of secrets, at any location.
const SECRET: [&str; 12] = [
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".docker",
    ".netrc",
    ".pgpass",
    "id_rsa",
    "id_ed25519",
    ".git-credentials",
    ".bash_history",
    ".npmrc",
];

/// Checks the text of an argument that names a file or a folder.
pub(super) fn check(text: &str, roots: &[String]) -> Option<ArgumentFinding> {
    if let Some(finding) = check_text(text, roots) {
        return Some(finding);
    }
    let decoded = normalization::decode_variants(text);
    let mut others = decoded.iter().filter(|view| *view != text);
    others.find_map(|view| check_text(view, roots))
}

fn check_text(text: &str, roots: &[String]) -> Option<ArgumentFinding> {
    let out = |rule, reason: &str| Some(ArgumentFinding::new(rule, reason, HINT));
    if text.contains('\0') {
        return out(
            "null_byte",
            "the path holds a null byte, where some readers stop",
        );
    }
    // Overlong UTF-8 is invalid after decoding; old parsers read it as dots and slashes.
    let lower = text.to_ascii_lowercase();
    if [
        "%c0%a", "%c1%9", "%e0%80%a", "%c0%2e", "%uff0e", "%u002e", "%u2215",
    ]
    .iter()
    .any(|form| lower.contains(form))
    {
        return out(
            "encoding",
            "the path is encoded in a form that hides dots or slashes",
        );
    }
    let device = ["con", "prn", "aux", "nul", "com1", "com2", "lpt1"];
    if device.contains(&lower.trim()) || lower.contains("::$") {
        return out(
            "device",
            "the path names a device or a hidden stream of a file",
        );
    }
    let text = strip_file_scheme(text);
    let slashed = text.trim().replace('\\', "/");
    if slashed.starts_with("//") && slashed.len() > 2 && !slashed[2..].starts_with('/') {
        return out("network_path", "the path names another machine or a device");
    }
    if is_home_path(&slashed) {
        return out(
            "home",
            "the path starts in a home folder or with a variable",
        );
    }
    if slashed.split('/').any(is_variable) || slashed.contains("$(") || slashed.contains('`') {
        return out("variable", "the path holds a variable or a command");
    }
    check_location(&slashed, roots)
}

/// The path of a `file:` URL; other texts as they are.
fn strip_file_scheme(text: &str) -> &str {
    let trimmed = text.trim_start();
    let cut = trimmed
        .get(..5)
        .is_some_and(|s| s.eq_ignore_ascii_case("file:"));
    if !cut {
        return text;
    }
    let rest = &trimmed[5..];
    match rest.strip_prefix("//") {
        Some(after) => after.find('/').map_or(after, |at| &after[at..]),
        None => rest,
    }
}

fn is_home_path(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('~') else {
        return false;
    };
    let name = rest.split('/').next().unwrap_or_default();
    let user = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+');
    name.chars().all(user)
}

/// True for `$HOME`, `${HOME}`, `%APPDATA%` as a part of a path. `$id.tsx` is a file.
fn is_variable(part: &str) -> bool {
    let posix = part.strip_prefix('$').is_some_and(|rest| {
        let name = rest.trim_start_matches(|c: char| c == '_' || c.is_ascii_alphanumeric());
        let name = &rest[..rest.len() - name.len()];
        let is_file = name.len() < rest.len() && name.contains(|c: char| c.is_ascii_lowercase());
        rest.starts_with('{')
            || !is_file && rest.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
    });
    let windows = part.strip_prefix('%').is_some_and(|rest| {
        rest.find('%').is_some_and(|end| {
            end > 1
                && rest[..end]
                    .chars()
                    .all(|c| c.is_ascii_alphabetic() || c == '_')
        })
    });
    posix || windows
}

fn check_location(path: &str, roots: &[String]) -> Option<ArgumentFinding> {
    let drive = drive_prefix(path);
    let absolute = path.starts_with('/') || drive.is_some();
    let Some(parts) = resolve_dots(path) else {
        let reason = "the path leads up and out of where it starts";
        return Some(ArgumentFinding::new("traversal", reason, HINT));
    };
    let secret = |part: &&str| SECRET.iter().any(|name| part.eq_ignore_ascii_case(name));
    if let Some(part) = parts.iter().find(|p| secret(p)) {
        let reason = format!("{part} is a place of secrets");
        return Some(ArgumentFinding::new("secret_place", reason, HINT));
    }
    if !absolute {
        return None;
    }
    let whole = format!("/{}", parts.join("/"));
    if roots.iter().any(|root| is_below(&whole, root)) {
        return None;
    }
    if !roots.is_empty() {
        let reason = "the path lies outside of the allowed folders";
        return Some(ArgumentFinding::new("outside", reason, HINT));
    }
    let bare = drive.map_or(whole.clone(), |d| whole[d.len() + 1..].to_owned());
    let lower = bare.to_ascii_lowercase();
    let system = SYSTEM.iter().any(|place| is_in_folder(&lower, place));
    (system || lower.is_empty() || lower == "/").then(|| {
        ArgumentFinding::new(
            "system_place",
            "the path is a place of the system itself",
            HINT,
        )
    })
}

fn drive_prefix(path: &str) -> Option<&str> {
    let drive = path.get(..2)?;
    let letter = drive.starts_with(|c: char| c.is_ascii_alphabetic());
    (letter && drive.ends_with(':')).then_some(drive)
}

/// Resolves `.` and `..`; `None` if the path leaves its start.
fn resolve_dots(path: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    // Windows drops dots and spaces at the end of a part, so `.. ` becomes `..`.
    for part in path.split('/') {
        // Some servers take the text after a semicolon for a parameter.
        let trimmed = part.trim();
        let trimmed = trimmed.strip_suffix(';').unwrap_or(trimmed);
        // A naive filter may reduce it to `..`.
        if trimmed.len() > 3 && trimmed.bytes().all(|c| c == b'.') {
            return None;
        }
        match trimmed {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(trimmed),
        }
    }
    Some(parts)
}

/// Compares lexically, by whole parts.
fn is_below(path: &str, root: &str) -> bool {
    let root = root.replace('\\', "/");
    let rooted = if root.starts_with('/') {
        root
    } else {
        format!("/{root}")
    };
    is_in_folder(path, rooted.trim_end_matches('/'))
}

fn is_in_folder(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn roots() -> Vec<String> {
        vec!["/srv/project".to_owned()]
    }

    /// MGP-058: a path is checked by its resolved location.
    #[test]
    fn path_may_contain_parent_steps_inside_its_root() {
        for inside in [
            "src/../README.md",
            "/srv/project/a/../b",
            "./a..b/c",
            "/srv/project",
            "a/~/b",
            "file:///srv/project/x",
            "notes~",
            "...hidden/x.txt",
        ] {
            assert_eq!(check(inside, &roots()), None, "{inside}");
        }
        for outside in [
            "../x",
            "a/../../x",
            "/srv/projects/x",
            "/srv/project/../x",
            "~/x",
            "~root/x",
            "$HOME/x",
            "..\\..\\x",
            "%2e%2e/x",
            "a\0.png",
            "C:\\x",
            "\\\\host\\share",
            "file:///etc/passwd",
            "．．／x",
        ] {
            assert!(check(outside, &roots()).is_some(), "{outside}");
        }
    }

    /// MGP-058: without roots, the places of the system are out of reach, in each way to write them.
    #[test]
    fn place_of_the_system_is_out_of_reach_without_roots() {
        for (path, rule) in [
            ("//host/share", Some("network_path")),
            ("//", Some("system_place")),
            ("///etc/x", Some("system_place")),
            ("///srv/x", None),
            ("/", Some("system_place")),
            ("C:", Some("system_place")),
            ("C:\\Windows\\x", Some("system_place")),
            ("C:\\x", None),
            ("file:///srv/x", None),
            ("file://host/etc/x", Some("system_place")),
            ("a$(id)", Some("variable")),
            ("a`id`", Some("variable")),
            ("$_HOME/x", Some("variable")),
            ("$1/x", None),
            ("$HOME.x", Some("variable")),
            ("$home/x", Some("variable")),
            ("$id.tsx", None),
            ("%APP_DATA%/x", Some("variable")),
            ("%APP-DATA%/x", None),
            ("%a%/x", None),
        ] {
            assert_eq!(check(path, &[]).map(|found| found.rule), rule, "{path}");
        }
    }

    proptest! {
        #[test]
        fn relative_path_without_dots_is_accepted(path in "[a-z]{1,5}(/[a-z]{1,5}){0,4}") {
            prop_assert_eq!(check(&path, &roots()), None);
        }

        #[test]
        fn path_that_leaves_its_root_is_rejected(inner in "[a-z]{1,5}", dots in 2usize..6, end in "[a-z]{1,5}") {
            let path = format!("{inner}/{}{end}", "../".repeat(dots));
            prop_assert!(check(&path, &roots()).is_some());
        }
    }
}
