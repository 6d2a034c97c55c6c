//! `push/event`: what servers tell unasked (MCPL §9).

use std::borrow::Cow;

use mgp_json::{lookalike, quote};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::methods;

methods! { "push/event" => Event<'_> }

/// Where the last events of a set are a resource; `SERVER/SET` follows.
pub const RESOURCES: &str = "mgp://push/";
/// What the channel of an event begins with: `push.SERVER.SET`.
pub const CHANNELS: &str = "push.";

/// `push/event` (§9.2). What the kernel only passes on stays the text it came as.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event<'a> {
    /// The set that declares it.
    #[serde(borrow)]
    pub feature_set: Cow<'a, str>,
    /// What the server calls it, the same at each try.
    #[serde(borrow)]
    pub event_id: Cow<'a, str>,
    /// When it happened, in ISO 8601.
    #[serde(borrow)]
    pub timestamp: Cow<'a, str>,
    /// Where it comes from, as the server puts it.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub origin: Option<&'a RawValue>,
    /// What it says.
    #[serde(borrow, deserialize_with = "lookalike::required_object")]
    payload: &'a RawValue,
}

#[derive(Deserialize)]
struct Payload<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

impl<'a> Event<'a> {
    /// Longest id of an event, in bytes.
    pub(crate) const ID_MAX: usize = 256;

    /// Reads `params`, and checks that everything is there that has to be. Whether the timestamp is one, and
    /// the content is content, is not looked at here.
    ///
    /// # Errors
    /// Words that name the member that is missing or wrong, for an error -32602.
    pub fn parse(params: &'a str) -> Result<Self, String> {
        let event: Self =
            lookalike::from_object(params).map_err(|e| lookalike::strip_position(&e))?;
        let of_payload = |e| format!("payload: {}", lookalike::strip_position(&e));
        let _: Payload<'_> = lookalike::from_object(event.payload.get()).map_err(of_payload)?;
        match event.event_id.len() {
            0 => Err("eventId is empty".into()),
            n if n > Self::ID_MAX => Err(format!(
                "eventId has {n} bytes; at most {} are remembered",
                Self::ID_MAX
            )),
            _ => Ok(event),
        }
    }

    /// `payload.content`: blocks, or a text that stands for one block (A-14).
    #[must_use]
    pub fn content(&self) -> &'a RawValue {
        let payload: Payload<'a> = serde_json::from_str(self.payload.get())
            .expect("an event was read with its payload's content");
        payload.content
    }

    /// The same event in other names, for one who sees many servers as one. `content` is a list of blocks.
    #[must_use]
    pub fn render_with_names(&self, feature_set: &str, event_id: &str, content: &str) -> String {
        let (set, id, at) = (quote(feature_set), quote(event_id), quote(&self.timestamp));
        let origin = self.origin.map(|origin| format!(r#","origin":{origin}"#));
        let origin = origin.unwrap_or_default();
        format!(
            r#"{{"featureSet":{set},"eventId":{id},"timestamp":{at}{origin},"payload":{{"content":{content}}}}}"#
        )
    }
}

/// What is answered to `push/event` (§9.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushAnswer {
    /// Whether somebody took it.
    pub accepted: bool,
    /// Of the inference that it led to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inference_id: Option<String>,
    /// Why nobody took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl PushAnswer {
    /// Longest id of an inference that is kept of another one's answer, in bytes.
    pub(crate) const INFERENCE_MAX: usize = 256;
    /// Longest reason that is kept of another one's answer, in bytes.
    pub(crate) const REASON_MAX: usize = 512;

    /// Somebody took it.
    #[must_use]
    pub const fn accept(inference_id: Option<String>) -> Self {
        Self {
            accepted: true,
            inference_id,
            reason: None,
        }
    }

    /// Nobody did.
    #[must_use]
    pub fn reject(reason: impl Into<String>) -> Self {
        Self {
            accepted: false,
            inference_id: None,
            reason: Some(reason.into()),
        }
    }

    /// An answer of somebody else, with no more of its texts than is kept, and with a reason where there has
    /// to be one.
    #[must_use]
    pub fn truncate(mut self) -> Self {
        if self.accepted {
            self.reason = None;
        } else {
            self.inference_id = None;
            self.reason.get_or_insert_with(|| "no reason given".into());
        }
        if let Some(id) = &self.inference_id
            && id.len() > Self::INFERENCE_MAX
        {
            self.inference_id = None;
        }
        if let Some(reason) = &mut self.reason {
            let mut end = reason.len().min(Self::REASON_MAX);
            while !reason.is_char_boundary(end) {
                end -= 1;
            }
            reason.truncate(end);
        }
        self
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("words are always JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// §9.1, as it stands.
    const EXAMPLE: &str = r#"{
        "featureSet": "gitlab.notifications",
        "eventId": "evt_abc123",
        "timestamp": "2026-01-23T10:30:00Z",
        "origin": { "server": "gitlab-integration", "webhook": "push", "repository": "acme/backend" },
        "payload": { "content": [
            { "type": "text", "text": "New commit on main by alice: 'fix auth bug' in acme/backend" }
        ] }
    }"#;

    #[test]
    fn the_example_of_the_document_is_read() {
        let event = Event::parse(EXAMPLE).unwrap();
        assert_eq!(event.feature_set, "gitlab.notifications");
        assert_eq!(event.event_id, "evt_abc123");
        assert!(event.origin.unwrap().get().contains(r#""webhook": "push""#));
        assert!(event.content().get().contains("New commit on main"));
    }

    /// MCPL-078: what is missing or wrong is named.
    #[test]
    fn each_member_that_has_to_be_there_is_asked_for_by_its_name() {
        let whole: serde_json::Value = serde_json::from_str(EXAMPLE).unwrap();
        for member in ["featureSet", "eventId", "timestamp", "payload"] {
            let mut less = whole.clone();
            less.as_object_mut().unwrap().remove(member);
            let words = Event::parse(&less.to_string()).unwrap_err();
            assert!(words.contains(&format!("`{member}`")), "{words}");
        }
        for (params, named) in [
            (
                r#"{"featureSet":"a","eventId":"b","timestamp":"c","payload":{}}"#,
                "payload: missing field `content`",
            ),
            (
                r#"{"featureSet":"a","eventId":"b","timestamp":"c","payload":[]}"#,
                "an object",
            ),
            (
                r#"{"featureSet":"a","eventId":"","timestamp":"c","payload":{"content":""}}"#,
                "eventId",
            ),
            (
                r#"{"featureSet":"a","eventId":7,"timestamp":"c","payload":{"content":""}}"#,
                "string",
            ),
            (
                r#"{"featureSet":"a","eventId":"b","timestamp":"c","origin":"d","payload":{"content":""}}"#,
                "an object",
            ),
            (
                r#"{"featureSet":"a","featureSet":"b","eventId":"b","timestamp":"c","payload":{"content":""}}"#,
                "featureSet",
            ),
            (r#"["a","b","c",{},{"content":""}]"#, "an object"),
        ] {
            let words = Event::parse(params).unwrap_err();
            assert!(words.contains(named), "{params}: {words}");
        }
        let long = "x".repeat(Event::ID_MAX + 1);
        let params = EXAMPLE.replace("evt_abc123", &long);
        assert!(Event::parse(&params).unwrap_err().contains("eventId"));
    }

    /// MCPL-079: the origin stays to the byte.
    #[test]
    fn what_is_passed_on_has_other_names_and_the_same_origin() {
        let event = Event::parse(EXAMPLE).unwrap();
        let text = event.render_with_names("git.gitlab.notifications", "git:evt_abc123", "[]");
        let again = Event::parse(&text).unwrap();
        assert_eq!(again.origin.unwrap().get(), event.origin.unwrap().get());
        assert_eq!(again.feature_set, "git.gitlab.notifications");
        assert_eq!(again.event_id, "git:evt_abc123");
        assert_eq!(again.timestamp, event.timestamp);
    }

    /// MCPL-081: an id only where an inference began, a reason only where nobody took it.
    #[test]
    fn answers_have_the_members_of_their_kind() {
        assert_eq!(PushAnswer::accept(None).to_json(), r#"{"accepted":true}"#);
        let begun = PushAnswer::accept(Some("inf_1".into()));
        assert_eq!(
            begun.to_json(),
            r#"{"accepted":true,"inferenceId":"inf_1"}"#
        );
        assert_eq!(
            PushAnswer::reject("no").to_json(),
            r#"{"accepted":false,"reason":"no"}"#
        );
        let strange: PushAnswer =
            serde_json::from_str(r#"{"accepted":false,"inferenceId":"i"}"#).unwrap();
        let bounded = strange.truncate();
        assert_eq!(bounded, PushAnswer::reject("no reason given"));
        let long = PushAnswer::reject("ü".repeat(1000)).truncate();
        assert_eq!(long.reason.unwrap().len(), PushAnswer::REASON_MAX);
    }
}
