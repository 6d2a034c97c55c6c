//! Params of a request: a modern one carries its caller, a legacy one does not.

use std::borrow::Cow;

use mgp_json::quote;

use super::object::{
    Member, can_mention, join_members, join_object, last_value, split_members, strip_meta,
};
use crate::dialect::Version;
use crate::mcp::meta::{CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION};

/// What each modern request says of its caller.
const CALLER_KEYS: [&str; 4] = [
    PROTOCOL_VERSION,
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
];
/// What a modern retry carries.
const RETRY_MEMBERS: [&str; 2] = ["inputResponses", "requestState"];

/// Who asks, as a modern request says it.
#[derive(Clone, Copy, Debug)]
pub struct CallerMeta<'a> {
    /// An `Implementation` object, as JSON text.
    pub client_info: &'a str,
    /// A `ClientCapabilities` object, as JSON text.
    pub capabilities: &'a str,
    /// The least severe log level wanted, a bare word; `None` wants no log.
    pub log_level: Option<&'a str>,
}

/// A legacy caller's params for a modern server: with the stamp in `_meta`, whose other members stay,
/// the progress token among them. What the caller itself wrote under the stamp's keys goes away.
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
    let mut said = vec![
        Member::new(PROTOCOL_VERSION, &version),
        Member::new(CLIENT_INFO, stamp.client_info),
        Member::new(CLIENT_CAPABILITIES, stamp.capabilities),
    ];
    said.extend(level.as_deref().map(|level| Member::new(LOG_LEVEL, level)));
    let said = said.iter().chain(&meta);
    let meta = join_object(said.map(|part| &*part.text));
    let meta = Member::new("_meta", &meta);
    let rest = all.iter().filter(|part| part.name != "_meta");
    join_object([&meta].into_iter().chain(rest).map(|part| &*part.text))
}

/// A modern caller's params for a legacy server: without what says who asks and what a retry carries.
#[must_use]
pub fn to_legacy_params(params: &str) -> Cow<'_, str> {
    let [responses, state] = RETRY_MEMBERS;
    // The prefix of all keys of the caller; a slash may be written escaped.
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
    fn a_legacy_request_gets_its_caller() {
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
        let said: Value = serde_json::from_str(&to_stateless_params(None, &bare)).unwrap();
        assert_eq!(said["_meta"].as_object().unwrap().len(), 3);
        assert_eq!(
            to_stateless_params(Some("null"), &bare),
            to_stateless_params(None, &bare)
        );
    }

    #[test]
    fn a_modern_request_loses_what_legacy_servers_do_not_know() {
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
        /// To a modern server and back: the request is what it was.
        #[test]
        fn there_and_back_is_the_same_request(arguments in json(), meta in json(), token in json()) {
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

        /// No text breaks a conversion.
        #[test]
        fn any_text_is_survived(text in "[\\[\\]{}\",:0-9a \\\\u_]{0,24}") {
            let _ = to_stateless_params(Some(&text), &STAMP);
            let _ = to_legacy_params(&text);
        }
    }
}
