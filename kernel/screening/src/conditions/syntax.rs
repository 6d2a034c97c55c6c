//! The parts of a condition.

use std::sync::Arc;

use regex::Regex;

use super::numbers::Number;
use crate::scopes::ScopePattern;

/// Deepest nesting: evaluation takes stack space for each level.
pub(super) const DEPTH_MAX: u16 = 32;

/// An expression and the part of the text that it was read from.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) span: (usize, usize),
    pub(super) depth: u16,
    pub(super) expression: Expression,
}

/// An expression.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    Null,
    Bool(bool),
    Number(Number),
    Text(Arc<str>),
    /// Seconds since 1970.
    Time(i64),
    List(Vec<Node>),
    Fact(Fact),
    /// A variable of a macro, counted from the outermost.
    Variable(usize),
    Member(Box<Node>, Arc<str>),
    Index(Box<Node>, Box<Node>),
    Has(Box<Node>, Arc<str>),
    Not(Box<Node>),
    Negate(Box<Node>),
    /// `&&` of two or more.
    And(Vec<Node>),
    /// `||` of two or more.
    Or(Vec<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
    /// Condition, value if true, value if false.
    Choice(Box<[Node; 3]>),
    Call(Function, Vec<Node>),
    Matches(Box<Node>, Regex),
    /// `like` or `resembles`.
    Scope(ScopeTest, Box<Node>, Arc<ScopePattern>),
    /// `all` or `exists` over a list.
    Quantifier(Quantifier, Box<Node>, Box<Node>),
}

/// What is known of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Arguments,
    Agent,
    Node,
    Time,
    Trust,
    ToolName,
    ToolServer,
    ToolRisk,
    ToolEffect,
    ReadOnlyHint,
    DestructiveHint,
    IdempotentHint,
    OpenWorldHint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// How a text is compared with a pattern of scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScopeTest {
    /// As a whitelist does.
    Like,
    /// As a blacklist does.
    Resembles,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantifier {
    All,
    Exists,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Size,
    StartsWith,
    EndsWith,
    Contains,
    Inside,
    FullYear,
    Month,
    DayOfMonth,
    DayOfWeek,
    Hours,
    Minutes,
}

/// The type of a value, where it is certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Other(&'static str),
}

impl Node {
    /// The kind of its value, where its text determines it.
    pub(super) fn kind(&self) -> Option<Kind> {
        match &self.expression {
            Expression::Null => Some(Kind::Other("null")),
            Expression::Number(_) | Expression::Negate(_) => Some(Kind::Other("a number")),
            Expression::Text(_) => Some(Kind::Other("a text")),
            Expression::Time(_) | Expression::Fact(Fact::Time) => Some(Kind::Other("a time")),
            Expression::List(_) => Some(Kind::Other("a list")),
            Expression::Fact(Fact::Arguments) => Some(Kind::Other("an object")),
            Expression::Fact(
                Fact::Agent
                | Fact::Node
                | Fact::Trust
                | Fact::ToolName
                | Fact::ToolServer
                | Fact::ToolRisk
                | Fact::ToolEffect,
            ) => Some(Kind::Other("a text")),
            Expression::Fact(
                Fact::ReadOnlyHint
                | Fact::DestructiveHint
                | Fact::IdempotentHint
                | Fact::OpenWorldHint,
            )
            | Expression::Bool(_)
            | Expression::Has(..)
            | Expression::Not(_)
            | Expression::And(_)
            | Expression::Or(_)
            | Expression::Matches(..)
            | Expression::Scope(..)
            | Expression::Quantifier(..) => Some(Kind::Bool),
            Expression::Binary(operator, ..) => Some(operator.kind()),
            Expression::Call(function, _) => Some(function.kind()),
            Expression::Variable(_)
            | Expression::Member(..)
            | Expression::Index(..)
            | Expression::Choice(_) => None,
        }
    }

    /// The expressions directly inside of it.
    pub(super) fn children(&self) -> Vec<&Node> {
        match &self.expression {
            Expression::Null
            | Expression::Bool(_)
            | Expression::Number(_)
            | Expression::Text(_)
            | Expression::Time(_)
            | Expression::Fact(_)
            | Expression::Variable(_) => Vec::new(),
            Expression::List(all) | Expression::And(all) | Expression::Or(all) => {
                all.iter().collect()
            }
            Expression::Call(_, all) => all.iter().collect(),
            Expression::Member(one, _)
            | Expression::Has(one, _)
            | Expression::Not(one)
            | Expression::Negate(one)
            | Expression::Matches(one, _)
            | Expression::Scope(_, one, _) => vec![one],
            Expression::Index(one, other)
            | Expression::Binary(_, one, other)
            | Expression::Quantifier(_, one, other) => vec![one, other],
            Expression::Choice(three) => three.iter().collect(),
        }
    }
}

impl Operator {
    fn kind(self) -> Kind {
        match self {
            Self::Equal
            | Self::NotEqual
            | Self::Less
            | Self::LessOrEqual
            | Self::Greater
            | Self::GreaterOrEqual
            | Self::In => Kind::Bool,
            Self::Add | Self::Subtract | Self::Multiply | Self::Divide | Self::Remainder => {
                Kind::Other("a number")
            }
        }
    }
}

impl Function {
    /// Every function, with its name and its number of arguments; `true` for those that are called on a value.
    pub(super) const ALL: [(&'static str, Self, usize, bool); 12] = [
        ("size", Self::Size, 1, true),
        ("size", Self::Size, 1, false),
        ("startsWith", Self::StartsWith, 2, true),
        ("endsWith", Self::EndsWith, 2, true),
        ("contains", Self::Contains, 2, true),
        ("inside", Self::Inside, 2, false),
        ("getFullYear", Self::FullYear, 1, true),
        ("getMonth", Self::Month, 1, true),
        ("getDate", Self::DayOfMonth, 1, true),
        ("getDayOfWeek", Self::DayOfWeek, 1, true),
        ("getHours", Self::Hours, 1, true),
        ("getMinutes", Self::Minutes, 1, true),
    ];

    fn kind(self) -> Kind {
        match self {
            Self::StartsWith | Self::EndsWith | Self::Contains | Self::Inside => Kind::Bool,
            Self::Size
            | Self::FullYear
            | Self::Month
            | Self::DayOfMonth
            | Self::DayOfWeek
            | Self::Hours
            | Self::Minutes => Kind::Other("a number"),
        }
    }
}
