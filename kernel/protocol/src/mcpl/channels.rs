//! `channels/*`: conversations of people and programs on a platform (MCPL §14).

pub mod outgoing;

use std::borrow::Cow;

use mgp_json::lookalike;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::methods;

methods! {
    "channels/register" => Register<'_>,
    "channels/changed" => Changed<'_>,
    "channels/list" => List,
    "channels/open" => Open<'_>,
    "channels/close" => Close<'_>,
    "channels/publish" => Publish<'_>,
    "channels/incoming" => Incoming<'_>,
}

/// The longest id of a channel, in bytes; URLs and telephone numbers are shorter.
pub const CHANNEL_ID_MAX: usize = 512;
/// The longest descriptor of a channel, in bytes: it is listed to agents.
pub const DESCRIPTOR_MAX: usize = 8 << 10;
/// The most messages of one `channels/incoming`.
pub const BATCH_MAX: usize = 256;

/// `channels/register`, from a server; answers `{"registered": [ids]}` (A-44).
#[derive(Debug, Deserialize)]
pub struct Register<'a> {
    /// Each a [`Descriptor`].
    #[serde(borrow)]
    pub channels: Vec<&'a RawValue>,
}

/// `channels/changed`, from a server.
#[derive(Debug, Deserialize)]
pub struct Changed<'a> {
    /// Each a [`Descriptor`].
    #[serde(borrow, default)]
    pub added: Vec<&'a RawValue>,
    /// The ids of removed channels.
    #[serde(borrow, default)]
    pub removed: Vec<Cow<'a, str>>,
    /// Each a [`Descriptor`].
    #[serde(borrow, default)]
    pub updated: Vec<&'a RawValue>,
}

/// `channels/list`, in either direction; answers `{"channels": [descriptors]}` (A-44).
#[derive(Debug)]
pub struct List;

/// `channels/open`, from a host; answers `{"channel": descriptor}`.
#[derive(Debug, Deserialize)]
pub struct Open<'a> {
    /// The platform.
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
    /// The address on the platform, an object; relayed verbatim.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub address: Option<&'a RawValue>,
    /// An object, relayed verbatim.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub metadata: Option<&'a RawValue>,
    /// The server, if several have channels of this type. The kernel's own member; no server receives it.
    #[serde(borrow, default, rename = "serverId")]
    pub server: Option<Cow<'a, str>>,
}

/// The members of the answer to `channels/open` that are read.
#[derive(Debug, Deserialize)]
pub struct OpenResult<'a> {
    /// A [`Descriptor`].
    #[serde(borrow)]
    pub channel: &'a RawValue,
}

/// `channels/close`, from a host; answers [`CloseResult`].
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Close<'a> {
    /// The channel.
    #[serde(borrow)]
    pub channel_id: Cow<'a, str>,
}

/// The answer to `channels/close`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseResult {
    /// True if it was closed.
    pub closed: bool,
}

/// `channels/publish`, from a host, as a notification or a request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Publish<'a> {
    /// The conversation it belongs to.
    #[serde(borrow, default)]
    pub conversation_id: Option<Cow<'a, str>>,
    /// The channel; the operator's default if absent.
    #[serde(borrow, default)]
    pub channel_id: Option<Cow<'a, str>>,
    /// True if more content follows.
    #[serde(default)]
    pub stream: bool,
    /// The content: a text, or blocks.
    #[serde(borrow)]
    pub content: &'a RawValue,
}

/// The answer to `channels/publish` as a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublishResult {
    /// True if it was delivered.
    pub delivered: bool,
    /// Its id on the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Why it was not delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `channels/incoming`, from a server; answers `{"results": [`[`IncomingOutcome`]`, …]}`, one for each
/// message.
#[derive(Debug, Deserialize)]
pub struct Incoming<'a> {
    /// Each an [`IncomingMessage`].
    #[serde(borrow)]
    pub messages: Vec<&'a RawValue>,
}

/// The members of a message from a channel that are read; the others are relayed verbatim.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IncomingMessage<'a> {
    /// The channel.
    #[serde(borrow)]
    pub channel_id: Cow<'a, str>,
    /// The message's id.
    #[serde(borrow)]
    pub message_id: Cow<'a, str>,
    /// The thread on the platform.
    #[serde(borrow, default)]
    pub thread_id: Option<Cow<'a, str>>,
    /// The content: a text, or blocks.
    #[serde(borrow)]
    pub content: &'a RawValue,
    /// The tags, of a server of 0.5.
    #[serde(borrow, default)]
    pub tags: Option<&'a RawValue>,
}

/// The outcome of one message from a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IncomingOutcome {
    /// The message's id.
    pub message_id: String,
    /// True if it was accepted.
    pub accepted: bool,
    /// The conversation it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// Why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The answer to `channels/incoming`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncomingResult {
    /// One for each message, in order.
    pub results: Vec<IncomingOutcome>,
}

/// The direction of messages (§14.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the host only.
    Outbound,
    /// To the host only.
    Inbound,
    /// Both.
    Bidirectional,
}

/// The members of a channel's descriptor that are read (§14.2); the others are stored verbatim.
#[derive(Debug, Deserialize)]
pub struct Descriptor<'a> {
    /// Its id, unique within one connection.
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    /// The platform.
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
    /// For people.
    #[serde(borrow, default)]
    pub label: Option<Cow<'a, str>>,
    /// The direction of messages.
    pub direction: Direction,
    /// Its address on the platform: an object.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub address: Option<&'a RawValue>,
    /// Further data: an object.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub metadata: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::parse_params;

    /// MCPL-116, MCPL-126, MCPL-137: the examples of §14, unknown members, and missing ones.
    #[test]
    fn examples_of_the_document_are_parsed() {
        let text = r##"{"id":"discord:#general","type":"discord","label":"#general (Acme Discord)","direction":"outbound","address":{"guild":"acme"},"metadata":{},"x":1}"##;
        let read_one = |text| parse_params::<Descriptor<'_>>(Some(text));
        let descriptor = read_one(text).unwrap();
        assert_eq!(descriptor.id, "discord:#general");
        assert_eq!(descriptor.direction, Direction::Outbound);
        assert!(read_one(r#"{"id":"a","type":"b","direction":"sideways"}"#).is_err());
        assert!(read_one(r#"{"type":"b","direction":"inbound"}"#).is_err());
        assert!(read_one(r#"{"id":"a","type":"b","direction":"inbound","address":"y"}"#).is_err());
        let open = |text| parse_params::<Open<'_>>(Some(text));
        assert!(open(r#"{"type":"t","address":{"a":1},"metadata":null}"#).is_ok());
        assert!(open(r#"{"type":"t","address":"y"}"#).is_err());
        let batch = r##"{"messages":[{"channelId":"discord:#general","messageId":"dmsg_123","threadId":"t_42","author":{"id":"u_777","name":"Alice"},"timestamp":"2026-03-05T10:30:00Z","content":[{"type":"text","text":"What's the status?"}],"metadata":{"mentions":["@bob"]}}]}"##;
        let batch: Incoming<'_> = parse_params(Some(batch)).unwrap();
        let message: IncomingMessage<'_> = parse_params(Some(batch.messages[0].get())).unwrap();
        assert_eq!(message.thread_id.as_deref(), Some("t_42"));
        let publish = r##"{"conversationId":"conv_123","channelId":"discord:#general","stream":false,"content":"Hello team"}"##;
        let publish: Publish<'_> = parse_params(Some(publish)).unwrap();
        assert_eq!(publish.content.get(), r#""Hello team""#);
        assert!(parse_params::<Publish<'_>>(Some(r#"{"channelId":"a"}"#)).is_err());
        let published: PublishResult =
            serde_json::from_str(r#"{"delivered":true,"messageId":"dmsg_9"}"#).unwrap();
        assert!(published.delivered && published.reason.is_none());
        let taken =
            r#"{"results":[{"messageId":"dmsg_123","accepted":true,"conversationId":"conv_123"}]}"#;
        let read: IncomingResult = serde_json::from_str(taken).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), taken);
    }
}
