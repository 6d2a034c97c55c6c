//! Filters of audit records, and the values that records are indexed by.

use std::borrow::Cow;

use mgp_protocol::mgp::audit::{ActorKind, Outcome};
use serde::Deserialize;

use crate::timestamps::parse_rfc3339;

/// Most records in one response.
pub const RESULTS_MAX: usize = 1_000;
/// The default number of records in one response.
pub const RESULTS_DEFAULT: usize = 100;
/// Most values of one event.
const VALUES_MAX: usize = 6;

/// Indexes, the most selective first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordIndex {
    /// The trace: a handful of records.
    Trace,
    /// The tool.
    Tool,
    /// The agent.
    Agent,
    /// The server.
    Server,
    /// The outcome: few different values.
    Result,
}

impl RecordIndex {
    /// The byte of the index in keys.
    #[must_use]
    pub fn key_byte(self) -> u8 {
        match self {
            Self::Server => b's',
            Self::Agent => b'a',
            Self::Tool => b'o',
            Self::Trace => b'r',
            Self::Result => b'e',
        }
    }
}

/// Eight bytes of a value's hash: enough to avoid collisions by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueHash(pub(super) u64);

impl ValueHash {
    /// The hash of a value.
    #[must_use]
    pub fn from_value(value: &str) -> Self {
        let hash = blake3::hash(value.as_bytes());
        let first = hash.as_bytes().first_chunk().expect("a hash is longer");
        Self(u64::from_be_bytes(*first))
    }
}

/// A filter by hashes of values: records with all of them may match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashedFilter {
    /// The most selective first.
    pub(crate) values: Vec<(RecordIndex, ValueHash)>,
    /// The earliest time, in milliseconds since 1970.
    pub since_ms: u64,
    /// The end of the time range, exclusive.
    pub until_ms: u64,
}

impl HashedFilter {
    /// Whether the time is in range.
    #[must_use]
    pub(crate) fn is_in_range(&self, at_ms: u64) -> bool {
        (self.since_ms..self.until_ms).contains(&at_ms)
    }
}

/// A filter: a record must match all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFilter {
    /// The actor or the affected agent.
    pub agent: Option<String>,
    /// The affected or reporting server.
    pub server: Option<String>,
    /// The server's own name of a tool.
    pub tool: Option<String>,
    /// The trace.
    pub trace: Option<String>,
    /// The outcome.
    pub result: Option<Outcome>,
    /// The earliest time, in milliseconds since 1970.
    pub since_ms: u64,
    /// The end of the time range, exclusive.
    pub until_ms: u64,
}

impl Default for RecordFilter {
    /// Every record.
    fn default() -> Self {
        Self {
            agent: None,
            server: None,
            tool: None,
            trace: None,
            result: None,
            since_ms: 0,
            until_ms: u64::MAX,
        }
    }
}

impl RecordFilter {
    fn values(&self) -> impl Iterator<Item = (RecordIndex, &str)> {
        let values = [
            (RecordIndex::Trace, &self.trace),
            (RecordIndex::Tool, &self.tool),
            (RecordIndex::Agent, &self.agent),
            (RecordIndex::Server, &self.server),
        ];
        let values = values.into_iter();
        let values = values.filter_map(|(index, value)| Some((index, value.as_deref()?)));
        let result = self
            .result
            .map(|result| (RecordIndex::Result, result.as_str()));
        values.chain(result)
    }

    /// The filter by hashes.
    #[must_use]
    pub fn to_hashed(&self) -> HashedFilter {
        let values = self.values();
        HashedFilter {
            values: values
                .map(|(index, value)| (index, ValueHash::from_value(value)))
                .collect(),
            since_ms: self.since_ms,
            until_ms: self.until_ms,
        }
    }

    /// Whether an event matches. One that cannot be parsed does not.
    #[must_use]
    pub fn matches(&self, event: &str) -> bool {
        let Some(indexed) = IndexedEvent::parse(event) else {
            return false;
        };
        let has = |filter: (RecordIndex, &str)| {
            let mut values = indexed.values.iter();
            values.any(|(index, value)| (*index, value.as_ref()) == filter)
        };
        (self.since_ms..self.until_ms).contains(&indexed.at_ms) && self.values().all(has)
    }
}

/// The indexed values of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedEvent<'a> {
    /// When it happened, in milliseconds since 1970.
    pub at_ms: u64,
    /// Without duplicates.
    pub(crate) values: Vec<(RecordIndex, Cow<'a, str>)>,
}

impl<'a> IndexedEvent<'a> {
    /// Parses the event's text.
    #[must_use]
    pub fn parse(event: &'a str) -> Option<Self> {
        let event: EventFields<'a> = serde_json::from_str(event).ok()?;
        let mut values = Vec::with_capacity(VALUES_MAX);
        let mut add = |index, value: Option<Cow<'a, str>>| {
            let value = value.map(|value| (index, value));
            if let Some(value) = value.filter(|value| !values.contains(value)) {
                values.push(value);
            }
        };
        add(RecordIndex::Trace, Some(event.trace_id));
        match event.actor.kind {
            ActorKind::Agent => add(RecordIndex::Agent, Some(event.actor.id)),
            ActorKind::Server => add(RecordIndex::Server, Some(event.actor.id)),
            ActorKind::Operator | ActorKind::Node | ActorKind::Kernel => {}
        }
        let text = |text: Option<BorrowedText<'a>>| text.map(|text| text.0);
        add(RecordIndex::Agent, text(event.target.agent_id));
        add(RecordIndex::Server, text(event.target.server_id));
        add(RecordIndex::Tool, text(event.target.tool_name));
        add(RecordIndex::Result, text(event.result));
        Some(Self {
            at_ms: parse_rfc3339(&event.timestamp).unwrap_or_default(),
            values,
        })
    }
}

/// The indexed members of an event.
#[derive(Deserialize)]
struct EventFields<'a> {
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
    #[serde(borrow)]
    trace_id: Cow<'a, str>,
    #[serde(borrow)]
    actor: ActorFields<'a>,
    #[serde(borrow)]
    target: TargetFields<'a>,
    #[serde(borrow, default)]
    result: Option<BorrowedText<'a>>,
}

#[derive(Deserialize)]
struct ActorFields<'a> {
    #[serde(rename = "type")]
    kind: ActorKind,
    #[serde(borrow)]
    id: Cow<'a, str>,
}

#[derive(Deserialize)]
struct TargetFields<'a> {
    #[serde(borrow)]
    server_id: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    tool_name: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    agent_id: Option<BorrowedText<'a>>,
}

/// Borrows text without escapes: serde does so inside an option only for a type of its own.
#[derive(Deserialize)]
#[serde(transparent)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn granted() -> String {
        json!({
            "timestamp": "1970-01-01T00:00:01.500Z", "trace_id": "t", "event_type": "ACCESS_GRANTED",
            "actor": {"type": "agent", "id": "agent.a"},
            "target": {"server_id": "it", "tool_name": "e\"cho", "agent_id": "agent.b"},
            "result": "SUCCESS", "details": {"agent_id": "agent.c"},
        })
        .to_string()
    }

    /// Records match by actor and target, not by details.
    #[test]
    fn a_record_matches_only_the_whole_filter() {
        let event = granted();
        let judge = |ask: &dyn Fn(&mut RecordFilter)| {
            let mut filter = RecordFilter::default();
            ask(&mut filter);
            filter.matches(&event)
        };
        assert!(judge(&|_| {}));
        for agent in ["agent.a", "agent.b"] {
            assert!(judge(&|f| f.agent = Some(agent.into())), "{agent}");
        }
        assert!(!judge(&|f| f.agent = Some("agent.c".into())));
        assert!(judge(&|f| f.tool = Some("e\"cho".into())));
        assert!(judge(&|f| {
            (f.server, f.trace) = (Some("it".into()), Some("t".into()))
        }));
        assert!(!judge(&|f| {
            (f.server, f.trace) = (Some("it".into()), Some("u".into()))
        }));
        assert!(judge(&|f| f.result = Some(Outcome::Success)));
        assert!(!judge(&|f| f.result = Some(Outcome::Denied)));
        assert!(judge(&|f| (f.since_ms, f.until_ms) = (1_500, 1_501)));
        assert!(!judge(&|f| f.since_ms = 1_501) && !judge(&|f| f.until_ms = 1_500));
        assert!(!RecordFilter::default().matches("{}"));
    }

    #[test]
    fn the_most_selective_value_comes_first() {
        let filter = RecordFilter {
            agent: Some("a".into()),
            server: Some("s".into()),
            tool: Some("o".into()),
            trace: Some("r".into()),
            result: Some(Outcome::Denied),
            ..RecordFilter::default()
        };
        let hashed = filter.to_hashed();
        let values = [
            (RecordIndex::Trace, "r"),
            (RecordIndex::Tool, "o"),
            (RecordIndex::Agent, "a"),
            (RecordIndex::Server, "s"),
            (RecordIndex::Result, "DENIED"),
        ];
        assert_eq!(
            hashed.values,
            values.map(|(index, value)| (index, ValueHash::from_value(value)))
        );
        assert!(hashed.values.is_sorted());
        assert_eq!(RecordFilter::default().to_hashed().values, []);
    }

    #[test]
    fn a_record_is_in_each_index_once() {
        let event = granted();
        let found = IndexedEvent::parse(&event).unwrap();
        assert_eq!(found.at_ms, 1_500);
        let values: Vec<_> = found.values.iter().map(|(i, v)| (*i, v.as_ref())).collect();
        assert_eq!(
            values,
            [
                (RecordIndex::Trace, "t"),
                (RecordIndex::Agent, "agent.a"),
                (RecordIndex::Agent, "agent.b"),
                (RecordIndex::Server, "it"),
                (RecordIndex::Tool, "e\"cho"),
                (RecordIndex::Result, "SUCCESS"),
            ]
        );
    }
}
