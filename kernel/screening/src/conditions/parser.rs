//! Reads a condition to its parts, and rejects what can never be evaluated.

use std::sync::Arc;

use regex::RegexBuilder;

use super::ConditionError;
use super::lexer::{PlacedToken, Token, tokens};
use super::names::{self, nearest};
use super::numbers::Number;
use super::syntax::{
    DEPTH_MAX, Expression, Fact, Function, Kind, Node, Operator, Quantifier, ScopeTest,
};
use super::times;
use crate::scopes::ScopePattern;

/// Most expressions in a condition.
const NODES_MAX: usize = 256;
/// Most patterns of `matches` in a condition: each takes up to [`REGEX_BYTES_MAX`].
const REGEXES_MAX: usize = 8;
/// Most memory of a compiled pattern, and of what matching it caches.
const REGEX_BYTES_MAX: usize = 64 << 10;
/// Deepest nesting of a pattern.
const REGEX_NESTING_MAX: u32 = 16;

/// Methods with a syntax of their own.
const METHODS: [&str; 5] = ["matches", "like", "resembles", "all", "exists"];

type Parsed = Result<Node, ConditionError>;

/// Reads a condition.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parser = Parser {
        tokens: tokens(text)?,
        next: 0,
        depth: 0,
        nodes: 0,
        regexes: 0,
        variables: Vec::new(),
    };
    let node = parser.expression()?;
    match parser.peek() {
        Token::End => parser.require_bool(&node).map(|()| node),
        _ => Err(parser.error("an operator is missing here")),
    }
}

struct Parser<'a> {
    tokens: Vec<PlacedToken<'a>>,
    next: usize,
    depth: u16,
    nodes: usize,
    regexes: usize,
    variables: Vec<&'a str>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &Token<'a> {
        self.tokens
            .get(self.next)
            .map_or(&Token::End, |it| &it.token)
    }

    fn begin(&self) -> usize {
        self.tokens.get(self.next).map_or(0, |it| it.begin)
    }

    fn end(&self) -> usize {
        let last = self
            .next
            .checked_sub(1)
            .and_then(|last| self.tokens.get(last));
        last.map_or(0, |it| it.end)
    }

    fn error(&self, words: impl Into<String>) -> ConditionError {
        ConditionError::new(words, self.begin())
    }

    fn take(&mut self, sign: &str) -> bool {
        let is_there = matches!(self.peek(), Token::Sign(found) if *found == sign);
        self.next += usize::from(is_there);
        is_there
    }

    fn require(&mut self, sign: &str) -> Result<(), ConditionError> {
        match self.take(sign) {
            true => Ok(()),
            false => Err(self.error(format!("{sign:?} is missing here"))),
        }
    }

    fn take_name(&mut self) -> Option<&'a str> {
        let Token::Name(name) = *self.peek() else {
            return None;
        };
        self.next += 1;
        Some(name)
    }

    fn require_bool(&self, node: &Node) -> Result<(), ConditionError> {
        match node.kind() {
            Some(Kind::Other(kind)) => Err(ConditionError::new(
                format!("this is {kind}, not true or false"),
                node.span.0,
            )),
            Some(Kind::Bool) | None => Ok(()),
        }
    }

    fn node(&mut self, begin: usize, expression: Expression) -> Parsed {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(self.error(format!("a condition has at most {NODES_MAX} parts")));
        }
        let mut node = Node {
            span: (begin, self.end()),
            depth: 0,
            expression,
        };
        let deepest = node.children().iter().map(|child| child.depth).max();
        node.depth = deepest.map_or(0, |depth| depth + 1);
        if node.depth > DEPTH_MAX {
            return Err(self.too_deep());
        }
        Ok(node)
    }

    fn too_deep(&self) -> ConditionError {
        self.error(format!("a condition is nested at most {DEPTH_MAX} deep"))
    }

    /// Reads something that may contain whole expressions.
    fn parse_nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ConditionError>,
    ) -> Result<T, ConditionError> {
        if self.depth >= DEPTH_MAX {
            return Err(self.too_deep());
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn expression(&mut self) -> Parsed {
        self.parse_nested(|parser| {
            let begin = parser.begin();
            let condition = parser.alternatives()?;
            if !parser.take("?") {
                return Ok(condition);
            }
            parser.require_bool(&condition)?;
            let yes = parser.expression()?;
            parser.require(":")?;
            let no = parser.expression()?;
            parser.node(begin, Expression::Choice(Box::new([condition, yes, no])))
        })
    }

    fn alternatives(&mut self) -> Parsed {
        self.parse_chain("||", Self::conjunction, Expression::Or)
    }

    fn conjunction(&mut self) -> Parsed {
        self.parse_chain("&&", Self::relation, Expression::And)
    }

    fn parse_chain(
        &mut self,
        sign: &str,
        part: fn(&mut Self) -> Parsed,
        join: fn(Vec<Node>) -> Expression,
    ) -> Parsed {
        let begin = self.begin();
        let first = part(self)?;
        if !self.take(sign) {
            return Ok(first);
        }
        self.require_bool(&first)?;
        let mut all = vec![first];
        loop {
            let next = part(self)?;
            self.require_bool(&next)?;
            all.push(next);
            if !self.take(sign) {
                return self.node(begin, join(all));
            }
        }
    }

    fn relation(&mut self) -> Parsed {
        let node = self.left_to_right(Self::sum, |token| {
            Some(match token {
                Token::Sign("==") => Operator::Equal,
                Token::Sign("!=") => Operator::NotEqual,
                Token::Sign("<") => Operator::Less,
                Token::Sign("<=") => Operator::LessOrEqual,
                Token::Sign(">") => Operator::Greater,
                Token::Sign(">=") => Operator::GreaterOrEqual,
                Token::Name("in") => Operator::In,
                _ => return None,
            })
        })?;
        match self.peek() {
            Token::Sign("=") => Err(self.error("equality is written ==")),
            _ => Ok(node),
        }
    }

    fn sum(&mut self) -> Parsed {
        self.left_to_right(Self::product, |token| {
            Some(match token {
                Token::Sign("+") => Operator::Add,
                Token::Sign("-") => Operator::Subtract,
                _ => return None,
            })
        })
    }

    fn product(&mut self) -> Parsed {
        self.left_to_right(Self::unary, |token| {
            Some(match token {
                Token::Sign("*") => Operator::Multiply,
                Token::Sign("/") => Operator::Divide,
                Token::Sign("%") => Operator::Remainder,
                _ => return None,
            })
        })
    }

    /// Operands with operators of one rank between them: the first two belong together.
    fn left_to_right(
        &mut self,
        operand: fn(&mut Self) -> Parsed,
        operator: fn(&Token<'_>) -> Option<Operator>,
    ) -> Parsed {
        let begin = self.begin();
        let mut left = operand(self)?;
        while let Some(operator) = operator(self.peek()) {
            self.next += 1;
            let right = operand(self)?;
            let pair = Expression::Binary(operator, Box::new(left), Box::new(right));
            left = self.node(begin, pair)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let begin = self.begin();
        if self.take("!") {
            let inner = self.parse_nested(Self::unary)?;
            self.require_bool(&inner)?;
            return self.node(begin, Expression::Not(Box::new(inner)));
        }
        if self.take("-") {
            let inner = self.parse_nested(Self::unary)?;
            return self.node(begin, Expression::Negate(Box::new(inner)));
        }
        self.member()
    }

    fn member(&mut self) -> Parsed {
        let begin = self.begin();
        let mut node = self.primary()?;
        loop {
            if self.take(".") {
                let at = self.begin();
                let Some(name) = self.take_name() else {
                    return Err(self.error("a name is missing here"));
                };
                node = if self.take("(") {
                    self.method(begin, at, node, name)?
                } else {
                    self.node(begin, Expression::Member(Box::new(node), name.into()))?
                };
            } else if self.take("[") {
                let index = self.expression()?;
                self.require("]")?;
                let expression = match index.expression {
                    Expression::Text(name) => Expression::Member(Box::new(node), name),
                    _ => Expression::Index(Box::new(node), Box::new(index)),
                };
                node = self.node(begin, expression)?;
            } else {
                return Ok(node);
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let begin = self.begin();
        let token = self.peek().clone();
        match token {
            Token::Number(text) => {
                self.next += 1;
                let number = read_number(text).ok_or_else(|| {
                    ConditionError::new(format!("{text} is no number that is exact here"), begin)
                })?;
                self.node(begin, Expression::Number(number))
            }
            Token::Text(text) => {
                self.next += 1;
                self.node(begin, Expression::Text(Arc::from(&*text)))
            }
            Token::Name(name) => {
                self.next += 1;
                self.parse_name(begin, name)
            }
            Token::Sign("(") => {
                self.next += 1;
                let inner = self.expression()?;
                self.require(")")?;
                Ok(inner)
            }
            Token::Sign("[") => {
                self.next += 1;
                let all = self.arguments("]")?;
                self.node(begin, Expression::List(all))
            }
            Token::Sign("{") => Err(self.error("maps cannot be written in a condition")),
            Token::Sign(_) => Err(self.error("a value is missing here")),
            Token::End => Err(self.error("the condition ends too early")),
        }
    }

    /// Reads expressions up to a closing sign.
    fn arguments(&mut self, close: &str) -> Result<Vec<Node>, ConditionError> {
        let mut all = Vec::new();
        if self.take(close) {
            return Ok(all);
        }
        loop {
            all.push(self.expression()?);
            if self.take(close) {
                return Ok(all);
            }
            self.require(",")?;
        }
    }

    fn parse_name(&mut self, begin: usize, name: &'a str) -> Parsed {
        let expression = match name {
            "true" => Expression::Bool(true),
            "false" => Expression::Bool(false),
            "null" => Expression::Null,
            _ if self.take("(") => return self.call(begin, name),
            _ => match self.variables.iter().rposition(|it| *it == name) {
                Some(variable) => Expression::Variable(variable),
                None => Expression::Fact(self.fact(begin, name)?),
            },
        };
        self.node(begin, expression)
    }

    /// `tool` alone is no value: its members are.
    fn fact(&mut self, begin: usize, name: &str) -> Result<Fact, ConditionError> {
        let mut path = name.to_owned();
        loop {
            match names::find_fact(&path) {
                names::FactLookup::Fact(fact) => return Ok(fact),
                names::FactLookup::Folder(_) if self.take(".") => {
                    let Some(member) = self.take_name() else {
                        return Err(self.error("a name is missing here"));
                    };
                    path = format!("{path}.{member}");
                }
                names::FactLookup::Folder(members) => {
                    let words = format!("{path} is no value; name a member: {members}");
                    return Err(ConditionError::new(words, begin));
                }
                names::FactLookup::Unknown(words) => {
                    return Err(ConditionError::new(words, begin));
                }
            }
        }
    }

    fn call(&mut self, begin: usize, name: &'a str) -> Parsed {
        match name {
            "has" => {
                let of = self.expression()?;
                self.require(")")?;
                let Expression::Member(object, member) = of.expression else {
                    let words = "has() asks for a member, as in has(args.path)";
                    return Err(ConditionError::new(words, begin));
                };
                self.node(begin, Expression::Has(object, member))
            }
            "timestamp" => {
                let all = self.arguments(")")?;
                let time = match all.as_slice() {
                    [
                        Node {
                            expression: Expression::Text(text),
                            ..
                        },
                    ] => times::parse(text),
                    _ => None,
                };
                let words = "timestamp() needs a time such as \"2026-12-24T18:00:00Z\"";
                let time = time.ok_or_else(|| ConditionError::new(words, begin))?;
                self.node(begin, Expression::Time(time))
            }
            _ => {
                let all = self.arguments(")")?;
                self.function(begin, begin, name, all, false)
            }
        }
    }

    fn method(&mut self, begin: usize, at: usize, on: Node, name: &'a str) -> Parsed {
        let quantifier = match name {
            "all" => Some(Quantifier::All),
            "exists" => Some(Quantifier::Exists),
            _ => None,
        };
        if let Some(quantifier) = quantifier {
            let Some(variable) = self.take_name() else {
                return Err(self.error(format!("{name}() needs a name first, as in {name}(x, …)")));
            };
            self.require(",")?;
            self.variables.push(variable);
            let body = self.expression();
            self.variables.pop();
            let body = body?;
            self.require_bool(&body)?;
            self.require(")")?;
            let parts = (Box::new(on), Box::new(body));
            return self.node(begin, Expression::Quantifier(quantifier, parts.0, parts.1));
        }
        let mut all = vec![on];
        all.extend(self.arguments(")")?);
        if name == "matches" {
            return self.matches(begin, at, all);
        }
        let test = match name {
            "like" => ScopeTest::Like,
            "resembles" => ScopeTest::Resembles,
            _ => return self.function(begin, at, name, all, true),
        };
        let pattern = match all.as_slice() {
            [
                _,
                Node {
                    expression: Expression::Text(pattern),
                    ..
                },
            ] => ScopePattern::parse(pattern),
            _ => {
                let words = format!(
                    "{name}() needs a pattern in quotes, as in args.path.{name}(\"/a/**\")"
                );
                return Err(ConditionError::new(words, at));
            }
        };
        let pattern = pattern.map_err(|why| ConditionError::new(why.to_string(), at))?;
        let on = Box::new(all.swap_remove(0));
        self.node(begin, Expression::Scope(test, on, Arc::new(pattern)))
    }

    fn matches(&mut self, begin: usize, at: usize, mut all: Vec<Node>) -> Parsed {
        let pattern = match all.as_slice() {
            [
                _,
                Node {
                    expression: Expression::Text(pattern),
                    ..
                },
            ] => Arc::clone(pattern),
            _ => {
                let words = "matches() needs a pattern in quotes, as in args.name.matches(r\"^a\")";
                return Err(ConditionError::new(words, at));
            }
        };
        self.regexes += 1;
        if self.regexes > REGEXES_MAX {
            let words = format!("a condition has at most {REGEXES_MAX} patterns");
            return Err(ConditionError::new(words, at));
        }
        let regex = RegexBuilder::new(&pattern)
            .size_limit(REGEX_BYTES_MAX)
            .dfa_size_limit(REGEX_BYTES_MAX)
            .nest_limit(REGEX_NESTING_MAX)
            .build()
            .map_err(|error| {
                let words = error.to_string();
                let last = words.lines().last().unwrap_or_default().to_owned();
                ConditionError::new(format!("this pattern cannot be used: {last}"), at)
            })?;
        let on = Box::new(all.swap_remove(0));
        self.node(begin, Expression::Matches(on, regex))
    }

    fn function(
        &mut self,
        begin: usize,
        at: usize,
        name: &str,
        all: Vec<Node>,
        on_value: bool,
    ) -> Parsed {
        let mut known = Function::ALL.iter();
        let found = known.find(|it| it.0 == name && it.3 == on_value);
        let Some((_, function, count, _)) = found else {
            let hint = if Function::ALL.iter().any(|it| it.0 == name) || METHODS.contains(&name) {
                let form = if on_value {
                    format!("{name}(…)")
                } else {
                    format!("value.{name}(…)")
                };
                format!("; it is written {form}")
            } else {
                let names = Function::ALL.iter().map(|it| it.0);
                nearest(
                    name,
                    names.chain(METHODS.into_iter().chain(["has", "timestamp"])),
                )
            };
            return Err(ConditionError::new(
                format!("there is no function {name}(){hint}"),
                at,
            ));
        };
        let given = all.len();
        if given != *count {
            let (given, count) = match on_value {
                true => (given.saturating_sub(1), count - 1),
                false => (given, *count),
            };
            let words = format!("{name}() takes {count} arguments, not {given}");
            return Err(ConditionError::new(words, at));
        }
        self.node(begin, Expression::Call(*function, all))
    }
}

fn read_number(text: &str) -> Option<Number> {
    if let Some(digits) = text.strip_prefix("0x") {
        return i64::from_str_radix(digits, 16)
            .ok()
            .map(|n| Number::Integer(n.into()));
    }
    Number::parse(text)
}
