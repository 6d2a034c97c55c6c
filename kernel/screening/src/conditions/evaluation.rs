//! Evaluates a condition, in a bounded number of steps.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use mgp_json::lookalike::are_alike;
use mgp_json::{elements, member, members, unquote};
use serde_json::value::RawValue;

use super::numbers::Number;
use super::syntax::{Expression, Fact, Function, Node, Operator, Quantifier, ScopeTest};
use super::{Facts, paths, times};
use crate::scopes::{LABEL_MAX, READ_MAX, ScopePattern, find_matching, find_resembling};

/// Most steps of an evaluation; each is an expression, an item of a list, or some bytes that are read. A usual condition
/// takes ten.
const STEPS_MAX: usize = 20_000;
/// Bytes of text that count as a step.
const STEP_BYTES: usize = 256;
/// Most readings of a text for `resembles`.
const READINGS: usize = 10;

/// Why a condition has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A member or an item does not exist.
    #[error("it is not there")]
    Missing,
    /// A member exists twice, or has one beside it that some servers read as the same.
    #[error("it is there more than once, or nearly")]
    Duplicate,
    /// An operator or a function does not apply to the value.
    #[error("its kind does not fit")]
    Kind,
    /// A number is too large, or has more digits than some servers read.
    #[error("the number is not exact for every reader")]
    Number,
    /// A path has more than one reading, or cannot be compared.
    #[error("it has more than one reading, or begins elsewhere")]
    Path,
    /// Evaluation took too long.
    #[error("it takes too many steps")]
    Steps,
    /// The condition was written by a later version.
    #[error("this version cannot read the condition")]
    Unreadable,
}

/// A path with all its links resolved; `None` where that failed.
pub type Resolve<'a> = &'a dyn Fn(&str) -> Option<String>;

#[derive(Clone, Debug)]
enum Value<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    /// Seconds since 1970.
    Time(i64),
    /// An object or an array, as it came.
    Json(&'a str),
    List(Vec<Value<'a>>),
}

type Evaluated<'a> = Result<Value<'a>, Fault>;
type Members<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

pub(super) struct Evaluation<'a> {
    facts: &'a Facts<'a>,
    resolve: Option<Resolve<'a>>,
    steps: usize,
    /// The members of the arguments, once they were read.
    arguments: Option<Members<'a>>,
    variables: Vec<Value<'a>>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(facts: &'a Facts<'a>, resolve: Option<Resolve<'a>>) -> Self {
        Self {
            facts,
            resolve,
            steps: 0,
            arguments: None,
            variables: Vec::new(),
        }
    }

    /// The steps taken so far.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// Whether an expression is true. What takes too long has no value, whatever could be known of it.
    pub(super) fn holds(&mut self, node: &'a Node) -> Result<bool, Fault> {
        let value = self.evaluate(node);
        if self.steps > STEPS_MAX {
            return Err(Fault::Steps);
        }
        match value? {
            Value::Bool(value) => Ok(value),
            Value::Null
            | Value::Number(_)
            | Value::Text(_)
            | Value::Time(_)
            | Value::Json(_)
            | Value::List(_) => Err(Fault::Kind),
        }
    }

    /// The value of an expression, for display.
    pub(super) fn render(&mut self, node: &'a Node) -> Result<String, Fault> {
        self.evaluate(node).map(|value| value.to_string())
    }

    fn step(&mut self, count: usize) -> Result<(), Fault> {
        self.steps = self.steps.saturating_add(count);
        if self.steps > STEPS_MAX {
            Err(Fault::Steps)
        } else {
            Ok(())
        }
    }

    fn read(&mut self, text: &str) -> Result<(), Fault> {
        self.step(text.len() / STEP_BYTES)
    }

    fn evaluate(&mut self, node: &'a Node) -> Evaluated<'a> {
        self.step(1)?;
        match &node.expression {
            Expression::Null => Ok(Value::Null),
            Expression::Bool(value) => Ok(Value::Bool(*value)),
            Expression::Number(number) => Ok(Value::Number(*number)),
            Expression::Text(text) => Ok(Value::Text(Cow::Borrowed(text))),
            Expression::Time(seconds) => Ok(Value::Time(*seconds)),
            Expression::List(all) => {
                let items = all.iter().map(|item| self.evaluate(item));
                Ok(Value::List(items.collect::<Result<_, _>>()?))
            }
            Expression::Fact(fact) => self.fact(*fact),
            Expression::Variable(variable) => {
                let size = self.variables.get(*variable).map_or(0, Value::copied_size);
                self.step(size / STEP_BYTES)?;
                let value = self.variables.get(*variable).cloned();
                value.ok_or(Fault::Missing)
            }
            Expression::Member(object, name) => {
                let member = self.member(object, name)?;
                self.parse(member.ok_or(Fault::Missing)?)
            }
            Expression::Index(on, index) => self.index(on, index),
            Expression::Has(object, name) => Ok(Value::Bool(self.member(object, name)?.is_some())),
            Expression::Not(inner) => Ok(Value::Bool(!self.bool(inner)?)),
            Expression::Negate(inner) => match self.evaluate(inner)? {
                Value::Number(Number::Integer(value)) => {
                    let negative = value.checked_neg().ok_or(Fault::Number)?;
                    Ok(Value::Number(Number::Integer(negative)))
                }
                Value::Number(Number::Decimal(value)) => Ok(Value::Number(Number::Decimal(-value))),
                _ => Err(Fault::Kind),
            },
            Expression::And(all) => self.chain(all, false),
            Expression::Or(all) => self.chain(all, true),
            Expression::Binary(operator, left, right) => self.binary(*operator, left, right),
            Expression::Choice(parts) => {
                let [condition, yes, no] = &**parts;
                let taken = if self.bool(condition)? { yes } else { no };
                self.evaluate(taken)
            }
            Expression::Call(function, all) => self.call(*function, all),
            Expression::Matches(on, regex) => {
                let text = self.text(on)?;
                // A match looks at each byte, and may build a part of its automaton for it.
                self.step(text.len() / 8)?;
                Ok(Value::Bool(regex.is_match(&text)))
            }
            Expression::Scope(test, on, pattern) => {
                let text = self.text(on)?;
                self.scope(*test, &text, pattern)
            }
            Expression::Quantifier(quantifier, list, body) => {
                self.quantify(*quantifier, list, body)
            }
        }
    }

    fn bool(&mut self, node: &'a Node) -> Result<bool, Fault> {
        match self.evaluate(node)? {
            Value::Bool(value) => Ok(value),
            _ => Err(Fault::Kind),
        }
    }

    fn text(&mut self, node: &'a Node) -> Result<Cow<'a, str>, Fault> {
        match self.evaluate(node)? {
            Value::Text(text) => Ok(text),
            _ => Err(Fault::Kind),
        }
    }

    fn fact(&mut self, fact: Fact) -> Evaluated<'a> {
        let (facts, tool) = (self.facts, &self.facts.tool);
        let text = |text: &'a str| Value::Text(Cow::Borrowed(text));
        Ok(match fact {
            Fact::Arguments => Value::Json(facts.arguments),
            Fact::Agent => text(facts.agent),
            Fact::Node => text(facts.node),
            Fact::Time => Value::Time(i64::try_from(facts.now_ms / 1000).unwrap_or(i64::MAX)),
            Fact::Trust => text(facts.trust),
            Fact::ToolName => text(tool.name),
            Fact::ToolServer => text(tool.server),
            Fact::ToolRisk => text(tool.risk),
            Fact::ToolEffect => text(tool.effect),
            Fact::ReadOnlyHint => self.hint("readOnlyHint", false)?,
            Fact::DestructiveHint => self.hint("destructiveHint", true)?,
            Fact::IdempotentHint => self.hint("idempotentHint", false)?,
            Fact::OpenWorldHint => self.hint("openWorldHint", true)?,
        })
    }

    /// What the definition of the tool says of itself.
    fn hint(&mut self, name: &str, absent: bool) -> Evaluated<'a> {
        let definition = self.facts.tool.definition;
        self.read(definition)?;
        let hint = member(definition, "annotations").and_then(|all| member(all, name));
        let hint = hint.and_then(|hint| hint.parse().ok());
        Ok(Value::Bool(hint.unwrap_or(absent)))
    }

    /// The text of a member. Readers differ on members that are alike, so then there is none.
    fn member(&mut self, object: &'a Node, name: &str) -> Result<Option<&'a str>, Fault> {
        if matches!(object.expression, Expression::Fact(Fact::Arguments)) {
            // They are read once, so their size is not counted.
            let all = match self.arguments.take() {
                Some(all) => all,
                None => members(self.facts.arguments).ok_or(Fault::Kind)?,
            };
            let found = find_member(&all, name);
            let steps = self.step(all.len() / 16);
            self.arguments = Some(all);
            return steps.and(found);
        }
        let Value::Json(text) = self.evaluate(object)? else {
            return Err(Fault::Kind);
        };
        self.read(text)?;
        let all = members(text).ok_or(Fault::Kind)?;
        self.step(all.len() / 16)?;
        find_member(&all, name)
    }

    fn parse(&mut self, json: &'a str) -> Evaluated<'a> {
        match json.as_bytes().first() {
            Some(b'"') => {
                self.read(json)?;
                unquote(json).map(Value::Text).ok_or(Fault::Kind)
            }
            Some(b'{' | b'[') => Ok(Value::Json(json)),
            Some(b't') => Ok(Value::Bool(true)),
            Some(b'f') => Ok(Value::Bool(false)),
            Some(b'n') => Ok(Value::Null),
            _ => {
                self.read(json)?;
                Number::parse(json).map(Value::Number).ok_or(Fault::Number)
            }
        }
    }

    fn items(&mut self, value: Value<'a>) -> Result<Vec<Value<'a>>, Fault> {
        match value {
            Value::List(all) => Ok(all),
            Value::Json(text) => {
                self.read(text)?;
                let all = elements(text).ok_or(Fault::Kind)?;
                let all = all.into_iter().map(|item| {
                    self.step(1)?;
                    self.parse(item.get())
                });
                all.collect()
            }
            _ => Err(Fault::Kind),
        }
    }

    fn index(&mut self, on: &'a Node, index: &'a Node) -> Evaluated<'a> {
        match self.evaluate(index)? {
            Value::Text(name) => {
                let member = self.member(on, &name)?;
                self.parse(member.ok_or(Fault::Missing)?)
            }
            Value::Number(number) => {
                let index = number.as_integer().ok_or(Fault::Kind)?;
                let index = usize::try_from(index).map_err(|_| Fault::Missing)?;
                let on = self.evaluate(on)?;
                let mut all = self.items(on)?;
                if index < all.len() {
                    Ok(all.swap_remove(index))
                } else {
                    Err(Fault::Missing)
                }
            }
            _ => Err(Fault::Kind),
        }
    }

    /// `&&` and `||`: one part that decides is enough, whatever has no value before it.
    fn chain(&mut self, all: &'a [Node], decides: bool) -> Evaluated<'a> {
        let mut fault = None;
        for part in all {
            match self.bool(part) {
                Ok(value) if value == decides => return Ok(Value::Bool(decides)),
                Ok(_) => {}
                Err(Fault::Steps) => return Err(Fault::Steps),
                Err(why) => fault = fault.or(Some(why)),
            }
        }
        fault.map_or(Ok(Value::Bool(!decides)), Err)
    }

    /// As the lists of scopes do (MCPL §7). Matching looks at each character once for each part of the pattern.
    fn scope(&mut self, test: ScopeTest, text: &str, pattern: &ScopePattern) -> Evaluated<'a> {
        let pattern_len = pattern.as_str().len();
        let patterns = std::slice::from_ref(pattern);
        let found = match test {
            ScopeTest::Like => {
                self.step(text.len().min(LABEL_MAX) * pattern_len / STEP_BYTES)?;
                find_matching(text, patterns).map_err(|_| Fault::Path)?
            }
            ScopeTest::Resembles => {
                self.step(READINGS * text.len().min(READ_MAX) * pattern_len / STEP_BYTES)?;
                find_resembling(text, patterns)
            }
        };
        Ok(Value::Bool(found.is_some()))
    }

    fn quantify(
        &mut self,
        quantifier: Quantifier,
        list: &'a Node,
        body: &'a Node,
    ) -> Evaluated<'a> {
        let list = self.evaluate(list)?;
        let decides = quantifier == Quantifier::Exists;
        let mut fault = None;
        for item in self.items(list)? {
            self.variables.push(item);
            let holds = self.bool(body);
            self.variables.pop();
            match holds {
                Ok(value) if value == decides => return Ok(Value::Bool(decides)),
                Ok(_) => {}
                Err(Fault::Steps) => return Err(Fault::Steps),
                Err(why) => fault = fault.or(Some(why)),
            }
        }
        fault.map_or(Ok(Value::Bool(!decides)), Err)
    }

    fn binary(&mut self, operator: Operator, left: &'a Node, right: &'a Node) -> Evaluated<'a> {
        let left = self.evaluate(left)?;
        let right = self.evaluate(right)?;
        let value = match operator {
            Operator::Equal => self.equal(&left, &right)?,
            Operator::NotEqual => !self.equal(&left, &right)?,
            Operator::Less => self.compare(&left, &right)? == Ordering::Less,
            Operator::LessOrEqual => self.compare(&left, &right)? != Ordering::Greater,
            Operator::Greater => self.compare(&left, &right)? == Ordering::Greater,
            Operator::GreaterOrEqual => self.compare(&left, &right)? != Ordering::Less,
            Operator::In => self.is_in(&left, right)?,
            Operator::Add
            | Operator::Subtract
            | Operator::Multiply
            | Operator::Divide
            | Operator::Remainder => return calculate(operator, &left, &right),
        };
        Ok(Value::Bool(value))
    }

    fn is_in(&mut self, one: &Value<'a>, of: Value<'a>) -> Result<bool, Fault> {
        if let (Value::Text(name), Value::Json(text)) = (one, &of)
            && text.starts_with('{')
        {
            self.read(text)?;
            let all = members(text).ok_or(Fault::Kind)?;
            return find_member(&all, name).map(|found| found.is_some());
        }
        for item in self.items(of)? {
            self.step(1)?;
            if self.equal(one, &item)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Values of different kinds are not equal. Objects and arrays are not compared.
    fn equal(&mut self, one: &Value<'_>, other: &Value<'_>) -> Result<bool, Fault> {
        match (one, other) {
            (Value::Text(one), Value::Text(other)) => {
                self.read(one)?;
                Ok(one == other)
            }
            (Value::Number(one), Value::Number(other)) => {
                Ok(one.compare(*other) == Ordering::Equal)
            }
            (Value::Bool(one), Value::Bool(other)) => Ok(one == other),
            (Value::Time(one), Value::Time(other)) => Ok(one == other),
            (Value::Null, Value::Null) => Ok(true),
            (Value::Json(_) | Value::List(_), _) | (_, Value::Json(_) | Value::List(_)) => {
                Err(Fault::Kind)
            }
            _ => Ok(false),
        }
    }

    fn compare(&mut self, one: &Value<'_>, other: &Value<'_>) -> Result<Ordering, Fault> {
        match (one, other) {
            (Value::Text(one), Value::Text(other)) => {
                self.read(one)?;
                Ok(one.cmp(other))
            }
            (Value::Number(one), Value::Number(other)) => Ok(one.compare(*other)),
            (Value::Time(one), Value::Time(other)) => Ok(one.cmp(other)),
            _ => Err(Fault::Kind),
        }
    }

    fn call(&mut self, function: Function, all: &'a [Node]) -> Evaluated<'a> {
        let [first, rest @ ..] = all else {
            return Err(Fault::Kind);
        };
        if function == Function::Size {
            return self.size(first);
        }
        let Some(second) = rest.first() else {
            return self.part_of_time(function, first);
        };
        let (one, other) = (self.text(first)?, self.text(second)?);
        self.read(&one)?;
        self.read(&other)?;
        let value = match function {
            Function::StartsWith => one.starts_with(&*other),
            Function::EndsWith => one.ends_with(&*other),
            Function::Contains => one.contains(&*other),
            Function::Inside => self.is_inside(&one, &other)?,
            _ => return Err(Fault::Kind),
        };
        Ok(Value::Bool(value))
    }

    fn is_inside(&mut self, path: &str, directory: &str) -> Result<bool, Fault> {
        // Each may be looked up on a disk.
        self.step(64)?;
        let home = self.facts.home;
        let by_text = paths::is_inside(path, directory, home).ok_or(Fault::Path)?;
        let Some(resolve) = self.resolve else {
            return Ok(by_text);
        };
        let path = resolve(&paths::expand_home(path, home)).ok_or(Fault::Path)?;
        let directory = resolve(&paths::expand_home(directory, home)).ok_or(Fault::Path)?;
        paths::is_inside(&path, &directory, None).ok_or(Fault::Path)
    }

    fn size(&mut self, of: &'a Node) -> Evaluated<'a> {
        let size = match self.evaluate(of)? {
            Value::Text(text) => {
                self.read(&text)?;
                text.chars().count()
            }
            Value::List(all) => all.len(),
            Value::Json(text) => {
                self.read(text)?;
                let items = elements(text).map(|all| all.len());
                let size = items.or_else(|| members(text).map(|all| all.len()));
                size.ok_or(Fault::Kind)?
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Time(_) => {
                return Err(Fault::Kind);
            }
        };
        let size = i128::try_from(size).map_err(|_| Fault::Number)?;
        Ok(Value::Number(Number::Integer(size)))
    }

    fn part_of_time(&mut self, function: Function, of: &'a Node) -> Evaluated<'a> {
        let Value::Time(seconds) = self.evaluate(of)? else {
            return Err(Fault::Kind);
        };
        let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = times::date_from_days(days);
        let part = match function {
            Function::FullYear => year,
            // Months and weekdays begin with 0 in CEL.
            Function::Month => month - 1,
            Function::DayOfMonth => day,
            Function::DayOfWeek => (days + 4).rem_euclid(7),
            Function::Hours => of_day / 3600,
            Function::Minutes => of_day % 3600 / 60,
            Function::Size
            | Function::StartsWith
            | Function::EndsWith
            | Function::Contains
            | Function::Inside => return Err(Fault::Kind),
        };
        Ok(Value::Number(Number::Integer(part.into())))
    }
}

fn find_member<'a>(all: &Members<'a>, name: &str) -> Result<Option<&'a str>, Fault> {
    let mut alike = all
        .iter()
        .filter(|(found, _)| found == name || are_alike(found, name));
    match (alike.next(), alike.next()) {
        (None, _) => Ok(None),
        (Some((found, value)), None) if found == name => Ok(Some(value.get())),
        // A reader that ignores case takes it for this one.
        (Some(_), _) => Err(Fault::Duplicate),
    }
}

/// Whole numbers only: sums of others are rounded.
fn calculate<'a>(operator: Operator, left: &Value<'_>, right: &Value<'_>) -> Evaluated<'a> {
    let (Value::Number(left), Value::Number(right)) = (left, right) else {
        return Err(Fault::Kind);
    };
    let (left, right) = match (left.as_integer(), right.as_integer()) {
        (Some(left), Some(right)) => (left, right),
        _ => return Err(Fault::Number),
    };
    let result = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide => left.checked_div(right),
        Operator::Remainder => left.checked_rem(right),
        _ => None,
    };
    let result = result.ok_or(Fault::Number)?;
    Ok(Value::Number(Number::Integer(result)))
}

impl Value<'_> {
    /// The bytes that a copy of it takes.
    fn copied_size(&self) -> usize {
        match self {
            Self::Text(Cow::Owned(text)) => text.len(),
            Self::List(all) => all.iter().map(|item| 64 + item.copied_size()).sum(),
            Self::Text(Cow::Borrowed(_))
            | Self::Null
            | Self::Bool(_)
            | Self::Number(_)
            | Self::Time(_)
            | Self::Json(_) => 0,
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => value.fmt(f),
            Self::Number(Number::Integer(value)) => value.fmt(f),
            Self::Number(Number::Decimal(value)) => value.fmt(f),
            Self::Text(text) => f.write_str(&mgp_json::quote(text)),
            Self::Time(seconds) => {
                let (year, month, day) = times::date_from_days(seconds.div_euclid(86_400));
                let of_day = seconds.rem_euclid(86_400);
                let (hour, minute) = (of_day / 3600, of_day % 3600 / 60);
                write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}Z")
            }
            Self::Json(text) => f.write_str(text),
            Self::List(all) => {
                f.write_str("[")?;
                for (index, item) in all.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{item}")?;
                }
                f.write_str("]")
            }
        }
    }
}
