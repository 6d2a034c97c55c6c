//! Callbacks (MGP §13.4): what a server asks in the course of a call, and the answer to it.

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

/// What kind of callback it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackKind {
    /// Yes or no.
    Confirmation,
    /// Any text.
    Input,
    /// One of several options.
    Selection,
    /// Shown, and not answered.
    Notification,
    /// A completion of a language model (later drafts).
    LlmCompletion,
}

/// `notifications/mgp.callback.request` of a server.
#[derive(Debug, Deserialize)]
pub struct Request<'a> {
    /// The server's id for it; a retry has the same.
    #[serde(borrow)]
    pub(crate) callback_id: &'a RawValue,
    /// The id of the call in which it asks, as the server read it.
    #[serde(borrow, default)]
    pub request_id: Option<&'a RawValue>,
    /// What kind it is.
    #[serde(rename = "type")]
    pub kind: CallbackKind,
    /// What is asked, for a person.
    #[serde(borrow, default)]
    pub message: Option<Cow<'a, str>>,
    /// What can be answered.
    #[serde(default)]
    pub options: Option<Vec<String>>,
    /// How long the server waits.
    #[serde(default)]
    pub(crate) timeout_ms: Option<serde_json::Number>,
    /// Of a completion: the messages so far.
    #[serde(borrow, default)]
    pub messages: Option<&'a RawValue>,
    /// Of a completion: which model would do.
    #[serde(borrow, default)]
    pub model_hints: Option<&'a RawValue>,
    /// Of a completion: the tools the model may use.
    #[serde(borrow, default)]
    pub tools: Option<&'a RawValue>,
    /// Of a completion: how long it may be.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// Which server asks is the kernel's to say.
    #[serde(default)]
    pub server_id: Option<mgp_json::lookalike::AnyMember>,
    /// That an agent asks, too: no server does so in its name.
    #[serde(default)]
    pub agent_id: Option<mgp_json::lookalike::AnyMember>,
}

impl Request<'_> {
    /// The server's id for it; `None` when it is neither text nor number.
    #[must_use]
    pub fn id(&self) -> Option<RequestId> {
        RequestId::from_json(self.callback_id.get())
    }

    /// The id of the call; a number, or its digits in a text, as some libraries hand it to a tool.
    #[must_use]
    pub fn call_id(&self) -> Option<u64> {
        let raw = self.request_id?.get();
        let digits: Option<String> = serde_json::from_str(raw).ok();
        digits.as_deref().unwrap_or(raw).parse().ok()
    }

    /// How long the server waits, in milliseconds; a fraction counts as the next whole one.
    #[must_use]
    pub fn timeout_ms(&self) -> Option<u64> {
        let said = self.timeout_ms.as_ref()?;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "`as` saturates"
        )]
        let rounded = |n: f64| n.ceil() as u64;
        said.as_u64().or_else(|| said.as_f64().map(rounded))
    }
}

/// The params of a callback as the agent reads them: `params` of the server with these in the place of
/// its own words, as JSON text each. That an agent asks (`mgp/agent/ask`) only the kernel says.
#[must_use]
pub fn params_for_agent(params: &str, own: &[(&str, &str)]) -> String {
    let mut splice = Splice::new(params);
    splice.remove_members(params, &["agent_id"]);
    let mut missing = Vec::new();
    for (name, json) in own {
        match member(params, name) {
            Some(said) => splice.replace(said, *json),
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

/// The same where nobody answered; `why` is one word.
#[must_use]
pub fn decline_params(callback_id: &RequestId, response: &str, why: &str) -> String {
    let (id, why) = (callback_id.as_json(), quote(why));
    format!(
        r#"{{"callback_id":{id},"response":{response},"_mgp":{{"status":"declined","reason":{why}}}}}"#
    )
}

request! {
    /// `mgp/callback/respond`; answers [`Responded`].
    Respond {
        /// The id under which the callback came.
        callback_id: String,
        /// What is answered; `null` declines, where there is a question.
        #[serde(deserialize_with = "any_value")]
        response: Box<RawValue>,
    }
}

/// Any value, `null` too, which has to be there.
fn any_value<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Box<RawValue>, D::Error> {
    Box::<RawValue>::deserialize(d)
}

/// Answer of `mgp/callback/respond`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Responded {
    /// Which callback.
    pub callback_id: String,
    /// Who asked.
    pub server_id: String,
    /// `responded`.
    pub status: String,
}

/// One callback that the caller was asked and has not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCallback {
    /// For the answer.
    pub callback_id: String,
    /// Who asks.
    pub server_id: String,
    /// The caller's own id of the call in which it asks.
    pub request_id: Option<RequestId>,
    /// What kind it is.
    #[serde(rename = "type")]
    pub kind: CallbackKind,
    /// What is asked; long texts are cut.
    pub message: String,
    /// What can be answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// For how long it has been waiting.
    pub age_secs: u64,
    /// How much time is left.
    pub remaining_ms: u64,
}

/// Answer of `mgp/events/pending_callbacks`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCallbacks {
    /// The oldest first.
    pub pending: Vec<PendingCallback>,
    /// How many there are.
    pub count: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Method, parse_params};

    const ASKED: &str = r#"{"callback_id":"cb-001","request_id":20,"type":"confirmation","message":"This operation will delete 15 files. Continue?","options":["confirm","cancel"],"timeout_ms":60000}"#;

    /// MGP-175: the request of §13.4 is read as it stands in the document.
    #[test]
    fn a_callback_is_read_as_the_document_writes_it() {
        let asked: Request<'_> = parse_params(Some(ASKED)).unwrap();
        assert_eq!(Request::METHOD, "notifications/mgp.callback.request");
        assert_eq!(asked.id(), RequestId::from_json("\"cb-001\""));
        assert_eq!(
            (asked.call_id(), asked.timeout_ms()),
            (Some(20), Some(60_000))
        );
        assert_eq!(asked.kind, CallbackKind::Confirmation);
        assert_eq!(asked.options.unwrap(), ["confirm", "cancel"]);
        let text = r#"{"callback_id":7,"request_id":"20","type":"llm_completion","timeout_ms":0.5,"_mgp.attempt":2}"#;
        let asked: Request<'_> = parse_params(Some(text)).unwrap();
        assert_eq!((asked.call_id(), asked.timeout_ms()), (Some(20), Some(1)));
        assert_eq!(asked.id(), RequestId::from_json("7"));
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

    /// MGP-158, MGP-175: nothing of the server's own numbers reaches the agent; the rest is as it was.
    #[test]
    fn an_agent_reads_its_own_ids() {
        let own = [
            ("callback_id", "\"k\""),
            ("request_id", "\"a-7\""),
            ("server_id", "\"it\""),
        ];
        let put = params_for_agent(ASKED, &own);
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
                params_for_agent(claims, &own),
                r#"{"server_id":"it","callback_id":"k","request_id":"a-7","n":1.0}"#
            );
        }
    }

    /// MGP-176: the answer of §13.4; a response may be any value but must be there.
    #[test]
    fn an_answer_is_read_and_written_as_the_document_has_it() {
        let text = r#"{"callback_id":"cb-001","response":"confirm"}"#;
        let said: Respond = parse_params(Some(text)).unwrap();
        let id = RequestId::from_json("\"cb-001\"").unwrap();
        assert_eq!(response_params(&id, said.response.get()), text);
        let null: Respond = parse_params(Some(r#"{"callback_id":"a","response":null}"#)).unwrap();
        assert_eq!(null.response.get(), "null");
        assert!(parse_params::<Respond>(Some(r#"{"callback_id":"a"}"#)).is_err());
        assert!(
            parse_params::<Respond>(Some(r#"{"callback_id":"a","response":1,"x":1}"#)).is_err()
        );
        let no: serde_json::Value =
            serde_json::from_str(&decline_params(&id, "null", "timed_out")).unwrap();
        assert_eq!(no["_mgp"]["reason"], "timed_out");
    }
}
