//! The answers a callback accepts, and its form as an MCP elicitation.

use std::borrow::Cow;

use mgp_json::{member, quote};
use mgp_protocol::mgp::callback::CallbackKind;

/// Most options of one callback; a person chooses among few.
const OPTIONS_MAX: usize = 256;
/// Longest option, in bytes.
const OPTION_MAX: usize = 4096;
/// Longest answer, in bytes of JSON: it is stored for the server's retries.
const RESPONSE_MAX: usize = 256 << 10;
/// The options of a confirmation whose server lists none.
const CONFIRMATION_OPTIONS: [&str; 2] = ["confirm", "cancel"];
/// The only property of a form.
const PROPERTY: &str = "response";

/// The answers that a callback accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackForm {
    kind: CallbackKind,
    options: Vec<String>,
}

/// A valid answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackAnswer {
    /// The response, as JSON text.
    Response(String),
    /// The recipient declined to answer.
    Declined,
}

/// Why a callback or an answer is rejected, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FormError(String);

fn form_error<T>(words: impl Into<String>) -> Result<T, FormError> {
    Err(FormError(words.into()))
}

impl CallbackForm {
    /// The form of a callback of this kind with these options.
    ///
    /// # Errors
    /// A selection without options, or with too many.
    pub fn new(kind: CallbackKind, options: Option<Vec<String>>) -> Result<Self, FormError> {
        let mut options = options.unwrap_or_default();
        if options.len() > OPTIONS_MAX || options.iter().any(|one| one.len() > OPTION_MAX) {
            return form_error(format!(
                "a callback has at most {OPTIONS_MAX} options of {OPTION_MAX} bytes"
            ));
        }
        match kind {
            CallbackKind::Selection if options.is_empty() => {
                return form_error("a selection needs options");
            }
            CallbackKind::Confirmation if options.is_empty() => {
                options = CONFIRMATION_OPTIONS.map(str::to_owned).to_vec();
            }
            CallbackKind::Selection | CallbackKind::Confirmation => {}
            CallbackKind::Input | CallbackKind::Notification | CallbackKind::LlmCompletion => {
                options.clear();
            }
        }
        Ok(Self { kind, options })
    }

    /// The kind of the callback.
    #[must_use]
    pub fn kind(&self) -> CallbackKind {
        self.kind
    }

    /// The possible answers; empty where any text is accepted.
    #[must_use]
    pub fn options(&self) -> &[String] {
        &self.options
    }

    /// Validates a response given as JSON text.
    ///
    /// # Errors
    /// What is expected instead; the callback stays open.
    pub(crate) fn parse_response(&self, response: &str) -> Result<CallbackAnswer, FormError> {
        if self.kind == CallbackKind::Notification {
            return form_error("a notification is not answered");
        }
        if response == "null" {
            return Ok(CallbackAnswer::Declined);
        }
        if response.len() > RESPONSE_MAX {
            return form_error(format!("`response` is longer than {RESPONSE_MAX} bytes"));
        }
        let text: Option<String> = serde_json::from_str(response).ok();
        match (self.kind, text) {
            (CallbackKind::LlmCompletion, None) if !response.starts_with('{') => {
                form_error("`response` must be an object with `content`, or a text")
            }
            (CallbackKind::LlmCompletion, _) => Ok(CallbackAnswer::Response(response.to_owned())),
            (_, None) => form_error("`response` must be a string"),
            (_, Some(text)) => self.parse_text(&text),
        }
    }

    /// Validates a text that was typed or chosen.
    ///
    /// # Errors
    /// What is expected instead.
    pub fn parse_text(&self, text: &str) -> Result<CallbackAnswer, FormError> {
        if self.options.is_empty() || self.options.iter().any(|option| option == text) {
            Ok(CallbackAnswer::Response(quote(text)))
        } else {
            form_error(format!(
                "`response` must be one of {}",
                self.options.join(", ")
            ))
        }
    }

    /// The response a server gets when nobody answers: `cancel` for a confirmation that has this option, otherwise no
    /// response.
    #[must_use]
    pub fn decline_response(&self) -> Cow<'static, str> {
        let cancel = CONFIRMATION_OPTIONS[1];
        let has_cancel = self.kind == CallbackKind::Confirmation
            && self.options.iter().any(|option| option == cancel);
        if has_cancel {
            quote(cancel).into()
        } else {
            "null".into()
        }
    }

    /// The equivalent params of `elicitation/create`.
    #[must_use]
    pub fn render_elicitation_params(&self, message: &str) -> String {
        // Without duplicates: clients that compile the schema reject them.
        let mut options: Vec<String> = Vec::new();
        for option in self.options.iter().map(|option| quote(option)) {
            if !options.contains(&option) {
                options.push(option);
            }
        }
        let schema = match options.as_slice() {
            [] => String::new(),
            all => format!(r#","enum":[{}]"#, all.join(",")),
        };
        format!(
            r#"{{"message":{},"requestedSchema":{{"type":"object","properties":{{"{PROPERTY}":{{"type":"string"{schema}}}}},"required":["{PROPERTY}"]}}}}"#,
            quote(message)
        )
    }

    /// Reads the answer from a result of `elicitation/create`; an invalid one counts as declined.
    #[must_use]
    pub fn parse_elicitation_result(&self, result: &str) -> CallbackAnswer {
        let accepted = member(result, "action") == Some("\"accept\"");
        let text = member(result, "content").and_then(|content| member(content, PROPERTY));
        let answer = text
            .filter(|_| accepted)
            .map(|text| self.parse_response(text));
        answer
            .and_then(Result::ok)
            .unwrap_or(CallbackAnswer::Declined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn form(kind: CallbackKind, options: &[&str]) -> CallbackForm {
        let options = options.iter().map(|one| (*one).to_owned()).collect();
        CallbackForm::new(kind, Some(options)).unwrap()
    }

    fn text(json: &str) -> Result<CallbackAnswer, FormError> {
        Ok(CallbackAnswer::Response(json.into()))
    }

    /// MGP-177, MGP-178, MGP-179, MGP-180.
    #[test]
    fn each_kind_accepts_its_answers() {
        let confirmation = CallbackForm::new(CallbackKind::Confirmation, None).unwrap();
        assert_eq!(confirmation.options(), ["confirm", "cancel"]);
        assert_eq!(
            confirmation.parse_response(r#""confirm""#),
            text(r#""confirm""#)
        );
        assert_eq!(
            confirmation.parse_response(r#""c\u006fnfirm""#),
            text(r#""confirm""#)
        );
        for bad in [r#""yes""#, "true", "7", r#"["confirm"]"#] {
            assert!(confirmation.parse_response(bad).is_err(), "{bad}");
        }
        let selection = form(CallbackKind::Selection, &["a", "b"]);
        assert_eq!(selection.parse_response(r#""b""#), text(r#""b""#));
        let no = selection.parse_response(r#""c""#).unwrap_err().to_string();
        assert_eq!(no, "`response` must be one of a, b");
        assert_eq!(
            selection.parse_response("null"),
            Ok(CallbackAnswer::Declined)
        );
        let input = form(CallbackKind::Input, &["only a hint"]);
        assert_eq!(input.parse_response(r#""anything""#), text(r#""anything""#));
        assert!(input.parse_response("{}").is_err());
        let completion = form(CallbackKind::LlmCompletion, &[]);
        let whole = r#"{"content":"four","model":"m"}"#;
        assert_eq!(completion.parse_response(whole), text(whole));
        assert!(completion.parse_response("4").is_err());
        let notification = form(CallbackKind::Notification, &[]);
        assert!(notification.parse_response(r#""x""#).is_err());
        let long = quote(&"x".repeat(RESPONSE_MAX));
        assert!(input.parse_response(&long).is_err());
        assert!(CallbackForm::new(CallbackKind::Selection, None).is_err());
        let many = vec![String::new(); OPTIONS_MAX + 1];
        assert!(CallbackForm::new(CallbackKind::Selection, Some(many)).is_err());
    }

    /// A-32.
    #[test]
    fn an_unanswered_callback_is_never_confirmed() {
        let declined = |kind, options: &[&str]| form(kind, options).decline_response();
        assert_eq!(declined(CallbackKind::Confirmation, &[]), "\"cancel\"");
        assert_eq!(declined(CallbackKind::Confirmation, &["ok", "no"]), "null");
        assert_eq!(declined(CallbackKind::Selection, &["cancel"]), "null");
        assert_eq!(declined(CallbackKind::Input, &[]), "null");
    }

    /// A-32: and its answer parsed.
    #[test]
    fn a_callback_is_rendered_as_an_elicitation() {
        let selection = form(CallbackKind::Selection, &["a", "\"b\"", "a"]);
        let params: serde_json::Value =
            serde_json::from_str(&selection.render_elicitation_params("Which?")).unwrap();
        assert_eq!(params["message"], "Which?");
        let schema = &params["requestedSchema"];
        assert_eq!(
            schema["properties"]["response"]["enum"],
            serde_json::json!(["a", "\"b\""])
        );
        assert_eq!(schema["required"], serde_json::json!(["response"]));
        let plain = form(CallbackKind::Input, &[]).render_elicitation_params("Name?");
        assert!(!plain.contains("enum"), "{plain}");
        let accepts = r#"{"action":"accept","content":{"response":"a"}}"#;
        assert_eq!(
            selection.parse_elicitation_result(accepts),
            CallbackAnswer::Response("\"a\"".into())
        );
        for no in [
            r#"{"action":"decline","content":{"response":"a"}}"#,
            r#"{"action":"accept","content":{"response":"c"}}"#,
            r#"{"action":"accept"}"#,
            "{}",
        ] {
            assert_eq!(
                selection.parse_elicitation_result(no),
                CallbackAnswer::Declined,
                "{no}"
            );
        }
    }

    proptest! {
        #[test]
        fn only_an_option_answers_a_selection(
            options in proptest::collection::vec("[a-c]{1,2}", 1..4), response in "\\PC*"
        ) {
            let form = CallbackForm::new(CallbackKind::Selection, Some(options.clone())).unwrap();
            for text in [quote(&response), response.clone()] {
                if let Ok(CallbackAnswer::Response(json)) = form.parse_response(&text) {
                    let text: String = serde_json::from_str(&json).unwrap();
                    prop_assert!(options.contains(&text));
                }
            }
            prop_assert_eq!(form.parse_text(&response).is_ok(), options.contains(&response));
        }
    }
}
