//! `[lite]`: MCP-lite over HTTP and gRPC.

use std::time::Duration;

use crate::config::parsing::Section;
use crate::config::sections::{DAY, section};

section! {
    /// `[lite]`.
    LiteConfig {
        /// Whether MCP-lite is enabled.
        enabled: bool = true, flag("enabled");
        /// A call that takes longer is answered with a promise; zero for never, unless its caller sets a time. Many
        /// programs and proxies give up after 30 s.
        promise_after: Duration = Duration::from_secs(25), millis("promise_after_ms", 0..=DAY * 1000);
        /// How long a promise can be redeemed.
        promise_ttl: Duration = Duration::from_secs(3600), secs("promise_ttl_secs", 1..=7 * DAY);
        /// The heartbeat interval of streams.
        heartbeat: Duration = Duration::from_secs(15), millis("heartbeat_ms", 100..=600_000);
    }
}
