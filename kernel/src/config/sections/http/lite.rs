//! `[lite]`: MCP-lite over HTTP and gRPC.

use std::time::Duration;

use crate::config::parsing::Section;

const DAY: u64 = 86_400;

/// `[lite]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiteConfig {
    /// Whether MCP-lite is enabled.
    pub(crate) enabled: bool,
    /// A call that takes longer is answered with a promise; zero for never, unless its caller sets a time.
    pub(crate) promise_after: Duration,
    /// How long a promise can be redeemed.
    pub(crate) promise_ttl: Duration,
    /// The heartbeat interval of streams.
    pub(crate) heartbeat: Duration,
}

impl Default for LiteConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            // Many programs and proxies give up after 30 s.
            promise_after: Duration::from_secs(25),
            promise_ttl: Duration::from_secs(3600),
            heartbeat: Duration::from_secs(15),
        }
    }
}

impl LiteConfig {
    pub(crate) fn read(&mut self, mut section: Section<'_, '_, '_>) {
        section.flag("enabled", &mut self.enabled);
        section.millis("promise_after_ms", 0..=DAY * 1000, &mut self.promise_after);
        section.secs("promise_ttl_secs", 1..=7 * DAY, &mut self.promise_ttl);
        section.millis("heartbeat_ms", 100..=600_000, &mut self.heartbeat);
        section.finish();
    }
}
