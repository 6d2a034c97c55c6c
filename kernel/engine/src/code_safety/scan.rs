//! One piece of code under judgement: what its names may be, and what was found.

use std::cell::Cell;

use tree_sitter::{Node, Tree};

use super::rejection::{Finding, Findings};
use super::rules::{Broken, Rules};
use super::tree::walk;
use super::value::{Names, Root, Value, Values};

/// Expressions that are worked out, over all rounds; some ten for each node of ordinary code.
const MAX_STEPS: usize = 4_000_000;
/// Expressions within each other that are worked out; a deeper one is unknown.
pub(super) const MAX_EXPRESSION: usize = 60;
/// Rounds until no name changes. Each follows one more step of a chain that is written backwards.
const MAX_ROUNDS: usize = 14;
/// From this round on a new text counts as any text, so that texts built in a loop come to an end.
const TEXT_ROUNDS: usize = 6;
/// Names of a bound path that are kept, from its end.
const BOUND_PATH: usize = 4;

/// What both languages share.
pub(super) struct Scan<'s> {
    pub(super) source: &'s str,
    pub(super) rules: Rules<'s>,
    pub(super) names: Names,
    pub(super) findings: Findings,
    steps: Cell<usize>,
    round: usize,
}

/// A language, as the judge goes through it.
pub(super) trait Reader<'s> {
    fn scan(&mut self) -> &mut Scan<'s>;
    /// Learns which names the node binds, and to what.
    fn bind(&mut self, node: Node<'_>, above: &[Node<'_>]);
    /// Judges what the node does.
    fn look(&mut self, node: Node<'_>, above: &[Node<'_>]);
}

/// Learns the names, then looks at each node. `false`: too complex to be told.
pub(super) fn read<'s>(reader: &mut impl Reader<'s>, tree: &Tree) -> bool {
    for round in 0..=MAX_ROUNDS {
        reader.scan().round = round;
        walk(tree.root_node(), |node, above| {
            reader.bind(node, above);
            true
        });
        if !reader.scan().names.take_changed() {
            break;
        }
        if round == MAX_ROUNDS {
            return false;
        }
    }
    walk(tree.root_node(), |node, above| {
        reader.look(node, above);
        true
    });
    let scan = reader.scan();
    !scan.names.lost() && scan.steps.get() < MAX_STEPS
}

impl<'s> Scan<'s> {
    pub(super) fn new(source: &'s str, rules: Rules<'s>) -> Self {
        let (names, findings) = (Names::default(), Findings::default());
        Self {
            source,
            rules,
            names,
            findings,
            steps: Cell::new(0),
            round: 0,
        }
    }

    pub(super) fn text(&self, node: Node<'_>) -> &'s str {
        self.source.get(node.byte_range()).unwrap_or_default()
    }

    /// Counts one expression; `false` when there were too many or they lie too deep.
    pub(super) fn step(&self, depth: usize) -> bool {
        self.steps.set((self.steps.get() + 1).min(MAX_STEPS));
        depth < MAX_EXPRESSION && self.steps.get() < MAX_STEPS
    }

    pub(super) fn bind(&mut self, name: &str, values: impl IntoIterator<Item = Value>) {
        let all: Values = values
            .into_iter()
            .map(|value| self.kept(name, value))
            .collect();
        self.names.bind(name, all);
    }

    /// A value that a name is bound to. Paths keep their end, which is what is judged; of unknown ones
    /// only those that a dangerous path may go on from.
    fn kept(&self, name: &str, value: Value) -> Value {
        match value {
            Value::Text(_) if self.round >= TEXT_ROUNDS => Value::Unknown,
            Value::Path(Root::Global, names) if names.len() > 1 && names[0] == name => {
                Value::Unknown
            }
            Value::Path(Root::Unknown, names) => match names.last() {
                Some(last) if self.rules.leads_on(last) => {
                    Value::Path(Root::Unknown, vec![last.clone()])
                }
                _ => Value::Unknown,
            },
            Value::Path(root, mut names) => {
                names.drain(..names.len().saturating_sub(BOUND_PATH));
                Value::Path(root, names)
            }
            Value::Text(_) | Value::Unknown => value,
        }
    }

    pub(super) fn report(&mut self, node: Node<'_>, (rule, construct, hint): Broken) {
        let (line, column) = place(self.source, node.start_byte());
        self.findings.add(Finding {
            rule,
            construct,
            line,
            column,
            hint,
        });
    }

    pub(super) fn report_all(&mut self, node: Node<'_>, broken: impl IntoIterator<Item = Broken>) {
        broken.into_iter().for_each(|b| self.report(node, b));
    }
}

/// Line and column, in characters, both from 1.
pub(super) fn place(source: &str, at: usize) -> (usize, usize) {
    let before = source.get(..at).unwrap_or(source);
    let line = before.bytes().filter(|&b| b == b'\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |i| i + 1);
    (line, before[start..].chars().count() + 1)
}
