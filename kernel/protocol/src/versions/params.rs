//! Converts the params of a request: a stateless one carries its caller's metadata, a legacy one does not.

use std::borrow::Cow;

use mgp_json::quote;

use super::object::{
    Member, can_mention, join_members, join_object, last_value, split_members, strip_meta,
};
use crate::dialect::Version;
use crate::mcp::meta::{CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION};

/// The keys of the caller's metadata in each stateless request.
const CALLER_KEYS: [&str; 4] = [
    PROTOCOL_VERSION,
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
];
/// The members of a stateless retry.
const RETRY_MEMBERS: [&str; 2] = ["inputResponses", "requestState"];

/// The caller's metadata for a stateless request.
#[derive(Clone, Copy, Debug)]
pub struct CallerMeta<'a> {
    /// An `Implementation` object, as JSON text.
    pub client_info: &'a str,
    /// A `ClientCapabilities` object, as JSON text.
    pub capabilities: &'a str,
    /// The lowest log level, a bare word; `None` for no log.
    pub log_level: Option<&'a str>,
}

/// Converts a legacy caller's params for a stateless server: adds the caller's metadata to `_meta`, whose
/// other members stay, including the progress token. The caller's own values of these keys are removed.
#[must_use]
pub fn to_stateless_params(params: Option<&str>, stamp: &CallerMeta<'_>) -> String {
    let text = params.filter(|text| *text != "null").unwrap_or("{}");
    let Some(all) = split_members(text) else {
        return text.to_owned();
    };
    let mut meta = last_value(&all, "_meta")
        .and_then(split_members)
        .unwrap_or_default();
    meta.retain(|part| !CALLER_KEYS.contains(&&*part.name));
    let version = quote(Version::STATELESS.as_str());
    let level = stamp.log_level.map(quote);
    let mut stamped = vec![
        Member::new(PROTOCOL_VERSION, &version),
        Member::new(CLIENT_INFO, stamp.client_info),
        Member::new(CLIENT_CAPABILITIES, stamp.capabilities),
    ];
    stamped.extend(level.as_deref().map(|level| Member::new(LOG_LEVEL, level)));
    let stamped = stamped.iter().chain(&meta);
    let meta = join_object(stamped.map(|part| &*part.text));
    let meta = Member::new("_meta", &meta);
    let rest = all.iter().filter(|part| part.name != "_meta");
    join_object([&meta].into_iter().chain(rest).map(|part| &*part.text))
}

/// Converts a stateless caller's params for a legacy server: removes the caller's metadata and the retry
/// members.
#[must_use]
pub fn to_legacy_params(params: &str) -> Cow<'_, str> {
    let [responses, state] = RETRY_MEMBERS;
    // The prefix of all metadata keys; a slash may be escaped.
    if !can_mention(params, &["io.modelcontextprotocol", responses, state]) {
        return Cow::Borrowed(params);
    }
    let Some(mut all) = split_members(params) else {
        return Cow::Borrowed(params);
    };
    let before = all.len();
    all.retain(|part| !RETRY_MEMBERS.contains(&&*part.name));
    let retried = all.len() != before;
    if strip_meta(&mut all, &CALLER_KEYS) || retried {
        return Cow::Owned(join_members(&all));
    }
    Cow::Borrowed(params)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const STAMP: CallerMeta<'_> = CallerMeta {
        client_info: r#"{"name":"c","version":"1"}"#,
        capabilities: r#"{"sampling":{}}"#,
        log_level: Some("info"),
    };

    #[test]
    fn legacy_request_gets_caller_metadata() {
        let params = r#"{"name":"t","arguments":{"n":1.00},"_meta":{"progressToken":1e3,"io.modelcontextprotocol/clientInfo":{"name":"liar"},"traceparent":"x"}}"#;
        assert_eq!(
            to_stateless_params(Some(params), &STAMP),
            concat!(
                r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
                r#""io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"#,
                r#""io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"#,
                r#""io.modelcontextprotocol/logLevel":"info","#,
                r#""progressToken":1e3,"traceparent":"x"},"name":"t","arguments":{"n":1.00}}"#
            )
        );
        let bare = CallerMeta {
            log_level: None,
            ..STAMP
        };
        let stamped: Value = serde_json::from_str(&to_stateless_params(None, &bare)).unwrap();
        assert_eq!(stamped["_meta"].as_object().unwrap().len(), 3);
        assert_eq!(
            to_stateless_params(Some("null"), &bare),
            to_stateless_params(None, &bare)
        );
    }

    #[test]
    fn stateless_request_loses_its_metadata() {
        let params = r#"{"_meta":{"io.modelcontextprotocol\/protocolVersion":"2026-07-28","progressToken": 7},"name":"t","inputResponses":{},"requestState":"s","arguments":{"requestState":1.0}}"#;
        assert_eq!(
            to_legacy_params(params),
            r#"{"_meta":{"progressToken": 7},"name":"t","arguments":{"requestState":1.0}}"#
        );
        let bare = r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}"#;
        assert_eq!(to_legacy_params(bare), "{}");
        let inner = r#"{"arguments":{"requestState":"mine"} }"#;
        assert!(matches!(to_legacy_params(inner), Cow::Borrowed(text) if text == inner));
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[a-z_\"\\\\é]{0,4}", inner), 0..4)
                    .prop_map(|all| Value::Object(all.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// To a stateless server and back: the request is unchanged.
        #[test]
        fn request_round_trips(arguments in json(), meta in json(), token in json()) {
            let mut params = json!({"name": "t", "arguments": arguments});
            if meta.as_object().is_some_and(|meta| !meta.is_empty()) {
                params["_meta"] = meta;
                params["_meta"]["progressToken"] = token;
            }
            let modern = to_stateless_params(Some(&params.to_string()), &STAMP);
            let sent: Value = serde_json::from_str(&modern).unwrap();
            prop_assert_eq!(&sent["_meta"][PROTOCOL_VERSION], "2026-07-28");
            let back: Value = serde_json::from_str(&to_legacy_params(&modern)).unwrap();
            prop_assert_eq!(back, params);
        }

        /// No text panics a conversion.
        #[test]
        fn no_text_panics_a_conversion(text in "[\\[\\]{}\",:0-9a \\\\u_]{0,24}") {
            let _ = to_stateless_params(Some(&text), &STAMP);
            let _ = to_legacy_params(&text);
        }
    }
}
