//! Renders the label of a call from its arguments: `label = "{path}"`, `label = "{guild}/{channel}"`.

use std::borrow::Cow;
use std::fmt;

use mgp_json::lookalike::are_alike;
use mgp_json::{members, render_object};
use serde_json::value::RawValue;

/// Most bytes of a template.
const TEMPLATE_MAX: usize = 512;

/// A template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelTemplate {
    text: String,
    parts: Vec<TemplatePart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Literal(String),
    Argument(String),
}

/// Why a template is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// An unbalanced or empty pair of braces.
    #[error(
        "a label is made of words and arguments in braces, like \"{{path}}\" or \"{{guild}}/{{channel}}\""
    )]
    Braces,
    /// Without arguments all calls would have one label.
    #[error("a label has at least one argument in braces, like \"{{path}}\"")]
    NoArgument,
    /// Adjacent arguments could not be told apart.
    #[error("between two arguments of a label there are words, like \"{{guild}}/{{channel}}\"")]
    AdjacentArguments,
    /// It is too long.
    #[error("a label's template has at most {TEMPLATE_MAX} bytes")]
    TooLong,
}

/// Why a call has no label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// An argument is missing.
    #[error("its scope is made of the argument `{0}`, which is not there")]
    Missing(String),
    /// An argument is duplicated, or has a lookalike.
    #[error("its scope is made of the argument `{0}`, and there are several of it")]
    Duplicate(String),
    /// An argument is neither a text nor a number nor a truth value.
    #[error("its scope is made of the argument `{0}`, which is no text")]
    NotText(String),
    /// An argument contains its separator from the next one.
    #[error("its scope is made of the argument `{0}`, which may not have {1:?} in it")]
    ContainsSeparator(String, String),
    /// All arguments are empty.
    #[error("its scope is made of arguments that are all empty")]
    Empty,
}

/// The label of a call, and the arguments in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLabel {
    /// The label.
    pub label: String,
    /// The arguments, as an object in JSON.
    pub payload: String,
}

impl LabelTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.len() > TEMPLATE_MAX {
            return Err(TemplateError::TooLong);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(index) = rest.find(['{', '}']) {
            let (words, tail) = rest.split_at(index);
            let tail = tail.strip_prefix('{').ok_or(TemplateError::Braces)?;
            let (argument, after) = tail.split_once('}').ok_or(TemplateError::Braces)?;
            if argument.is_empty() || argument.contains('{') {
                return Err(TemplateError::Braces);
            }
            if !words.is_empty() {
                parts.push(TemplatePart::Literal(words.to_owned()));
            } else if !parts.is_empty() {
                return Err(TemplateError::AdjacentArguments);
            }
            parts.push(TemplatePart::Argument(argument.to_owned()));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(TemplatePart::Literal(rest.to_owned()));
        }
        let argument = |part: &TemplatePart| matches!(part, TemplatePart::Argument(_));
        if parts.iter().any(argument) {
            Ok(Self {
                text: text.to_owned(),
                parts,
            })
        } else {
            Err(TemplateError::NoArgument)
        }
    }

    /// Renders the label of a call from its arguments, a JSON object.
    ///
    /// # Errors
    /// [`LabelError`]: such a call has no scope, and is not sent.
    pub fn render_label(&self, arguments: &str) -> Result<CallLabel, LabelError> {
        let given = members(arguments).unwrap_or_default();
        let mut label = String::new();
        let mut payload: Vec<(&str, &str)> = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            match part {
                TemplatePart::Literal(words) => label.push_str(words),
                TemplatePart::Argument(name) => {
                    let (value, json) = find_argument(&given, name)?;
                    if let (Some(TemplatePart::Literal(next)), false) =
                        (self.parts.get(index + 1), index + 2 >= self.parts.len())
                        && value.contains(next.as_str())
                    {
                        return Err(LabelError::ContainsSeparator(name.clone(), next.clone()));
                    }
                    label.push_str(&value);
                    if !payload.iter().any(|(known, _)| known == name) {
                        payload.push((name, json));
                    }
                }
            }
        }
        if label.is_empty() {
            return Err(LabelError::Empty);
        }
        Ok(CallLabel {
            label,
            payload: render_object(payload),
        })
    }
}

impl fmt::Display for LabelTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn find_argument<'a>(
    given: &'a [(Cow<'a, str>, &'a RawValue)],
    name: &str,
) -> Result<(Cow<'a, str>, &'a str), LabelError> {
    let mut alike = given.iter().filter(|(known, _)| are_alike(known, name));
    let (known, value) = alike
        .next()
        .ok_or_else(|| LabelError::Missing(name.to_owned()))?;
    if alike.next().is_some() {
        return Err(LabelError::Duplicate(name.to_owned()));
    }
    if known != name {
        return Err(LabelError::Missing(name.to_owned()));
    }
    let json = value.get();
    let text = match json.as_bytes().first() {
        Some(b'"') => serde_json::from_str::<String>(json).ok().map(Cow::Owned),
        // Readers differ on long numbers.
        Some(b'-' | b'0'..=b'9') => json.parse::<i64>().ok().map(|_| Cow::Borrowed(json)),
        Some(b't' | b'f') => Some(Cow::Borrowed(json)),
        _ => None,
    };
    let text = text.ok_or_else(|| LabelError::NotText(name.to_owned()))?;
    Ok((text, json))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str, arguments: &str) -> Result<CallLabel, LabelError> {
        LabelTemplate::parse(template)
            .unwrap()
            .render_label(arguments)
    }

    /// MCPL-058: the label and the payload of the example of §7.7.
    #[test]
    fn a_label_is_made_of_arguments() {
        let label = render("{path}", r#"{"path":"/project/src/main.ts","text":"x"}"#).unwrap();
        assert_eq!(label.label, "/project/src/main.ts");
        assert_eq!(label.payload, r#"{"path":"/project/src/main.ts"}"#);
        let two = render(
            "discord:{guild}/{channel}",
            r##"{"channel":"#a","guild":7}"##,
        )
        .unwrap();
        assert_eq!(
            (two.label.as_str(), two.payload.as_str()),
            ("discord:7/#a", r##"{"guild":7,"channel":"#a"}"##)
        );
    }

    /// What stands behind the last argument belongs to the label, and true and false are texts as well.
    #[test]
    fn a_label_has_its_end() {
        let flag = render("cache:{fresh}/now", r#"{"fresh":true}"#).unwrap();
        assert_eq!(
            (flag.label.as_str(), flag.payload.as_str()),
            ("cache:true/now", r#"{"fresh":true}"#)
        );
    }

    /// Ambiguous arguments have no label.
    #[test]
    fn a_call_without_a_clear_label_has_none() {
        let path = |arguments: &str| render("{path}", arguments).unwrap_err();
        assert_eq!(path("{}"), LabelError::Missing("path".into()));
        assert_eq!(path(r#"{"Path":"/a"}"#), LabelError::Missing("path".into()));
        assert_eq!(
            path(r#"{"path":"/a","path":"/b"}"#),
            LabelError::Duplicate("path".into())
        );
        assert_eq!(
            path(r#"{"path":"/a","PATH":"/b"}"#),
            LabelError::Duplicate("path".into())
        );
        for value in [
            "null",
            "[\"/a\"]",
            "{}",
            "1.5",
            "1e3",
            "99999999999999999999",
        ] {
            assert_eq!(
                path(&format!(r#"{{"path":{value}}}"#)),
                LabelError::NotText("path".into())
            );
        }
        let divided = render("{guild}/{channel}", r#"{"guild":"acme/x","channel":"y"}"#);
        assert_eq!(
            divided,
            Err(LabelError::ContainsSeparator("guild".into(), "/".into()))
        );
        assert_eq!(path(r#"{"path":""}"#), LabelError::Empty);
        assert!(render("fs:{path}", r#"{"path":"/a/b"}"#).is_ok());
        assert!(render("{path}/", r#"{"path":"/a/b"}"#).is_ok());
    }

    #[test]
    fn invalid_templates_are_rejected_with_a_reason() {
        for (bad, why) in [
            ("{path", TemplateError::Braces),
            ("path}", TemplateError::Braces),
            ("{}", TemplateError::Braces),
            ("{a{b}}", TemplateError::Braces),
            ("path", TemplateError::NoArgument),
            ("", TemplateError::NoArgument),
            ("{a}{b}", TemplateError::AdjacentArguments),
        ] {
            assert_eq!(LabelTemplate::parse(bad), Err(why), "{bad}");
        }
        let long = |length: usize| LabelTemplate::parse(&format!("{:x<length$}", "{a}"));
        assert!(long(512).is_ok());
        assert_eq!(long(513), Err(TemplateError::TooLong));
    }
}
