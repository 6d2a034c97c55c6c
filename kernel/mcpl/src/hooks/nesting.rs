//! Bounds inferences that follow from hooks: none within a hook, and no endless loop (MCPL §10.7).
//!
//! An inference of an agent has depth 0. One that a server requests within [`FOLLOW_WINDOW`] of a hook is one deeper
//! than that hook's inference, and at least 1. From [`QUIET_DEPTH`] on only servers are notified that cannot request
//! inferences, or that must answer; beyond [`DEPTH_MAX`] requests are rejected.

use std::collections::HashMap;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_protocol::ids::ServerId;

/// An inference counts as a consequence of a hook for this long.
pub(crate) const FOLLOW_WINDOW: Duration = Duration::from_secs(30);
/// From this depth on servers that may request inferences are not notified.
pub(crate) const QUIET_DEPTH: u8 = 2;
/// Deepest inference that runs.
pub(crate) const DEPTH_MAX: u8 = 4;

/// Why a server's inference is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NestedInference {
    /// A hook of the server is in flight.
    #[error(
        "a context hook of this server is waiting for its answer: hooks must not ask for an inference (MCPL 10.7); ask after it was answered"
    )]
    WithinHook,
    /// The chain of hooks and inferences is too deep.
    #[error(
        "this inference follows from context hooks of others that servers asked for, {DEPTH_MAX} deep: ask again in 30 s"
    )]
    TooDeep,
}

/// Hooks seen by each server.
#[derive(Debug, Default)]
pub struct HookDepths {
    servers: HashMap<ServerId, ServerDepth>,
}

#[derive(Debug, Default)]
struct ServerDepth {
    pending: u32,
    /// The deepest inference it was notified of, and when.
    deepest: Option<(u8, MonotonicTime)>,
}

impl HookDepths {
    /// Records a hook whose answer the kernel waits for.
    pub fn begin(&mut self, server: &ServerId, depth: u8, now: MonotonicTime) {
        self.record_notice(server, depth, now);
        if let Some(of) = self.servers.get_mut(server) {
            of.pending += 1;
        }
    }

    /// Records an answer, or that the kernel stopped waiting.
    pub fn end(&mut self, server: &ServerId) {
        if let Some(of) = self.servers.get_mut(server) {
            of.pending = of.pending.saturating_sub(1);
        }
    }

    /// Records that a server saw an inference of this depth.
    pub fn record_notice(&mut self, server: &ServerId, depth: u8, now: MonotonicTime) {
        self.servers
            .retain(|_, of| of.pending > 0 || of.depth(now).is_some());
        let of = self.servers.entry(server.clone()).or_default();
        let deepest = of.depth(now).map_or(depth, |before| before.max(depth));
        of.deepest = Some((deepest, now));
    }

    /// True while the kernel waits for this server's answer to a hook.
    #[must_use]
    pub fn is_pending(&self, server: &ServerId) -> bool {
        self.servers.get(server).is_some_and(|of| of.pending > 0)
    }

    /// The depth of an inference that a server requests now.
    ///
    /// # Errors
    /// [`NestedInference`].
    pub fn inference_depth(
        &self,
        server: &ServerId,
        now: MonotonicTime,
    ) -> Result<u8, NestedInference> {
        if self.is_pending(server) {
            return Err(NestedInference::WithinHook);
        }
        let deepest = self.servers.get(server).and_then(|of| of.depth(now));
        match deepest.unwrap_or(0) + 1 {
            depth if depth > DEPTH_MAX => Err(NestedInference::TooDeep),
            depth => Ok(depth),
        }
    }
}

impl ServerDepth {
    fn depth(&self, now: MonotonicTime) -> Option<u8> {
        let (depth, time) = self.deepest?;
        (now.duration_since(time) < FOLLOW_WINDOW).then_some(depth)
    }
}

/// Whether to notify a server of an inference of this depth: it may request inferences itself (`asks`), or its
/// answer is needed (`is_waited_for`).
#[must_use]
pub const fn should_notify(depth: u8, asks: bool, is_waited_for: bool) -> bool {
    depth < QUIET_DEPTH || !asks || is_waited_for
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> MonotonicTime {
        MonotonicTime::new(Duration::from_secs(seconds))
    }

    /// MCPL-099: none within a hook; allowed after its answer.
    #[test]
    fn no_inference_within_a_hook() {
        let (mut depths, memory) = (HookDepths::default(), ServerId::new("memory"));
        assert_eq!(depths.inference_depth(&memory, at(0)), Ok(1));
        depths.begin(&memory, 0, at(0));
        depths.begin(&memory, 0, at(0));
        depths.end(&memory);
        assert_eq!(
            depths.inference_depth(&memory, at(1)),
            Err(NestedInference::WithinHook)
        );
        assert_eq!(
            depths.inference_depth(&ServerId::new("other"), at(1)),
            Ok(1)
        );
        depths.end(&memory);
        assert_eq!(depths.inference_depth(&memory, at(1)), Ok(1));
    }

    /// Two servers that answer each other's inferences with their own stop after a bounded number.
    #[test]
    fn a_round_of_two_servers_ends() {
        let (mut depths, now) = (HookDepths::default(), at(0));
        let servers = [ServerId::new("a"), ServerId::new("b")];
        let mut count = 0;
        for n in 0..1_000 {
            let Ok(depth) = depths.inference_depth(&servers[n % 2], now) else {
                break;
            };
            count += 1;
            if !should_notify(depth, true, false) {
                break;
            }
            depths.record_notice(&servers[(n + 1) % 2], depth, now);
        }
        assert_eq!(count, 2);
        // If both must answer, the depth limit ends it.
        let (mut depths, mut count) = (HookDepths::default(), 0);
        for n in 0..1_000 {
            let Ok(depth) = depths.inference_depth(&servers[n % 2], now) else {
                break;
            };
            count += 1;
            depths.begin(&servers[(n + 1) % 2], depth, now);
            depths.end(&servers[(n + 1) % 2]);
        }
        assert_eq!(count, usize::from(DEPTH_MAX));
        assert_eq!(depths.inference_depth(&servers[0], at(30)), Ok(1));
    }

    #[test]
    fn servers_that_heard_nothing_for_a_while_are_forgotten() {
        let mut depths = HookDepths::default();
        for n in 0..1_000 {
            depths.record_notice(&ServerId::new(n.to_string()), 0, at(n));
        }
        assert!(depths.servers.len() <= 30);
    }
}
