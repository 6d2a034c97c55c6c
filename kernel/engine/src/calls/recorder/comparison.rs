//! Compares two answers as JSON values, except for members that are expected to change.
//!
//! Two numbers are the same when they are the same number, however written (`1`, `1.0`, `1e0`): most readers see no
//! difference. The order of members does not matter, that of array elements does.

use serde_json::{Number, Value};

/// Differences reported of one answer: an editor is the better tool for more.
pub(crate) const DIFFERENCES_MAX: usize = 50;

/// Members that change between answers according to MCP: only their presence is compared.
const VOLATILE: [&str; 12] = [
    "/result/requestState",
    "/result/nextCursor",
    "/result/taskId",
    "/result/createdAt",
    "/result/lastUpdatedAt",
    "/result/task/taskId",
    "/result/task/createdAt",
    "/result/task/lastUpdatedAt",
    "/result/content/*/annotations/lastModified",
    "/result/content/*/resource/annotations/lastModified",
    "/result/resources/*/annotations/lastModified",
    "/result/_meta/io.modelcontextprotocol~1related-task/taskId",
];

/// A JSON pointer (RFC 6901) into an answer; a part that is `*` stands for any member or element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerPointer(Vec<String>);

impl AnswerPointer {
    /// Parses a pointer; `None` where the text is invalid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let parts = text.strip_prefix('/')?.split('/');
        Some(Self(
            parts
                .map(|part| part.replace("~1", "/").replace("~0", "~"))
                .collect(),
        ))
    }

    fn matches(&self, path: &[String]) -> bool {
        let pairs = self.0.iter().zip(path);
        self.0.len() == path.len()
            && pairs
                .into_iter()
                .all(|(any, part)| any == "*" || any == part)
    }
}

/// A difference between two answers; `None` where a value is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerDifference {
    /// Where, as a JSON pointer.
    pub path: String,
    /// What was recorded.
    pub recorded: Option<Value>,
    /// The new answer.
    pub replayed: Option<Value>,
}

/// The differences, in the order of the recorded answer; at most [`DIFFERENCES_MAX`].
#[must_use]
pub fn find_differences(
    recorded: &Value,
    now: &Value,
    ignored: &[AnswerPointer],
) -> Vec<AnswerDifference> {
    let changing = VOLATILE
        .iter()
        .filter_map(|text| AnswerPointer::parse(text));
    let mut comparing = Comparison {
        ignored,
        volatile: changing.collect(),
        path: Vec::new(),
        differences: Vec::new(),
    };
    comparing.compare_values(recorded, now);
    comparing.differences
}

struct Comparison<'a> {
    ignored: &'a [AnswerPointer],
    volatile: Vec<AnswerPointer>,
    path: Vec<String>,
    differences: Vec<AnswerDifference>,
}

impl Comparison<'_> {
    fn compare_values(&mut self, recorded: &Value, now: &Value) {
        match (recorded, now) {
            (Value::Object(recorded), Value::Object(now)) => {
                for (name, value) in recorded {
                    self.compare_at(name, Some(value), now.get(name));
                }
                for (name, value) in now {
                    if !recorded.contains_key(name) {
                        self.compare_at(name, None, Some(value));
                    }
                }
            }
            (Value::Array(recorded), Value::Array(now)) => {
                for place in 0..recorded.len().max(now.len()) {
                    self.compare_at(&place.to_string(), recorded.get(place), now.get(place));
                }
            }
            (Value::Number(a), Value::Number(b)) if is_same_number(a, b) => {}
            (a, b) if a == b => {}
            (recorded, now) => self.add_difference(Some(recorded), Some(now)),
        }
    }

    fn compare_at(&mut self, part: &str, recorded: Option<&Value>, now: Option<&Value>) {
        self.path.push(part.to_owned());
        let is_one_of = |all: &[AnswerPointer]| all.iter().any(|one| one.matches(&self.path));
        let (ignored, changing) = (is_one_of(self.ignored), is_one_of(&self.volatile));
        match (recorded, now) {
            _ if ignored => {}
            (Some(_), Some(_)) if changing => {}
            (Some(recorded), Some(now)) => self.compare_values(recorded, now),
            (recorded, now) => self.add_difference(recorded, now),
        }
        self.path.pop();
    }

    fn add_difference(&mut self, recorded: Option<&Value>, now: Option<&Value>) {
        if self.differences.len() < DIFFERENCES_MAX {
            let parts = self.path.iter();
            self.differences.push(AnswerDifference {
                path: parts
                    .map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1")))
                    .collect(),
                recorded: recorded.cloned(),
                replayed: now.cloned(),
            });
        }
    }
}

/// Integers are compared exactly, other numbers as doubles.
fn is_same_number(a: &Number, b: &Number) -> bool {
    let whole = |n: &Number| n.as_i64().map(i128::from).or(n.as_u64().map(i128::from));
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a.as_f64() == b.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn places(recorded: &Value, now: &Value, ignored: &[&str]) -> Vec<String> {
        let ignored: Vec<_> = ignored
            .iter()
            .map(|text| AnswerPointer::parse(text).unwrap())
            .collect();
        let found = find_differences(recorded, now, &ignored).into_iter();
        found.map(|found| found.path).collect()
    }

    /// Decision 0068: the same values are the same answer, however they are written.
    #[test]
    fn responses_are_compared_as_json_values() {
        let recorded: Value =
            serde_json::from_str(r#"{"result":{"a":1,"b":[1.0,"x"],"c~/d":null}}"#).unwrap();
        let same: Value =
            serde_json::from_str(r#"{"result":{"b":[1,"\u0078"],"a":1e0,"c~/d":null}}"#).unwrap();
        assert_eq!(places(&recorded, &same, &[]), [""; 0]);
        let other = json!({"result": {"a": 2, "b": ["x", 1, 3], "e": 1}});
        let found = places(&recorded, &other, &[]);
        assert_eq!(
            found,
            [
                "/result/a",
                "/result/b/0",
                "/result/b/1",
                "/result/b/2",
                "/result/c~0~1d",
                "/result/e"
            ]
        );
        assert_eq!(
            places(&recorded, &other, &["/result/b", "/result/*"]),
            [""; 0]
        );
        let big = [
            json!(9_007_199_254_740_993_u64),
            json!(9_007_199_254_740_992_u64),
        ];
        assert_eq!(
            places(&json!({"n": big[0]}), &json!({"n": big[1]}), &[]),
            ["/n"]
        );
        assert_eq!(
            places(&json!({"error": {}}), &json!({"result": {}}), &[]),
            ["/error", "/result"]
        );
    }

    /// Decision 0068: what changes as MCP says is compared by whether it is there, and only where MCP says so.
    #[test]
    fn volatile_members_are_not_compared() {
        let recorded = json!({"result": {"nextCursor": "a", "requestState": "x",
            "structuredContent": {"taskId": "1"}, "resources": [{"annotations": {"lastModified": "2026"}}]}});
        let mut now = recorded.clone();
        now["result"]["nextCursor"] = "b".into();
        now["result"]["requestState"] = "y".into();
        now["result"]["resources"][0]["annotations"]["lastModified"] = "2027".into();
        assert_eq!(places(&recorded, &now, &[]), [""; 0]);
        now["result"]["structuredContent"]["taskId"] = "2".into();
        now["result"]
            .as_object_mut()
            .unwrap()
            .shift_remove("nextCursor");
        assert_eq!(
            places(&recorded, &now, &[]),
            ["/result/nextCursor", "/result/structuredContent/taskId"]
        );
    }

    #[test]
    fn a_pointer_begins_with_a_slash() {
        assert_eq!(AnswerPointer::parse("result"), None);
        assert_eq!(AnswerPointer::parse(""), None);
        assert!(
            AnswerPointer::parse("/a~1b")
                .unwrap()
                .matches(&["a/b".into()])
        );
    }

    proptest! {
        /// Every answer is the same as itself, and differs from one with another text somewhere.
        #[test]
        fn a_response_equals_itself(texts in proptest::collection::vec(".{0,8}", 1..6)) {
            let of = |texts: &[String]| json!({"result": {"content": texts, "n": texts.len()}});
            prop_assert!(find_differences(&of(&texts), &of(&texts), &[]).is_empty());
            let mut other = texts.clone();
            other[0].push('!');
            prop_assert_eq!(places(&of(&texts), &of(&other), &[]), ["/result/content/0"]);
        }
    }
}
