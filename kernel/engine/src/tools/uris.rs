//! Finds the server of a URI: wrapped URIs and RFC 6570 templates.

mod template;

use std::borrow::Cow;

use mgp_protocol::ids::ServerId;

pub(crate) use template::{BadTemplate, Template, URI_MAX};

/// Start of every wrapped URI.
pub const WRAPPED_PREFIX: &str = "mcpk://";

/// `mcpk://<server>/<percent-encoded uri>`: what agents see of a URI that several servers offer.
#[must_use]
pub(crate) fn wrap(server: &ServerId, uri: &str) -> String {
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
    format!("{WRAPPED_PREFIX}{server}/{template}")
}

/// The server and its own URI out of either wrapped form; `None` for every other URI.
///
/// The forms are told apart by the colon: a URI has one after its scheme, an encoded one has none. In front of
/// either, `node/server` is told from `server` by what follows: a scheme has its colon before any slash, and
/// an encoded URI has no slash.
#[must_use]
pub(crate) fn unwrap(wrapped: &str) -> Option<(&str, Cow<'_, str>)> {
    let wrapped = wrapped.strip_prefix(WRAPPED_PREFIX)?;
    let (first, rest) = wrapped.split_once('/')?;
    let second = rest.split_once('/').map(|(second, _)| second);
    let at_node = second.filter(|second| ServerId::parse(second).is_ok());
    let end = first.len() + at_node.map_or(0, |second| 1 + second.len());
    let (server, uri) = (&wrapped[..end], &wrapped[end + 1..]);
    if uri.contains(':') {
        return Some((server, Cow::Borrowed(uri)));
    }
    Some((server, Cow::Owned(percent_decode(uri)?)))
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
        assert_eq!(unwrap(&wrapped), Some(("files", "file:///a b%2F".into())));
        let template = wrap_template(&files, "file:///{+path}");
        assert_eq!(template, "mcpk://files/file:///{+path}");
        let far = ServerId::new_remote("nas", &files);
        for wrapped in [
            wrap(&far, "file:///a/b"),
            wrap_template(&far, "file:///a/b"),
        ] {
            assert_eq!(unwrap(&wrapped), Some(("nas/files", "file:///a/b".into())));
        }
        let read = "mcpk://files/file:///a%2Fb";
        assert_eq!(unwrap(read), Some(("files", "file:///a%2Fb".into())));
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
        ] {
            assert_eq!(unwrap(uri), None, "{uri}");
        }
    }

    proptest! {
        #[test]
        fn wrapping_loses_nothing(server in "[A-Za-z0-9._-]{1,48}", uri in "\\PC{0,80}") {
            let id = ServerId::new(server.as_str());
            let wrapped = wrap(&id, &uri);
            prop_assert!(wrapped.is_ascii());
            prop_assert_eq!(unwrap(&wrapped), Some((server.as_str(), uri.into())));
        }

        #[test]
        fn no_text_breaks_unwrapping(text in "mcpk://\\PC{0,40}") {
            let _ = unwrap(&text);
        }
    }
}
