//! `push/event`: events that servers push (MCPL §9).

use std::borrow::Cow;

use mgp_json::{lookalike, quote};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::tags::EventTags;
use crate::mcp::methods;

methods! { "push/event" => Event<'_> }

/// The URI prefix of the resource with a set's last events; `SERVER/SET` follows.
pub const RESOURCES: &str = "mgp://push/";
/// The prefix of an event's channel: `push.SERVER.SET`.
pub const CHANNELS: &str = "push.";

/// `push/event` (§9.2). Relayed members keep their original text.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event<'a> {
    /// The feature set that declares it.
    #[serde(borrow)]
    pub feature_set: Cow<'a, str>,
    /// The server's id of the event, equal in each attempt.
    #[serde(borrow)]
    pub event_id: Cow<'a, str>,
    /// The time of the event, in ISO 8601.
    #[serde(borrow)]
    pub timestamp: Cow<'a, str>,
    /// The origin, in the server's form.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub origin: Option<&'a RawValue>,
    /// The tags, of a server of 0.5.
    #[serde(borrow, default)]
    pub tags: Option<&'a RawValue>,
    /// The payload.
    #[serde(borrow, deserialize_with = "lookalike::required_object")]
    payload: &'a RawValue,
}

#[derive(Deserialize)]
struct Payload<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

impl<'a> Event<'a> {
    /// The longest id of an event, in bytes.
    pub(crate) const ID_MAX: usize = 256;

    /// Parses `params`, and checks that all required members are present. The timestamp and the content are
    /// not validated here.
    ///
    /// # Errors
    /// The missing or invalid member, as text, for an error -32602.
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

    /// `payload.content`: blocks, or a text in place of one block (A-14).
    #[must_use]
    pub fn content(&self) -> &'a RawValue {
        let payload: Payload<'a> = serde_json::from_str(self.payload.get())
            .expect("an event was read with its payload's content");
        payload.content
    }

    /// Renders the event with other names, for a client that sees many servers as one. `content` is a list
    /// of blocks.
    #[must_use]
    pub fn render_with_names(
        &self,
        feature_set: &str,
        event_id: &str,
        content: &str,
        tags: &EventTags,
    ) -> String {
        let (set, id, at) = (quote(feature_set), quote(event_id), quote(&self.timestamp));
        let origin = self.origin.map(|origin| format!(r#","origin":{origin}"#));
        let origin = origin.unwrap_or_default();
        let tags = tags.to_json().map(|tags| format!(r#","tags":{tags}"#));
        let tags = tags.unwrap_or_default();
        format!(
            r#"{{"featureSet":{set},"eventId":{id},"timestamp":{at}{origin}{tags},"payload":{{"content":{content}}}}}"#
        )
    }
}

/// The answer to `push/event` (§9.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushAnswer {
    /// True if it was accepted.
    pub accepted: bool,
    /// The inference that it caused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inference_id: Option<String>,
    /// Why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl PushAnswer {
    /// The longest stored id of an inference in a relayed answer, in bytes.
    pub(crate) const INFERENCE_MAX: usize = 256;
    /// The longest stored reason in a relayed answer, in bytes.
    pub(crate) const REASON_MAX: usize = 512;

    /// An accepted event.
    #[must_use]
    pub const fn accept(inference_id: Option<String>) -> Self {
        Self {
            accepted: true,
            inference_id,
            reason: None,
        }
    }

    /// A rejected event.
    #[must_use]
    pub fn reject(reason: impl Into<String>) -> Self {
        Self {
            accepted: false,
            inference_id: None,
            reason: Some(reason.into()),
        }
    }

    /// A relayed answer with truncated texts, and with a reason if required.
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

    /// Renders JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("words are always JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of §9.1, verbatim.
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
    fn example_of_the_document_is_parsed() {
        let event = Event::parse(EXAMPLE).unwrap();
        assert_eq!(event.feature_set, "gitlab.notifications");
        assert_eq!(event.event_id, "evt_abc123");
        assert!(event.origin.unwrap().get().contains(r#""webhook": "push""#));
        assert!(event.content().get().contains("New commit on main"));
    }

    /// MCPL-078: the missing or invalid member is named.
    #[test]
    fn missing_member_is_named() {
        let whole: serde_json::Value = serde_json::from_str(EXAMPLE).unwrap();
        for member in ["featureSet", "eventId", "timestamp", "payload"] {
            let mut less = whole.clone();
            less.as_object_mut().unwrap().remove(member);
            let message = Event::parse(&less.to_string()).unwrap_err();
            assert!(message.contains(&format!("`{member}`")), "{message}");
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
            let message = Event::parse(params).unwrap_err();
            assert!(message.contains(named), "{params}: {message}");
        }
        let long = "x".repeat(Event::ID_MAX + 1);
        let params = EXAMPLE.replace("evt_abc123", &long);
        assert!(Event::parse(&params).unwrap_err().contains("eventId"));
    }

    /// MCPL-079: the origin stays byte-identical.
    #[test]
    fn relayed_event_has_other_names_and_the_same_origin() {
        let event = Event::parse(EXAMPLE).unwrap();
        let text = event.render_with_names(
            "git.gitlab.notifications",
            "git:evt_abc123",
            "[]",
            &EventTags::default(),
        );
        let again = Event::parse(&text).unwrap();
        assert_eq!(again.origin.unwrap().get(), event.origin.unwrap().get());
        assert_eq!(again.feature_set, "git.gitlab.notifications");
        assert_eq!(again.event_id, "git:evt_abc123");
        assert_eq!(again.timestamp, event.timestamp);
    }

    /// MCPL-081: an id only if an inference started, a reason only if rejected.
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
