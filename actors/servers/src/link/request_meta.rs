//! `_meta` of stateless requests, and the codes of their errors.

use std::borrow::Cow;

use mgp_json::{member, members, quote, remove_members, render_object};
use mgp_protocol::dialect::{ProtocolFamily, Version};
use mgp_protocol::mcp::extensions::with_extensions;
use mgp_protocol::mcp::meta::{
    CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, SUBSCRIPTION_ID,
};
use serde::Deserialize;

use crate::negotiation;

/// The error code for headers that differ from the body.
pub(super) const HEADER_MISMATCH: i64 = -32020;

const CAPABILITIES: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// `_meta` of the kernel's own requests. The kernel accepts no callbacks, but declares tasks, because it listens
/// for its clients' tasks, and the extensions that it relays, because a server may list more to clients that have them.
pub(super) fn kernel_meta(version: &str, offers_mgp: bool, client_extensions: &str) -> String {
    let capabilities = with_extensions(CAPABILITIES, client_extensions);
    format!(
        r#"{{"{PROTOCOL_VERSION}":"{}","{CLIENT_INFO}":{{"name":"mgp","title":"MGP kernel","version":{}}},"{CLIENT_CAPABILITIES}":{}}}"#,
        Version::STATELESS,
        quote(version),
        negotiation::declare_capabilities(&capabilities, ProtocolFamily::Stateless, offers_mgp)
    )
}

/// Adds this `_meta` to `params` without one.
pub(super) fn add_meta(params: Option<&str>, meta: &str) -> String {
    let params = members(params.unwrap_or("{}")).unwrap_or_default();
    let params = params.iter().map(|(name, value)| (&**name, value.get()));
    render_object([("_meta", meta)].into_iter().chain(params))
}

/// Renders `params` of the kernel's own stateless request.
#[must_use]
pub(crate) fn kernel_params(
    params: Option<&str>,
    version: &str,
    offers_mgp: bool,
    client_extensions: &str,
) -> String {
    add_meta(params, &kernel_meta(version, offers_mgp, client_extensions))
}

/// The `params` of a subscription message without `_meta`; other params unchanged.
pub(super) fn strip_meta(params: &str) -> Cow<'_, str> {
    let tagged = member(params, "_meta").and_then(|meta| member(meta, SUBSCRIPTION_ID));
    if tagged.is_none() {
        return params.into();
    }
    remove_members(params, &["_meta"])
}

/// The code of an error object.
pub(crate) fn error_code(error: &str) -> Option<i64> {
    #[derive(Deserialize)]
    struct Coded {
        code: i64,
    }
    let coded: Coded = mgp_json::lookalike::from_object(error).ok()?;
    Some(coded.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stateless_meta_has_version_and_client_capabilities() {
        let whole = add_meta(
            Some(r#"{"cursor":"a\"b"}"#),
            &kernel_meta("1.0", false, r#"{"com.example/x":{}}"#),
        );
        let read: serde_json::Value = serde_json::from_str(&whole).unwrap();
        assert_eq!(read["cursor"], "a\"b");
        assert_eq!(read["_meta"][PROTOCOL_VERSION], "2026-07-28");
        assert_eq!(
            read["_meta"][CLIENT_CAPABILITIES],
            serde_json::json!({"extensions": {"io.modelcontextprotocol/tasks": {}, "com.example/x": {}}})
        );
        assert_eq!(read["_meta"][CLIENT_INFO]["version"], "1.0");
        let bare: serde_json::Value = serde_json::from_str(&add_meta(None, "{}")).unwrap();
        assert_eq!(bare, serde_json::json!({ "_meta": {} }));
    }

    #[test]
    fn subscription_meta_is_stripped() {
        let tagged = format!(r#"{{"uri":"a","_meta":{{"{SUBSCRIPTION_ID}":7}},"x":1.0}}"#);
        assert_eq!(strip_meta(&tagged), r#"{"uri":"a","x":1.0}"#);
        let own = r#"{"uri":"a","_meta":{"x":1}}"#;
        assert_eq!(strip_meta(own), own);
    }

    #[test]
    fn error_code_is_parsed_if_present() {
        assert_eq!(
            error_code(r#"{"code":-32020,"message":""}"#),
            Some(HEADER_MISMATCH)
        );
        assert_eq!(error_code(r#"{"message":""}"#), None);
    }
}
