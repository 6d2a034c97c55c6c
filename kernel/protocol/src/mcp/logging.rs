//! `logging/*`.

use std::borrow::Cow;

use serde::Deserialize;

super::methods! { "logging/setLevel" => SetLevel<'_> }

/// `logging/setLevel`.
#[derive(Debug, Deserialize)]
pub struct SetLevel<'a> {
    /// The lowest level.
    #[serde(borrow)]
    pub level: Cow<'a, str>,
}
