//! The table of servers: what is in a row, in which order, and which rows are shown.

use std::cmp::Ordering;

use mgp_protocol::mgp::servers::Server;

use super::history::{TopHistory, TopRates};
use super::look::TopLook;
use crate::cli::commands::servers::state;
use crate::cli::words::{one_line, time};

/// Most characters of a reason.
const WHY: usize = 300;
/// Most characters of a name.
const NAME: usize = 128;

/// One server. Its texts are safe for a terminal.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopRow {
    /// Its id as the kernel knows it.
    pub(super) id: String,
    pub(super) name: String,
    /// Its state as MGP names it.
    pub(super) word: String,
    /// The same, and how it is unless that is well.
    pub(super) state: String,
    pub(super) condition: TopCondition,
    /// Why it is where it is; of one that is not well also when it is tried again, and how often it was.
    pub(super) why: String,
    pub(super) restarts: u32,
    /// When the kernel tries again, in milliseconds from the look on.
    pub(super) next_try_ms: Option<u64>,
    /// Calls that ended since the kernel's start.
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) rates: TopRates,
    /// Memory of its processes, in bytes.
    pub(super) memory: Option<u64>,
    pub(super) in_flight: u64,
}

/// How a server is, the worst first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TopCondition {
    /// It failed.
    #[default]
    Failed,
    /// It is on its way, or not well.
    Unsettled,
    /// It does not run, and nobody wants it to.
    Stopped,
    /// It is connected.
    Well,
}

/// By what the rows are ordered; names decide among those that are alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TopOrder {
    /// Those in trouble first, then those that are called most.
    #[default]
    State,
    Calls,
    Errors,
    Latency,
    Memory,
    Processor,
    Restarts,
    Name,
}

impl TopOrder {
    /// All of them, as `s` goes through them.
    pub(super) const ALL: [Self; 8] = [
        Self::State,
        Self::Calls,
        Self::Errors,
        Self::Latency,
        Self::Memory,
        Self::Processor,
        Self::Restarts,
        Self::Name,
    ];

    /// What it is called on the screen.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Calls => "calls",
            Self::Errors => "errors",
            Self::Latency => "latency",
            Self::Memory => "memory",
            Self::Processor => "processor",
            Self::Restarts => "restarts",
            Self::Name => "name",
        }
    }

    /// Its own key.
    pub(super) const fn key(self) -> char {
        match self {
            Self::State => 'S',
            Self::Calls => 'C',
            Self::Errors => 'E',
            Self::Latency => 'L',
            Self::Memory => 'M',
            Self::Processor => 'P',
            Self::Restarts => 'R',
            Self::Name => 'N',
        }
    }

    pub(super) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|order| *order == self);
        let next = at.map_or(0, |at| (at + 1) % Self::ALL.len());
        Self::ALL[next]
    }

    /// The most first, but names by the alphabet.
    fn compare(self, one: &TopRow, other: &TopRow) -> Ordering {
        let most = |of: fn(&TopRates) -> Option<f64>| {
            let number = |row: &TopRow| of(&row.rates).unwrap_or(-1.0);
            number(other).total_cmp(&number(one))
        };
        let calls = || most(|rates| rates.calls).then_with(|| other.calls.cmp(&one.calls));
        let first = match self {
            Self::State => one.condition.cmp(&other.condition).then_with(calls),
            Self::Calls => calls(),
            Self::Errors => most(|rates| rates.errors).then_with(|| other.errors.cmp(&one.errors)),
            Self::Latency => other.rates.p99_us.cmp(&one.rates.p99_us),
            Self::Memory => other.memory.cmp(&one.memory),
            Self::Processor => most(|rates| rates.cpu),
            Self::Restarts => other.restarts.cmp(&one.restarts),
            Self::Name => Ordering::Equal,
        };
        first.then_with(|| one.id.cmp(&other.id))
    }
}

impl TopRow {
    fn of(server: &Server, look: &TopLook, history: &TopHistory) -> Self {
        let calls = look.figures.calls.get(&server.id).copied();
        let calls = calls.unwrap_or_default();
        Self {
            id: server.id.clone(),
            name: one_line(&server.id, NAME),
            word: server.state.clone(),
            state: one_line(&state::standing(server), NAME),
            condition: TopCondition::of(server),
            why: why(server),
            restarts: server.restarts,
            next_try_ms: server.next_try_ms,
            calls: calls.ended,
            errors: calls.errors,
            rates: history.of(&server.id),
            memory: server.uses.map(|uses| uses.memory_bytes),
            in_flight: server.in_flight,
        }
    }

    /// Whether it has this text, in small letters, in its name, its state or its reason.
    fn has(&self, text: &str) -> bool {
        let texts = [&self.name, &self.state, &self.why];
        texts.iter().any(|it| it.to_lowercase().contains(text))
    }
}

impl TopCondition {
    fn of(server: &Server) -> Self {
        match server.state.as_str() {
            "connected" => match server.health.as_deref() {
                None | Some("healthy") => Self::Well,
                Some(_) => Self::Unsettled,
            },
            "error" => Self::Failed,
            "disconnected" | "registered" => Self::Stopped,
            _ => Self::Unsettled,
        }
    }
}

/// What stands beside its state, in one line.
fn why(server: &Server) -> String {
    let said = state::why(server, WHY);
    if TopCondition::of(server) == TopCondition::Well {
        return said.unwrap_or_default();
    }
    let restarts = match server.restarts {
        0 => None,
        1 => Some("1 restart".to_owned()),
        many => Some(format!("{many} restarts")),
    };
    let next = server.next_try_ms;
    let next = next.map(|ms| format!("next try in {}", time(ms)));
    let parts = [said, next, restarts];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// The rows of those servers that have this text, in this order.
pub(super) fn rows(
    look: &TopLook,
    history: &TopHistory,
    filter: &str,
    (order, reversed): (TopOrder, bool),
) -> Vec<TopRow> {
    let servers = look.status.servers.iter();
    let rows = servers.map(|server| TopRow::of(server, look, history));
    let filter = filter.to_lowercase();
    let mut rows: Vec<TopRow> = rows.filter(|row| row.has(&filter)).collect();
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

    fn row(id: &str, condition: TopCondition, calls: Option<f64>, p99_us: Option<u64>) -> TopRow {
        TopRow {
            id: id.into(),
            condition,
            rates: TopRates {
                calls,
                p99_us,
                ..TopRates::default()
            },
            ..TopRow::default()
        }
    }

    fn ordered(order: TopOrder, rows: &[TopRow]) -> Vec<&str> {
        let mut rows: Vec<&TopRow> = rows.iter().collect();
        rows.sort_by(|one, other| order.compare(one, other));
        rows.iter().map(|row| &*row.id).collect()
    }

    #[test]
    fn trouble_is_first_and_then_what_is_called_most() {
        let rows = [
            row("a", TopCondition::Well, Some(1.0), None),
            row("b", TopCondition::Well, Some(20.0), Some(500)),
            row("c", TopCondition::Stopped, None, None),
            row("d", TopCondition::Failed, None, None),
            row("e", TopCondition::Unsettled, Some(0.0), Some(9000)),
            row("f", TopCondition::Well, Some(1.0), None),
        ];
        assert_eq!(
            ordered(TopOrder::State, &rows),
            ["d", "e", "c", "b", "a", "f"]
        );
        assert_eq!(
            ordered(TopOrder::Calls, &rows),
            ["b", "a", "f", "e", "c", "d"]
        );
        assert_eq!(ordered(TopOrder::Latency, &rows)[..2], ["e", "b"]);
        assert_eq!(
            ordered(TopOrder::Name, &rows),
            ["a", "b", "c", "d", "e", "f"]
        );
        let mut order = TopOrder::default();
        for _ in TopOrder::ALL {
            order = order.next();
        }
        assert_eq!(order, TopOrder::State);
    }

    #[test]
    fn a_filter_finds_names_states_and_reasons_in_any_case() {
        let server = |id: &str, state: &str, reason: Option<&str>| Server {
            id: id.into(),
            state: state.into(),
            reason: reason.map(str::to_owned),
            restarts: 2,
            next_try_ms: reason.map(|_| 12_000),
            ..Server::default()
        };
        let mut look = TopLook::default();
        look.status.servers = vec![
            server("Files", "connected", None),
            server("loops", "error", Some("exited \u{1b}[2Jwith 1\nmore")),
        ];
        let history = TopHistory::default();
        let found = |filter: &str| {
            let found = rows(&look, &history, filter, (TopOrder::Name, false));
            found.into_iter().map(|row| row.id).collect::<Vec<_>>()
        };
        assert_eq!(found("FILE"), ["Files"]);
        assert_eq!(found("exited"), ["loops"]);
        assert_eq!(found("error"), ["loops"]);
        assert_eq!(found("").len(), 2);
        assert!(found("nothing of it").is_empty());
        let reversed = rows(&look, &history, "", (TopOrder::Name, true));
        assert_eq!(
            reversed[0].why,
            "exited with 1 · next try in 12 s · 2 restarts"
        );
    }
}
