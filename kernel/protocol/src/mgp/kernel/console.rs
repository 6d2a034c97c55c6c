//! `mgp/kernel/console/*`: sign-in to the console. For the operator.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! {
    "mgp/kernel/console/link" => Link,
    "mgp/kernel/console/end" => End,
}

/// `mgp/kernel/console/link`; answers [`ConsoleLink`].
#[derive(Debug)]
pub struct Link;

/// `mgp/kernel/console/end`: signs every browser out, and invalidates unused links. Answers [`EndResult`].
#[derive(Debug)]
pub struct End;

/// The answer to `mgp/kernel/console/link`: the first browser that opens it is the operator's. It is shown
/// only once.
#[derive(Clone, Serialize, Deserialize)]
pub struct ConsoleLink {
    /// The URL; the secret is in the fragment, which browsers do not send.
    pub url: String,
    /// The lifetime in seconds; valid once.
    pub lasts_secs: u64,
}

impl fmt::Debug for ConsoleLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleLink")
            .field("lasts_secs", &self.lasts_secs)
            .finish_non_exhaustive()
    }
}

/// The answer to `mgp/kernel/console/end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndResult {
    /// The number of browsers that were signed in.
    pub browsers: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0067: a link is not in any log, whatever is logged.
    #[test]
    fn debug_output_hides_the_link() {
        let link = ConsoleLink {
            url: "http://127.0.0.1:7332/#secret".into(),
            lasts_secs: 60,
        };
        let shown = format!("{link:?}");
        assert!(!shown.contains("secret") && shown.contains("60"), "{shown}");
    }
}
