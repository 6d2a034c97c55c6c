//! Callbacks of tools during a call of a lite caller (A-37): one at a time, in `_meta.elicitation`; the
//! call is repeated with the answers as extra arguments.

use mgp_json::{member, members, quote, render_object};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The method of callbacks that a lite caller supports.
pub(crate) const ELICITATION_METHOD: &str = "elicitation/create";

/// One callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiteElicitation {
    /// Its key within the call.
    pub key: String,
    /// The text for people.
    pub message: String,
    /// The requested content, as JSON Schema text; `{}` if there are no fields.
    pub(crate) schema: String,
    /// The page that the person has to visit, for a callback that is answered there.
    pub url: Option<String>,
}

impl LiteElicitation {
    /// The callback with this key in an `inputRequests` object; without a key the first one.
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
        let matches_key =
            |(name, _): &&(std::borrow::Cow<'_, str>, &RawValue)| key.is_none_or(|key| key == name);
        let (name, asked) = all.iter().find(matches_key)?;
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

    /// Renders the value of `_meta.elicitation`.
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

    /// Renders the `inputResponses` object that answers it. `explicit` is the request's own
    /// `_meta.elicitation`, with an explicit `action` and `content`; without it, the `arguments` with the
    /// names of the form's fields are the answer. `None` if there is no answer.
    #[must_use]
    pub fn render_response(&self, arguments: &str, explicit: Option<&str>) -> Option<String> {
        let result = match explicit.and_then(ExplicitAnswer::parse) {
            // Accepting a form without fields must be explicit: a repeated call alone is no answer.
            Some(explicit) => explicit.into_result(|content| match content {
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

    /// The arguments with the names of the form's fields; `None` if one has another type than its field, or
    /// a required one is missing.
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

/// Forms have flat fields of one type each; all other validation is left to the server.
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

/// The explicit answer of a request.
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
    fn parse(explicit: &str) -> Option<Self> {
        let action: String = match member(explicit, "action") {
            Some(action) => serde_json::from_str(action).ok()?,
            None => "accept".into(),
        };
        let (_, action) = Action::ALL.into_iter().find(|(word, _)| *word == action)?;
        let content = member(explicit, "content").filter(|content| content.starts_with('{'));
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

    fn answer(
        elicitation: &LiteElicitation,
        arguments: &str,
        explicit: Option<&str>,
    ) -> Option<Value> {
        let answer = elicitation.render_response(arguments, explicit)?;
        Some(serde_json::from_str(&answer).unwrap())
    }

    /// LITE-013, LITE-076: the needed input is listed, and extra arguments answer it.
    #[test]
    fn extra_arguments_answer_a_callback() {
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
        let declined = answer(&asked, "{}", Some(r#"{"action":"decline"}"#)).unwrap();
        assert_eq!(declined["elicitation-1"], json!({"action": "decline"}));
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
        let accepted = answer(&confirmed, "{}", Some(r#"{"action":"accept"}"#)).unwrap();
        assert_eq!(accepted["elicitation-1"]["action"], "accept");
    }

    /// LITE-076: content that does not match the form is no answer, explicit or not, so the callback is
    /// repeated; other arguments do not reach the server.
    #[test]
    fn content_that_does_not_match_the_form_is_no_answer() {
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
    fn url_callback_names_its_page() {
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
