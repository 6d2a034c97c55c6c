//! Interceptors (SEP-2624, a draft): programs of others that check or change a result. What they are asked, and what
//! their answers mean.

use std::fmt;
use std::str::FromStr;

use mgp_json::{member, quote};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Most interceptors of an entry: each costs a request for each result.
pub const INTERCEPTORS_MAX: usize = 8;
/// Most characters that are shown of an interceptor's reason.
const REASON_CHARS_MAX: usize = 200;

/// An interceptor of a server: `guard:pii`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterceptorName {
    /// Its server.
    pub server: String,
    /// Its name there.
    pub name: String,
}

/// The text does not name an interceptor of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not SERVER:INTERCEPTOR")]
pub struct InterceptorNameError;

impl FromStr for InterceptorName {
    type Err = InterceptorNameError;

    fn from_str(text: &str) -> Result<Self, InterceptorNameError> {
        let (server, name) = text.split_once(':').ok_or(InterceptorNameError)?;
        if server.is_empty() || name.is_empty() {
            return Err(InterceptorNameError);
        }
        Ok(Self {
            server: server.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for InterceptorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.server, self.name)
    }
}

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterceptorKind {
    /// It checks.
    Validation,
    /// It changes.
    Mutation,
}

/// An interceptor, as its server declares it.
#[derive(Clone, Debug, Deserialize)]
pub struct Interceptor {
    /// Its name.
    pub name: String,
    /// What it does.
    #[serde(rename = "type")]
    pub kind: InterceptorKind,
    hook: Hook,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default, rename = "priorityHint")]
    priority: Option<Priority>,
}

#[derive(Clone, Debug, Deserialize)]
struct Hook {
    events: Vec<String>,
    phase: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
enum Priority {
    Both(i32),
    Each {
        #[serde(default)]
        response: i32,
    },
}

impl Interceptor {
    /// The interceptors in a result of `interceptors/list`; those that cannot be read are left out.
    #[must_use]
    pub fn parse_list(result: &str) -> Vec<Self> {
        let listed = member(result, "interceptors").and_then(mgp_json::elements);
        let listed = listed.unwrap_or_default().into_iter();
        listed
            .filter_map(|one| serde_json::from_str(one.get()).ok())
            .collect()
    }

    /// Whether it says, in words of the draft, when it is called.
    #[must_use]
    pub fn has_known_hook(&self) -> bool {
        let phases = ["request", "response", "both"];
        phases.contains(&self.hook.phase.as_str()) && !self.hook.events.is_empty()
    }

    /// Whether it is for results of this method.
    #[must_use]
    pub fn covers_results_of(&self, event: &str) -> bool {
        let is_phase = self.hook.phase == "response" || self.hook.phase == "both";
        let is_event = |named: &String| named == event || named == "*" || named == "*/response";
        is_phase && self.hook.events.iter().any(is_event)
    }

    /// It only reports: it neither blocks nor changes anything.
    #[must_use]
    pub fn is_audit(&self) -> bool {
        self.mode.as_deref() == Some("audit")
    }

    /// Changes are made in this order, and by name.
    #[must_use]
    pub fn order(&self) -> (i32, &str) {
        let priority = match self.priority {
            Some(Priority::Both(priority) | Priority::Each { response: priority }) => priority,
            None => 0,
        };
        (priority, &self.name)
    }
}

/// The params of `interceptor/invoke` for a result.
#[must_use]
pub fn invocation(name: &str, event: &str, result: &str) -> String {
    format!(
        r#"{{"name":{},"event":{},"phase":"response","payload":{result}}}"#,
        quote(name),
        quote(event)
    )
}

#[derive(Deserialize)]
struct Validation<'a> {
    valid: bool,
    severity: Option<String>,
    #[serde(default, borrow)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    message: std::borrow::Cow<'a, str>,
}

/// Why a result is blocked; `None` if it passes. Information and warnings block nothing; every other invalid result does.
///
/// # Errors
/// The answer cannot be read.
pub fn read_validation(answer: &str) -> Result<Option<String>, String> {
    let read: Validation<'_> = serde_json::from_str(answer).map_err(|error| error.to_string())?;
    let is_remark = matches!(read.severity.as_deref(), Some("info" | "warn"));
    if read.valid || is_remark {
        return Ok(None);
    }
    let reason = read.messages.first().map(|it| it.message.as_ref());
    let reason = reason.unwrap_or("it gives no reason");
    Ok(Some(reason.chars().take(REASON_CHARS_MAX).collect()))
}

#[derive(Deserialize)]
struct Mutation<'a> {
    modified: bool,
    #[serde(default, borrow)]
    payload: Option<&'a RawValue>,
}

/// The changed result; `None` if it is unchanged.
///
/// # Errors
/// The answer cannot be read, or the result is no object.
pub fn read_mutation(answer: &str) -> Result<Option<String>, String> {
    let read: Mutation<'_> = serde_json::from_str(answer).map_err(|error| error.to_string())?;
    if !read.modified {
        return Ok(None);
    }
    let payload = read.payload.map(RawValue::get);
    let object = payload.filter(|text| text.starts_with('{'));
    let object = object.ok_or("the changed payload is no object")?;
    Ok(Some(object.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_server() {
        let name: InterceptorName = "guard:pii:strict".parse().unwrap();
        assert_eq!((&*name.server, &*name.name), ("guard", "pii:strict"));
        assert_eq!(name.to_string(), "guard:pii:strict");
        for wrong in ["guard", ":pii", "guard:", ""] {
            assert_eq!(wrong.parse::<InterceptorName>(), Err(InterceptorNameError));
        }
    }

    /// EXT-250: an interceptor is called for the events and the phase that it declares.
    #[test]
    fn hooks_decide_where_an_interceptor_is_called() {
        let covers = |hook: &str| {
            let list =
                format!(r#"{{"interceptors":[{{"name":"a","type":"validation","hook":{hook}}}]}}"#);
            Interceptor::parse_list(&list)[0].covers_results_of("tools/call")
        };
        for yes in [
            r#"{"events":["tools/call"],"phase":"response"}"#,
            r#"{"events":["prompts/get","tools/call"],"phase":"both"}"#,
            r#"{"events":["*"],"phase":"both"}"#,
            r#"{"events":["*/response"],"phase":"response"}"#,
        ] {
            assert!(covers(yes), "{yes}");
        }
        let known = |hook: &str| {
            let list =
                format!(r#"{{"interceptors":[{{"name":"a","type":"validation","hook":{hook}}}]}}"#);
            Interceptor::parse_list(&list)[0].has_known_hook()
        };
        assert!(known(r#"{"events":["x"],"phase":"request"}"#));
        assert!(!known(r#"{"events":["tools/call"],"phase":"Response"}"#));
        assert!(!known(r#"{"events":[],"phase":"both"}"#));
        for no in [
            r#"{"events":["tools/call"],"phase":"request"}"#,
            r#"{"events":["resources/read"],"phase":"both"}"#,
            r#"{"events":["*/request"],"phase":"both"}"#,
            r#"{"events":[],"phase":"both"}"#,
        ] {
            assert!(!covers(no), "{no}");
        }
    }

    #[test]
    fn changes_are_ordered_by_priority_and_name() {
        let list = r#"{"interceptors":[
            {"name":"b","type":"mutation","hook":{"events":[],"phase":"both"}},
            {"name":"c","type":"mutation","hook":{"events":[],"phase":"both"},"priorityHint":-1},
            {"name":"broken","type":"else"},
            {"name":"a","type":"mutation","hook":{"events":[],"phase":"both"},"priorityHint":{"request":9}},
            {"name":"d","type":"mutation","hook":{"events":[],"phase":"both"},"priorityHint":{"response":5},"mode":"audit"}]}"#;
        let mut all = Interceptor::parse_list(list);
        all.sort_by(|one, other| one.order().cmp(&other.order()));
        let names: Vec<&str> = all.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["c", "a", "b", "d"]);
        assert_eq!(all.iter().filter(|it| it.is_audit()).count(), 1);
    }

    /// EXT-251: only an error blocks; what cannot be read is not a yes.
    #[test]
    fn verdicts_are_read() {
        let blocked = |text: &str| Some(text.to_owned());
        for (answer, expected) in [
            (r#"{"valid":true}"#, None),
            (r#"{"valid":false,"severity":"warn"}"#, None),
            (r#"{"valid":false}"#, blocked("it gives no reason")),
            (
                r#"{"valid":false,"severity":"error","messages":[{"message":"a card"}]}"#,
                blocked("a card"),
            ),
        ] {
            assert_eq!(read_validation(answer), Ok(expected), "{answer}");
        }
        let long = format!(
            r#"{{"valid":false,"messages":[{{"message":"{}"}}]}}"#,
            "é".repeat(500)
        );
        assert_eq!(
            read_validation(&long).unwrap().unwrap().chars().count(),
            REASON_CHARS_MAX
        );
        for unreadable in ["{}", "null", r#"{"valid":"yes"}"#] {
            assert!(read_validation(unreadable).is_err(), "{unreadable}");
        }
        assert_eq!(read_mutation(r#"{"modified":false}"#), Ok(None));
        let changed = read_mutation(r#"{"modified":true,"payload":{"content":[ ]}}"#);
        assert_eq!(changed, Ok(Some(r#"{"content":[ ]}"#.into())));
        for unreadable in [
            r#"{"modified":true}"#,
            r#"{"modified":true,"payload":[]}"#,
            "{}",
        ] {
            assert!(read_mutation(unreadable).is_err(), "{unreadable}");
        }
    }

    #[test]
    fn a_result_is_passed_as_it_is() {
        let params = invocation("a\"b", "tools/call", r#"{"n":1.0}"#);
        assert_eq!(
            params,
            r#"{"name":"a\"b","event":"tools/call","phase":"response","payload":{"n":1.0}}"#
        );
    }
}
