//! The rows of the server table: contents, order and filter.

use std::cmp::Ordering;

use mgp_protocol::mgp::servers::Server;

use super::history::{History, Rates};
use super::sample::Sample;
use crate::cli::commands::servers::state;
use crate::cli::text_format::{first_line, format_duration};

/// Most characters of a reason.
const REASON_WIDTH_MAX: usize = 300;
/// Most characters of a name.
const NAME_WIDTH_MAX: usize = 128;

/// A server. Its texts are safe for a terminal.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    /// Its id as the kernel knows it.
    pub(super) id: String,
    pub(super) name: String,
    /// Its MGP state.
    pub(super) state_name: String,
    /// The state, and its health unless good.
    pub(super) state_label: String,
    pub(super) condition: ServerCondition,
    /// The reason of the state; for a failing server also the next retry and the number of restarts.
    pub(super) reason: String,
    pub(super) restarts: u32,
    /// Time until the next retry, in milliseconds from the sample.
    pub(super) next_try_ms: Option<u64>,
    /// Finished calls since the kernel's start.
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) rates: Rates,
    /// Memory of its processes, in bytes.
    pub(super) memory: Option<u64>,
    pub(super) in_flight: u64,
}

/// The condition of a server, the worst first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ServerCondition {
    #[default]
    Failed,
    /// Starting, or unhealthy.
    Degraded,
    /// Stopped on purpose.
    Stopped,
    Connected,
}

/// The sort order; names break ties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SortOrder {
    /// Failing servers first, then the most called ones.
    #[default]
    State,
    Calls,
    Errors,
    Latency,
    Memory,
    Cpu,
    Restarts,
    Name,
}

impl SortOrder {
    /// All orders, as `s` cycles through them.
    pub(super) const ALL: [Self; 8] = [
        Self::State,
        Self::Calls,
        Self::Errors,
        Self::Latency,
        Self::Memory,
        Self::Cpu,
        Self::Restarts,
        Self::Name,
    ];

    /// The label on the screen.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Calls => "calls",
            Self::Errors => "errors",
            Self::Latency => "latency",
            Self::Memory => "memory",
            Self::Cpu => "processor",
            Self::Restarts => "restarts",
            Self::Name => "name",
        }
    }

    pub(super) const fn key(self) -> char {
        match self {
            Self::State => 'S',
            Self::Calls => 'C',
            Self::Errors => 'E',
            Self::Latency => 'L',
            Self::Memory => 'M',
            Self::Cpu => 'P',
            Self::Restarts => 'R',
            Self::Name => 'N',
        }
    }

    pub(super) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|order| *order == self);
        let next = at.map_or(0, |at| (at + 1) % Self::ALL.len());
        Self::ALL[next]
    }

    /// Descending, but names ascending.
    fn compare(self, one: &Row, other: &Row) -> Ordering {
        let most = |of: fn(&Rates) -> Option<f64>| {
            let number = |row: &Row| of(&row.rates).unwrap_or(-1.0);
            number(other).total_cmp(&number(one))
        };
        let calls = || most(|rates| rates.calls).then_with(|| other.calls.cmp(&one.calls));
        let first = match self {
            Self::State => one.condition.cmp(&other.condition).then_with(calls),
            Self::Calls => calls(),
            Self::Errors => most(|rates| rates.errors).then_with(|| other.errors.cmp(&one.errors)),
            Self::Latency => other.rates.p99_us.cmp(&one.rates.p99_us),
            Self::Memory => other.memory.cmp(&one.memory),
            Self::Cpu => most(|rates| rates.cpu),
            Self::Restarts => other.restarts.cmp(&one.restarts),
            Self::Name => Ordering::Equal,
        };
        first.then_with(|| one.id.cmp(&other.id))
    }
}

impl Row {
    fn new(server: &Server, current: &Sample, history: &History) -> Self {
        let calls = current.metrics.calls.get(&server.id).copied();
        let calls = calls.unwrap_or_default();
        Self {
            id: server.id.clone(),
            name: first_line(&server.id, NAME_WIDTH_MAX),
            state_name: server.state.clone(),
            state_label: first_line(&state::state_label(server), NAME_WIDTH_MAX),
            condition: ServerCondition::from_server(server),
            reason: reason_line(server),
            restarts: server.restarts,
            next_try_ms: server.next_try_ms,
            calls: calls.finished,
            errors: calls.errors,
            rates: history.server_rates(&server.id),
            memory: server.uses.map(|uses| uses.memory_bytes),
            in_flight: server.in_flight,
        }
    }

    /// Whether its name, state or reason contains this lower-case text.
    fn matches(&self, text: &str) -> bool {
        let texts = [&self.name, &self.state_label, &self.reason];
        texts.iter().any(|it| it.to_lowercase().contains(text))
    }
}

impl ServerCondition {
    fn from_server(server: &Server) -> Self {
        match server.state.as_str() {
            "connected" => match server.health.as_deref() {
                None | Some("healthy") => Self::Connected,
                Some(_) => Self::Degraded,
            },
            "error" => Self::Failed,
            "disconnected" | "registered" => Self::Stopped,
            _ => Self::Degraded,
        }
    }
}

/// The text next to its state, in one line.
fn reason_line(server: &Server) -> String {
    let said = state::render_reason(server, REASON_WIDTH_MAX);
    if ServerCondition::from_server(server) == ServerCondition::Connected {
        return said.unwrap_or_default();
    }
    let restarts = match server.restarts {
        0 => None,
        1 => Some("1 restart".to_owned()),
        many => Some(format!("{many} restarts")),
    };
    let next = server.next_try_ms;
    let next = next.map(|ms| format!("next try in {}", format_duration(ms)));
    let parts = [said, next, restarts];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// The rows that match the filter, sorted.
pub(super) fn build_rows(
    current: &Sample,
    history: &History,
    filter: &str,
    (order, reversed): (SortOrder, bool),
) -> Vec<Row> {
    let servers = current.status.servers.iter();
    let rows = servers.map(|server| Row::new(server, current, history));
    let filter = filter.to_lowercase();
    let mut rows: Vec<Row> = rows.filter(|row| row.matches(&filter)).collect();
    rows.sort_by(|one, other| {
        let compared = order.compare(one, other);
        if reversed {
            compared.reverse()
        } else {
            compared
        }
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, condition: ServerCondition, calls: Option<f64>, p99_us: Option<u64>) -> Row {
        Row {
            id: id.into(),
            condition,
            rates: Rates {
                calls,
                p99_us,
                ..Rates::default()
            },
            ..Row::default()
        }
    }

    fn ordered(order: SortOrder, rows: &[Row]) -> Vec<&str> {
        let mut rows: Vec<&Row> = rows.iter().collect();
        rows.sort_by(|one, other| order.compare(one, other));
        rows.iter().map(|row| &*row.id).collect()
    }

    #[test]
    fn failing_servers_are_first_then_the_most_called() {
        let rows = [
            row("a", ServerCondition::Connected, Some(1.0), None),
            row("b", ServerCondition::Connected, Some(20.0), Some(500)),
            row("c", ServerCondition::Stopped, None, None),
            row("d", ServerCondition::Failed, None, None),
            row("e", ServerCondition::Degraded, Some(0.0), Some(9000)),
            row("f", ServerCondition::Connected, Some(1.0), None),
        ];
        assert_eq!(
            ordered(SortOrder::State, &rows),
            ["d", "e", "c", "b", "a", "f"]
        );
        assert_eq!(
            ordered(SortOrder::Calls, &rows),
            ["b", "a", "f", "e", "c", "d"]
        );
        assert_eq!(ordered(SortOrder::Latency, &rows)[..2], ["e", "b"]);
        assert_eq!(
            ordered(SortOrder::Name, &rows),
            ["a", "b", "c", "d", "e", "f"]
        );
        let mut order = SortOrder::default();
        for _ in SortOrder::ALL {
            order = order.next();
        }
        assert_eq!(order, SortOrder::State);
    }

    #[test]
    fn a_filter_ignores_case_in_names_states_and_reasons() {
        let server = |id: &str, state: &str, reason: Option<&str>| Server {
            id: id.into(),
            state: state.into(),
            reason: reason.map(str::to_owned),
            restarts: 2,
            next_try_ms: reason.map(|_| 12_000),
            ..Server::default()
        };
        let mut current = Sample::default();
        current.status.servers = vec![
            server("Files", "connected", None),
            server("loops", "error", Some("exited \u{1b}[2Jwith 1\nmore")),
        ];
        let history = History::default();
        let found = |filter: &str| {
            let found = build_rows(&current, &history, filter, (SortOrder::Name, false));
            found.into_iter().map(|row| row.id).collect::<Vec<_>>()
        };
        assert_eq!(found("FILE"), ["Files"]);
        assert_eq!(found("exited"), ["loops"]);
        assert_eq!(found("error"), ["loops"]);
        assert_eq!(found("").len(), 2);
        assert!(found("nothing of it").is_empty());
        let reversed = build_rows(&current, &history, "", (SortOrder::Name, true));
        assert_eq!(
            reversed[0].reason,
            "exited with 1 · next try in 12 s · 2 restarts"
        );
    }
}
