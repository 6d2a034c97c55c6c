//! `serde_json` values that count how often they are looked at.
//!
//! A validator can be made to look at one part of a value any number of times: two alternatives that
//! both go into the same member double the work at each level. So each part handed out is paid for,
//! and when the allowance is used up there is nothing left to see, which ends the check soon.

use std::borrow::Cow;
use std::cell::Cell;

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson, cmp, unique};
use serde_json::{Map, Number, Value};

/// What an error costs in steps: alternatives keep the errors of all their branches, and each takes
/// the memory of some hundred steps.
const ERROR_STEPS: u64 = 500;

/// The representation, as the validator knows it.
#[derive(Debug)]
pub(super) struct MeteredJson;

/// Which allowance was used up. The verdict of such a check means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetExceeded {
    Steps,
    Depth,
}

/// The allowance of one check.
#[derive(Debug, Default)]
pub(super) struct Meter {
    steps_left: Cell<u64>,
    /// What handing out one part costs.
    steps_per_part: u64,
    depth_max: usize,
    exceeded: Cell<Option<BudgetExceeded>>,
}

impl Meter {
    pub(super) fn new(steps: u64, steps_per_part: u64, depth_max: usize) -> Self {
        Self {
            steps_left: Cell::new(steps),
            steps_per_part,
            depth_max,
            exceeded: Cell::new(None),
        }
    }

    pub(super) fn exceeded(&self) -> Option<BudgetExceeded> {
        self.exceeded.get()
    }

    pub(super) fn root<'a>(&'a self, value: &'a Value) -> MeteredValue<'a> {
        MeteredValue {
            value,
            depth: 0,
            meter: self,
        }
    }

    fn spend(&self, steps: u64) -> bool {
        if self.exceeded.get().is_some() {
            return false;
        }
        match self.steps_left.get().checked_sub(steps) {
            Some(left) => self.steps_left.set(left),
            None => self.exceeded.set(Some(BudgetExceeded::Steps)),
        }
        self.exceeded.get().is_none()
    }
}

/// A value or a part of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeteredValue<'a> {
    value: &'a Value,
    depth: usize,
    meter: &'a Meter,
}

impl<'a> MeteredValue<'a> {
    /// The way into an array or an object, while there is a way.
    fn enter<T>(&self, parts: T) -> Option<MeteredParts<'a, T>> {
        if self.depth >= self.meter.depth_max {
            self.meter.exceeded.set(Some(BudgetExceeded::Depth));
        }
        self.meter.exceeded.get().is_none().then_some(MeteredParts {
            parts,
            depth: self.depth + 1,
            meter: self.meter,
        })
    }
}

impl Json for MeteredJson {
    type Node<'a> = MeteredValue<'a>;
    type PreparedKey = String;
    type StringBuffer = MeteredName;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(
        buffer: &mut MeteredName,
        string: &str,
        f: impl FnOnce(MeteredValue<'_>) -> T,
    ) -> T {
        // A member's name was paid for together with the member.
        buffer.meter.steps_left.set(u64::MAX);
        buffer.value = Value::String(string.to_owned());
        f(buffer.meter.root(&buffer.value))
    }
}

/// A member's name on its way through `propertyNames`.
#[derive(Debug, Default)]
pub(super) struct MeteredName {
    value: Value,
    meter: Meter,
}

impl<'a> Node<'a, MeteredJson> for MeteredValue<'a> {
    type Object = MeteredParts<'a, &'a Map<String, Value>>;
    type Array = MeteredParts<'a, &'a [Value]>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<Self::Object> {
        self.enter(self.value.as_object()?)
    }

    fn as_array(&self) -> Option<Self::Array> {
        self.enter(self.value.as_array()?.as_slice())
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.value.as_str()?;
        // Patterns read the whole text, each time.
        self.meter
            .spend(text.len() as u64 / 32)
            .then_some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        self.value.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        self.value.as_bool()
    }

    fn is_null(&self) -> bool {
        self.value.is_null()
    }

    fn json_type(&self) -> JsonType {
        Node::<SerdeJson>::json_type(&self.value)
    }

    fn string_length(&self) -> Option<u64> {
        Node::<SerdeJson>::string_length(&self.value)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        cmp::equal(self.value, expected)
    }

    /// What an error shows of the value.
    fn to_value(&self) -> Cow<'a, Value> {
        self.meter.spend(ERROR_STEPS);
        summarize(self.value).map_or(Cow::Borrowed(self.value), Cow::Owned)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Node::<SerdeJson>::identity(&self.value)
    }
}

/// What a large value is shown as; `None` for one that is small enough to be shown itself.
fn summarize(value: &Value) -> Option<Value> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
        Value::String(text) => (text.len() > 100).then(|| {
            let start: String = text.chars().take(100).collect();
            Value::String(start + "…")
        }),
        Value::Array(items) => {
            let small = items.len() <= 5 && items.iter().all(is_small);
            (!small).then(|| "[…]".into())
        }
        Value::Object(members) => {
            let small = members.len() <= 5 && members.values().all(is_small);
            (!small).then(|| "{…}".into())
        }
    }
}

fn is_small(part: &Value) -> bool {
    !part.is_array() && !part.is_object() && summarize(part).is_none()
}

/// The parts of an array or an object.
#[derive(Clone, Debug)]
pub(super) struct MeteredParts<'a, T> {
    parts: T,
    depth: usize,
    meter: &'a Meter,
}

impl<'a, T> MeteredParts<'a, T> {
    fn meter_part(&self, value: &'a Value) -> Option<MeteredValue<'a>> {
        self.meter
            .spend(self.meter.steps_per_part)
            .then_some(MeteredValue {
                value,
                depth: self.depth,
                meter: self.meter,
            })
    }
}

impl<'a> Object<'a, MeteredJson> for MeteredParts<'a, &'a Map<String, Value>> {
    type Node = MeteredValue<'a>;
    type MemberName = &'a str;
    type MembersIter = MeteredParts<'a, serde_json::map::Iter<'a>>;

    fn len(&self) -> usize {
        self.parts.len()
    }

    fn get(&self, key: &String) -> Option<MeteredValue<'a>> {
        self.meter_part(self.parts.get(key)?)
    }

    fn members(&self) -> Self::MembersIter {
        MeteredParts {
            parts: self.parts.iter(),
            depth: self.depth,
            meter: self.meter,
        }
    }
}

impl<'a> Array<'a, MeteredJson> for MeteredParts<'a, &'a [Value]> {
    type Node = MeteredValue<'a>;
    type ElementsIter = MeteredParts<'a, std::slice::Iter<'a, Value>>;

    fn len(&self) -> usize {
        self.parts.len()
    }

    fn elements(&self) -> Self::ElementsIter {
        MeteredParts {
            parts: self.parts.iter(),
            depth: self.depth,
            meter: self.meter,
        }
    }

    fn is_unique(&self) -> bool {
        let items: Vec<&Value> = self.parts.iter().collect();
        unique::is_unique(&items)
    }
}

impl<'a> Iterator for MeteredParts<'a, serde_json::map::Iter<'a>> {
    type Item = (&'a str, MeteredValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.parts.next()?;
        Some((name, self.meter_part(value)?))
    }
}

impl<'a> Iterator for MeteredParts<'a, std::slice::Iter<'a, Value>> {
    type Item = MeteredValue<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let value = self.parts.next()?;
        self.meter_part(value)
    }
}
