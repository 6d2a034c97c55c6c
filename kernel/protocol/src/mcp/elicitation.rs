//! `elicitation/*`.

use std::borrow::Cow;

use serde::Deserialize;

super::methods! {
    "elicitation/create" => Create<'_>,
    "notifications/elicitation/complete" => Complete<'_>,
}

/// `elicitation/create`: a server's request to the person at the client.
#[derive(Debug, Deserialize)]
pub struct Create<'a> {
    /// `form` (also when absent) or `url`.
    #[serde(borrow, default)]
    pub mode: Option<Cow<'a, str>>,
}

/// `notifications/elicitation/complete`: the interaction at the URL is finished.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Complete<'a> {
    /// The elicitation.
    #[serde(borrow)]
    pub elicitation_id: Cow<'a, str>,
}
