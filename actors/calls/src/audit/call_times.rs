//! How long the parts of a call took, for its record and for the node it came from: a few additions for each call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mgp_callers::{InFlightCall, NodeTimes};
use mgp_engine::clock::{MonotonicTime, to_micros_rounded_up};
use mgp_protocol::federation::call::timings::CallTimings;
use mgp_runtime::time::monotonic_now;
use serde_json::{Map, Value};

/// Shorter calls have no parts in their record: nobody needs to know where half a millisecond went.
const RECORDED_MIN: Duration = Duration::from_millis(1);

/// The tolerated clock-rate difference of two machines. Beyond it, the time a node reports cannot exceed the time
/// measured here.
const CLOCK_DRIFT_DIVISOR: u64 = 1_000;

/// A part of a call that is measured while it is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallPart {
    /// The checks, with the wait for a person's approval.
    Checks,
    /// The upstream: the wait for a permit there, each attempt, and the waits between them.
    Server,
    /// Checking and truncating the result.
    Answer,
}

/// The time of each part so far, in microseconds. A call that is made anew elsewhere adds to it.
#[derive(Debug, Default)]
pub(crate) struct CallTimes([AtomicU64; 3]);

/// The parts of a call, as its record lists them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CallTimeBreakdown {
    local: CallTimings,
    /// What the nodes say that it went to.
    nodes: Vec<NodeTimes>,
}

impl CallTimes {
    /// This part has taken the time since `from`. Answers now.
    pub(crate) fn record(&self, part: CallPart, from: MonotonicTime) -> MonotonicTime {
        let now = monotonic_now();
        self.0[part as usize].fetch_add(
            to_micros_rounded_up(now.duration_since(from)),
            Ordering::Relaxed,
        );
        now
    }

    /// Each part. The call was handled for `lasted` after `door`, and had to wait for its turn for `queue` of that.
    pub(crate) fn to_timings(
        &self,
        lasted: Duration,
        door: Duration,
        queue: Duration,
    ) -> CallTimings {
        let of = |part: CallPart| self.0[part as usize].load(Ordering::Relaxed);
        let queue = to_micros_rounded_up(queue);
        CallTimings {
            whole: to_micros_rounded_up(door.saturating_add(lasted)),
            door: to_micros_rounded_up(door),
            checks: of(CallPart::Checks),
            queue,
            server: of(CallPart::Server).saturating_sub(queue),
            answer: of(CallPart::Answer),
        }
    }

    /// For the record of a call that began to be handled then; `None` where it took too little.
    pub(crate) fn breakdown(
        &self,
        began: MonotonicTime,
        lasted: Duration,
        exchange: &InFlightCall,
    ) -> Option<CallTimeBreakdown> {
        if lasted < RECORDED_MIN {
            return None;
        }
        let door = began.duration_since(exchange.started_at());
        let here = self.to_timings(lasted, door, exchange.queue_wait());
        let mut nodes = exchange.remote_times().reported();
        drop_implausible(&mut nodes, here.server);
        Some(CallTimeBreakdown { local: here, nodes })
    }
}

/// Leaves out times reported by nodes that exceed what their part took here: they are untrusted.
fn drop_implausible(nodes: &mut Vec<NodeTimes>, within: u64) {
    let mut room = within.saturating_add(within / CLOCK_DRIFT_DIVISOR);
    nodes.retain(|node| {
        let fits = node.times.whole <= room;
        room -= if fits { node.times.whole } else { 0 };
        fits
    });
}

impl CallTimeBreakdown {
    /// Its parts, if no nodes reported theirs.
    pub(crate) fn local_parts(&self) -> Option<[(&'static str, u64); 5]> {
        self.nodes.is_empty().then(|| self.local.parts())
    }

    /// Adds them to a record.
    pub(crate) fn add_to_details(&self, details: &mut Map<String, Value>) {
        details.insert("parts_us".into(), Value::Object(nonzero_parts(&self.local)));
        if self.nodes.is_empty() {
            return;
        }
        let nodes = self.nodes.iter().map(|NodeTimes { node, times }| {
            let mut told = nonzero_parts(times);
            told.insert("node".into(), Value::from(&**node));
            told.insert("whole".into(), times.whole.into());
            Value::Object(told)
        });
        details.insert("node_parts_us".into(), nodes.collect());
    }
}

/// Those that took any time.
fn nonzero_parts(times: &CallTimings) -> Map<String, Value> {
    let parts = times.parts().into_iter().filter(|(_, us)| *us > 0);
    parts
        .map(|(part, us)| (part.to_owned(), us.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use mgp_callers::ReplyPath;
    use serde_json::json;

    use super::*;

    /// Decision 0067: the parts of a call stand in its record, each once, whatever it did twice.
    #[test]
    fn the_parts_of_a_call_are_told_apart() {
        let times = CallTimes::default();
        let add = |part, us| times.0[part as usize].fetch_add(us, Ordering::Relaxed);
        add(CallPart::Checks, 40);
        add(CallPart::Checks, 2);
        add(CallPart::Server, 5_000);
        let us = Duration::from_micros;
        let measured = times.to_timings(us(5_100), us(7), us(1_000));
        let parts = ["door", "checks", "queue", "server", "answer"];
        assert_eq!(measured.parts().map(|(part, _)| part), parts);
        assert_eq!(measured.parts().map(|(_, us)| us), [7, 42, 1_000, 4_000, 0]);
        assert_eq!(measured.whole, 5_107);
        let exchange = InFlightCall::new(ReplyPath::Discard);
        let began = monotonic_now();
        assert_eq!(times.breakdown(began, us(999), &exchange), None);
        assert!(times.record(CallPart::Answer, began) >= began);
    }

    /// Decision 0069: what a node reports of its part is recorded only where it fits into what was measured here.
    #[test]
    fn no_node_says_more_of_a_call_than_was_measured() {
        let (times, us) = (CallTimes::default(), Duration::from_micros);
        times.0[CallPart::Server as usize].store(5_000, Ordering::Relaxed);
        let told = |said: &[(&str, u64)]| {
            let exchange = InFlightCall::new(ReplyPath::Discard);
            for (node, whole) in said {
                let (whole, server) = (*whole, whole / 2);
                let times = CallTimings {
                    whole,
                    server,
                    ..CallTimings::default()
                };
                exchange.remote_times().add_reported(node, &times);
            }
            let mut details = Map::new();
            let told = times.breakdown(exchange.started_at(), us(5_100), &exchange);
            told.unwrap().add_to_details(&mut details);
            assert_eq!(details["parts_us"]["server"], 5_000);
            details.remove("node_parts_us").unwrap_or_default()
        };
        let of =
            |node: &str, whole: u64| json!({"node": node, "whole": whole, "server": whole / 2});
        assert_eq!(told(&[]), Value::Null);
        assert_eq!(told(&[("nas", 4_000)]), json!([of("nas", 4_000)]));
        // No two clocks run at the same pace.
        assert_eq!(told(&[("nas", 5_005)]), json!([of("nas", 5_005)]));
        for lie in [5_006, u64::MAX] {
            assert_eq!(told(&[("nas", lie)]), Value::Null);
        }
        // Nor do several together, and one that lies takes nothing from another.
        let several = [("a", 3_000), ("b", 3_000), ("c", 2_000)];
        assert_eq!(told(&several), json!([of("a", 3_000), of("c", 2_000)]));
    }
}
