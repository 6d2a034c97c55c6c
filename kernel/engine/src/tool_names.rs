//! The two names of each tool and prompt: the canonical one, and the visible one.
//!
//! The canonical name is `server:tool`. The visible name is `server__tool`: at most 64 characters of `[A-Za-z0-9_-]`,
//! which model APIs accept. A name that does not fit, or is ambiguous, is shortened and ends with a hash of the
//! canonical name. So a visible name depends only on its own server and tool, and is unique to them.

use mgp_protocol::ids::ServerId;

/// Longest visible name, in characters.
pub(crate) const VISIBLE_NAME_MAX: usize = 64;

const SEPARATOR: &str = "__";
const HASH_LEN: usize = 8;
/// Digits and letters without those that are easily confused (Crockford).
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// `server:name`, used by policies, audit and the command line. Ids contain no colon, so it splits at the first one.
#[must_use]
pub fn canonical_name(server: &ServerId, name: &str) -> String {
    format!("{server}:{name}")
}

/// The name that an agent sees and calls. For a tool of another node, the node's name comes first.
#[must_use]
pub fn visible_name(server: &ServerId, name: &str) -> String {
    if let Some((node, server)) = server.remote_parts() {
        return visible_remote_name(node, node, &server, name);
    }
    let exact = format!("{server}{SEPARATOR}{name}");
    let mut shown: String = exact.chars().map(to_allowed_char).collect();
    if shown == exact && shown.len() <= VISIBLE_NAME_MAX && is_unambiguous(&shown, server) {
        return shown;
    }
    shown.truncate(VISIBLE_NAME_MAX - HASH_LEN - 1);
    shown.push('_');
    shown.push_str(&hash_suffix(&canonical_name(server, name)));
    shown
}

/// The name that an agent sees for another node's tool: `node__server__tool`, ending with a hash where that is
/// ambiguous. `handle` is the local name of the node, `id` identifies it in the hash: with all digits of its id, the
/// hash does not change with the name.
#[must_use]
pub(crate) fn visible_remote_name(handle: &str, id: &str, server: &ServerId, name: &str) -> String {
    let own = format!("{server}{SEPARATOR}{name}");
    let exact = format!("{handle}{SEPARATOR}{own}");
    let mut shown: String = exact.chars().map(to_allowed_char).collect();
    let whole = shown == exact && shown.len() <= VISIBLE_NAME_MAX;
    if whole && shown.find(SEPARATOR) == Some(handle.len()) && is_unambiguous(&own, server) {
        return shown;
    }
    shown.truncate(VISIBLE_NAME_MAX - HASH_LEN - 1);
    shown.push('_');
    shown.push_str(&hash_suffix(&format!(
        "{id}/{}",
        canonical_name(server, name)
    )));
    shown
}

/// What a name of this form says about its server's tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolNameForm<'a> {
    /// The server's own name.
    Plain(&'a str),
    /// Shortened with a hash: only the server's list tells which item it is.
    Hashed,
}

/// Parses a name of this server's form; `None` for every other one. Servers whose ids render alike share the hashed
/// form.
#[must_use]
pub(crate) fn parse<'a>(server: &ServerId, name: &'a str) -> Option<ToolNameForm<'a>> {
    // The prefix of its tool names.
    let exact = match server.remote_parts() {
        Some((node, server)) => format!("{node}{SEPARATOR}{server}"),
        None => server.to_string(),
    };
    let id = exact.as_str();
    let typed = name.strip_prefix(server.as_str());
    let typed = typed.and_then(|rest| rest.strip_prefix(':'));
    let after = || name.strip_prefix(id)?.strip_prefix(SEPARATOR);
    let own = typed.or_else(|| after().filter(|own| visible_name(server, own) == name));
    if let Some(own) = own.filter(|own| !own.is_empty()) {
        return Some(ToolNameForm::Plain(own));
    }
    let start: String = id.chars().map(to_allowed_char).collect();
    let rest = name.strip_prefix(&start)?.strip_prefix(SEPARATOR)?;
    has_hash_suffix(rest).then_some(ToolNameForm::Hashed)
}

/// True for a name that could be the canonical or visible name of some server's tool: all of those have a separator.
/// This does not depend on whether the server exists or runs, so that the meaning of a name never does.
#[must_use]
pub fn is_qualified(name: &str) -> bool {
    name.contains(':') || name.contains(SEPARATOR)
}

fn to_allowed_char(c: char) -> char {
    if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
        c
    } else {
        '_'
    }
}

/// The first separator ends the server's id, and the end does not look like a hash.
fn is_unambiguous(plain: &str, server: &ServerId) -> bool {
    plain.find(SEPARATOR) == Some(server.as_str().len()) && !has_hash_suffix(plain)
}

fn has_hash_suffix(name: &str) -> bool {
    match name.as_bytes().split_last_chunk::<{ HASH_LEN + 1 }>() {
        Some((_, [b'_', digit, rest @ ..])) => {
            digit.is_ascii_digit() && rest.iter().all(|c| ALPHABET.contains(c))
        }
        _ => false,
    }
}

/// Starts with a digit, so that hardly any plain name ends like it.
fn hash_suffix(canonical: &str) -> String {
    let digest = blake3::hash(canonical.as_bytes());
    let (first, rest) = digest
        .as_bytes()
        .split_first()
        .expect("a digest has 32 bytes");
    std::iter::once(&(first % 10))
        .chain(&rest[..HASH_LEN - 1])
        .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn show(server: &str, name: &str) -> String {
        visible_name(&ServerId::new(server), name)
    }

    /// plain where it fits, and the same on every machine and every day.
    #[test]
    fn names_are_plain_where_they_fit_and_closed_with_a_hash_where_not() {
        assert_eq!(show("files", "read_file"), "files__read_file");
        assert_eq!(show("files", "read__file"), "files__read__file");
        assert_eq!(show("tool.terminal", "run"), "tool_terminal__run_3x4z5r5s");
        assert_eq!(canonical_name(&ServerId::new("a"), "b:c"), "a:b:c");
        let long = show("files", &"x".repeat(70));
        assert_eq!(long.len(), VISIBLE_NAME_MAX);
        assert!(long.starts_with("files__xxxx"));
    }

    #[test]
    fn readings_that_would_coincide_do_not() {
        for (one, other) in [
            (("a", "b__c"), ("a__b", "c")),
            (("a", "_b"), ("a_", "b")),
            (("a", "b.c"), ("a", "b_c")),
            (("a.b", "c"), ("a_b", "c")),
            (("a", "é"), ("a", "ü")),
        ] {
            assert_ne!(
                show(one.0, one.1),
                show(other.0, other.1),
                "{one:?} {other:?}"
            );
        }
        // A tool cannot take the name under which another one is shown.
        let taken = show("a", "b.c");
        let imitation = taken.strip_prefix("a__").unwrap();
        assert_ne!(show("a", imitation), taken);
    }

    #[test]
    fn a_name_reads_as_that_of_the_server_whose_form_it_has() {
        let reads = |server: &str, name| parse(&ServerId::new(server), name);
        assert_eq!(reads("it", "it__echo"), Some(ToolNameForm::Plain("echo")));
        assert_eq!(reads("it", "it:a:b"), Some(ToolNameForm::Plain("a:b")));
        assert_eq!(
            reads("a.b", "a_b__run_3x4z5r5s"),
            Some(ToolNameForm::Hashed)
        );
        for other in ["it", "it__", "it:", "it_echo", "items__echo", "echo", ""] {
            assert_eq!(reads("it", other), None, "{other}");
        }
        assert_eq!(reads("a.b", "a_b__run"), None, "it would be closed");
    }

    proptest! {
        #[test]
        fn every_name_is_read_as_its_own_servers(server in "[A-Za-z0-9._-]{1,48}", name in "\\PC{1,90}") {
            let id = ServerId::new(server.clone());
            let whole = canonical_name(&id, &name);
            prop_assert_eq!(parse(&id, &whole), Some(ToolNameForm::Plain(&name)));
            let shown = show(&server, &name);
            let reading = parse(&id, &shown);
            prop_assert!(reading == Some(ToolNameForm::Plain(&name)) || reading == Some(ToolNameForm::Hashed));
        }

        #[test]
        fn shown_names_fit_every_model_api(server in "[A-Za-z0-9._-]{1,48}", name in "\\PC{1,90}") {
            let shown = show(&server, &name);
            prop_assert!(shown.len() <= VISIBLE_NAME_MAX);
            prop_assert!(shown.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'));
            prop_assert_eq!(&shown, &show(&server, &name));
            prop_assert!(is_qualified(&shown));
            prop_assert!(is_qualified(&canonical_name(&ServerId::new(server.as_str()), &name)));
        }

        #[test]
        fn no_two_tools_share_a_shown_name(
            pairs in proptest::collection::vec(("[a_.]{1,4}", "[a_.:0]{1,12}"), 2..40)
        ) {
            let mut owners = HashMap::new();
            for (server, name) in pairs {
                let owner = (server.clone(), name.clone());
                let first = owners.entry(show(&server, &name)).or_insert_with(|| owner.clone());
                prop_assert_eq!(&*first, &owner);
            }
        }

        /// No name of a remote tool is that of another one, or of any local tool there could be, once its node
        /// is not called like a local server.
        #[test]
        fn shown_names_of_remote_tools_are_their_own(
            tools in proptest::collection::vec(("[a-]{1,3}", "[a_.]{1,4}", "[a_.0]{1,8}"), 2..30),
            local in proptest::collection::vec(("[b_.]{1,4}", "[a_.0]{1,8}"), 0..10),
        ) {
            let mut owners = HashMap::new();
            let remote = tools.into_iter().map(|(node, server, name)| {
                let shown = visible_remote_name(&node, &node, &ServerId::new(server.as_str()), &name);
                (shown, format!("{node}/{server}:{name}"))
            });
            let local = local.into_iter().map(|(server, name)| {
                (show(&server, &name), format!("{server}:{name}"))
            });
            for (shown, owner) in remote.chain(local) {
                prop_assert!(shown.len() <= VISIBLE_NAME_MAX);
                let first = owners.entry(shown).or_insert_with(|| owner.clone());
                prop_assert_eq!(&*first, &owner);
            }
        }
    }
}
