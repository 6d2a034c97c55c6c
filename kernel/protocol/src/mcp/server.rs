//! `server/*`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

super::methods! { "server/discover" => Discover }

/// `server/discover`: the versions and capabilities of a stateless server.
#[derive(Debug)]
pub struct Discover;

/// The members of the result of `server/discover` that are read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoverResult<'a> {
    /// The supported versions.
    pub supported_versions: Vec<String>,
    /// The capabilities of the server.
    #[serde(borrow, default)]
    pub capabilities: Option<&'a RawValue>,
    /// Hints for the model.
    #[serde(borrow, default)]
    pub instructions: Option<Cow<'a, str>>,
    /// Contains the server's self-description.
    #[serde(borrow, default, rename = "_meta")]
    pub(crate) meta: Option<&'a RawValue>,
}

impl<'a> DiscoverResult<'a> {
    /// The server's self-description.
    #[must_use]
    pub fn server_info(&self) -> Option<&'a RawValue> {
        #[derive(Deserialize)]
        struct InfoMeta<'a> {
            #[serde(borrow, default, rename = "io.modelcontextprotocol/serverInfo")]
            server_info: Option<&'a RawValue>,
        }
        let parsed: InfoMeta<'a> = serde_json::from_str(self.meta?.get()).ok()?;
        parsed.server_info
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::meta::SERVER_INFO;

    #[test]
    fn discovered_server_info_is_read_from_meta() {
        let text = format!(
            r#"{{"supportedVersions":["2026-07-28"],"capabilities":{{}},"_meta":{{"{SERVER_INFO}":{{"name":"s"}}}}}}"#
        );
        let found: DiscoverResult<'_> = serde_json::from_str(&text).unwrap();
        assert_eq!(found.supported_versions, ["2026-07-28"]);
        assert_eq!(found.server_info().unwrap().get(), r#"{"name":"s"}"#);
    }
}
