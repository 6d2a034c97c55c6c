//! Which records of the log are asked for, and by what each of them can be found.

use std::borrow::Cow;

use mgp_protocol::mgp::audit::{ActorKind, Outcome};
use serde::Deserialize;

use crate::timestamps::parse_rfc3339;

/// Most records in one answer.
pub const RESULTS_MAX: usize = 1_000;
/// As many where nobody says how many.
pub const RESULTS_DEFAULT: usize = 100;
/// Most values of one event.
const VALUES_MAX: usize = 6;

/// What records can be found by, the one with the fewest records to a value first.
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
    /// How it ended: nearly all of them alike.
    Result,
}

impl RecordIndex {
    /// How it is told from the others in a key.
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

/// A value by eight bytes of its hash: enough that names do not meet by chance.
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

/// What is asked, by the hashes of its values: whoever has all of them may be it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashedFilter {
    /// The one with the fewest records first.
    pub(crate) values: Vec<(RecordIndex, ValueHash)>,
    /// The first moment, in milliseconds since 1970.
    pub since_ms: u64,
    /// The first moment that is too late.
    pub until_ms: u64,
}

impl HashedFilter {
    /// Whether a record of this moment may be it.
    #[must_use]
    pub(crate) fn is_in_range(&self, at_ms: u64) -> bool {
        (self.since_ms..self.until_ms).contains(&at_ms)
    }
}

/// What is asked: a record has to be all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFilter {
    /// Who did it, or was given or denied something.
    pub agent: Option<String>,
    /// What it was done to, or who reported it.
    pub server: Option<String>,
    /// The server's own name of a tool.
    pub tool: Option<String>,
    /// The trace.
    pub trace: Option<String>,
    /// How it ended.
    pub result: Option<Outcome>,
    /// The first moment, in milliseconds since 1970.
    pub since_ms: u64,
    /// The first moment that is too late.
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
        let asked = [
            (RecordIndex::Trace, &self.trace),
            (RecordIndex::Tool, &self.tool),
            (RecordIndex::Agent, &self.agent),
            (RecordIndex::Server, &self.server),
        ];
        let asked = asked.into_iter();
        let asked = asked.filter_map(|(index, value)| Some((index, value.as_deref()?)));
        let result = self
            .result
            .map(|result| (RecordIndex::Result, result.as_str()));
        asked.chain(result)
    }

    /// The same by hashes.
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

    /// Whether an event is asked for. One that cannot be read is not.
    #[must_use]
    pub fn matches(&self, event: &str) -> bool {
        let Some(found) = IndexedEvent::parse(event) else {
            return false;
        };
        let has = |asked: (RecordIndex, &str)| {
            let mut of = found.values.iter();
            of.any(|(index, value)| (*index, value.as_ref()) == asked)
        };
        (self.since_ms..self.until_ms).contains(&found.at_ms) && self.values().all(has)
    }
}

/// What an event can be found by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedEvent<'a> {
    /// When it happened, in milliseconds since 1970.
    pub at_ms: u64,
    /// One value each; none twice.
    pub(crate) values: Vec<(RecordIndex, Cow<'a, str>)>,
}

impl<'a> IndexedEvent<'a> {
    /// Reads it off the event's text.
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
        let text = |named: Option<BorrowedText<'a>>| named.map(|named| named.0);
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

/// The members of an event that say who, what, when and how it ended.
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

/// Not copied where it has no escapes: serde borrows a text within an option only behind a type of its own.
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

    /// A record is found by who did it and by whom it is about, and by nothing that its details say.
    #[test]
    fn a_record_has_to_be_all_of_what_is_asked() {
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

    /// What has the fewest records is looked through first, whatever else is asked.
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
        let sought = filter.to_hashed();
        let values = [
            (RecordIndex::Trace, "r"),
            (RecordIndex::Tool, "o"),
            (RecordIndex::Agent, "a"),
            (RecordIndex::Server, "s"),
            (RecordIndex::Result, "DENIED"),
        ];
        assert_eq!(
            sought.values,
            values.map(|(index, value)| (index, ValueHash::from_value(value)))
        );
        assert!(sought.values.is_sorted());
        assert_eq!(RecordFilter::default().to_hashed().values, []);
    }

    /// Whatever index is asked, the record is in it: in each of its values, and in each only once.
    #[test]
    fn a_record_is_in_every_index_it_can_be_asked_by() {
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
