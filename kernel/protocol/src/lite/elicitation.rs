//! What a tool asks in the middle of a call, as a lite caller is asked and answers (A-37): one question at a time, in
//! `_meta.elicitation`; the call is made again with the extra arguments.

use mgp_json::{member, members, quote, render_object};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The method of questions that a lite caller can be asked.
pub(crate) const ELICITATION_METHOD: &str = "elicitation/create";

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiteElicitation {
    /// Its name within the call.
    pub key: String,
    /// For people.
    pub message: String,
    /// What is wanted, as JSON Schema text; `{}` where there is nothing to fill in.
    pub(crate) schema: String,
    /// Where the person has to go, for a question that is answered there.
    pub url: Option<String>,
}

impl LiteElicitation {
    /// The question of that name in an `inputRequests` object; without a name the first one.
    #[must_use]
    pub fn find(input_requests: &str, key: Option<&str>) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct FormParams<'a> {
            #[serde(default)]
            message: Option<String>,
            #[serde(borrow, default)]
            requested_schema: Option<&'a RawValue>,
            #[serde(default)]
            url: Option<String>,
        }
        let all = members(input_requests)?;
        let meant =
            |(name, _): &&(std::borrow::Cow<'_, str>, &RawValue)| key.is_none_or(|key| key == name);
        let (name, asked) = all.iter().find(meant)?;
        let method: String = serde_json::from_str(member(asked.get(), "method")?).ok()?;
        if method != ELICITATION_METHOD {
            return None;
        }
        let params = member(asked.get(), "params").unwrap_or("{}");
        let params: FormParams<'_> = serde_json::from_str(params).ok()?;
        Some(Self {
            key: name.clone().into_owned(),
            message: params.message.unwrap_or_default(),
            schema: params.requested_schema.map_or("{}", RawValue::get).into(),
            url: params.url,
        })
    }

    /// The value of `_meta.elicitation`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let url = self
            .url
            .as_deref()
            .map(|url| format!(r#","mode":"url","url":{}"#, quote(url)));
        format!(
            r#"{{"message":{},"requestedSchema":{}{}}}"#,
            quote(&self.message),
            self.schema,
            url.unwrap_or_default()
        )
    }

    /// The `inputResponses` object that answers it. `said` is the request's own `_meta.elicitation`, which says
    /// `action` and `content` outright; without it, what stands in `arguments` under the names that were asked for
    /// is the answer. `None` where nothing answers.
    #[must_use]
    pub fn render_response(&self, arguments: &str, said: Option<&str>) -> Option<String> {
        let result = match said.and_then(ExplicitAnswer::parse) {
            // A yes to what has no fields is said outright: a call that is only repeated is none.
            Some(said) => said.into_result(|content| match content {
                Some(content) if self.fields().is_empty() => Some(content.to_owned()),
                Some(content) => self.pick_fields(content),
                None => self
                    .pick_fields(arguments)
                    .filter(|picked| picked.as_str() != "{}" || self.fields().is_empty()),
            })?,
            None if self.url.is_some() => r#"{"action":"accept"}"#.into(),
            None => accept_result(
                &self
                    .pick_fields(arguments)
                    .filter(|picked| picked != "{}")?,
            ),
        };
        Some(format!("{{{}:{result}}}", quote(&self.key)))
    }

    /// What is given under the names that were asked for; `None` where one is of another type than was asked for, or
    /// one that has to be there is not.
    fn pick_fields(&self, given: &str) -> Option<String> {
        let asked = self.fields();
        let given = members(given).unwrap_or_default();
        let mut picked = Vec::new();
        for (name, value) in &given {
            if let Some((_, field)) = asked.iter().find(|(a, _)| a == name) {
                if !is_of_type(value.get(), field.get()) {
                    return None;
                }
                picked.push((name, value.get()));
            }
        }
        let required = member(&self.schema, "required").unwrap_or("[]");
        let required: Vec<String> = serde_json::from_str(required).unwrap_or_default();
        let there = |wanted: &String| given.iter().any(|(name, _)| name == wanted);
        let whole = required.iter().all(there);
        whole.then(|| render_object(picked))
    }

    fn fields(&self) -> Vec<(std::borrow::Cow<'_, str>, &RawValue)> {
        let properties = member(&self.schema, "properties").and_then(members);
        properties.unwrap_or_default()
    }
}

/// Forms have flat fields of one type each; all else about a value its server judges.
fn is_of_type(value: &str, field: &str) -> bool {
    let wanted = member(field, "type").unwrap_or_default();
    let begins = value.bytes().next().unwrap_or_default();
    match wanted {
        r#""string""# => begins == b'"',
        r#""boolean""# => matches!(value, "true" | "false"),
        r#""integer""# | r#""number""# => begins == b'-' || begins.is_ascii_digit(),
        r#""array""# => begins == b'[',
        _ => true,
    }
}

/// What a request says of the question outright.
struct ExplicitAnswer {
    action: Action,
    content: Option<String>,
}

enum Action {
    Accept,
    Decline,
    Cancel,
}

impl Action {
    const ALL: [(&'static str, Self); 3] = [
        ("accept", Self::Accept),
        ("decline", Self::Decline),
        ("cancel", Self::Cancel),
    ];
}

impl ExplicitAnswer {
    fn parse(said: &str) -> Option<Self> {
        let action: String = match member(said, "action") {
            Some(action) => serde_json::from_str(action).ok()?,
            None => "accept".into(),
        };
        let (_, action) = Action::ALL.into_iter().find(|(word, _)| *word == action)?;
        let content = member(said, "content").filter(|content| content.starts_with('{'));
        Some(Self {
            action,
            content: content.map(str::to_owned),
        })
    }

    fn into_result(self, picked: impl FnOnce(Option<&str>) -> Option<String>) -> Option<String> {
        match self.action {
            Action::Accept => Some(accept_result(&picked(self.content.as_deref())?)),
            Action::Decline => Some(r#"{"action":"decline"}"#.into()),
            Action::Cancel => Some(r#"{"action":"cancel"}"#.into()),
        }
    }
}

fn accept_result(content: &str) -> String {
    format!(r#"{{"action":"accept","content":{content}}}"#)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ASKED: &str = r#"{"elicitation-1":{"method":"elicitation/create","params":{"mode":"form","message":"Which?","requestedSchema":{"type":"object","properties":{"colour":{"type":"string"},"n":{"type":"integer"}},"required":["colour"]}}},"elicitation-2":{"method":"elicitation/create","params":{"mode":"url","message":"Go","url":"https://a.test/","elicitationId":"x"}}}"#;

    fn answer(question: &LiteElicitation, arguments: &str, said: Option<&str>) -> Option<Value> {
        let answer = question.render_response(arguments, said)?;
        Some(serde_json::from_str(&answer).unwrap())
    }

    /// LITE-013, LITE-076: what is needed is told, and the extra arguments answer it.
    #[test]
    fn extra_arguments_answer_a_question() {
        let asked = LiteElicitation::find(ASKED, None).unwrap();
        let shown: Value = serde_json::from_str(&asked.to_json()).unwrap();
        assert_eq!(shown["message"], "Which?");
        assert_eq!(shown["requestedSchema"]["required"], json!(["colour"]));
        let given = answer(&asked, r#"{"a":1,"colour":"red","n":1.0}"#, None).unwrap();
        let content = json!({"colour": "red", "n": 1.0});
        assert_eq!(
            given["elicitation-1"],
            json!({"action": "accept", "content": content})
        );
        assert_eq!(
            answer(&asked, r#"{"a":1}"#, None),
            None,
            "nothing answers it"
        );
        let no = answer(&asked, "{}", Some(r#"{"action":"decline"}"#)).unwrap();
        assert_eq!(no["elicitation-1"], json!({"action": "decline"}));
        let outright = r#"{"action":"accept","content":{"colour":"blue"}}"#;
        let outright = answer(&asked, r#"{"colour":"red"}"#, Some(outright)).unwrap();
        assert_eq!(outright["elicitation-1"]["content"]["colour"], "blue");
        assert_eq!(answer(&asked, "{}", Some(r#"{"action":"perhaps"}"#)), None);
        let confirmed = LiteElicitation {
            schema: r#"{"type":"object","properties":{}}"#.into(),
            ..asked
        };
        assert_eq!(
            answer(&confirmed, r#"{"a":1}"#, None),
            None,
            "only repeated"
        );
        let yes = answer(&confirmed, "{}", Some(r#"{"action":"accept"}"#)).unwrap();
        assert_eq!(yes["elicitation-1"]["action"], "accept");
    }

    /// LITE-076: what does not fit the form answers nothing, said outright or not, so that it is asked again; what was
    /// not asked for does not reach the server.
    #[test]
    fn what_does_not_fit_the_form_answers_nothing() {
        let asked = LiteElicitation::find(ASKED, None).unwrap();
        for given in [
            r#"{"n":1}"#,
            r#"{"colour":5}"#,
            r#"{"colour":"red","n":"x"}"#,
            r#"{"colour":null}"#,
        ] {
            assert_eq!(answer(&asked, given, None), None, "{given}");
            let outright = format!(r#"{{"content":{given}}}"#);
            assert_eq!(answer(&asked, "{}", Some(&outright)), None, "{given}");
        }
        let more = r#"{"content":{"colour":"red","admin":true}}"#;
        let given = answer(&asked, "{}", Some(more)).unwrap();
        assert_eq!(given["elicitation-1"]["content"], json!({"colour": "red"}));
    }

    #[test]
    fn a_question_that_is_answered_elsewhere_names_the_place() {
        let asked = LiteElicitation::find(ASKED, Some("elicitation-2")).unwrap();
        let shown: Value = serde_json::from_str(&asked.to_json()).unwrap();
        assert_eq!(shown["url"], "https://a.test/");
        let given = answer(&asked, "{}", None).unwrap();
        assert_eq!(given["elicitation-2"], json!({"action": "accept"}));
        assert_eq!(LiteElicitation::find(ASKED, Some("elicitation-3")), None);
        let sampling = r#"{"s":{"method":"sampling/createMessage","params":{}}}"#;
        assert_eq!(LiteElicitation::find(sampling, None), None);
    }
}
