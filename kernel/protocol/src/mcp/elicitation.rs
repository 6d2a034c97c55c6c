//! `elicitation/*`.

use std::borrow::Cow;

use serde::Deserialize;

super::methods! {
    "elicitation/create" => Create<'_>,
    "notifications/elicitation/complete" => Complete<'_>,
}

/// `elicitation/create`: a server asks the person behind the client.
#[derive(Debug, Deserialize)]
pub struct Create<'a> {
    /// `form` (also when absent) or `url`.
    #[serde(borrow, default)]
    pub mode: Option<Cow<'a, str>>,
}

/// `notifications/elicitation/complete`: what happened at the URL is done.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Complete<'a> {
    /// The elicitation.
    #[serde(borrow)]
    pub elicitation_id: Cow<'a, str>,
}
