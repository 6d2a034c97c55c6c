//! `server/*`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

super::methods! { "server/discover" => Discover }

/// `server/discover`: what a modern server speaks and offers.
#[derive(Debug)]
pub struct Discover;

/// The result of `server/discover`, as far as it is read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoverResult<'a> {
    /// Versions the server can be asked in.
    pub supported_versions: Vec<String>,
    /// What the server offers.
    #[serde(borrow, default)]
    pub capabilities: Option<&'a RawValue>,
    /// Hints for the model.
    #[serde(borrow, default)]
    pub instructions: Option<Cow<'a, str>>,
    /// Holds who the server says it is.
    #[serde(borrow, default, rename = "_meta")]
    pub(crate) meta: Option<&'a RawValue>,
}

impl<'a> DiscoverResult<'a> {
    /// Who the server says it is.
    #[must_use]
    pub fn server_info(&self) -> Option<&'a RawValue> {
        #[derive(Deserialize)]
        struct InfoMeta<'a> {
            #[serde(borrow, default, rename = "io.modelcontextprotocol/serverInfo")]
            server_info: Option<&'a RawValue>,
        }
        let said: InfoMeta<'a> = serde_json::from_str(self.meta?.get()).ok()?;
        said.server_info
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::meta::SERVER_INFO;

    #[test]
    fn a_discovered_server_says_who_it_is_in_meta() {
        let text = format!(
            r#"{{"supportedVersions":["2026-07-28"],"capabilities":{{}},"_meta":{{"{SERVER_INFO}":{{"name":"s"}}}}}}"#
        );
        let found: DiscoverResult<'_> = serde_json::from_str(&text).unwrap();
        assert_eq!(found.supported_versions, ["2026-07-28"]);
        assert_eq!(found.server_info().unwrap().get(), r#"{"name":"s"}"#);
    }
}
