//! Which part of a condition does not hold, and with what values.

use super::evaluation::{Evaluation, Fault};
use super::syntax::{Expression, Node};
use super::{Condition, Facts};

/// Most values of a part that are shown.
const VALUES_MAX: usize = 4;
/// Longest value that is shown, in characters.
const VALUE_MAX: usize = 120;

/// A part of a condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPart {
    /// The part, as it is written.
    pub text: String,
    /// What it reads of the call, and the values.
    pub values: Vec<(String, String)>,
    /// Why it has no value, if so.
    pub fault: Option<Fault>,
}

impl FailedPart {
    /// It in words: `inside(args.path, "~/notes") is false, args.path is "/etc/passwd"`.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = match self.fault {
            Some(fault) => format!("{} has no value ({fault})", self.text),
            None => format!("{} is false", self.text),
        };
        for (name, value) in &self.values {
            text += &format!(", {name} is {value}");
        }
        text
    }
}

/// The parts that keep a condition from holding: of `&&` those that are not true, of `||` all.
pub(super) fn failed_parts(condition: &Condition, facts: &Facts<'_>) -> Vec<FailedPart> {
    let Some(root) = &condition.root else {
        return Vec::new();
    };
    let mut parts = Vec::new();
    collect(root, condition, facts, &mut parts);
    parts
}

fn collect(node: &Node, condition: &Condition, facts: &Facts<'_>, parts: &mut Vec<FailedPart>) {
    let result = Evaluation::new(facts, None).holds(node);
    if result == Ok(true) {
        return;
    }
    if let Expression::And(all) | Expression::Or(all) = &node.expression {
        return all
            .iter()
            .for_each(|part| collect(part, condition, facts, parts));
    }
    let mut read = Vec::new();
    collect_reads(node, &mut read);
    let mut values: Vec<(String, String)> = Vec::new();
    for node in read {
        let name = condition.span_text(node);
        if values.len() == VALUES_MAX || values.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let value = Evaluation::new(facts, None).render(node);
        let value = value.unwrap_or_else(|fault| match fault {
            Fault::Missing => "not there".to_owned(),
            fault => fault.to_string(),
        });
        values.push((name, truncate(value)));
    }
    parts.push(FailedPart {
        text: condition.span_text(node),
        values,
        fault: result.err(),
    });
}

/// The outermost expressions that read something of the call.
fn collect_reads<'n>(node: &'n Node, read: &mut Vec<&'n Node>) {
    match &node.expression {
        Expression::Fact(_) => read.push(node),
        Expression::Member(object, _) | Expression::Index(object, _) if is_read(object) => {
            read.push(node);
        }
        Expression::Has(object, _) if is_read(object) => {}
        // Its body reads variables, which have no value outside.
        Expression::Quantifier(_, list, _) => collect_reads(list, read),
        _ => node
            .children()
            .into_iter()
            .for_each(|child| collect_reads(child, read)),
    }
}

fn is_read(node: &Node) -> bool {
    match &node.expression {
        Expression::Fact(_) => true,
        Expression::Member(object, _) | Expression::Index(object, _) => is_read(object),
        _ => false,
    }
}

fn truncate(value: String) -> String {
    match value.char_indices().nth(VALUE_MAX) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value,
    }
}
