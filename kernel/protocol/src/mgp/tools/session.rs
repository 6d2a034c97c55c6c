//! `mgp/tools/session/*`: how an agent manages the tools of its session (MGP §16.7).

use serde::{Deserialize, Serialize};

use crate::mcp::methods;
use crate::mgp::request;

methods! {
    "mgp/tools/session/evict" => Evict,
}

request! {
    /// `mgp/tools/session/evict`: lets go of cached tools; answers [`Evicted`]. They can be found and
    /// called as before.
    Evict {
        /// By any of their names.
        tools: Vec<String>,
        /// Why, for the audit.
        #[serde(default)]
        reason: Option<String>,
    }
}

/// Answer of `mgp/tools/session/evict`: each tool of the request stands in one of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    /// These are gone from the cache.
    pub evicted: Vec<String>,
    /// These are pinned, and stay.
    pub pinned: Vec<String>,
    /// These were not there.
    pub not_cached: Vec<String>,
    /// What the session holds costs that much now.
    pub total_tokens: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::parse_params;

    /// MGP-261: the example of §16.7.
    #[test]
    fn tools_are_let_go_as_the_document_writes_it() {
        let text = r#"{"tools":["analyze_csv"],"reason":"no_longer_needed"}"#;
        let evict: Evict = parse_params(Some(text)).unwrap();
        assert_eq!(evict.tools, ["analyze_csv"]);
        assert_eq!(evict.reason.as_deref(), Some("no_longer_needed"));
        assert!(parse_params::<Evict>(Some("{}")).is_err());
    }
}
