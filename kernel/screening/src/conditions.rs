//! Conditions on grants: a subset of CEL over the arguments of a call, its tool, its caller and the time.
//!
//! Pure: what is known of a call is passed in. Nothing in it grows without bound: the text, its parts, their nesting,
//! the patterns, and the steps of an evaluation are limited, and no expression makes a text.

mod evaluation;
mod explanation;
mod lexer;
mod names;
mod numbers;
mod parser;
mod paths;
mod schemas;
mod syntax;
#[cfg(test)]
mod tests;
mod times;

use std::sync::Arc;

use serde_json::Value;

use self::evaluation::Evaluation;
pub use self::evaluation::{Fault, Resolve};
pub use self::explanation::FailedPart;
use self::syntax::{Expression, Function, Node};

/// Longest condition, in bytes.
pub const CONDITION_MAX: usize = 4096;

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {}: {words}", .position + 1)]
pub struct ConditionError {
    words: String,
    /// In bytes from the beginning.
    position: usize,
}

impl ConditionError {
    fn new(words: impl Into<String>, position: usize) -> Self {
        let words = words.into();
        Self { words, position }
    }
}

/// A condition, compiled once.
#[derive(Clone, Debug)]
pub struct Condition {
    text: Arc<str>,
    /// `None` if this version cannot read it: then it never holds.
    root: Option<Arc<Node>>,
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Condition {}

/// What a condition can read.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The arguments, an object in JSON.
    pub arguments: &'a str,
    /// The tool.
    pub tool: ToolFacts<'a>,
    /// The id of the agent, without its node.
    pub agent: &'a str,
    /// The id of the agent's node.
    pub node: &'a str,
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
    /// The trust level of the server.
    pub trust: &'a str,
    /// The home directory of the server's process, where it is known.
    pub home: Option<&'a str>,
}

/// What is known of a tool.
#[derive(Clone, Copy, Debug)]
pub struct ToolFacts<'a> {
    /// Its name at its server.
    pub name: &'a str,
    /// The id of its server.
    pub server: &'a str,
    /// The kernel's assessment of its risk.
    pub risk: &'a str,
    /// What a person confirmed that it may do at most.
    pub effect: &'a str,
    /// Its definition, whose annotations are read: absent ones have the defaults of MCP.
    pub definition: &'a str,
}

impl Condition {
    /// Compiles a condition.
    ///
    /// # Errors
    /// [`ConditionError`], for the person who wrote it.
    pub fn compile(text: &str) -> Result<Self, ConditionError> {
        if text.len() > CONDITION_MAX {
            let words = format!("a condition has at most {CONDITION_MAX} bytes");
            return Err(ConditionError::new(words, CONDITION_MAX));
        }
        let root = Some(Arc::new(parser::parse(text)?));
        let text = text.into();
        Ok(Self { text, root })
    }

    /// Compiles a condition of another node. One that this version cannot read never holds.
    #[must_use]
    pub fn compile_or_closed(text: &str) -> Self {
        Self::compile(text).unwrap_or_else(|_| Self {
            text: text.into(),
            root: None,
        })
    }

    /// The condition, as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether this version can read it.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.root.is_some()
    }

    /// Whether it holds for a call, by the text of its paths.
    ///
    /// # Errors
    /// [`Fault`]: it has no value, and so does not hold.
    pub fn evaluate(&self, facts: &Facts<'_>) -> Result<bool, Fault> {
        self.evaluate_counted(facts, None).0
    }

    /// Whether it holds if links are followed. Only for a condition that [uses paths](Self::uses_paths), and that holds
    /// by their text.
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    pub fn evaluate_resolved(
        &self,
        facts: &Facts<'_>,
        resolve: Resolve<'_>,
    ) -> Result<bool, Fault> {
        self.evaluate_counted(facts, Some(resolve)).0
    }

    fn evaluate_counted(
        &self,
        facts: &Facts<'_>,
        resolve: Option<Resolve<'_>>,
    ) -> (Result<bool, Fault>, usize) {
        let Some(root) = &self.root else {
            return (Err(Fault::Unreadable), 0);
        };
        let mut evaluation = Evaluation::new(facts, resolve);
        let holds = evaluation.holds(root);
        (holds, evaluation.steps())
    }

    /// Whether it compares paths.
    #[must_use]
    pub fn uses_paths(&self) -> bool {
        fn is_path(node: &Node) -> bool {
            matches!(node.expression, Expression::Call(Function::Inside, _))
                || node.children().into_iter().any(is_path)
        }
        self.root.as_deref().is_some_and(is_path)
    }

    /// The parts that keep it from holding.
    #[must_use]
    pub fn failed_parts(&self, facts: &Facts<'_>) -> Vec<FailedPart> {
        explanation::failed_parts(self, facts)
    }

    /// Checks that each member of the arguments that it reads is one of a tool, by these `inputSchema`s: those of all
    /// tools that it is about. Schemas that cannot be read are passed over.
    ///
    /// # Errors
    /// The first that is in none of them, in words.
    pub fn check_schemas(&self, schemas: &[&str]) -> Result<(), String> {
        let Some(root) = &self.root else {
            return Ok(());
        };
        let schemas = schemas
            .iter()
            .map(|text| serde_json::from_str::<Value>(text));
        let schemas: Vec<Value> = schemas.filter_map(Result::ok).collect();
        let mut paths = Vec::new();
        schemas::read_members(root, &mut paths);
        for path in paths {
            let mut misspelt = schemas
                .iter()
                .map(|schema| schemas::find_misspelt(&path, schema));
            let first = misspelt.next().flatten();
            if let Some(words) = first
                && misspelt.all(|other| other.is_some())
            {
                return Err(words);
            }
        }
        Ok(())
    }

    fn span_text(&self, node: &Node) -> String {
        let (begin, end) = node.span;
        self.text.get(begin..end).unwrap_or_default().to_owned()
    }
}
