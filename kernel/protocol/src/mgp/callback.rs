//! Callbacks (MGP §13.4): requests of a server during a call, and their answers.

use std::borrow::Cow;

use mgp_json::{Splice, member, quote};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::request;
use crate::jsonrpc::RequestId;
use crate::mcp::methods;

methods! {
    "notifications/mgp.callback.request" => Request<'_>,
    "mgp/callback/respond" => Respond,
}

/// The kind of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackKind {
    /// A confirmation.
    Confirmation,
    /// Any text.
    Input,
    /// One of several options.
    Selection,
    /// A notification without an answer.
    Notification,
    /// A completion of a language model (later drafts).
    LlmCompletion,
}

/// `notifications/mgp.callback.request` of a server.
#[derive(Debug, Deserialize)]
pub struct Request<'a> {
    /// The server's id; equal in a retry.
    #[serde(borrow)]
    pub(crate) callback_id: &'a RawValue,
    /// The id of the call, as received by the server.
    #[serde(borrow, default)]
    pub request_id: Option<&'a RawValue>,
    /// The kind.
    #[serde(rename = "type")]
    pub kind: CallbackKind,
    /// The text for a person.
    #[serde(borrow, default)]
    pub message: Option<Cow<'a, str>>,
    /// The possible answers.
    #[serde(default)]
    pub options: Option<Vec<String>>,
    /// How long the server waits.
    #[serde(default)]
    pub(crate) timeout_ms: Option<serde_json::Number>,
    /// For a completion: the messages so far.
    #[serde(borrow, default)]
    pub messages: Option<&'a RawValue>,
    /// For a completion: the preferred models.
    #[serde(borrow, default)]
    pub model_hints: Option<&'a RawValue>,
    /// For a completion: the tools the model may use.
    #[serde(borrow, default)]
    pub tools: Option<&'a RawValue>,
    /// For a completion: the most tokens.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// Ignored: the kernel sets the server.
    #[serde(default)]
    pub server_id: Option<mgp_json::lookalike::AnyMember>,
    /// Ignored: only the kernel sets the requesting agent.
    #[serde(default)]
    pub agent_id: Option<mgp_json::lookalike::AnyMember>,
}

impl Request<'_> {
    /// The server's id; `None` if it is neither a text nor a number.
    #[must_use]
    pub fn id(&self) -> Option<RequestId> {
        RequestId::from_json(self.callback_id.get())
    }

    /// The id of the call: a number, or its digits in a string, as some libraries pass it to a tool.
    #[must_use]
    pub fn call_id(&self) -> Option<u64> {
        let raw = self.request_id?.get();
        let digits: Option<String> = serde_json::from_str(raw).ok();
        digits.as_deref().unwrap_or(raw).parse().ok()
    }

    /// How long the server waits, in milliseconds; a fraction is rounded up.
    #[must_use]
    pub fn timeout_ms(&self) -> Option<u64> {
        let value = self.timeout_ms.as_ref()?;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "`as` saturates"
        )]
        let rounded = |n: f64| n.ceil() as u64;
        value.as_u64().or_else(|| value.as_f64().map(rounded))
    }
}

/// The params of a callback for the agent: `params` of the server with these members replaced, as JSON text
/// each. The requesting agent (`mgp/agent/ask`) is set by the kernel only.
#[must_use]
pub fn params_for_agent(params: &str, replacements: &[(&str, &str)]) -> String {
    let mut splice = Splice::new(params);
    splice.remove_members(params, &["agent_id"]);
    let mut missing = Vec::new();
    for (name, json) in replacements {
        match member(params, name) {
            Some(value) => splice.replace(value, *json),
            None => missing.push((*name, *json)),
        }
    }
    splice.insert_members(params, &missing);
    splice.finish().into_owned()
}

/// The params of `mgp/callback/respond` for a server: its own id, and the response as JSON text.
#[must_use]
pub fn response_params(callback_id: &RequestId, response: &str) -> String {
    let id = callback_id.as_json();
    format!(r#"{{"callback_id":{id},"response":{response}}}"#)
}

/// The params for an unanswered callback; `reason` is one word.
#[must_use]
pub fn decline_params(callback_id: &RequestId, response: &str, reason: &str) -> String {
    let (id, reason) = (callback_id.as_json(), quote(reason));
    format!(
        r#"{{"callback_id":{id},"response":{response},"_mgp":{{"status":"declined","reason":{reason}}}}}"#
    )
}

request! {
    /// `mgp/callback/respond`; answers [`Responded`].
    Respond {
        /// The id of the callback.
        callback_id: String,
        /// The answer; `null` declines a callback that needs one.
        #[serde(deserialize_with = "any_value")]
        response: Box<RawValue>,
    }
}

/// Parses any value, also `null`, as a required member.
fn any_value<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Box<RawValue>, D::Error> {
    Box::<RawValue>::deserialize(d)
}

/// The answer to `mgp/callback/respond`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Responded {
    /// The id of the callback.
    pub callback_id: String,
    /// The server that requested it.
    pub server_id: String,
    /// `responded`.
    pub status: String,
}

/// A callback that the caller has not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCallback {
    /// The id for the answer.
    pub callback_id: String,
    /// The server that requests it.
    pub server_id: String,
    /// The caller's own id of the call.
    pub request_id: Option<RequestId>,
    /// The kind.
    #[serde(rename = "type")]
    pub kind: CallbackKind,
    /// The text; long texts are truncated.
    pub message: String,
    /// The possible answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// How long it has been pending.
    pub age_secs: u64,
    /// The remaining time.
    pub remaining_ms: u64,
}

/// The answer to `mgp/events/pending_callbacks`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCallbacks {
    /// Oldest first.
    pub pending: Vec<PendingCallback>,
    /// The number of callbacks.
    pub count: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Method, parse_params};

    const ASKED: &str = r#"{"callback_id":"cb-001","request_id":20,"type":"confirmation","message":"This operation will delete 15 files. Continue?","options":["confirm","cancel"],"timeout_ms":60000}"#;

    /// MGP-175: the request of §13.4 is parsed verbatim.
    #[test]
    fn callback_is_parsed_as_in_the_document() {
        let callback: Request<'_> = parse_params(Some(ASKED)).unwrap();
        assert_eq!(Request::METHOD, "notifications/mgp.callback.request");
        assert_eq!(callback.id(), RequestId::from_json("\"cb-001\""));
        assert_eq!(
            (callback.call_id(), callback.timeout_ms()),
            (Some(20), Some(60_000))
        );
        assert_eq!(callback.kind, CallbackKind::Confirmation);
        assert_eq!(callback.options.unwrap(), ["confirm", "cancel"]);
        let text = r#"{"callback_id":7,"request_id":"20","type":"llm_completion","timeout_ms":0.5,"_mgp.attempt":2}"#;
        let callback: Request<'_> = parse_params(Some(text)).unwrap();
        assert_eq!(
            (callback.call_id(), callback.timeout_ms()),
            (Some(20), Some(1))
        );
        assert_eq!(callback.id(), RequestId::from_json("7"));
        for bad in [
            r#"{"callback_id":"a","type":"riddle"}"#,
            r#"{"callback_id":"a","type":"input","Type":"notification"}"#,
            r#"{"callback_id":"a","type":"input","request_id":1,"request_id":2}"#,
            r#"{"callback_id":"a","type":"input","Agent_ID":"agent.alice"}"#,
            r#"{"callback_id":"a","type":"input","agent_id":1,"agent\u005fid":2}"#,
            r#"{"type":"input"}"#,
        ] {
            assert!(parse_params::<Request<'_>>(Some(bad)).is_err(), "{bad}");
        }
        let odd = r#"{"callback_id":["a"],"type":"input"}"#;
        assert_eq!(parse_params::<Request<'_>>(Some(odd)).unwrap().id(), None);
    }

    /// MGP-158, MGP-175: the server's own ids do not reach the agent; all else is unchanged.
    #[test]
    fn agent_receives_its_own_ids() {
        let replacements = [
            ("callback_id", "\"k\""),
            ("request_id", "\"a-7\""),
            ("server_id", "\"it\""),
        ];
        let put = params_for_agent(ASKED, &replacements);
        assert_eq!(
            put,
            r#"{"server_id":"it","callback_id":"k","request_id":"a-7","type":"confirmation","message":"This operation will delete 15 files. Continue?","options":["confirm","cancel"],"timeout_ms":60000}"#
        );
        for claims in [
            r#"{"server_id":null,"callback_id":1,"request_id":2,"n":1.0}"#,
            r#"{"server_id":null,"agent_id":"agent.alice","callback_id":1,"request_id":2,"n":1.0}"#,
            r#"{"server_id":null,"callback_id":1,"request_id":2,"n":1.0,"agent\u005fid":["x"]}"#,
            r#"{"agent_id":{},"server_id":"x","callback_id":1,"request_id":2,"n":1.0}"#,
        ] {
            assert_eq!(
                params_for_agent(claims, &replacements),
                r#"{"server_id":"it","callback_id":"k","request_id":"a-7","n":1.0}"#
            );
        }
    }

    /// MGP-176: the answer of §13.4; a response may be any value but is required.
    #[test]
    fn answer_round_trips_as_in_the_document() {
        let text = r#"{"callback_id":"cb-001","response":"confirm"}"#;
        let value: Respond = parse_params(Some(text)).unwrap();
        let id = RequestId::from_json("\"cb-001\"").unwrap();
        assert_eq!(response_params(&id, value.response.get()), text);
        let null: Respond = parse_params(Some(r#"{"callback_id":"a","response":null}"#)).unwrap();
        assert_eq!(null.response.get(), "null");
        assert!(parse_params::<Respond>(Some(r#"{"callback_id":"a"}"#)).is_err());
        assert!(
            parse_params::<Respond>(Some(r#"{"callback_id":"a","response":1,"x":1}"#)).is_err()
        );
        let declined: serde_json::Value =
            serde_json::from_str(&decline_params(&id, "null", "timed_out")).unwrap();
        assert_eq!(declined["_mgp"]["reason"], "timed_out");
    }
}
