//! Finds the server of a URI: wrapped URIs and RFC 6570 templates.

mod template;

use std::borrow::Cow;

use mgp_protocol::ids::ServerId;

pub(crate) use template::{BadTemplate, Template, URI_MAX};

/// Start of every wrapped URI.
const WRAPPED_PREFIX: &str = "mcpk://";

/// Starts of the URIs of MCP Apps (SEP-1865) and of skills (SEP-2640). Hosts recognize the schemes, so wrapping does not
/// change them.
const KEPT_SCHEMES: [&str; 2] = ["ui://", "skill://"];
/// The separator of a node and its server in a wrapped URI of these schemes; not allowed in either name.
const KEPT_NODE: &str = "+";

/// The scheme and the rest of a URI whose scheme stays.
fn split_kept(uri: &str) -> Option<(&'static str, &str)> {
    let mut schemes = KEPT_SCHEMES.into_iter();
    schemes.find_map(|scheme| Some((scheme, uri.strip_prefix(scheme)?)))
}

/// True for a URI whose scheme stays in a merged view.
#[must_use]
pub(crate) fn keeps_scheme(uri: &str) -> bool {
    split_kept(uri).is_some()
}

/// True for a URI that names its server in a merged view. Every `ui://` and `skill://` URI does.
#[must_use]
pub fn is_wrapped(uri: &str) -> bool {
    uri.starts_with(WRAPPED_PREFIX) || keeps_scheme(uri)
}

/// `mcpk://<server>/<percent-encoded uri>`: what agents see of a URI that several servers offer. A `ui://` URI becomes
/// `ui://<server>/…`, of another node `ui://<node>+<server>/…`; a `skill://` URI likewise.
#[must_use]
pub(crate) fn wrap(server: &ServerId, uri: &str) -> String {
    if let Some((scheme, path)) = split_kept(uri) {
        return wrap_kept(scheme, server, path);
    }
    let mut wrapped = format!("{WRAPPED_PREFIX}{server}/");
    for byte in uri.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            wrapped.push(char::from(byte));
        } else {
            wrapped.push('%');
            wrapped.extend([to_hex_digit(byte >> 4), to_hex_digit(byte & 15)]);
        }
    }
    wrapped
}

/// `mcpk://<server>/<template>`: the template stays one, its text is not encoded.
#[must_use]
pub(crate) fn wrap_template(server: &ServerId, template: &str) -> String {
    match split_kept(template) {
        Some((scheme, path)) => wrap_kept(scheme, server, path),
        None => format!("{WRAPPED_PREFIX}{server}/{template}"),
    }
}

fn wrap_kept(scheme: &str, server: &ServerId, path: &str) -> String {
    let server = server.as_str().replacen('/', KEPT_NODE, 1);
    format!("{scheme}{server}/{path}")
}

/// The URI of a skill's file in a merged view: `skill://<server>/…`, and for other schemes `mcpk://<server>/<uri>` without
/// encoding, so that relative references in the file go on working.
#[must_use]
pub(crate) fn wrap_skill(server: &ServerId, uri: &str) -> String {
    wrap_template(server, uri)
}

/// The server and its own URI of such a file.
#[must_use]
pub fn unwrap_skill(uri: &str) -> Option<(ServerId, String)> {
    let (server, own) = unwrap(uri)?;
    Some((ServerId::new(&*server), own.into_owned()))
}

/// The server and its own URI out of any wrapped form; `None` for every other URI.
///
/// The forms are told apart by the colon: a URI has one after its scheme, an encoded one has none. In front of
/// either, `node/server` is told from `server` by what follows: a scheme has its colon before any slash, and
/// an encoded URI has no slash.
#[must_use]
pub(crate) fn unwrap(wrapped: &str) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    if let Some((scheme, wrapped)) = split_kept(wrapped) {
        let (server, path) = wrapped.split_once('/')?;
        let server = match server.contains(KEPT_NODE) {
            true => Cow::Owned(server.replacen(KEPT_NODE, "/", 1)),
            false => Cow::Borrowed(server),
        };
        return Some((server, Cow::Owned(format!("{scheme}{path}"))));
    }
    let wrapped = wrapped.strip_prefix(WRAPPED_PREFIX)?;
    let (first, rest) = wrapped.split_once('/')?;
    let second = rest.split_once('/').map(|(second, _)| second);
    let at_node = second.filter(|second| ServerId::parse(second).is_ok());
    let end = first.len() + at_node.map_or(0, |second| 1 + second.len());
    let (server, uri) = (Cow::Borrowed(&wrapped[..end]), &wrapped[end + 1..]);
    if uri.contains(':') {
        return Some((server, Cow::Borrowed(uri)));
    }
    Some((server, Cow::Owned(percent_decode(uri)?)))
}

/// The server that a `ui://` or `skill://` URI names in a merged view; `None` for every other URI.
#[must_use]
pub fn named_server(uri: &str) -> Option<ServerId> {
    let (server, _) = unwrap(uri).filter(|_| keeps_scheme(uri))?;
    Some(ServerId::new(&*server))
}

/// Undoes percent-encoding; `None` for a broken triplet or what is no UTF-8.
#[must_use]
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let (pair, after) = tail.split_first_chunk::<2>()?;
            bytes.push(parse_hex_digit(pair[0])? << 4 | parse_hex_digit(pair[1])?);
            rest = after;
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

fn to_hex_digit(nibble: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(nibble)])
}

fn parse_hex_digit(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// CMCP-080, A-28: the form agents see.
    #[test]
    fn a_wrapped_uri_names_its_server() {
        let files = ServerId::new("files");
        let wrapped = wrap(&files, "file:///a b%2F");
        assert_eq!(wrapped, "mcpk://files/file%3A%2F%2F%2Fa%20b%252F");
        assert_eq!(
            unwrap(&wrapped),
            Some(("files".into(), "file:///a b%2F".into()))
        );
        let template = wrap_template(&files, "file:///{+path}");
        assert_eq!(template, "mcpk://files/file:///{+path}");
        let far = ServerId::new_remote("nas", &files);
        for wrapped in [
            wrap(&far, "file:///a/b"),
            wrap_template(&far, "file:///a/b"),
        ] {
            assert_eq!(
                unwrap(&wrapped),
                Some(("nas/files".into(), "file:///a/b".into()))
            );
        }
        let read = "mcpk://files/file:///a%2Fb";
        assert_eq!(unwrap(read), Some(("files".into(), "file:///a%2Fb".into())));
    }

    #[test]
    fn other_uris_are_not_wrapped() {
        for uri in [
            "file:///x",
            "mcpk://",
            "mcpk://a",
            "mcpk://a/%",
            "mcpk://a/%zz",
            "mcpk://a/%ff",
            "ui://",
            "ui://a",
            "UI://a/b",
        ] {
            assert_eq!(unwrap(uri), None, "{uri}");
        }
    }

    /// EXT-020: a `ui://` URI keeps its scheme, names its server, and has exactly one own URI.
    #[test]
    fn a_ui_uri_keeps_its_scheme() {
        let (files, far) = (
            ServerId::new("files"),
            ServerId::new_remote("nas", &ServerId::new("files")),
        );
        for (own, here, there) in [
            (
                "ui://app/a%20b?x=1#y",
                "ui://files/app/a%20b?x=1#y",
                "ui://nas+files/app/a%20b?x=1#y",
            ),
            ("ui://board", "ui://files/board", "ui://nas+files/board"),
            ("ui://", "ui://files/", "ui://nas+files/"),
            (
                "ui:///{+path}",
                "ui://files//{+path}",
                "ui://nas+files//{+path}",
            ),
        ] {
            assert_eq!(
                (wrap(&files, own), wrap(&far, own)),
                (here.into(), there.into())
            );
            assert_eq!(wrap_template(&files, own), here);
            assert_eq!(unwrap(here), Some(("files".into(), own.into())));
            assert_eq!(unwrap(there), Some(("nas/files".into(), own.into())));
        }
        assert!(is_wrapped("ui://x") && is_wrapped("mcpk://x") && !is_wrapped("uix://x"));
    }

    proptest! {
        /// EXT-020
        #[test]
        fn wrapping_ui_uris_loses_nothing(server in "[A-Za-z0-9._-]{1,48}", path in "\\PC{0,80}") {
            let id = ServerId::new(server.as_str());
            let uri = format!("ui://{path}");
            let wrapped = wrap(&id, &uri);
            prop_assert_eq!(unwrap(&wrapped), Some((server.into(), uri.into())));
        }

        #[test]
        fn wrapping_loses_nothing(server in "[A-Za-z0-9._-]{1,48}", uri in "\\PC{0,80}") {
            let id = ServerId::new(server.as_str());
            let wrapped = wrap(&id, &uri);
            prop_assert!(wrapped.is_ascii() || keeps_scheme(&uri));
            prop_assert_eq!(unwrap(&wrapped), Some((server.into(), uri.into())));
        }

        #[test]
        fn no_text_breaks_unwrapping(text in "mcpk://\\PC{0,40}") {
            let _ = unwrap(&text);
        }
    }
}
