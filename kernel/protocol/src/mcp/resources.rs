//! `resources/*`.

use std::borrow::Cow;

use mgp_json::lookalike::AnyMember;
use serde::Deserialize;
use serde_json::value::RawValue;

super::methods! {
    "resources/list" => List,
    "resources/read" => Read<'_>,
    "resources/subscribe" => Subscribe<'_>,
    "resources/unsubscribe" => Unsubscribe<'_>,
    "notifications/resources/list_changed" => ListChanged,
    "notifications/resources/updated" => Updated<'_>,
}

/// `resources/templates/*`.
pub mod templates {
    super::super::methods! { "resources/templates/list" => List }

    /// `resources/templates/list`.
    #[derive(Debug)]
    pub struct List;
}

/// `resources/list`.
#[derive(Debug)]
pub struct List;

/// A request about one URI, as raw text so that its position in the frame is known.
#[derive(Debug, Deserialize)]
pub struct ResourceParams<'a> {
    /// The resource.
    #[serde(borrow)]
    pub uri: &'a RawValue,
    /// Relayed verbatim.
    #[serde(default, rename = "_meta")]
    pub meta: Option<AnyMember>,
    /// Listed so that look-alikes are rejected; relayed verbatim, like all following members.
    #[serde(default, rename = "inputResponses")]
    pub input_responses: Option<AnyMember>,
    /// The server's state to return.
    #[serde(default, rename = "requestState")]
    pub request_state: Option<AnyMember>,
}

/// `resources/read`.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Read<'a>(#[serde(borrow)] pub ResourceParams<'a>);

/// `resources/subscribe`.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Subscribe<'a>(#[serde(borrow)] pub ResourceParams<'a>);

/// `resources/unsubscribe`.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Unsubscribe<'a>(#[serde(borrow)] pub ResourceParams<'a>);

/// `notifications/resources/list_changed`.
#[derive(Debug)]
pub struct ListChanged;

/// `notifications/resources/updated`.
#[derive(Debug, Deserialize)]
pub struct Updated<'a> {
    /// The resource.
    #[serde(borrow)]
    pub uri: Cow<'a, str>,
}
