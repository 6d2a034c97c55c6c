//! How long the parts of a call took, for its record and for the node it came from: a few additions for each call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mgp_callers::exchange::Exchange;
use mgp_callers::exchange::times_abroad::NodeTimes;
use mgp_engine::clock::{MonotonicTime, micros};
use mgp_protocol::federation::call::times::PartTimes;
use mgp_runtime::time::moment;
use serde_json::{Map, Value};

/// Calls that took less have no parts in their record: nobody looks for where half a millisecond went.
const SHORTEST: Duration = Duration::from_millis(1);

/// By what part of a time the clocks of two machines may differ in how fast they run: what a node says is not longer
/// than what was measured here, but for that.
const DRIFT: u64 = 1_000;

/// A part of a call that is measured while it is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallPart {
    /// The checks, with the wait for a person's yes.
    Checks,
    /// Where it went: the wait for a turn there, each try, and the waits between them.
    Server,
    /// What is checked and cut behind it.
    Answer,
}

/// The time of each part so far, in microseconds. A call that is made anew elsewhere adds to it.
#[derive(Debug, Default)]
pub(crate) struct CallTimes([AtomicU64; 3]);

/// The parts of a call as its record tells them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ToldTimes {
    here: PartTimes,
    /// What the nodes say that it went to.
    nodes: Vec<NodeTimes>,
}

impl CallTimes {
    /// This part has taken the time since `from`. Answers now.
    pub(crate) fn took(&self, part: CallPart, from: MonotonicTime) -> MonotonicTime {
        let now = moment();
        self.0[part as usize].fetch_add(micros(now.since(from)), Ordering::Relaxed);
        now
    }

    /// Each part. The call was handled for `lasted` after `door`, and had to wait for its turn for `queue` of that.
    pub(crate) fn measured(&self, lasted: Duration, door: Duration, queue: Duration) -> PartTimes {
        let of = |part: CallPart| self.0[part as usize].load(Ordering::Relaxed);
        let queue = micros(queue);
        PartTimes {
            whole: micros(door.saturating_add(lasted)),
            door: micros(door),
            checks: of(CallPart::Checks),
            queue,
            server: of(CallPart::Server).saturating_sub(queue),
            answer: of(CallPart::Answer),
        }
    }

    /// For the record of a call that began to be handled then; `None` where it took too little.
    pub(crate) fn told(
        &self,
        began: MonotonicTime,
        lasted: Duration,
        exchange: &Exchange,
    ) -> Option<ToldTimes> {
        if lasted < SHORTEST {
            return None;
        }
        let door = began.since(exchange.began());
        let here = self.measured(lasted, door, exchange.has_waited());
        let mut nodes = exchange.times_abroad().heard();
        keep_fitting(&mut nodes, here.server);
        Some(ToldTimes { here, nodes })
    }
}

/// Leaves out what nodes say that does not fit into the time their part took here: it is theirs to say and nobody's to
/// believe.
fn keep_fitting(nodes: &mut Vec<NodeTimes>, within: u64) {
    let mut room = within.saturating_add(within / DRIFT);
    nodes.retain(|node| {
        let fits = node.times.whole <= room;
        room -= if fits { node.times.whole } else { 0 };
        fits
    });
}

impl ToldTimes {
    /// Adds them to what a record says.
    pub(crate) fn tell(&self, details: &mut Map<String, Value>) {
        details.insert("parts_us".into(), Value::Object(parts(&self.here)));
        if self.nodes.is_empty() {
            return;
        }
        let nodes = self.nodes.iter().map(|NodeTimes { node, times }| {
            let mut told = parts(times);
            told.insert("node".into(), Value::from(&**node));
            told.insert("whole".into(), times.whole.into());
            Value::Object(told)
        });
        details.insert("node_parts_us".into(), nodes.collect());
    }
}

/// Those that took any time.
fn parts(times: &PartTimes) -> Map<String, Value> {
    let parts = times.parts().into_iter().filter(|(_, us)| *us > 0);
    parts
        .map(|(part, us)| (part.to_owned(), us.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use mgp_callers::exchange::ReplyPath;
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
        let measured = times.measured(us(5_100), us(7), us(1_000));
        let parts = ["door", "checks", "queue", "server", "answer"];
        assert_eq!(measured.parts().map(|(part, _)| part), parts);
        assert_eq!(measured.parts().map(|(_, us)| us), [7, 42, 1_000, 4_000, 0]);
        assert_eq!(measured.whole, 5_107);
        let exchange = Exchange::new(ReplyPath::Nowhere);
        let began = moment();
        assert_eq!(times.told(began, us(999), &exchange), None);
        assert!(times.took(CallPart::Answer, began) >= began);
    }

    /// Decision 0069: what a node says of its part is in the record where it fits into what was measured here, and is not
    /// where it does not.
    #[test]
    fn no_node_says_more_of_a_call_than_was_measured() {
        let (times, us) = (CallTimes::default(), Duration::from_micros);
        times.0[CallPart::Server as usize].store(5_000, Ordering::Relaxed);
        let told = |said: &[(&str, u64)]| {
            let exchange = Exchange::new(ReplyPath::Nowhere);
            for (node, whole) in said {
                let (whole, server) = (*whole, whole / 2);
                let times = PartTimes {
                    whole,
                    server,
                    ..PartTimes::default()
                };
                exchange.times_abroad().hear(node, &times);
            }
            let mut details = Map::new();
            let told = times.told(exchange.began(), us(5_100), &exchange);
            told.unwrap().tell(&mut details);
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
