//! `mgp/kernel/console/*`: who is signed in to the console. For the operator.

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

/// `mgp/kernel/console/end`: signs every browser out, and ends the links that nobody has used. Answers
/// [`EndResult`].
#[derive(Debug)]
pub struct End;

/// Answer of `mgp/kernel/console/link`: whoever opens it first is the operator. The only time it is shown.
#[derive(Clone, Serialize, Deserialize)]
pub struct ConsoleLink {
    /// The address; what makes it good is behind its `#`, which no browser sends to anybody.
    pub url: String,
    /// It is good once, and for so many seconds.
    pub lasts_secs: u64,
}

impl fmt::Debug for ConsoleLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleLink")
            .field("lasts_secs", &self.lasts_secs)
            .finish_non_exhaustive()
    }
}

/// Answer of `mgp/kernel/console/end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndResult {
    /// So many browsers were signed in.
    pub browsers: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0067: a link stands in no log, whatever is printed there.
    #[test]
    fn a_link_is_not_shown_by_debug() {
        let link = ConsoleLink {
            url: "http://127.0.0.1:7332/#secret".into(),
            lasts_secs: 60,
        };
        let shown = format!("{link:?}");
        assert!(!shown.contains("secret") && shown.contains("60"), "{shown}");
    }
}
