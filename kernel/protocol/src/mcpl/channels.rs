//! `channels/*`: places where people and programs talk (MCPL §14).

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

/// Longest id of a channel, in bytes: a URL or a number of a telephone is shorter.
pub const CHANNEL_ID_MAX: usize = 512;
/// Longest description of a channel, in bytes: it is listed to agents.
pub const DESCRIPTOR_MAX: usize = 8 << 10;
/// Messages of one `channels/incoming`; more are refused.
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
    /// By their ids.
    #[serde(borrow, default)]
    pub removed: Vec<Cow<'a, str>>,
    /// Each a [`Descriptor`].
    #[serde(borrow, default)]
    pub updated: Vec<&'a RawValue>,
}

/// `channels/list`, either way; answers `{"channels": [descriptors]}` (A-44).
#[derive(Debug)]
pub struct List;

/// `channels/open`, from a host; answers `{"channel": descriptor}`.
#[derive(Debug, Deserialize)]
pub struct Open<'a> {
    /// The platform.
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
    /// Where it is there, an object; relayed verbatim.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub address: Option<&'a RawValue>,
    /// An object, relayed verbatim.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub metadata: Option<&'a RawValue>,
    /// Which server, where several have channels of this type. The kernel's own member; no server sees it.
    #[serde(borrow, default, rename = "serverId")]
    pub server: Option<Cow<'a, str>>,
}

/// What is read of the answer to `channels/open`.
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
    /// Which one.
    #[serde(borrow)]
    pub channel_id: Cow<'a, str>,
}

/// Answer of `channels/close`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseResult {
    /// It is.
    pub closed: bool,
}

/// `channels/publish`, from a host, as a notification or a request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Publish<'a> {
    /// What it belongs to.
    #[serde(borrow, default)]
    pub conversation_id: Option<Cow<'a, str>>,
    /// Where to; where the operator's default is when absent.
    #[serde(borrow, default)]
    pub channel_id: Option<Cow<'a, str>>,
    /// There is more to come.
    #[serde(default)]
    pub stream: bool,
    /// What: a text, or blocks.
    #[serde(borrow)]
    pub content: &'a RawValue,
}

/// Answer of `channels/publish` as a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublishResult {
    /// It is at the channel.
    pub delivered: bool,
    /// Its id there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Why it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `channels/incoming`, from a server; answers `{"results": [`[`IncomingOutcome`]`, …]}`, one for each.
#[derive(Debug, Deserialize)]
pub struct Incoming<'a> {
    /// Each an [`IncomingMessage`].
    #[serde(borrow)]
    pub messages: Vec<&'a RawValue>,
}

/// What is read of one message from a channel; the rest is relayed verbatim.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IncomingMessage<'a> {
    /// Where it came in.
    #[serde(borrow)]
    pub channel_id: Cow<'a, str>,
    /// Its own id.
    #[serde(borrow)]
    pub message_id: Cow<'a, str>,
    /// The thread there.
    #[serde(borrow, default)]
    pub thread_id: Option<Cow<'a, str>>,
    /// What: a text, or blocks.
    #[serde(borrow)]
    pub content: &'a RawValue,
}

/// What became of one message from a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IncomingOutcome {
    /// Its own id.
    pub message_id: String,
    /// Somebody took it.
    pub accepted: bool,
    /// What it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// Why nobody took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Answer of `channels/incoming`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncomingResult {
    /// One for each message, in their order.
    pub results: Vec<IncomingOutcome>,
}

/// Which way messages go (§14.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Out of the host alone.
    Outbound,
    /// Into the host alone.
    Inbound,
    /// Both.
    Bidirectional,
}

/// What is read of a channel's description (§14.2); the rest is kept verbatim.
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
    /// Which way messages go.
    pub direction: Direction,
    /// Where it is at the platform: an object.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub address: Option<&'a RawValue>,
    /// What else there is to say: an object.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub metadata: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::parse_params;

    /// MCPL-116, MCPL-126, MCPL-137: the examples of §14, members nobody knows, and what is missing.
    #[test]
    fn the_examples_of_the_document_are_read() {
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
