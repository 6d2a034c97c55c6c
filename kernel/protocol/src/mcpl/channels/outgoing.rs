//! `channels/outgoing/*`: copies of outgoing messages for observers (MCPL §14.3).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mcp::methods;

methods! {
    "channels/outgoing/chunk" => Chunk<'_>,
    "channels/outgoing/complete" => Complete<'_>,
}

/// `channels/outgoing/chunk`, from a host: a part of a message that is being generated.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chunk<'a> {
    /// The inference.
    #[serde(borrow)]
    pub inference_id: Cow<'a, str>,
    /// The conversation it belongs to.
    #[serde(borrow, default)]
    pub conversation_id: Option<Cow<'a, str>>,
    /// The channel.
    #[serde(borrow)]
    pub channel_id: Cow<'a, str>,
    /// The index, from 0.
    pub index: u64,
    /// The text of the part.
    #[serde(borrow)]
    pub delta: Cow<'a, str>,
}

/// `channels/outgoing/complete`, from a host: the whole message.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Complete<'a> {
    /// The inference.
    #[serde(borrow)]
    pub inference_id: Cow<'a, str>,
    /// The conversation it belongs to.
    #[serde(borrow, default)]
    pub conversation_id: Option<Cow<'a, str>>,
    /// The channel.
    #[serde(borrow)]
    pub channel_id: Cow<'a, str>,
    /// The content: a text, or blocks.
    #[serde(borrow)]
    pub content: &'a RawValue,
}
