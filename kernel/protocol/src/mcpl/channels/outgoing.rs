//! `channels/outgoing/*`: what goes out, for who observes it (MCPL §14.3).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mcp::methods;

methods! {
    "channels/outgoing/chunk" => Chunk<'_>,
    "channels/outgoing/complete" => Complete<'_>,
}

/// `channels/outgoing/chunk`, from a host: a part of what is being written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chunk<'a> {
    /// Of which inference.
    #[serde(borrow)]
    pub inference_id: Cow<'a, str>,
    /// What it belongs to.
    #[serde(borrow, default)]
    pub conversation_id: Option<Cow<'a, str>>,
    /// Where it goes.
    #[serde(borrow)]
    pub channel_id: Cow<'a, str>,
    /// From 0.
    pub index: u64,
    /// The part.
    #[serde(borrow)]
    pub delta: Cow<'a, str>,
}

/// `channels/outgoing/complete`, from a host: the whole.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Complete<'a> {
    /// Of which inference.
    #[serde(borrow)]
    pub inference_id: Cow<'a, str>,
    /// What it belongs to.
    #[serde(borrow, default)]
    pub conversation_id: Option<Cow<'a, str>>,
    /// Where it goes.
    #[serde(borrow)]
    pub channel_id: Cow<'a, str>,
    /// A text, or blocks.
    #[serde(borrow)]
    pub content: &'a RawValue,
}
