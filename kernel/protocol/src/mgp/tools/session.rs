//! `mgp/tools/session/*`: management of the tools in a session (MGP §16.7).

use serde::{Deserialize, Serialize};

use crate::mcp::methods;
use crate::mgp::request;

methods! {
    "mgp/tools/session/evict" => Evict,
}

request! {
    /// `mgp/tools/session/evict`: evicts cached tools; answers [`Evicted`]. They can still be found and
    /// called.
    Evict {
        /// The tools, by any of their names.
        tools: Vec<String>,
        /// The reason, for the audit.
        #[serde(default)]
        reason: Option<String>,
    }
}

/// The answer to `mgp/tools/session/evict`: each requested tool is in one of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    /// The evicted tools.
    pub evicted: Vec<String>,
    /// The pinned tools, which stay.
    pub pinned: Vec<String>,
    /// The tools that were not cached.
    pub not_cached: Vec<String>,
    /// The remaining cost of the session's tools.
    pub total_tokens: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::parse_params;

    /// MGP-261: the example of §16.7.
    #[test]
    fn eviction_is_parsed_as_in_the_document() {
        let text = r#"{"tools":["analyze_csv"],"reason":"no_longer_needed"}"#;
        let evict: Evict = parse_params(Some(text)).unwrap();
        assert_eq!(evict.tools, ["analyze_csv"]);
        assert_eq!(evict.reason.as_deref(), Some("no_longer_needed"));
        assert!(parse_params::<Evict>(Some("{}")).is_err());
    }
}
