//! The state of one check: the roles of nodes, and the findings.

use tree_sitter::Node;

use super::policy::Level;
use super::rejection::{CodeFinding, CodeRule, Findings};
use super::rules::{LanguageRules, RuleViolation};
use super::syntax_tree::Roles;

/// The state shared by both languages.
pub(super) struct Scan<'s, 't> {
    pub(super) source: &'s str,
    pub(super) rules: LanguageRules<'s>,
    pub(super) roles: Roles<'t>,
    pub(super) findings: Findings,
}

impl<'s> Scan<'s, '_> {
    pub(super) fn text(&self, node: Node<'_>) -> &'s str {
        self.source.get(node.byte_range()).unwrap_or_default()
    }

    pub(super) fn is_at_least(&self, level: Level) -> bool {
        self.rules.level() >= level
    }

    pub(super) fn report(&mut self, node: Node<'_>, (rule, construct, hint): RuleViolation) {
        // Finding a position costs as much as the code before it.
        if self.findings.is_full() {
            return self.findings.count_omitted();
        }
        let (line, column) = line_and_column(self.source, node.start_byte());
        self.findings.add(CodeFinding {
            rule,
            construct,
            line,
            column,
            hint,
        });
    }

    /// Reports all violations; true if there were any.
    pub(super) fn report_all(
        &mut self,
        node: Node<'_>,
        broken: impl IntoIterator<Item = RuleViolation>,
    ) -> bool {
        let mut any = false;
        for broken in broken {
            any = true;
            self.report(node, broken);
        }
        any
    }

    /// Reports the nodes that the query itself rejects.
    pub(super) fn report_refused(&mut self) {
        for refused in std::mem::take(&mut self.roles.refused) {
            let rule = match refused.min_level {
                "hidden" => CodeRule::HiddenText,
                "always" => CodeRule::BlockedPattern,
                _ if self.is_at_least(Level::Strict) => CodeRule::Construct,
                _ => continue,
            };
            let (construct, hint) = (refused.construct.to_owned(), refused.hint.to_owned());
            self.report(refused.node, (rule, construct, hint));
        }
    }
}

/// Line and column, in characters, both from 1.
pub(super) fn line_and_column(source: &str, at: usize) -> (usize, usize) {
    let before = source.get(..at).unwrap_or(source);
    let line = before.bytes().filter(|&b| b == b'\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |i| i + 1);
    (line, before[start..].chars().count() + 1)
}
